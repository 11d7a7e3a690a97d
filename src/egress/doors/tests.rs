use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

use super::*;
use crate::egress::testing::{gate, hello, listener, over, pair, refusals, run};
use crate::egress::upstream::Proxy;
use crate::policy::egress::{HostPattern, Name, Upstream};

const ANYBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

fn ask(host: &str, port: u16) -> Ask {
    Ask {
        way: Way::Redirect,
        host: Host::parse(host).unwrap(),
        port,
        from: ANYBODY,
    }
}

/// Somebody inside and a host outside, brought together by `through`.
struct Both {
    inside: TcpStream,
    outside: TcpStream,
    gate: Rc<Gate>,
    served: JoinHandle<()>,
}

async fn both(host: &str) -> Both {
    let gate = gate(&["*:*"], None);
    let ask = ask(host, 443);
    let (inside, door) = pair().await;
    let (dialled, outside) = pair().await;
    let entry = gate.accounts.begin(&ask);
    let shared = Rc::clone(&gate);
    let served = spawn_local(async move {
        let dialled = Outside {
            stream: dialled,
            entry,
        };
        through(door, dialled, &ask, &shared).await;
    });
    Both {
        inside,
        outside,
        gate,
        served,
    }
}

async fn hear(stream: &mut TcpStream, wanted: &[u8]) {
    let mut heard = vec![0; wanted.len()];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, wanted);
}

/// Whether the other end was torn off, and not closed.
async fn is_reset(stream: &mut TcpStream) -> bool {
    let ended = stream.read(&mut [0; 64]).await;
    matches!(ended, Err(error) if error.kind() == io::ErrorKind::ConnectionReset)
}

#[test]
fn a_host_that_speaks_first_is_heard_first() {
    run(async {
        let mut both = both("ssh.example").await;
        both.outside.write_all(b"SSH-2.0-far\r\n").await.unwrap();
        hear(&mut both.inside, b"SSH-2.0-far\r\n").await;
        both.inside.write_all(b"SSH-2.0-near\r\n").await.unwrap();
        hear(&mut both.outside, b"SSH-2.0-near\r\n").await;
        drop(both.inside);
        drop(both.outside);
        both.served.await.unwrap();
        let books = over(&both.gate);
        assert_eq!((books[0].sent, books[0].received), (14, 13));
    });
}

#[test]
fn whoever_only_listens_hears_all_there_is() {
    run(async {
        let mut both = both("quote.example").await;
        both.inside.shutdown().await.unwrap();
        assert_eq!(both.outside.read(&mut [0; 1]).await.unwrap(), 0);
        both.outside.write_all(b"a word").await.unwrap();
        drop(both.outside);
        let mut heard = Vec::new();
        both.inside.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"a word");
    });
}

#[test]
fn a_hello_for_the_host_passes_whole_in_whatever_pieces() {
    run(async {
        let said = hello("Api.Example.com");
        for piece in [1, 7, said.len()] {
            let mut both = both("api.example.com").await;
            for piece in said.chunks(piece) {
                both.inside.write_all(piece).await.unwrap();
            }
            both.inside.write_all(b"after").await.unwrap();
            hear(&mut both.outside, &[&said[..], b"after"].concat()).await;
            assert!(refusals(&both.gate).is_empty());
        }
        // Without a name in it there is none to compare.
        let unnamed = hello("192.0.2.1");
        let mut both = both("api.example.com").await;
        both.inside.write_all(&unnamed).await.unwrap();
        hear(&mut both.outside, &unnamed).await;
    });
}

#[test]
fn a_hello_for_somebody_else_does_not_leave() {
    run(async {
        let warned = [&[0x15, 3, 1, 0, 2, 1, 0][..], &hello("evil.test")].concat();
        for (said, word) in [
            (hello("evil.test"), "other-name"),
            (hello("api.example.com.evil.test"), "other-name"),
            (hello("example.com"), "other-name"),
            (warned, "malformed"),
        ] {
            let mut both = both("api.example.com").await;
            both.inside.write_all(&said).await.unwrap();
            assert!(is_reset(&mut both.inside).await);
            // Not a byte of it.
            assert!(is_reset(&mut both.outside).await);
            both.served.await.unwrap();
            let books = over(&both.gate);
            assert_eq!(books.len(), 1, "one connection, one line");
            assert_eq!(books[0].sent, 0);
            assert_eq!(books[0].refused.as_ref().unwrap().word, word);
        }
        // An address has no name to be compared with.
        let mut both = both("192.0.2.1").await;
        let said = hello("evil.test");
        both.inside.write_all(&said).await.unwrap();
        hear(&mut both.outside, &said).await;
    });
}

#[test]
fn a_pause_decides_for_those_who_speak_something_else() {
    run(async {
        tokio::time::pause();
        let mut other = both("chat.example").await;
        other.inside.write_all(b"HELLO").await.unwrap();
        hear(&mut other.outside, b"HELLO").await;
        // But who has begun like TLS or HTTP has to go on like it.
        for begun in [&hello("evil.test")[..40], b"GET htt", b"\x16"] {
            let mut both = both("chat.example").await;
            let start = Instant::now();
            both.inside.write_all(begun).await.unwrap();
            assert!(is_reset(&mut both.inside).await);
            assert_eq!(start.elapsed().as_secs(), WHOLE_START.as_secs());
            assert!(is_reset(&mut both.outside).await);
            both.served.await.unwrap();
            assert_eq!(refusals(&both.gate)[0].word, "malformed");
        }
    });
}

#[test]
fn a_flood_of_first_words_is_not_kept() {
    run(async {
        let mut both = both("chat.example").await;
        // Says that a hello of 16 000 bytes follows, in records of one byte each.
        let flood = [HANDSHAKE_OF_ONE; 4000].concat();
        let start = [0x16, 3, 1, 0, 4, 1, 0, 0x3e, 0x80];
        // It may be refused before all of it is said.
        let _ = both.inside.write_all(&[&start[..], &flood].concat()).await;
        let _ = both.inside.read(&mut [0; 1]).await;
        both.served.await.unwrap();
        assert_eq!(refusals(&both.gate)[0].word, "malformed");
    });
}

const HANDSHAKE_OF_ONE: [u8; 6] = [0x16, 3, 1, 0, 1, 0];

#[test]
fn a_silent_connection_ends_when_its_rule_does() {
    run(async {
        let mut both = both("chat.example").await;
        // It is waiting by now.
        tokio::task::yield_now().await;
        both.gate.forget(&HostPattern::parse("*:*").unwrap());
        assert!(is_reset(&mut both.inside).await);
        assert!(is_reset(&mut both.outside).await);
    });
}

#[test]
fn a_connection_nobody_speaks_on_is_given_up() {
    run(async {
        tokio::time::pause();
        let mut both = both("chat.example").await;
        assert!(is_reset(&mut both.inside).await);
        assert!(is_reset(&mut both.outside).await);
    });
}

/// A gate for names whose hosts are all played by this listener.
async fn played(allow: &[&str]) -> (Rc<Gate>, TcpListener) {
    let (listener, address) = listener().await;
    let upstream = Proxy {
        what: Upstream::Http {
            host: Host::from(address.ip()),
            port: address.port(),
        },
        credentials: None,
    };
    (gate(allow, Some(upstream)), listener)
}

/// The host that was dialled for, and the connection to it.
async fn dialled(listener: &TcpListener) -> (String, TcpStream) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        heard.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let text = String::from_utf8(heard).unwrap();
    (text.split(' ').nth(1).unwrap().to_owned(), stream)
}

/// Somebody inside, on the way to this address.
async fn on_the_way(to: IpAddr, port: u16, gate: &Rc<Gate>) -> TcpStream {
    let (inside, door) = pair().await;
    spawn_local(redirected(door, SocketAddr::new(to, port), Rc::clone(gate)));
    inside
}

#[test]
fn addresses_given_out_lead_to_their_names() {
    run(async {
        let (gate, listener) = played(&["host.example:443,22,7777"]).await;
        let name = Name::parse("host.example").unwrap();
        let (four, six) = gate.names.borrow_mut().give(&name);
        let said = hello("host.example");
        for to in [IpAddr::V4(four), IpAddr::V6(six)] {
            let mut inside = on_the_way(to, 443, &gate).await;
            inside.write_all(&said).await.unwrap();
            let (whom, mut outside) = dialled(&listener).await;
            assert_eq!(whom, "host.example:443");
            hear(&mut outside, &said).await;
        }
        // A host that speaks first, at its usual port and at another.
        for port in [22, 7777] {
            let mut inside = on_the_way(four.into(), port, &gate).await;
            let (whom, mut outside) = dialled(&listener).await;
            assert_eq!(whom, format!("host.example:{port}"));
            outside.write_all(b"welcome").await.unwrap();
            hear(&mut inside, b"welcome").await;
        }
    });
}

#[test]
fn other_addresses_are_addresses() {
    run(async {
        let (listener, address) = listener().await;
        let gate = gate(&[&address.to_string()], None);
        let mut inside = on_the_way(address.ip(), address.port(), &gate).await;
        let (mut outside, _) = listener.accept().await.unwrap();
        inside.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        hear(&mut outside, b"GET / HTTP/1.1\r\n").await;
    });
}

#[test]
fn what_may_not_be_reached_is_reset_and_nobody_is_dialled() {
    run(async {
        let (gate, listener) = played(&["host.example"]).await;
        let name = Name::parse("host.example").unwrap();
        let (four, _) = gate.names.borrow_mut().give(&name);
        let unlisted = gate
            .names
            .borrow_mut()
            .give(&Name::parse("evil.test").unwrap());
        let cases = [
            (IpAddr::V4(four), 22, "port"),
            (unlisted.0.into(), 443, "not-listed"),
            ("198.18.200.1".parse().unwrap(), 443, "unresolved"),
            ("198.18.0.1".parse().unwrap(), 443, "unresolved"),
            ("fd63:6f77:6f72:6b00::1".parse().unwrap(), 443, "unresolved"),
            ("127.0.0.1".parse().unwrap(), 443, "loopback-address"),
            ("169.254.169.254".parse().unwrap(), 80, "metadata-address"),
            ("1.1.1.1".parse().unwrap(), 443, "not-listed"),
            ("2606:4700::1".parse().unwrap(), 443, "not-listed"),
        ];
        for (to, port, word) in cases {
            let mut inside = on_the_way(to, port, &gate).await;
            assert!(is_reset(&mut inside).await, "{to}");
            assert_eq!(refusals(&gate)[0].word, word, "{to}");
        }
        // Another name in the hello is seen before anybody is dialled.
        let mut inside = on_the_way(four.into(), 443, &gate).await;
        inside.write_all(&hello("evil.test")).await.unwrap();
        assert!(is_reset(&mut inside).await);
        assert_eq!(refusals(&gate)[0].word, "other-name");
        let nobody = timeout(Duration::ZERO, listener.accept()).await;
        assert!(nobody.is_err(), "somebody was dialled");
    });
}

#[test]
fn a_last_word_arrives_although_ours_was_not_heard() {
    run(async {
        let (mut inside, door) = pair().await;
        inside.write_all(&[0; 20_000]).await.unwrap();
        let parted = spawn_local(async move { part(door, b"no").await });
        let mut heard = Vec::new();
        inside.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"no");
        drop(inside);
        parted.await.unwrap();
    });
}

/// A host of HTTP that says what it was asked, and closes.
async fn web_host(listener: &TcpListener) -> (String, String) {
    let (whom, mut stream) = dialled(listener).await;
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        heard.push(stream.read_u8().await.unwrap());
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    stream.write_all(answer).await.unwrap();
    (whom, String::from_utf8(heard).unwrap())
}

#[test]
fn plain_http_is_served_by_its_own_door_at_any_port() {
    run(async {
        tokio::time::pause();
        let (gate, listener) = played(&["host.example:80,7777"]).await;
        let name = Name::parse("host.example").unwrap();
        let (four, _) = gate.names.borrow_mut().give(&name);
        // At once, and so late that the host was dialled before anything was said.
        for (port, wait) in [(80, 0), (7777, 0), (80, 4), (7777, 4)] {
            let host = match port {
                80 => "host.example".to_owned(),
                port => format!("host.example:{port}"),
            };
            let mut inside = on_the_way(four.into(), port, &gate).await;
            if wait > 0 {
                let (_, mut early) = dialled(&listener).await;
                sleep(Duration::from_secs(wait)).await;
                inside.write_all(b"GET ").await.unwrap();
                spawn_local(async move { early.read(&mut [0; 1]).await });
            } else {
                inside.write_all(b"GET ").await.unwrap();
            }
            let rest = format!("/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            inside.write_all(rest.as_bytes()).await.unwrap();
            let (whom, request) = web_host(&listener).await;
            assert_eq!(whom, format!("host.example:{port}"));
            assert!(request.starts_with("GET /x HTTP/1.1\r\n"), "{request}");
            let mut heard = Vec::new();
            inside.read_to_end(&mut heard).await.unwrap();
            assert!(heard.ends_with(b"\r\n\r\nok"), "{heard:?}");
        }
        // A request for somebody else gets words instead of a connection.
        let mut inside = on_the_way(four.into(), 80, &gate).await;
        let other = b"GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n";
        inside.write_all(other).await.unwrap();
        let mut heard = String::new();
        inside.read_to_string(&mut heard).await.unwrap();
        assert!(heard.starts_with("HTTP/1.1 403 "), "{heard}");
        assert!(timeout(Duration::ZERO, listener.accept()).await.is_err());
    });
}

#[test]
fn a_host_that_hangs_up_without_a_word_hears_none() {
    run(async {
        let mut both = both("host.example").await;
        both.outside.shutdown().await.unwrap();
        assert_eq!(both.inside.read(&mut [0; 1]).await.unwrap(), 0);
        both.served.await.unwrap();
        // Nobody is there any more who would take it.
        let _ = both.inside.write_all(&hello("evil.test")).await;
        assert!(matches!(both.outside.read(&mut [0; 1]).await, Ok(0)));
    });
}

#[test]
fn a_late_hello_for_somebody_else_does_not_leave_either() {
    run(async {
        tokio::time::pause();
        let (gate, listener) = played(&["host.example"]).await;
        let name = Name::parse("host.example").unwrap();
        let (four, _) = gate.names.borrow_mut().give(&name);
        let mut inside = on_the_way(four.into(), 443, &gate).await;
        // Nothing was said, so the host is dialled meanwhile.
        let (_, mut outside) = dialled(&listener).await;
        sleep(Duration::from_secs(5)).await;
        inside.write_all(&hello("evil.test")).await.unwrap();
        assert!(is_reset(&mut inside).await);
        assert!(is_reset(&mut outside).await);
        assert_eq!(refusals(&gate)[0].word, "other-name");
    });
}
