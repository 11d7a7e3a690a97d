//! Claude's own gateway.

use std::rc::Rc;

use tokio::sync::Notify;

use super::claude::ClaudeTarget;
use super::ground_tests::{Talk, TestHost, claude, gate_with, journal, run, run_fast, secrets};
use crate::egress::gate::Gate;
use crate::egress::http::Means;
use crate::policy::egress::{Host, Name};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// A gate with a key for `api.test`, spoken to without TLS because the user said so.
fn with_key(host: &TestHost, secret: &str, path: &str) -> (Rc<Gate>, String) {
    let (secrets, stand_in) = secrets(&[secret]);
    let name = Name::parse("api.test").unwrap();
    let url = format!("http://api.test:{}{path}", host.port);
    let target = ClaudeTarget::new(&name, Some(&url));
    let means = Means::new(secrets, Some(target), None, None).unwrap();
    (gate_with(host, means), stand_in)
}

#[test]
fn the_callers_base_url_counts_if_it_is_the_secrets_host() {
    let name = Name::parse("api.test").unwrap();
    let target = |url: Option<&str>| {
        let target = ClaudeTarget::new(&name, url);
        assert_eq!(target.host, Host::Name(name.clone()));
        (target.port, target.is_tls, target.prefix)
    };
    let usual = (443, true, String::new());
    for other in [
        None,
        Some("https://api.test"),
        Some("https://api.test/"),
        Some("https://evil.test:8443/x"),
        Some("http://api.test.evil.test/"),
        Some("ftp://api.test/"),
        Some("api.test"),
        Some("not an address"),
    ] {
        assert_eq!(target(other), usual, "{other:?}");
    }
    assert_eq!(
        target(Some("http://API.test./")),
        (80, false, String::new())
    );
    let whole = target(Some("https://api.test:8443/anthropic/"));
    assert_eq!(whole, (8443, true, "/anthropic".to_owned()));
}

#[test]
fn the_prefix_goes_before_every_path() {
    let name = Name::parse("api.test").unwrap();
    let target = ClaudeTarget::new(&name, Some("https://api.test/a/b/"));
    let path = target.path(&"/v1/messages?beta=true".parse().unwrap());
    assert_eq!(path.unwrap().to_string(), "/a/b/v1/messages?beta=true");
}

#[test]
fn the_key_is_added_outside_and_only_the_stand_in_is_known_inside() {
    run(async {
        let host = TestHost::answering(OK).await;
        let (gate, stand_in) = with_key(&host, "ANTHROPIC_API_KEY=sk-ant-real@api.test", "/base");
        let mut inside = Talk::to(claude(&gate).await).await;
        let answer = inside
            .ask(&format!(
                "POST /v1/messages?beta=true HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n\
                 X-Api-Key: {stand_in}\r\nAuthorization: Bearer smuggled\r\n\
                 Content-Length: 2\r\n\r\n{{}}"
            ))
            .await;
        assert_eq!(answer.body, "{}");
        let heard = host.heard();
        let expected = format!(
            "POST /base/v1/messages?beta=true HTTP/1.1\r\nHost: api.test:{}\r\n\
             X-Api-Key: sk-ant-real\r\nContent-Length: 2\r\n\r\n{{}}",
            host.port
        );
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&heard[0]), sorted(&expected));
        let (_, requests) = journal(&gate);
        let url = format!("http://api.test:{}/base/v1/messages?beta=true", host.port);
        assert_eq!(requests[0].url, url);
        assert!(!format!("{requests:?}").contains("sk-ant-real"));
    });
}

#[test]
fn requests_that_are_not_for_claude_are_not_served() {
    run(async {
        let host = TestHost::answering(OK).await;
        let (gate, _) = with_key(&host, "ANTHROPIC_API_KEY=sk-ant-real@api.test", "");
        let at = claude(&gate).await;
        for request in [
            "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: x\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ] {
            let answer = Talk::to(at).await.ask(request).await;
            assert!((400..500).contains(&answer.status()), "{request}{answer:?}");
        }
        assert_eq!(host.visits.get(), 0);
    });
}

#[test]
fn connections_outside_are_used_again_and_not_kept_for_ever() {
    run_fast(async {
        let host = TestHost::answering(OK).await;
        let (gate, _) = with_key(&host, "ANTHROPIC_API_KEY=sk-ant-real@api.test", "");
        let at = claude(&gate).await;
        for _ in 0..3 {
            // Each from a connection of its own.
            let answer = Talk::to(at)
                .await
                .ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                .await;
            assert_eq!(answer.status(), 200);
        }
        assert_eq!(host.visits.get(), 1);
        // Nobody asks for a while, and nobody keeps the host waiting.
        host.is_done_with(1).await;
        let answer = Talk::to(at)
            .await
            .ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        assert_eq!((answer.status(), host.visits.get()), (200, 2));
    });
}

#[test]
fn several_questions_at_once_do_not_wait_for_each_other() {
    run(async {
        let everybody_is_here = Rc::new(Notify::new());
        let wait = Rc::clone(&everybody_is_here);
        let host = TestHost::new(move |mut talk| {
            let wait = Rc::clone(&wait);
            async move {
                talk.message().await;
                talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
                    .await;
                wait.notified().await;
                talk.say("0\r\n\r\n").await;
            }
        })
        .await;
        let (gate, _) = with_key(&host, "ANTHROPIC_API_KEY=sk-ant-real@api.test", "");
        let at = claude(&gate).await;
        let mut talks = Vec::new();
        for _ in 0..20 {
            let mut inside = Talk::to(at).await;
            inside.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            assert!(inside.until("1\r\na\r\n").await.ends_with("1\r\na\r\n"));
            talks.push(inside);
        }
        everybody_is_here.notify_waiters();
        for mut inside in talks {
            assert_eq!(inside.until("0\r\n\r\n").await, "0\r\n\r\n");
        }
        assert_eq!(host.visits.get(), 20);
    });
}

#[test]
fn without_a_key_there_is_no_gateway() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_with(&host, Means::default());
        let answer = Talk::to(claude(&gate).await)
            .await
            .ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await;
        assert_eq!(answer.status(), 400);
    });
}

#[test]
fn an_answer_that_is_not_wanted_any_more_is_not_waited_for() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            // Thinks, and says nothing: only the other side can end this.
            assert_eq!(talk.rest().await, "");
        })
        .await;
        let (gate, _) = with_key(&host, "ANTHROPIC_API_KEY=sk-ant-real@api.test", "");
        let mut inside = Talk::to(claude(&gate).await).await;
        inside.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        while host.visits.get() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        drop(inside);
        host.is_done_with(1).await;
    });
}
