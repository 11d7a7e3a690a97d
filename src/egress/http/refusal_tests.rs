//! What the proxy does not do, and what it says then.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use super::ground_tests::{
    LOOPBACK, Message, Talk, TestHost, gate, gate_to, journal, name, proxy, rule, run, run_fast,
};
use crate::egress::http::{HEAD_TIME, Means, QUIET};
use crate::policy::egress::Name;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What a request gets that comes alone.
async fn alone(at: std::net::SocketAddr, request: &str) -> Message {
    Talk::to(at).await.ask(request).await
}

fn get(authority: &str) -> String {
    format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

#[test]
fn px_01_to_px_15_hosts_that_no_rule_lists_are_refused_in_every_spelling() {
    run(async {
        let canary = TestHost::answering(OK).await;
        let port = canary.port;
        // The rules allow a name, and everything below another: nothing of what follows.
        let allow = ["allowed.test:*", "*.wild.test:*"].map(str::to_owned);
        let gate = gate(&allow, Means::default());
        for to_loopback in ["allowed.test", "rebind.wild.test"] {
            name(&gate, to_loopback);
        }
        let at = proxy(&gate).await;
        let own = at.port();
        for authority in [
            // PX-01, PX-15: loopback, and the proxy itself.
            format!("127.0.0.1:{port}"),
            format!("[::1]:{port}"),
            format!("127.0.0.1:{own}"),
            // PX-02
            format!("localhost:{port}"),
            format!("localhost.:{port}"),
            format!("LOCALHOST:{port}"),
            format!("x.localhost:{port}"),
            // PX-03, NW-61
            format!("[::ffff:7f00:1]:{port}"),
            format!("[64:ff9b::7f00:1]:{port}"),
            format!("[2002:7f00:1::]:{port}"),
            // PX-06
            format!("evilallowed.test:{port}"),
            format!("allowed.test.evil.test:{port}"),
            format!("wild.test:{port}"),
            // PX-09: names that are allowed, and lead to loopback.
            format!("allowed.test:{port}"),
            format!("rebind.wild.test:{port}"),
            // PX-14
            "169.254.169.254:80".to_owned(),
            "metadata.google.internal:80".to_owned(),
        ] {
            for request in [get(&authority), connect(&authority)] {
                let answer = alone(at, &request).await;
                assert_eq!(answer.status(), 403, "{request}{answer:?}");
                assert_eq!(answer.header("x-proxy-error"), Some("blocked-by-allowlist"));
                assert!(
                    answer.body.ends_with(".\n") && answer.body.len() > 20,
                    "{answer:?}"
                );
            }
        }
        let (refused, _) = journal(&gate);
        assert!(refused.iter().all(|one| one.refused.is_some()));
        assert_eq!(refused.len(), 2 * 17, "each is written down");
        assert_eq!(canary.visits.get(), 0);
        // The same requests arrive where a rule lists the address: nothing else was in their way.
        gate.allow(rule(&format!("127.0.0.1:{port}")));
        for authority in [
            format!("127.0.0.1:{port}"),
            format!("rebind.wild.test:{port}"),
        ] {
            assert_eq!(alone(at, &get(&authority)).await.status(), 200);
            assert_eq!(alone(at, &connect(&authority)).await.status(), 200);
        }
        assert_eq!(canary.visits.get(), 4);
    });
}

#[test]
fn px_03_and_nw_65_what_is_no_host_is_no_request() {
    run(async {
        let gate = gate(&["*:*".to_owned()], Means::default());
        let at = proxy(&gate).await;
        for host in [
            "0x7f000001",
            "2130706433",
            "2852039166",
            "0177.0.0.1",
            "127.1",
            "0",
            "１２７.0.0.1",
            "[127.0.0.1]",
            "[fe80::1%25eth0]",
            "a..b",
            ".allowed.test",
            "*.allowed.test",
            "allowed%2etest",
            "allowed\u{a0}test",
            "faß.de",
            "allowed。test",
            "user@allowed.test",
        ] {
            for request in [
                get(host),
                get(&format!("{host}:80")),
                connect(&format!("{host}:80")),
            ] {
                let answer = alone(at, &request).await;
                assert_eq!(answer.status(), 400, "{request}{answer:?}");
                assert_eq!(answer.header("connection"), Some("close"));
                assert!(!answer.body.trim().is_empty(), "{answer:?}");
            }
        }
        let long = format!("{}a.test", "a.".repeat(130));
        assert_eq!(alone(at, &get(&long)).await.status(), 400);
    });
}

#[test]
fn px_04_and_nw_59_odd_requests_get_a_sentence_and_no_connection() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let own = at.port();
        let a = format!("api.test:{}", host.port);
        for request in [
            format!("GET https://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("GET ftp://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("GET gopher://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("GET file:///etc/passwd HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("GET /__admin HTTP/1.1\r\nHost: 127.0.0.1:{own}\r\n\r\n"),
            format!("OPTIONS * HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("TRACE http://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            format!("GET http://{a}/\r\n"),
            format!("CONNECT api.test HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("CONNECT user:pw@{a} HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("CONNECT {a}/path HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("CONNECT http://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            format!("CONNECT {a} HTTP/1.1\r\nHost: {a}\r\nContent-Length: 4\r\n\r\nbody"),
            format!("GET http://user:pw@{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"),
            // PX-05: two hosts, or none.
            format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\nHost: {a}\r\n\r\n"),
            format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\nHost: evil.test\r\n\r\n"),
            format!("GET http://{a}/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
            format!("GET http://{a}/ HTTP/1.1\r\nHost: api.test\r\n\r\n"),
            format!("GET http://{a}/ HTTP/1.1\r\n\r\n"),
            "\x16\x03\x01\x02\x00\x01\x00\x01\n".to_owned(),
            "\x05\x01\x00\n".to_owned(),
        ] {
            let answer = alone(at, &request).await;
            let status = answer.status();
            assert!((400..500).contains(&status), "{request}{answer:?}");
            assert!(answer.body.len() > 10, "{request}{answer:?}");
            assert!(answer.header("x-proxy-error").is_some());
        }
        assert_eq!(host.visits.get(), 0);
        assert_eq!(alone(at, &get(&a)).await.status(), 200);
    });
}

#[test]
fn programs_that_read_json_are_refused_in_json() {
    run(async {
        let gate = gate(&[], Means::default());
        let at = proxy(&gate).await;
        let ask = |accept: &str| {
            let evil = "evil.test";
            format!("GET http://{evil}/ HTTP/1.1\r\nHost: {evil}\r\n{accept}\r\n")
        };
        let answer = alone(at, &ask("Accept: text/html, Application/JSON;q=0.9\r\n")).await;
        assert_eq!(answer.status(), 403);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(json["error"]["type"], "blocked-by-allowlist");
        assert_eq!(json["error"]["allow"], "--allow-host evil.test");
        let sentence = json["error"]["message"].as_str().unwrap();
        for other in ["", "Accept: */*\r\n"] {
            let answer = alone(at, &ask(other)).await;
            assert_eq!(answer.body, format!("{sentence}\n"));
        }
    });
}

#[test]
fn each_failure_has_a_word_of_its_own() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            talk.say("SSH-2.0-OpenSSH_9.6\r\n").await;
        })
        .await;
        let gate = gate_to(&host);
        let closed = {
            let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        gate.allow(rule(&format!("127.0.0.1:{closed}")));
        gate.allow(rule(&format!("api.test:{closed}")));
        gate.allow(rule("none.test"));
        gate.resolver
            .remember(&Name::parse("none.test").unwrap(), &[]);
        let at = proxy(&gate).await;
        for (authority, status, word) in [
            (format!("api.test:{closed}"), 502, "unreachable"),
            ("none.test".to_owned(), 502, "unresolved"),
            (format!("api.test:{}", host.port), 502, "no-answer"),
        ] {
            let answer = alone(at, &get(&authority)).await;
            assert_eq!(answer.status(), status, "{authority}: {answer:?}");
            assert_eq!(answer.header("x-proxy-error"), Some(word), "{answer:?}");
        }
        let mut open = Vec::new();
        let answer = loop {
            let mut inside = Talk::to(at).await;
            let answer = inside
                .ask(&connect(&format!("api.test:{}", host.port)))
                .await;
            if answer.status() != 200 {
                break answer;
            }
            open.push(inside);
            assert!(open.len() < 100);
        };
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.header("x-proxy-error"), Some("too-many-connections"));
    });
}

#[test]
fn a_refusal_arrives_even_at_whoever_is_still_sending() {
    run(async {
        let gate = gate(&[], Means::default());
        let at = proxy(&gate).await;
        // What is not read at the other end cannot be sent.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(64 << 10).unwrap();
        let mut inside = Talk::new(socket.connect(at).await.unwrap());
        let body = vec![b'x'; 900 << 10];
        let head = format!(
            "POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        inside.say(&head).await;
        inside.stream.write_all(&body).await.unwrap();
        let answer = inside.message().await.unwrap();
        assert_eq!(answer.status(), 403);
        assert!(answer.body.contains("evil.test"));
    });
}

#[test]
fn one_refusal_does_not_spoil_the_next_request() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        for _ in 0..2 {
            assert_eq!(inside.ask(&get("evil.test")).await.status(), 403);
            let fine = get(&format!("api.test:{}", host.port));
            assert_eq!(inside.ask(&fine).await.status(), 200);
        }
    });
}

#[test]
fn nw_58_a_redirect_is_the_programs_to_follow_and_to_be_refused() {
    run(async {
        let host = TestHost::answering(
            "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n",
        )
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let answer = inside.ask(&get(&format!("api.test:{}", host.port))).await;
        assert_eq!(answer.header("location"), Some("http://evil.test/"));
        assert_eq!(inside.ask(&get("evil.test")).await.status(), 403);
    });
}

#[test]
fn heads_are_bounded_in_size_number_and_time() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let a = format!("api.test:{}", host.port);
        let with = |more: &str| format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\n{more}\r\n");
        let many = |count: usize| {
            let all = (0..count).map(|at| format!("x-{at}: y\r\n"));
            with(&all.collect::<String>())
        };
        let long = |length: usize| with(&format!("x: {}\r\n", "y".repeat(length)));
        for request in [many(200), long(60 << 10)] {
            assert_eq!(alone(at, &request).await.status(), 200);
        }
        for request in [many(300), long(70 << 10), long(1 << 20)] {
            assert_eq!(alone(at, &request).await.status(), 431);
        }
        let target = format!("http://{a}/{}", "a".repeat(66_000));
        let answer = alone(at, &format!("GET {target} HTTP/1.1\r\nHost: {a}\r\n\r\n")).await;
        assert!(matches!(answer.status(), 414 | 431), "{answer:?}");
        assert_eq!(host.visits.get(), 2);
    });
}

#[test]
fn nw_67_whoever_does_not_finish_a_head_is_let_go() {
    run_fast(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let a = format!("api.test:{}", host.port);
        for said in [
            String::new(),
            "GET".to_owned(),
            format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\nX"),
        ] {
            let began = tokio::time::Instant::now();
            let mut inside = Talk::to(at).await;
            inside.say(&said).await;
            let end = inside.rest().await;
            assert!(end.is_empty() || end.starts_with("HTTP/1.1 4"), "{end}");
            // The clock of this test jumps from alarm to alarm.
            let took = began.elapsed();
            assert!(HEAD_TIME <= took && took < QUIET, "{said:?}: {took:?}");
        }
        assert_eq!(host.visits.get(), 0);
    });
}

#[test]
fn a_request_on_which_nothing_moves_is_given_up() {
    run_fast(async {
        let host = TestHost::new(|mut talk| async move {
            talk.until("\r\n\r\n").await;
            assert_eq!(talk.rest().await, "");
        })
        .await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let a = format!("api.test:{}", host.port);
        for body in ["", "Content-Length: 5\r\n"] {
            let began = tokio::time::Instant::now();
            let mut inside = Talk::to(at).await;
            inside
                .say(&format!(
                    "POST http://{a}/ HTTP/1.1\r\nHost: {a}\r\n{body}\r\n"
                ))
                .await;
            assert_eq!(inside.rest().await, "");
            assert!(began.elapsed() >= QUIET, "{:?}", began.elapsed());
        }
        host.is_done_with(2).await;
    });
}
