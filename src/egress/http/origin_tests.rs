//! Plain HTTP that was meant for a host itself, and the secrets that are added to it.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::ground_tests::{
    LOOPBACK, Talk, TestHost, ask, door, gate_to, gate_with, journal, name, origin, rule, run,
    secrets, spawn,
};
use crate::egress::gate::Outside;
use crate::egress::http::{self, Means};
use crate::policy::egress::Host;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn a_program_that_knows_no_proxy_is_served_like_by_the_host() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let at = origin(&gate, "api.test", host.port).await;
        let port = host.port;
        let mut inside = Talk::to(at).await;
        let said = format!("GET /a?b HTTP/1.1\r\nHost: api.test:{port}\r\nX-Y: Z\r\n\r\n");
        assert_eq!(inside.ask(&said).await.whole(), OK);
        let whole =
            format!("GET http://api.test:{port}/c HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(inside.ask(&whole).await.status(), 200);
        let star = format!("OPTIONS * HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(inside.ask(&star).await.status(), 200);
        let heard = host.heard();
        assert_eq!(heard[0], said);
        assert!(heard[1].starts_with("GET /c HTTP/1.1\r\n"), "{heard:?}");
        assert!(heard[2].starts_with("OPTIONS * HTTP/1.1\r\n"), "{heard:?}");
        assert_eq!(host.visits.get(), 1);
        let old = Talk::to(at).await.ask("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(old.body, "hello");
    });
}

#[test]
fn px_05_another_host_inside_is_refused_on_every_request_and_written_down() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let at = origin(&gate, "api.test", host.port).await;
        let port = host.port;
        let fine = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        for (wrong, status) in [
            ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_owned(), 403),
            // The name alone means another port.
            ("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n".to_owned(), 403),
            (
                format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
                403,
            ),
            (
                format!("GET http://evil.test/ HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"),
                403,
            ),
            (
                format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\nHost: evil.test\r\n\r\n"),
                400,
            ),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n".to_owned(), 400),
            // A host that is a proxy would lead anywhere.
            (
                format!("CONNECT evil.test:443 HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"),
                400,
            ),
        ] {
            let mut inside = Talk::to(at).await;
            assert_eq!(inside.ask(&fine).await.status(), 200);
            journal(&gate);
            let answer = inside.ask(&wrong).await;
            assert_eq!(answer.status(), status, "{wrong}{answer:?}");
            assert_eq!(inside.rest().await, "", "the connection is over");
            let (over, _) = journal(&gate);
            let refused: Vec<_> = over.into_iter().filter_map(|one| one.refused).collect();
            assert_eq!(refused.len(), 1, "{wrong}");
            let word = if status == 403 {
                "other-name"
            } else {
                "malformed"
            };
            assert_eq!(refused[0].word, word, "{wrong}");
        }
        assert!(
            host.heard().iter().all(|one| *one == fine),
            "{:?}",
            host.heard()
        );
    });
}

#[test]
fn a_secret_takes_the_stand_ins_place_for_its_host() {
    run(async {
        let host = TestHost::answering(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Echo: sk-real-value-1\r\n\r\nhello",
        )
        .await;
        let (secrets, stand_in) = secrets(&["TOKEN=sk-real-value-1@api.test"]);
        let means = Means::new(secrets, None, None, None).unwrap();
        let gate = gate_with(&host, means);
        let port = host.port;
        let body = format!("the body says {stand_in}");
        let ask = |to: &str| {
            format!(
                "POST /{stand_in} HTTP/1.1\r\nHost: {to}:{port}\r\nX-Token: {stand_in}\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        let at = origin(&gate, "api.test", port).await;
        let answer = Talk::to(at).await.ask(&ask("api.test")).await;
        assert_eq!(answer.header("x-echo"), Some(stand_in.as_str()));
        let heard = host.heard();
        assert!(
            heard[0].contains("\r\nX-Token: sk-real-value-1\r\n"),
            "{heard:?}"
        );
        assert_eq!(heard[0].matches("sk-real-value-1").count(), 1, "{heard:?}");
        assert!(heard[0].ends_with(&body), "bodies are left alone");
        let (_, requests) = journal(&gate);
        let written = format!("{requests:?}");
        assert!(
            written.contains(&stand_in) && !written.contains("sk-real"),
            "{written}"
        );
        // The very same server under another name is another host.
        gate.allow(rule(&format!("other.test:{port}")));
        name(&gate, "other.test");
        let at = origin(&gate, "other.test", port).await;
        let answer = Talk::to(at).await.ask(&ask("other.test")).await;
        assert_eq!(
            answer.header("x-echo"),
            Some("sk-real-value-1"),
            "not its secret"
        );
        assert!(!host.heard()[1].contains("sk-real"), "{:?}", host.heard());
        assert!(host.heard()[1].contains(&format!("X-Token: {stand_in}")));
        // Nor is it under its address.
        let at = origin(&gate, "127.0.0.1", port).await;
        Talk::to(at).await.ask(&ask("127.0.0.1")).await;
        assert!(!host.heard()[2].contains("sk-real"), "{:?}", host.heard());
    });
}

#[test]
fn a_secret_with_a_header_is_on_every_request() {
    run(async {
        let host = TestHost::answering(OK).await;
        let (secrets, _) = secrets(&["KEY=sk-real-value-1@api.test:Authorization"]);
        let means = Means::new(secrets, None, None, None).unwrap();
        let gate = gate_with(&host, means);
        let port = host.port;
        let mut inside = Talk::to(origin(&gate, "api.test", port).await).await;
        for own in ["", "Authorization: Bearer mine\r\n"] {
            let ask = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n{own}\r\n");
            assert_eq!(inside.ask(&ask).await.status(), 200);
        }
        for heard in host.heard() {
            let lower = heard.to_ascii_lowercase();
            assert_eq!(lower.matches("authorization:").count(), 1, "{heard}");
            assert!(
                lower.contains("\r\nauthorization: bearer sk-real-value-1\r\n"),
                "{heard}"
            );
        }
        // TRACE would bring it back in the body.
        let trace = format!("TRACE / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(inside.ask(&trace).await.status(), 405);
        assert_eq!(host.heard().len(), 2);
    });
}

#[test]
fn a_secret_is_not_sent_over_the_internet_for_all_to_read() {
    run(async {
        let host = TestHost::answering(OK).await;
        let port = host.port;
        // The same connection twice: once it is said to lead to the internet.
        for (address, is_sent) in [("93.184.216.34", false), ("10.0.0.1", true)] {
            let (secrets, _) = secrets(&["KEY=sk-real-value-1@api.test:X-Key"]);
            let gate = gate_with(&host, Means::new(secrets, None, None, None).unwrap());
            let serving = Rc::clone(&gate);
            let at = door(move |stream| {
                let gate = Rc::clone(&serving);
                spawn(async move {
                    let ask = ask(&Host::parse("api.test").unwrap(), port, &stream);
                    let entry = gate.accounts.begin(&ask);
                    entry.reached(address.parse().unwrap());
                    let outside = Outside {
                        stream: TcpStream::connect((LOOPBACK, port)).await.unwrap(),
                        entry,
                    };
                    http::serve_host(stream, Vec::new(), Some(outside), ask, gate).await;
                });
            })
            .await;
            let ask = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
            assert_eq!(Talk::to(at).await.ask(&ask).await.status(), 200);
            let heard = host.heard().pop().unwrap();
            assert_eq!(
                heard.contains("sk-real-value-1"),
                is_sent,
                "{address}: {heard}"
            );
            let (_, requests) = journal(&gate);
            assert_eq!(requests[0].error.is_none(), is_sent, "it is written down");
        }
    });
}
