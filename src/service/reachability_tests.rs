use std::ffi::OsString;
use std::future::Future;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::reachability::{Errand, within};
use crate::egress::{Authority, Roots};
use crate::policy::egress::{Host, Name};

fn run<T>(paused: bool, job: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap()
        .block_on(job)
}

/// Takes one connection and plays the other side.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    play: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        play(stream).await;
    });
    port
}

async fn heard(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

async fn ask(url: &str, env: &[(&str, String)], roots: Option<Roots>) -> Result<u16, String> {
    let value = |name: &str| {
        let found = env.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let errand = Errand::read(url, &value)?;
    within(errand, roots.map(|roots| roots.outward().unwrap())).await
}

#[test]
fn any_status_is_an_answer() {
    for status in [200, 404, 503] {
        let answer = run(false, async {
            let port = serve(move |mut stream| async move {
                let words = heard(&mut stream).await;
                assert!(words.starts_with("HEAD /v1?x HTTP/1.1\r\n"), "{words}");
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            })
            .await;
            ask(&format!("http://127.0.0.1:{port}/v1?x"), &[], None).await
        });
        assert_eq!(answer, Ok(status));
    }
}

#[test]
fn what_does_not_speak_http_is_no_answer() {
    for words in ["", "hello\r\n", "SSH-2.0-x\r\n\r\n"] {
        let answer = run(false, async {
            let port = serve(move |mut stream| async move {
                heard(&mut stream).await;
                stream.write_all(words.as_bytes()).await.unwrap();
            })
            .await;
            ask(&format!("http://127.0.0.1:{port}/"), &[], None).await
        });
        assert!(answer.is_err(), "{words:?} {answer:?}");
    }
    for url in [
        "",
        "x",
        "ftp://a.example",
        "http://",
        "http:///x",
        "http://a b/",
        "/x",
    ] {
        assert!(run(false, ask(url, &[], None)).is_err(), "{url}");
    }
    // Nobody listens on a port that was just given back.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    assert!(run(false, ask(&format!("http://127.0.0.1:{port}"), &[], None)).is_err());
}

#[test]
fn silence_is_waited_for_ten_seconds() {
    let answer = run(true, async {
        let port = serve(|mut stream| async move {
            heard(&mut stream).await;
            // Held open for as long as anybody waits.
            let _ = stream.read_u8().await;
        })
        .await;
        ask(&format!("http://127.0.0.1:{port}/"), &[], None).await
    });
    assert!(answer.unwrap_err().contains("10 seconds"));
}

/// A server that proves to be `a.test`, and those who believe it.
fn tls() -> (Arc<rustls::ServerConfig>, Roots) {
    let name = Name::parse("a.test").unwrap();
    let authority = Authority::new(std::slice::from_ref(&name)).unwrap();
    let pem = authority.certificate_pem();
    let root = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let server = authority.speak_for(&Host::Name(name)).unwrap();
    (server, Roots::only(root))
}

/// A proxy that leads everybody to one server of TLS.
async fn proxy(server: Arc<rustls::ServerConfig>, expected: &'static str) -> u16 {
    serve(move |mut stream| async move {
        let words = heard(&mut stream).await;
        assert!(words.starts_with(expected), "{words}");
        assert!(
            words.contains("Proxy-Authorization: Basic dXNlcjpwYXNz\r\n"),
            "{words}"
        );
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        if let Ok(mut stream) = TlsAcceptor::from(server).accept(stream).await {
            heard(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 401 X\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    })
    .await
}

#[test]
fn https_goes_through_the_proxy_and_has_to_prove_who_it_is() {
    let (server, believed) = tls();
    let (_, strangers) = tls();
    let ask_with = |roots: Roots, url: &'static str, expected: &'static str| {
        let server = Arc::clone(&server);
        run(false, async move {
            let port = proxy(server, expected).await;
            let at = format!("http://user:pass@127.0.0.1:{port}");
            ask(url, &[("HTTPS_PROXY", at)], Some(roots)).await
        })
    };
    let tunnel = "CONNECT a.test:443 HTTP/1.1\r\n";
    assert_eq!(ask_with(believed, "https://a.test/x", tunnel), Ok(401));
    assert!(ask_with(strangers, "https://a.test/x", tunnel).is_err());
    let (_, believed) = tls();
    assert!(ask_with(believed, "https://b.test:8443/", "CONNECT b.test:8443 ").is_err());
}

#[test]
fn plain_http_is_asked_of_the_proxy_itself() {
    let answer = run(false, async {
        let port = serve(|mut stream| async move {
            let words = heard(&mut stream).await;
            assert!(
                words.starts_with("HEAD http://a.test:80/x HTTP/1.1\r\n"),
                "{words}"
            );
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        })
        .await;
        let env = [
            ("http_proxy", format!("http://127.0.0.1:{port}")),
            // Not this one: a web server's visitors could set it.
            ("HTTP_PROXY", "http://127.0.0.1:1".to_owned()),
            ("HTTPS_PROXY", "http://127.0.0.1:1".to_owned()),
        ];
        ask("http://a.test/x", &env, None).await
    });
    assert_eq!(answer, Ok(200));
}

#[test]
fn exempt_hosts_are_asked_directly() {
    let read = |no_proxy: &str, url: &str| {
        let value = |name: &str| match name {
            "HTTPS_PROXY" => Some(OsString::from("http://127.0.0.1:1")),
            "NO_PROXY" => Some(OsString::from(no_proxy)),
            _ => None,
        };
        Errand::read(url, &value).unwrap().is_direct()
    };
    for (no_proxy, is_direct) in [
        ("", false),
        ("*", true),
        ("b.test, a.test", true),
        (".test", true),
        ("*.test", true),
        ("est", false),
        ("xa.test", false),
        (",", false),
    ] {
        assert_eq!(read(no_proxy, "https://a.test/"), is_direct, "{no_proxy}");
    }
}
