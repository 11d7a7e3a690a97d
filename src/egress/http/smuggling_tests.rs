//! Requests that two readers could read in two ways. Whatever comes out at the other end has to
//! have one reading, and be for the host that was dialled.

use super::ground_tests::{LOOPBACK, Talk, TestHost, gate_to, proxy, run};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// What a host hears of these bytes, and the statuses that come back.
async fn outcome(bytes: &str) -> (Vec<String>, Vec<u16>) {
    let host = TestHost::answering(OK).await;
    let gate = gate_to(&host);
    let mut inside = Talk::to(proxy(&gate).await).await;
    let a = format!("api.test:{}", host.port);
    inside.say(&bytes.replace("AUTHORITY", &a)).await;
    let mut statuses = Vec::new();
    while let Some(answer) = inside.message().await {
        statuses.push(answer.status());
    }
    (host.heard(), statuses)
}

/// What a host hears of them without anybody in between.
async fn heard_directly(bytes: &str) -> String {
    let host = TestHost::answering(OK).await;
    let mut talk = Talk::to((LOOPBACK, host.port).into()).await;
    talk.say(bytes).await;
    talk.message().await.unwrap();
    host.heard().swap_remove(0)
}

/// How many headers of a request say, or take back, where it ends.
fn framings(request: &str) -> usize {
    let head = request.split_once("\r\n\r\n").unwrap().0;
    let head = head.to_ascii_lowercase();
    head.matches("content-length").count() + head.matches("transfer-encoding").count()
}

const EVIL: &str = "GET /evil HTTP/1.1\r\nHost: evil.test\r\n\r\n";

#[test]
fn a_request_inside_a_request_stays_a_body() {
    run(async {
        for (framing, body) in [
            // The length says one thing, the chunks another.
            (
                "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                format!("{:x}\r\n{EVIL}\r\n0\r\n\r\n", EVIL.len()),
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
                format!("{:x}\r\n{EVIL}\r\n0\r\n\r\n", EVIL.len()),
            ),
            (
                "Content-Length: 39\r\nContent-Length: 39\r\n",
                EVIL.to_owned(),
            ),
            (
                "Content-Length: 39\r\nConnection: content-length\r\n",
                EVIL.to_owned(),
            ),
            (
                "Transfer-Encoding: chunked\r\nConnection: transfer-encoding\r\n",
                format!("{:x};{}\r\n{EVIL}\r\n0\r\n\r\n", EVIL.len(), "a=b"),
            ),
        ] {
            assert_eq!(EVIL.len(), 39);
            let sent = format!(
                "POST http://AUTHORITY/ HTTP/1.1\r\nHost: AUTHORITY\r\nConnection: close\r\n\
                 {framing}\r\n{body}"
            );
            // The control: without the proxy a host has two things to go by.
            assert_ne!(framings(&heard_directly(&sent).await), 1, "{framing}");
            let (heard, statuses) = outcome(&sent).await;
            assert_eq!(statuses, [200], "{framing}");
            assert_eq!(heard.len(), 1, "{framing}{heard:?}");
            assert_eq!(framings(&heard[0]), 1, "{heard:?}");
            assert!(heard[0].ends_with(EVIL), "{heard:?}");
        }
    });
}

#[test]
fn framing_that_has_no_one_reading_is_refused() {
    run(async {
        for framing in [
            "Content-Length: 4\r\nContent-Length: 5\r\n",
            "Content-Length: 4, 4\r\n",
            "Content-Length: +4\r\n",
            "Content-Length: -4\r\n",
            "Content-Length: 4x\r\n",
            "Content-Length: 0x4\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding\r\n : chunked\r\n",
            "X: y\r\n Transfer-Encoding: chunked\r\n",
            " Content-Length: 4\r\n",
            "Content-Length\0: 4\r\n",
            "X: a\0b\r\n",
            "X: a\rb\r\n",
        ] {
            let (heard, statuses) = outcome(&format!(
                "POST http://AUTHORITY/ HTTP/1.1\r\nHost: AUTHORITY\r\n{framing}\r\n0\r\n\r\n{EVIL}"
            ))
            .await;
            assert_eq!(heard, [""; 0], "{framing:?}");
            assert!(statuses.len() <= 1, "{framing:?}{statuses:?}");
            for status in statuses {
                assert!(matches!(status, 400 | 501), "{framing:?}{status}");
            }
        }
    });
}

#[test]
fn chunks_that_have_no_one_reading_break_off() {
    run(async {
        for chunks in [
            "-1\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n\0",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "ffffffffffffffff1\r\n",
            "\r\n",
            "5\nhello\n0\n\n",
        ] {
            let (heard, statuses) = outcome(&format!(
                "POST http://AUTHORITY/ HTTP/1.1\r\nHost: AUTHORITY\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{chunks}{EVIL}"
            ))
            .await;
            for one in &heard {
                assert!(one.starts_with("POST / "), "{chunks:?}{heard:?}");
            }
            assert!(heard.len() <= 1, "{chunks:?}{heard:?}");
            assert!(
                statuses.iter().all(|status| *status != 403),
                "{chunks:?}{statuses:?}"
            );
        }
    });
}

#[test]
fn a_second_request_is_checked_like_the_first() {
    run(async {
        let first = "GET http://AUTHORITY/1 HTTP/1.1\r\nHost: AUTHORITY\r\n\r\n";
        for (second, status) in [
            (
                "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n",
                403,
            ),
            (
                "GET http://AUTHORITY/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
                400,
            ),
            (EVIL, 400),
            (
                "CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n",
                403,
            ),
        ] {
            let (heard, statuses) = outcome(&format!("{first}{second}")).await;
            assert_eq!(statuses, [200, status], "{second}");
            assert_eq!(heard.len(), 1, "{second}{heard:?}");
            assert!(heard[0].starts_with("GET /1 HTTP/1.1\r\n"), "{heard:?}");
        }
        // The control: two that are both fine.
        let last = first.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let (heard, statuses) = outcome(&format!("{first}{last}")).await;
        assert_eq!((heard.len(), statuses), (2, vec![200, 200]));
    });
}

#[test]
fn line_ends_and_blanks_of_the_box_are_not_the_hosts() {
    run(async {
        let (heard, statuses) =
            outcome("\r\nGET http://AUTHORITY/ HTTP/1.1\nHost: AUTHORITY\nConnection: close\nX-A:  b \t\n\r\n").await;
        assert_eq!(statuses, [200]);
        let mut lines = heard[0].split("\r\n");
        assert_eq!(lines.next(), Some("GET / HTTP/1.1"));
        assert!(lines.any(|line| line == "X-A: b"), "{heard:?}");
        assert!(!heard[0].replace("\r\n", "").contains('\n'), "{heard:?}");
    });
}
