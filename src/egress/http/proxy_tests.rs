//! What passes through the proxy, and how.

use std::rc::Rc;

use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use super::ground_tests::{
    Talk, TestHost, gate, gate_at, gate_to, journal, name, proxy, rule, run, run_fast,
};
use crate::egress::http::Means;
use crate::egress::pace::Pace;
use crate::policy::egress::Rate;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Answer: Yes\r\n\r\nhello";

#[test]
fn a_request_is_passed_on_as_if_there_were_no_proxy() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        let answer = inside
            .ask(&format!(
                "GET http://API.test:{port}/a//b?c=d%20e HTTP/1.1\r\n\
                 Host: api.test:{port}\r\nUser-Agent: x\r\nAccept-Encoding: gzip\r\n\
                 X-MiXeD: y\r\nProxy-Connection: keep-alive\r\nConnection: X-Hop\r\n\
                 X-Hop: z\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n"
            ))
            .await;
        assert_eq!(
            answer.whole(),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Answer: Yes\r\n\r\nhello"
        );
        let heard = host.heard();
        assert_eq!(
            heard,
            [format!(
                "GET /a//b?c=d%20e HTTP/1.1\r\nHost: api.test:{port}\r\nUser-Agent: x\r\n\
                 Accept-Encoding: gzip\r\nX-MiXeD: y\r\n\r\n"
            )]
        );
        drop(inside);
        let requests = loop {
            let (_, requests) = journal(&gate);
            if !requests.is_empty() {
                break requests;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        };
        assert_eq!(requests[0].method, "GET");
        let url = format!("http://api.test:{port}/a//b?c=d%20e");
        assert_eq!(requests[0].url, url);
        assert_eq!((requests[0].status, requests[0].size), (Some(200), Some(5)));
        assert_eq!(requests[0].error, None);
    });
}

#[test]
fn a_link_is_kept_while_the_same_host_is_asked_and_no_longer() {
    run(async {
        let (one, two) = (TestHost::answering(OK).await, TestHost::answering(OK).await);
        let allow = [one.port, two.port]
            .map(|port| [format!("one.test:{port}"), format!("127.0.0.1:{port}")])
            .concat();
        let gate = gate(&allow, Means::default());
        name(&gate, "one.test");
        let mut inside = Talk::to(proxy(&gate).await).await;
        for (port, visits) in [
            (one.port, (1, 0)),
            (one.port, (1, 0)),
            (two.port, (1, 1)),
            (one.port, (2, 1)),
        ] {
            let ask =
                format!("GET http://one.test:{port}/ HTTP/1.1\r\nHost: one.test:{port}\r\n\r\n");
            assert_eq!(inside.ask(&ask).await.status(), 200);
            assert_eq!((one.visits.get(), two.visits.get()), visits);
        }
    });
}

#[test]
fn a_host_that_hung_up_meanwhile_is_called_again() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            talk.say(OK).await;
            // Without a word about it.
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        for visit in 1..4 {
            let ask =
                format!("GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
            assert_eq!(inside.ask(&ask).await.status(), 200);
            assert_eq!(host.visits.get(), visit);
        }
    });
}

#[test]
fn a_question_without_an_answer_is_asked_again_if_that_changes_nothing() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            talk.say(OK).await;
            // Hears the next one out, and hangs up.
            talk.message().await;
        })
        .await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let a = format!("api.test:{}", host.port);
        let first = format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n");
        for (method, body, status, visits) in [
            ("GET", "", 200, 2),
            ("POST", "Content-Length: 0\r\n", 502, 3),
            ("PUT", "Content-Length: 4\r\n", 502, 4),
        ] {
            let mut inside = Talk::to(at).await;
            assert_eq!(inside.ask(&first).await.status(), 200);
            let more = if body.contains('4') { "body" } else { "" };
            let answer = inside
                .ask(&format!(
                    "{method} http://{a}/ HTTP/1.1\r\nHost: {a}\r\n{body}\r\n{more}"
                ))
                .await;
            assert_eq!(answer.status(), status, "{method}");
            assert_eq!(host.visits.get(), visits, "{method}");
        }
        // What was asked twice is one request in the journal.
        let (_, requests) = journal(&gate);
        assert_eq!(requests.len(), 6, "{requests:?}");
    });
}

#[test]
fn bodies_pass_in_either_framing_with_their_trailers() {
    run(async {
        let host = TestHost::answering(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
             3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nx-sum: 9\r\n\r\n",
        )
        .await;
        let gate = gate_to(&host);
        let at = proxy(&gate).await;
        let port = host.port;
        let to = format!("http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n");
        let mut inside = Talk::to(at).await;
        let answer = inside
            .ask(&format!(
                "POST {to}Content-Length: 4\r\nTE: trailers\r\nConnection: TE\r\n\r\nbody"
            ))
            .await;
        assert_eq!((answer.body.as_str(), answer.is_cut), ("abcdefg", false));
        assert_eq!(answer.trailers, "x-sum: 9\r\n");
        // A body that a GET is not expected to have does not become the next request.
        for method in ["POST", "GET", "DELETE"] {
            let chunked = "2;ext=1\r\nbo\r\n2\r\ndy\r\n0\r\nX-Sum: 1\r\n\r\n";
            let answer = inside
                .ask(&format!(
                    "{method} {to}Transfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n{chunked}"
                ))
                .await;
            assert_eq!(answer.body, "abcdefg", "{method}");
        }
        let heard = host.heard();
        assert!(heard[0].ends_with("\r\n\r\nbody"), "{heard:?}");
        for later in &heard[1..] {
            assert!(
                later.contains("\r\nTransfer-Encoding: chunked\r\n"),
                "{later}"
            );
            assert!(
                !later.to_ascii_lowercase().contains("content-length"),
                "{later}"
            );
            assert!(later.contains("\r\n\r\nbody"), "{later}");
            assert!(
                later.to_ascii_lowercase().ends_with("x-sum: 1\r\n"),
                "{later}"
            );
        }
        assert_eq!(host.visits.get(), 1, "all of them in one conversation");
    });
}

#[test]
fn answers_without_a_body_end_where_they_end() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            while let Some(asked) = talk.message().await {
                let status = match asked.head.split(' ').nth(1).unwrap() {
                    "/204" => "204 No Content\r\n\r\n",
                    "/304" => "304 Not Modified\r\nETag: x\r\n\r\n",
                    _ => "200 Fine By Me\r\nContent-Length: 5\r\n\r\n",
                };
                talk.say(&format!("HTTP/1.1 {status}")).await;
                if asked.head.starts_with("GET /200") {
                    talk.say("hello").await;
                }
            }
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        for (method, path, status) in [
            ("HEAD", "/200", 200),
            ("GET", "/204", 204),
            ("GET", "/304", 304),
            ("GET", "/200", 200),
        ] {
            let answer = inside
                .ask(&format!(
                    "{method} http://api.test:{port}{path} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"
                ))
                .await;
            assert_eq!(answer.status(), status, "{method} {path}");
            if status == 200 {
                assert!(answer.head.starts_with("HTTP/1.1 200 Fine By Me\r\n"));
                assert_eq!(answer.header("content-length"), Some("5"));
            }
        }
    });
}

#[test]
fn the_first_http_needs_no_host_and_gets_an_end() {
    run(async {
        let host = TestHost::answering(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        )
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        let answer = inside
            .ask(&format!("GET http://api.test:{port}/ HTTP/1.0\r\n\r\n"))
            .await;
        assert!(answer.head.starts_with("HTTP/1.0 200") || answer.head.starts_with("HTTP/1.1 200"));
        assert_eq!(answer.header("transfer-encoding"), None);
        assert_eq!(answer.body, "hello");
        let asked = format!("GET / HTTP/1.1\r\nhost: api.test:{port}\r\n\r\n");
        assert_eq!(host.heard(), [asked]);
    });
}

#[test]
fn the_first_words_of_an_answer_are_not_held_back() {
    run(async {
        let go_on = Rc::new(Notify::new());
        let wait = Rc::clone(&go_on);
        let host = TestHost::new(move |mut talk| {
            let wait = Rc::clone(&wait);
            async move {
                talk.message().await;
                talk.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                    .await;
                talk.say("Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
                    .await;
                wait.notified().await;
                talk.say("9\r\ndata: 2\n\n\r\n0\r\n\r\n").await;
            }
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        inside
            .say(&format!(
                "GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"
            ))
            .await;
        // The host says the second only after the first has arrived.
        let first = inside.until("data: 1\n\n").await;
        assert!(first.ends_with("data: 1\n\n"), "{first}");
        go_on.notify_one();
        assert!(inside.until("data: 2\n\n").await.ends_with("data: 2\n\n"));
    });
}

#[test]
fn nobody_is_read_faster_than_the_other_side_takes_it() {
    run(async {
        let host = TestHost::new(|talk| async move {
            // Takes the connection and reads nothing.
            std::future::pending::<()>().await;
            drop(talk);
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        let whole: usize = 256 << 20;
        inside
            .say(&format!(
                "PUT http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\
                 Content-Length: {whole}\r\n\r\n"
            ))
            .await;
        let piece = vec![0; 1 << 20];
        let mut written = 0;
        let stuck = std::time::Duration::from_millis(500);
        while written < whole {
            match tokio::time::timeout(stuck, inside.stream.write(&piece)).await {
                Ok(count) => written += count.unwrap(),
                Err(_) => break,
            }
        }
        assert!(written < whole / 2, "{written} bytes went somewhere");
    });
}

#[test]
fn a_body_that_asks_first_waits_for_the_host() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            let head = talk.until("\r\n\r\n").await;
            assert!(
                head.to_ascii_lowercase()
                    .contains("\r\nexpect: 100-continue\r\n"),
                "{head}"
            );
            if head.contains("/no ") {
                talk.say("HTTP/1.1 413 Too Much\r\nContent-Length: 0\r\n\r\n")
                    .await;
                let more = talk.rest().await;
                assert_eq!(more, "", "a body that nobody wanted");
            } else {
                talk.say("HTTP/1.1 100 Continue\r\n\r\n").await;
                assert_eq!(talk.take(4).await, "body");
                talk.say("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
                    .await;
            }
        })
        .await;
        let gate = gate_to(&host);
        let port = host.port;
        for (path, said, status) in [("/yes", 100, 201), ("/no", 413, 413)] {
            let mut inside = Talk::to(proxy(&gate).await).await;
            inside
                .say(&format!(
                    "PUT http://api.test:{port}{path} HTTP/1.1\r\nHost: api.test:{port}\r\n\
                     Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
                ))
                .await;
            let mut answer = inside.message().await.unwrap();
            assert_eq!(answer.status(), said, "{path}");
            if said == 100 {
                inside.say("body").await;
                answer = inside.message().await.unwrap();
            }
            assert_eq!(answer.status(), status, "{path}");
        }
        host.is_done_with(2).await;
    });
}

#[test]
fn a_host_that_knows_no_100_gets_the_body_all_the_same() {
    run_fast(async {
        let host = TestHost::new(|mut talk| async move {
            let asked = talk.message().await.unwrap();
            assert_eq!(asked.body, "body");
            talk.say(OK).await;
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        inside
            .say(&format!(
                "PUT http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\
                 Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
            ))
            .await;
        assert_eq!(inside.message().await.unwrap().status(), 100);
        inside.say("body").await;
        assert_eq!(inside.message().await.unwrap().status(), 200);
    });
}

#[test]
fn a_websocket_is_passed_through() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            let asked = talk.message().await.unwrap();
            assert!(
                asked.head.contains("\r\nUpgrade: websocket\r\n"),
                "{asked:?}"
            );
            assert!(
                asked.head.contains("\r\nConnection: Upgrade\r\n"),
                "{asked:?}"
            );
            assert!(
                asked.head.contains("\r\nSec-WebSocket-Key: a\r\n"),
                "{asked:?}"
            );
            talk.say(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Accept: b\r\n\r\nfirst from outside",
            )
            .await;
            assert_eq!(talk.take(5).await, "early");
            assert_eq!(talk.take(4).await, "ping");
            talk.say("pong").await;
            assert_eq!(talk.rest().await, "");
            talk.say("last").await;
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let port = host.port;
        let answer = inside
            .ask(&format!(
                "GET http://api.test:{port}/ws HTTP/1.1\r\nHost: api.test:{port}\r\n\
                 Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\nearly"
            ))
            .await;
        assert_eq!(answer.status(), 101);
        assert_eq!(answer.header("upgrade"), Some("websocket"));
        assert_eq!(answer.header("connection"), Some("Upgrade"));
        assert_eq!(answer.header("sec-websocket-accept"), Some("b"));
        assert_eq!(inside.take(18).await, "first from outside");
        inside.say("ping").await;
        assert_eq!(inside.take(4).await, "pong");
        inside.stream.shutdown().await.unwrap();
        assert_eq!(inside.rest().await, "last");
        host.is_done_with(1).await;
    });
}

#[test]
fn a_host_that_switches_unasked_is_not_followed() {
    run(async {
        let host = TestHost::answering(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        )
        .await;
        let gate = gate_to(&host);
        let port = host.port;
        for ask in [
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
            "Connection: Upgrade\r\nUpgrade: websocket\r\n",
            "",
        ] {
            let mut inside = Talk::to(proxy(&gate).await).await;
            let answer = inside
                .ask(&format!(
                    "GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n{ask}\r\n"
                ))
                .await;
            assert_eq!(answer.status(), 502, "{ask}");
        }
        let heard = host.heard();
        assert!(!heard[0].to_ascii_lowercase().contains("h2c"), "{heard:?}");
        assert!(
            !heard[0].to_ascii_lowercase().contains("http2"),
            "{heard:?}"
        );
    });
}

#[test]
fn connect_is_a_tunnel_with_nothing_lost_at_its_mouth() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            assert_eq!(talk.take(9).await, "\x01one\x01two\n");
            talk.say("three").await;
        })
        .await;
        let gate = gate_to(&host);
        let port = host.port;
        let mut inside = Talk::to(proxy(&gate).await).await;
        // The first bytes come along with the request, before it is answered.
        let answer = inside
            .ask(&format!(
                "CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n\x01one"
            ))
            .await;
        assert_eq!(answer.head, "HTTP/1.1 200 OK\r\n\r\n");
        inside.say("\x01two\n").await;
        assert_eq!(inside.take(5).await, "three");
    });
}

#[test]
fn an_answer_that_breaks_off_is_not_made_to_look_whole() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            let asked = talk.message().await.unwrap();
            talk.say(match asked.head.contains("/chunked ") {
                true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                false => "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
            })
            .await;
        })
        .await;
        let gate = gate_to(&host);
        let port = host.port;
        for path in ["/chunked", "/length"] {
            let mut inside = Talk::to(proxy(&gate).await).await;
            let answer = inside
                .ask(&format!(
                    "GET http://api.test:{port}{path} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"
                ))
                .await;
            assert!(answer.is_cut, "{answer:?}");
            assert_eq!(inside.rest().await, "");
        }
        let (_, requests) = journal(&gate);
        assert_eq!(requests.len(), 2);
        assert!(
            requests.iter().all(|request| request.error.is_some()),
            "{requests:?}"
        );
    });
}

#[test]
fn a_program_that_has_said_its_last_is_answered() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let a = format!("api.test:{}", host.port);
        let ask = format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n");
        inside.say(&ask).await;
        inside.stream.shutdown().await.unwrap();
        assert_eq!(inside.rest().await, OK);
    });
}

#[test]
fn a_program_that_goes_away_takes_its_download_with_it() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            // Until nobody takes it any more.
            while talk.stream.write_all(b"5\r\nhello\r\n").await.is_ok() {}
        })
        .await;
        let gate = gate_to(&host);
        let mut inside = Talk::to(proxy(&gate).await).await;
        let a = format!("api.test:{}", host.port);
        inside
            .say(&format!("GET http://{a}/ HTTP/1.1\r\nHost: {a}\r\n\r\n"))
            .await;
        assert!(inside.until("hello").await.ends_with("hello"));
        drop(inside);
        host.is_done_with(1).await;
    });
}

#[test]
fn nw_60_a_rule_that_is_taken_back_ends_what_it_allowed() {
    run(async {
        let host = TestHost::new(|mut talk| async move {
            while talk.message().await.is_some() {
                talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
                    .await;
            }
        })
        .await;
        let gate = gate_to(&host);
        let port = host.port;
        let at = proxy(&gate).await;
        let ask = format!("GET http://api.test:{port}/ HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        let mut inside = Talk::to(at).await;
        inside.say(&ask).await;
        assert!(inside.until("1\r\na\r\n").await.ends_with("1\r\na\r\n"));
        gate.deny(rule("api.test:*"));
        assert_eq!(inside.rest().await, "", "cut in the middle of the answer");
        let mut inside = Talk::to(at).await;
        assert_eq!(inside.ask(&ask).await.status(), 403);
        assert_eq!(host.visits.get(), 1);
    });
}

#[test]
fn plain_http_in_a_tunnel_is_looked_at_like_any_other() {
    run(async {
        let host = TestHost::answering(OK).await;
        let gate = gate_to(&host);
        let port = host.port;
        let mut inside = Talk::to(proxy(&gate).await).await;
        let connect = format!("CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(inside.ask(&connect).await.status(), 200);
        let fine = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
        assert_eq!(inside.ask(&fine).await.status(), 200);
        let other = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
        assert_eq!(inside.ask(other).await.status(), 403);
        assert_eq!(host.heard(), [fine]);
    });
}

#[test]
fn a_rate_holds_for_requests_and_answers_together() {
    run_fast(async {
        let host = TestHost::new(|mut talk| async move {
            talk.message().await;
            let body = "x".repeat(30_000);
            talk.say(&format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n{body}"
            ))
            .await;
        })
        .await;
        let gate = gate_at(&host, Some(Pace::new(Rate(10_000))));
        let mut inside = Talk::to(proxy(&gate).await).await;
        let a = format!("api.test:{}", host.port);
        let body = "y".repeat(20_000);
        // On a clock that jumps, so it says how long one would have waited.
        let began = tokio::time::Instant::now();
        let answer = inside
            .ask(&format!(
                "POST http://{a}/ HTTP/1.1\r\nHost: {a}\r\nContent-Length: 20000\r\n\r\n{body}"
            ))
            .await;
        assert_eq!(answer.body.len(), 30_000);
        let took = began.elapsed().as_secs_f64();
        assert!((4.0..8.0).contains(&took), "50 KB at 10 KB/s took {took} s");
    });
}
