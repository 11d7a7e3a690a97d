//! TLS that ends at the gateway: what is seen of it, on either side.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::ground_tests::{
    Talk, TestHost, ask, door, gate_with, journal, proxy, rule, run, secrets, spawn,
};
use crate::egress::gate::Gate;
use crate::egress::http::{self, Means};
use crate::egress::{Authority, Roots, Secrets};
use crate::policy::egress::{Host, Name};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

fn names(all: &[&str]) -> Vec<Name> {
    all.iter().map(|name| Name::parse(name).unwrap()).collect()
}

fn root(authority: &Authority) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap()
}

/// A host outside whose certificate is of an authority that nobody else has.
async fn tls_host(authority: &Authority, answer: &'static str) -> TestHost {
    let name = Host::parse("api.test").unwrap();
    let acceptor = TlsAcceptor::from(authority.speak_for(&name).unwrap());
    let heard: Rc<std::cell::RefCell<Vec<String>>> = Rc::default();
    let hearing = Rc::clone(&heard);
    let host = TestHost::new(move |talk| {
        let (heard, acceptor) = (Rc::clone(&hearing), acceptor.clone());
        async move {
            // Whoever does not like the certificate hangs up.
            let Ok(stream) = acceptor.accept(talk.stream).await else {
                return;
            };
            let mut talk = Talk::new(stream);
            while let Some(message) = talk.message().await {
                heard.borrow_mut().push(message.whole());
                talk.say(answer).await;
            }
        }
    })
    .await;
    TestHost { heard, ..host }
}

struct Scene {
    host: TestHost,
    gate: Rc<Gate>,
    door: SocketAddr,
    /// What the box is told to trust.
    inner: CertificateDer<'static>,
}

async fn scene(secrets: Secrets, answer: &'static str) -> Scene {
    let outer = Authority::new(&names(&["api.test"])).unwrap();
    let host = tls_host(&outer, answer).await;
    scene_with(secrets, host, Roots::only(root(&outer))).await
}

async fn scene_with(secrets: Secrets, host: TestHost, roots: Roots) -> Scene {
    let authority = Authority::new(&names(&["api.test"])).unwrap();
    let inner = root(&authority);
    let means = Means::new(secrets, None, Some(authority), Some(&roots)).unwrap();
    let gate = gate_with(&host, means);
    let (port, serving) = (host.port, Rc::clone(&gate));
    let door = door(move |stream| {
        let gate = Rc::clone(&serving);
        spawn(async move {
            let ask = ask(&Host::parse("api.test").unwrap(), port, &stream);
            assert!(http::is_audited(&ask.host, &gate));
            if let Ok(outside) = gate.open(&ask).await {
                http::serve_audited(stream, Vec::new(), outside, ask, gate).await;
            }
        });
    })
    .await;
    Scene {
        host,
        gate,
        door,
        inner,
    }
}

fn client(trusted: &CertificateDer<'static>, protocols: &[&str], has_sni: bool) -> TlsConnector {
    let mut store = RootCertStore::empty();
    store.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|one| one.as_bytes().to_vec())
        .collect();
    config.enable_sni = has_sni;
    TlsConnector::from(Arc::new(config))
}

async fn greet(
    scene: &Scene,
    client: TlsConnector,
    name: &'static str,
) -> std::io::Result<Talk<TlsStream<TcpStream>>> {
    let stream = TcpStream::connect(scene.door).await.unwrap();
    let name = ServerName::try_from(name).unwrap();
    client.connect(name, stream).await.map(Talk::new)
}

#[test]
fn requests_inside_are_checked_written_down_and_given_their_secrets() {
    run(async {
        let (secrets, stand_in) = secrets(&["TOKEN=sk-real-value-1@api.test"]);
        let scene = scene(secrets, OK).await;
        let client = client(&scene.inner, &["h2", "http/1.1"], true);
        let mut inside = greet(&scene, client, "api.test").await.unwrap();
        let chosen = inside.stream.get_ref().1.alpn_protocol();
        assert_eq!(chosen, Some(&b"http/1.1"[..]));
        let port = scene.host.port;
        let head = format!("Host: api.test:{port}\r\nX-Token: {stand_in}\r\n");
        for path in ["/one", "/two"] {
            let answer = inside
                .ask(&format!("GET {path} HTTP/1.1\r\n{head}\r\n"))
                .await;
            assert_eq!(answer.whole(), OK);
        }
        let heard = scene.host.heard();
        assert!(
            heard[0].contains("X-Token: sk-real-value-1\r\n"),
            "{heard:?}"
        );
        assert_eq!((heard.len(), scene.host.visits.get()), (2, 1));
        let (_, requests) = journal(&scene.gate);
        assert_eq!(requests[0].url, format!("https://api.test:{port}/one"));
        assert_eq!((requests[1].status, requests[1].size), (Some(200), Some(5)));
        let other = inside
            .ask("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
            .await;
        assert_eq!(other.status(), 403);
        assert_eq!(scene.host.heard().len(), 2);
        let (over, _) = journal(&scene.gate);
        let refused: Vec<_> = over.iter().filter_map(|one| one.refused.as_ref()).collect();
        assert_eq!(refused[0].word, "other-name");
    });
}

#[test]
fn only_who_trusts_this_session_believes_its_certificate() {
    run(async {
        let scene = scene(Secrets::default(), OK).await;
        let other = Authority::new(&names(&["api.test"])).unwrap();
        let stranger = client(&root(&other), &[], true);
        assert!(greet(&scene, stranger, "api.test").await.is_err());
        let friend = client(&scene.inner, &[], true);
        assert!(greet(&scene, friend, "api.test").await.is_ok());
    });
}

#[test]
fn nw_55_another_name_in_the_greeting_is_refused_and_none_is_fine() {
    run(async {
        let scene = scene(Secrets::default(), OK).await;
        let fronting = client(&scene.inner, &[], true);
        assert!(greet(&scene, fronting, "evil.test").await.is_err());
        // Both the connection that was there already and the refusal.
        scene.host.is_done_with(1).await;
        let (over, _) = journal(&scene.gate);
        let words: Vec<_> = over.iter().filter_map(|one| one.refused.as_ref()).collect();
        assert_eq!(words[0].word, "other-name");
        let silent = client(&scene.inner, &[], false);
        let mut inside = greet(&scene, silent, "api.test").await.unwrap();
        let ask = format!(
            "GET / HTTP/1.1\r\nHost: api.test:{}\r\n\r\n",
            scene.host.port
        );
        assert_eq!(inside.ask(&ask).await.status(), 200);
    });
}

#[test]
fn who_speaks_nothing_but_http_2_is_turned_away_in_tls() {
    run(async {
        let scene = scene(Secrets::default(), OK).await;
        let modern = client(&scene.inner, &["h2"], true);
        assert!(greet(&scene, modern, "api.test").await.is_err());
    });
}

#[test]
fn a_host_outside_that_nobody_vouches_for_gets_no_request() {
    run(async {
        let outer = Authority::new(&names(&["api.test"])).unwrap();
        let unknown = Authority::new(&names(&["api.test"])).unwrap();
        let host = tls_host(&unknown, OK).await;
        let (secrets, stand_in) = secrets(&["TOKEN=sk-real-value-1@api.test"]);
        let scene = scene_with(secrets, host, Roots::only(root(&outer))).await;
        let client = client(&scene.inner, &[], true);
        let mut inside = greet(&scene, client, "api.test").await.unwrap();
        let ask = format!(
            "GET / HTTP/1.1\r\nHost: api.test:{}\r\nX-Token: {stand_in}\r\n\r\n",
            scene.host.port
        );
        let answer = inside.ask(&ask).await;
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.header("x-proxy-error"), Some("tls-failed"));
        assert!(answer.body.contains("certificate"), "{answer:?}");
        assert_eq!(scene.host.heard(), [""; 0]);
        let (_, requests) = journal(&scene.gate);
        assert!(requests[0].error.as_ref().unwrap().contains("certificate"));
    });
}

#[test]
fn a_websocket_passes_through_both_ends() {
    run(async {
        const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi";
        let scene = scene(Secrets::default(), SWITCH).await;
        let client = client(&scene.inner, &[], true);
        let mut inside = greet(&scene, client, "api.test").await.unwrap();
        let answer = inside
            .ask(&format!(
                "GET / HTTP/1.1\r\nHost: api.test:{}\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\n\r\n",
                scene.host.port
            ))
            .await;
        assert_eq!(answer.status(), 101);
        assert_eq!(inside.take(2).await, "hi");
        // The host goes on as before, which makes it an echo of sorts.
        inside.say("over to you\r\n\r\n").await;
        assert_eq!(inside.take(SWITCH.len()).await, SWITCH);
        assert!(scene.host.heard()[1].contains("over to you"));
    });
}

#[test]
fn nw_60_a_rule_that_is_taken_back_ends_an_audited_connection() {
    run(async {
        let scene = scene(Secrets::default(), OK).await;
        let client = client(&scene.inner, &[], true);
        let mut inside = greet(&scene, client, "api.test").await.unwrap();
        let ask = format!(
            "GET / HTTP/1.1\r\nHost: api.test:{}\r\n\r\n",
            scene.host.port
        );
        assert_eq!(inside.ask(&ask).await.status(), 200);
        scene.gate.deny(rule("api.test:*"));
        scene.host.is_done_with(1).await;
        assert_eq!(inside.ask(&ask).await.status(), 403);
        assert_eq!(scene.host.heard().len(), 1);
    });
}

#[test]
fn a_tunnel_of_the_proxy_is_audited_as_well() {
    run(async {
        let scene = scene(Secrets::default(), OK).await;
        let (port, at) = (scene.host.port, proxy(&scene.gate).await);
        let mut tunnel = Talk::to(at).await;
        let connect = format!("CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(tunnel.ask(&connect).await.status(), 200);
        let client = client(&scene.inner, &[], true);
        let name = ServerName::try_from("api.test").unwrap();
        let stream = client.connect(name, tunnel.stream).await.unwrap();
        let ask = format!("GET /in HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(Talk::new(stream).ask(&ask).await.status(), 200);
        assert_eq!(scene.host.visits.get(), 1);
        let (_, requests) = journal(&scene.gate);
        assert_eq!(requests[0].url, format!("https://api.test:{port}/in"));
    });
}
