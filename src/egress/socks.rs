//! The SOCKS door: versions 5 (RFC 1928), 4 and 4a, to connect and for nothing else.
//!
//! Exactly as many bytes are read as a handshake has, so that what comes after it is still there
//! for whoever passes it on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::doors;
use super::gate::{Ask, Gate, Way};
use super::relay::reset;
use crate::policy::egress::{Host, Reason, Refusal};

/// For the whole handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// A user's name of version 4, which nobody reads.
const LONGEST_WORD: usize = 255;

/// What bytes are so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<T> {
    /// It takes this many in all, or more.
    More(usize),
    Whole(T),
    Nonsense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Four,
    Five,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Version 4 does not greet.
    Four,
    /// The ways to log in that the client knows, as bytes.
    Five(Vec<u8>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) version: Version,
    pub(super) command: u8,
    /// None for a kind of address that does not exist.
    pub(super) host: Option<Result<Host, String>>,
    pub(super) port: u16,
}

const CONNECT: u8 = 1;
const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;
const NO_WAY: u8 = 0xff;

pub(super) fn greeting(bytes: &[u8]) -> Heard<Greeting> {
    match bytes {
        [] => Heard::More(1),
        [4, ..] => Heard::Whole(Greeting::Four),
        [5] => Heard::More(2),
        [5, count, ways @ ..] => match ways.get(..usize::from(*count)) {
            Some(ways) => Heard::Whole(Greeting::Five(ways.to_vec())),
            None => Heard::More(2 + usize::from(*count)),
        },
        _ => Heard::Nonsense,
    }
}

/// User and password of RFC 1929, whatever they are.
pub(super) fn login(bytes: &[u8]) -> Heard<()> {
    match bytes {
        [] | [1] => Heard::More(2),
        [1, user, rest @ ..] => match rest.get(usize::from(*user)) {
            None => Heard::More(3 + usize::from(*user)),
            Some(password) => {
                let all = 3 + usize::from(*user) + usize::from(*password);
                match bytes.len() < all {
                    true => Heard::More(all),
                    false => Heard::Whole(()),
                }
            }
        },
        _ => Heard::Nonsense,
    }
}

pub(super) fn request(bytes: &[u8]) -> Heard<Request> {
    let [version, command, _, kind, rest @ ..] = bytes else {
        return match bytes.first() {
            None | Some(5) => Heard::More(5),
            Some(_) => Heard::Nonsense,
        };
    };
    if *version != 5 {
        return Heard::Nonsense;
    }
    let whole = |host, port| {
        Heard::Whole(Request {
            version: Version::Five,
            command: *command,
            host,
            port,
        })
    };
    let (name, length) = match (kind, rest) {
        (1, _) => (false, 4),
        (4, _) => (false, 16),
        (3, [length, ..]) => (true, 1 + usize::from(*length)),
        (3, []) => return Heard::More(5),
        _ => return whole(None, 0),
    };
    let (Some(address), Some(port)) = (rest.get(..length), rest.get(length..length + 2)) else {
        return Heard::More(4 + length + 2);
    };
    let host = match address {
        [_, text @ ..] if name => named(text),
        address => Ok(host_at(address)),
    };
    whole(Some(host), u16::from_be_bytes([port[0], port[1]]))
}

/// A request of version 4, or of 4a: there an impossible address says that a name follows.
pub(super) fn request_of_four(bytes: &[u8]) -> Heard<Request> {
    let [version, command, high, low, a, b, c, d, rest @ ..] = bytes else {
        return match bytes.first() {
            None | Some(4) => Heard::More(9),
            Some(_) => Heard::Nonsense,
        };
    };
    if *version != 4 {
        return Heard::Nonsense;
    }
    let whole = |host| {
        Heard::Whole(Request {
            version: Version::Four,
            command: *command,
            host: Some(host),
            port: u16::from_be_bytes([*high, *low]),
        })
    };
    let more = Heard::More(bytes.len() + 1);
    let after_user = match word(rest) {
        Word::Open => return more,
        Word::Endless => return Heard::Nonsense,
        Word::Is(user) => &rest[user.len() + 1..],
    };
    match [*a, *b, *c, *d] {
        [0, 0, 0, last] if last != 0 => match word(after_user) {
            Word::Open => more,
            Word::Endless => Heard::Nonsense,
            Word::Is(text) => whole(named(text)),
        },
        address => whole(Ok(host_at(&address))),
    }
}

/// Bytes up to a zero.
enum Word<'a> {
    Open,
    Endless,
    Is(&'a [u8]),
}

fn word(bytes: &[u8]) -> Word<'_> {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) if end <= LONGEST_WORD => Word::Is(&bytes[..end]),
        None if bytes.len() <= LONGEST_WORD => Word::Open,
        _ => Word::Endless,
    }
}

/// A name that a client sent as bytes: what is no host is refused, never repaired.
fn named(text: &[u8]) -> Result<Host, String> {
    match std::str::from_utf8(text) {
        Ok(text) => Host::parse(text).map_err(|bad| bad.to_string()),
        Err(_) => Err("the name of the host is no text".to_owned()),
    }
}

fn host_at(address: &[u8]) -> Host {
    let address = match <[u8; 4]>::try_from(address) {
        Ok(four) => IpAddr::from(four),
        Err(_) => <[u8; 16]>::try_from(address).map_or(Ipv6Addr::UNSPECIFIED.into(), IpAddr::from),
    };
    Host::from(address)
}

pub(super) async fn serve(mut inside: TcpStream, gate: Rc<Gate>) {
    let shaken = timeout(PATIENCE, shake_hands(&mut inside)).await;
    let request = match shaken {
        Ok(Some(Ok(request))) => request,
        Ok(Some(Err(NoWay))) => return doors::part(inside, &[5, NO_WAY]).await,
        Ok(None) | Err(_) => return reset(&inside),
    };
    let Ok(from) = inside.peer_addr() else {
        return;
    };
    let version = request.version;
    let mut ask = Ask {
        way: Way::Socks,
        // Until it is known.
        host: Host::Address(Ipv4Addr::UNSPECIFIED.into()),
        port: request.port,
        from,
    };
    let refusal = match (request.command, request.host) {
        (CONNECT, Some(Ok(host))) => {
            ask.host = host;
            let meant = match &ask.host {
                Host::Address(address) => doors::meant(*address, &gate).map(Some),
                Host::Name(_) => Ok(None),
            };
            match meant {
                Ok(name) => {
                    ask.host = name.unwrap_or(ask.host);
                    return connect(inside, version, ask, gate).await;
                }
                Err(reason) => ask.refusal(reason, None),
            }
        }
        (CONNECT, Some(Err(why))) => ask.refusal(Reason::Malformed(why), None),
        (CONNECT, None) => return doors::part(inside, &reply(version, NO_SUCH_ADDRESS)).await,
        _ => return doors::part(inside, &reply(version, NO_SUCH_COMMAND)).await,
    };
    gate.refuse(&ask, &refusal);
    doors::part(inside, &reply(version, code(&refusal))).await;
}

async fn connect(mut inside: TcpStream, version: Version, ask: Ask, gate: Rc<Gate>) {
    let done = reply(version, DONE);
    if doors::is_usual_for_http(ask.port) && matches!(ask.host, Host::Name(_)) {
        // HTTP's own door dials for it, and has words for what goes wrong then.
        let admitted = gate.rules.borrow().admit(&ask.host, ask.port).map(drop);
        if let Err(refusal) = admitted {
            gate.refuse(&ask, &refusal);
            return doors::part(inside, &reply(version, code(&refusal))).await;
        }
        if inside.write_all(&done).await.is_ok() {
            doors::asked(inside, ask, gate).await;
        }
        return;
    }
    match gate.open(&ask).await {
        Ok(outside) => {
            if inside.write_all(&done).await.is_ok() {
                doors::through(inside, outside, &ask, &gate).await;
            }
        }
        Err(refusal) => doors::part(inside, &reply(version, code(&refusal))).await,
    }
}

/// A client that does not know any way to log in that we know.
struct NoWay;

/// Up to the request, and no byte further. Nothing if there was no sense in it.
async fn shake_hands(inside: &mut TcpStream) -> Option<Result<Request, NoWay>> {
    let mut bytes = Vec::new();
    let ways = match hear(inside, &mut bytes, greeting).await? {
        Greeting::Four => {
            return hear(inside, &mut bytes, request_of_four).await.map(Ok);
        }
        Greeting::Five(ways) => ways,
    };
    let way = match ways {
        ways if ways.contains(&NO_LOGIN) => NO_LOGIN,
        ways if ways.contains(&PASSWORD) => PASSWORD,
        _ => return Some(Err(NoWay)),
    };
    inside.write_all(&[5, way]).await.ok()?;
    if way == PASSWORD {
        // Whoever is in the box may use its doors; some clients cannot do without a password.
        hear(inside, &mut Vec::new(), login).await?;
        inside.write_all(&[1, 0]).await.ok()?;
    }
    hear(inside, &mut Vec::new(), request).await.map(Ok)
}

async fn hear<T>(
    inside: &mut TcpStream,
    bytes: &mut Vec<u8>,
    parse: fn(&[u8]) -> Heard<T>,
) -> Option<T> {
    loop {
        match parse(bytes) {
            Heard::Whole(whole) => return Some(whole),
            Heard::Nonsense => return None,
            Heard::More(all) => {
                let start = bytes.len();
                bytes.resize(all, 0);
                inside.read_exact(&mut bytes[start..]).await.ok()?;
            }
        }
    }
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const CONNECTION_REFUSED: u8 = 5;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// Where we dial from is nobody's business inside: the address in a reply is none.
fn reply(version: Version, code: u8) -> Vec<u8> {
    match version {
        Version::Five => vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0],
        Version::Four => vec![0, if code == DONE { 90 } else { 91 }, 0, 0, 0, 0, 0, 0],
    }
}

fn code(refusal: &Refusal) -> u8 {
    // The kernel's number is in the words, whatever else the C library says.
    let is = |why: &str, number: i32| why.contains(&format!("(os error {number})"));
    match &refusal.reason {
        Reason::Unreachable(why) if is(why, libc::ECONNREFUSED) => CONNECTION_REFUSED,
        Reason::Unreachable(why) if is(why, libc::ENETUNREACH) => NETWORK_UNREACHABLE,
        Reason::Unreachable(_) | Reason::Unresolved(_) => HOST_UNREACHABLE,
        Reason::TooMany => FAILED,
        _ => NOT_ALLOWED,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::task::spawn_local;

    use super::super::testing::{gate, listener, over, pair, refusals, run};
    use super::super::upstream::Proxy;
    use super::*;
    use crate::policy::egress::Upstream;

    fn whole<T>(heard: Heard<T>) -> T {
        match heard {
            Heard::Whole(whole) => whole,
            _ => panic!("it is not whole"),
        }
    }

    /// Asks for one more byte as long as there is one, and never for less or for what it has.
    fn takes_all<T>(parse: fn(&[u8]) -> Heard<T>, bytes: &[u8]) {
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                Heard::More(all) => assert!((end + 1..=bytes.len()).contains(&all), "{end}: {all}"),
                _ => panic!("done after {end} of {} bytes", bytes.len()),
            }
        }
        whole(parse(bytes));
    }

    fn by_name(name: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, name.len() as u8];
        bytes.extend(name);
        bytes.extend(port.to_be_bytes());
        bytes
    }

    fn by_address(address: IpAddr, port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0];
        match address {
            IpAddr::V4(address) => {
                bytes.push(1);
                bytes.extend(address.octets());
            }
            IpAddr::V6(address) => {
                bytes.push(4);
                bytes.extend(address.octets());
            }
        }
        bytes.extend(port.to_be_bytes());
        bytes
    }

    #[test]
    fn requests_are_read_to_the_byte() {
        takes_all(greeting, &[5, 2, 0, 2]);
        takes_all(login, b"\x01\x04user\x08password");
        takes_all(login, b"\x01\x00\x00");
        takes_all(request, &by_name(b"example.com", 443));
        takes_all(request, &by_address("192.0.2.1".parse().unwrap(), 22));
        takes_all(request, &by_address("2001:db8::1".parse().unwrap(), 22));
        takes_all(request_of_four, b"\x04\x01\x00\x50\xc0\x00\x02\x01user\x00");
        takes_all(
            request_of_four,
            b"\x04\x01\x00\x50\x00\x00\x00\x01\x00example.com\x00",
        );
        let host = |bytes: &[u8]| whole(request(bytes)).host.unwrap().unwrap().to_string();
        assert_eq!(host(&by_name(b"Example.COM.", 443)), "example.com");
        assert_eq!(host(&by_name(b"127.0.0.1", 443)), "127.0.0.1");
        let mapped = by_address("::ffff:127.0.0.1".parse().unwrap(), 443);
        assert_eq!(host(&mapped), "127.0.0.1");
        assert_eq!(
            host(&by_address("2001:db8::1".parse().unwrap(), 1)),
            "[2001:db8::1]"
        );
        let four = whole(request_of_four(
            b"\x04\x01\x01\xbb\x00\x00\x00\xffme\x00a.example\x00",
        ));
        assert_eq!(four.host.unwrap().unwrap().to_string(), "a.example");
        assert_eq!((four.version, four.port), (Version::Four, 443));
    }

    #[test]
    fn names_are_taken_as_they_are_or_not_at_all() {
        for name in [
            &b""[..],
            b"allowed.example\0.evil.test",
            b"a\nb.example",
            b"a b",
            b"\xff\xfe",
            "faß.de".as_bytes(),
            b"0x7f000001",
            b"127.1",
            b"user@example.com",
            b"example.com:80",
            b"fe80::1%eth0",
            &[b'a'; 255],
        ] {
            let request = whole(request(&by_name(name, 443)));
            assert!(request.host.unwrap().is_err(), "{name:?}");
        }
        let long = [&b"\x04\x01\x00\x50\x00\x00\x00\x01"[..], &[b'a'; 300]].concat();
        assert_eq!(request_of_four(&long), Heard::Nonsense);
        assert_eq!(greeting(b"GET / HTTP/1.1"), Heard::Nonsense);
        assert_eq!(greeting(b"\x16\x03\x01"), Heard::Nonsense);
        assert_eq!(request(&[4, 1, 0, 1]), Heard::Nonsense);
        assert_eq!(login(&[5, 1, 0]), Heard::Nonsense);
    }

    #[test]
    fn failures_have_their_own_codes() {
        let kernel = |number| std::io::Error::from_raw_os_error(number).to_string();
        let refused = Reason::Unreachable(kernel(libc::ECONNREFUSED));
        let network = Reason::Unreachable(kernel(libc::ENETUNREACH));
        let host = Reason::Unreachable(kernel(libc::EHOSTUNREACH));
        for (reason, wanted) in [
            (refused, 5),
            (network, 3),
            (host, 4),
            (Reason::Unreachable("the proxy outside hung up".into()), 4),
            (Reason::Unresolved("no such name".into()), 4),
            (Reason::NotListed, 2),
            (Reason::Port, 2),
            (Reason::Denied, 2),
            (Reason::OtherName("x".into()), 2),
            (Reason::Malformed("x".into()), 2),
            (Reason::TooMany, 1),
        ] {
            let refusal = Refusal::new("a.example", 443, reason);
            assert_eq!(code(&refusal), wanted, "{refusal:?}");
        }
    }

    /// Says these bytes to the door and hears all it has to say until it closes, or this much.
    async fn dialogue(gate: &Rc<Gate>, said: &[u8], most: usize) -> Vec<u8> {
        let (mut near, far) = pair().await;
        let served = spawn_local(serve(far, Rc::clone(gate)));
        near.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        // A reset is an end as well.
        let _ = (&mut near).take(most as u64).read_to_end(&mut heard).await;
        drop(near);
        served.await.unwrap();
        heard
    }

    fn hello_and(request: &[u8]) -> Vec<u8> {
        [&[5, 1, 0], request].concat()
    }

    #[test]
    fn an_address_that_is_allowed_is_reached_in_every_version() {
        run(async {
            let (listener, address) = listener().await;
            let rule = address.to_string();
            let gate = gate(&[&rule], None);
            let SocketAddr::V4(four) = address else {
                panic!("{address}");
            };
            let port = four.port().to_be_bytes();
            let five = hello_and(&by_address(address.ip(), address.port()));
            let old = [&[4, 1][..], &port, &four.ip().octets(), &[0]].concat();
            let login = b"\x05\x01\x02\x01\x01u\x01p";
            let login = [&login[..], &by_address(address.ip(), address.port())].concat();
            let done = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for (said, answer) in [
                (five, [&[5, 0][..], &done].concat()),
                (old, vec![0, 90, 0, 0, 0, 0, 0, 0]),
                (login, [&[5, 2, 1, 0][..], &done].concat()),
            ] {
                let (mut near, far) = pair().await;
                spawn_local(serve(far, Rc::clone(&gate)));
                // What belongs to the host is there before the handshake is over.
                near.write_all(&[&said[..], b"ping"].concat())
                    .await
                    .unwrap();
                let echoed = async {
                    let mut heard = Vec::new();
                    near.read_to_end(&mut heard).await.unwrap();
                    heard
                };
                let served = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut heard = [0; 4];
                    stream.read_exact(&mut heard).await.unwrap();
                    stream.write_all(&heard).await.unwrap();
                };
                let (heard, ()) = tokio::join!(echoed, served);
                assert_eq!(heard, [&answer[..], b"ping"].concat());
            }
        });
    }

    #[test]
    fn a_name_is_reached_and_an_address_given_out_for_it_too() {
        run(async {
            let (listener, address) = listener().await;
            // Whoever dials for us, so that no name server is needed.
            let upstream = Proxy {
                what: Upstream::Http {
                    host: Host::from(address.ip()),
                    port: address.port(),
                },
                credentials: None,
            };
            let gate = gate(&["host.example:7777"], Some(upstream));
            let name = crate::policy::egress::Name::parse("host.example").unwrap();
            let (four, six) = gate.names.borrow_mut().give(&name);
            for request in [
                by_name(b"host.example", 7777),
                by_address(four.into(), 7777),
                by_address(six.into(), 7777),
            ] {
                let outside = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut heard = Vec::new();
                    while !heard.ends_with(b"\r\n\r\n") {
                        heard.push(stream.read_u8().await.unwrap());
                    }
                    assert!(heard.starts_with(b"CONNECT host.example:7777 "));
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                    stream.write_all(b"welcome").await.unwrap();
                };
                let said = hello_and(&request);
                let (heard, ()) = tokio::join!(dialogue(&gate, &said, 2 + 10 + 7), outside);
                assert!(heard.ends_with(b"welcome"), "{heard:?}");
            }
            let books = over(&gate);
            assert_eq!(books.len(), 3);
            assert!(books.iter().all(|line| line.host == "host.example"));
        });
    }

    #[test]
    fn plain_http_has_its_own_door_behind_this_one() {
        run(async {
            let gate = gate(&["host.example"], None);
            let request = by_name(b"host.example", 80);
            // For another host, which only somebody who reads requests can see.
            let asked = b"GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n";
            let said = [&hello_and(&request)[..], asked].concat();
            let heard = dialogue(&gate, &said, 10_000).await;
            let text = String::from_utf8_lossy(&heard[12..]);
            assert_eq!(heard[2..4], [5, 0], "{heard:?}");
            assert!(text.starts_with("HTTP/1.1 403 "), "{text}");
        });
    }

    #[test]
    fn what_is_refused_is_refused_with_its_code_and_written_down() {
        run(async {
            let (listener, address) = listener().await;
            let closed = address.port();
            drop(listener);
            let gate = gate(&["a.example", &format!("127.0.0.1:{closed}")], None);
            let unknown = "198.18.77.77".parse().unwrap();
            for (request, code, word) in [
                (by_name(b"evil.test", 443), 2, "not-listed"),
                (by_name(b"evil.test", 80), 2, "not-listed"),
                (by_name(b"a.example", 22), 2, "port"),
                (by_name(b"a.example\0.evil.test", 443), 2, "malformed"),
                (by_name(b"", 443), 2, "malformed"),
                (by_address("127.0.0.1".parse().unwrap(), 1), 2, "port"),
                (
                    by_address("10.0.0.1".parse().unwrap(), 443),
                    2,
                    "private-address",
                ),
                (
                    by_address("::1".parse().unwrap(), 443),
                    2,
                    "loopback-address",
                ),
                (by_address(unknown, 443), 4, "unresolved"),
                (by_address(address.ip(), closed), 5, "unreachable"),
            ] {
                let heard = dialogue(&gate, &hello_and(&request), 100).await;
                assert_eq!(
                    heard,
                    [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0],
                    "{request:?}"
                );
                let told = refusals(&gate);
                let words: Vec<&str> = told.iter().map(|told| told.word.as_str()).collect();
                assert_eq!(words, [word], "{request:?}");
            }
            let four = b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00evil.test\x00";
            assert_eq!(dialogue(&gate, four, 100).await, [0, 91, 0, 0, 0, 0, 0, 0]);
        });
    }

    #[test]
    fn other_commands_and_garbage_end_at_once() {
        run(async {
            let gate = gate(&["*:*"], None);
            for (command, kind, code) in [(2, 1, 7), (3, 1, 7), (9, 1, 7), (1, 2, 8), (1, 0, 8)] {
                let request = [5, command, 0, kind, 1, 1, 1, 1, 0, 80];
                let heard = dialogue(&gate, &hello_and(&request), 100).await;
                assert_eq!(heard[2..4], [5, code], "command {command}, kind {kind}");
            }
            assert_eq!(dialogue(&gate, &[5, 1, 1], 100).await, [5, 0xff]);
            assert_eq!(dialogue(&gate, &[5, 0], 100).await, [5, 0xff]);
            for garbage in [
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                &[0; 100],
                &[4; 400],
                &[0x16, 3, 1],
            ] {
                let heard = dialogue(&gate, garbage, 100).await;
                assert!(heard.is_empty(), "{garbage:?}: {heard:?}");
            }
        });
    }

    #[test]
    fn somebody_who_never_ends_his_greeting_is_not_waited_for() {
        run(async {
            tokio::time::pause();
            let gate = gate(&["*:*"], None);
            for said in [
                &[][..],
                &[5],
                &[5, 2, 0],
                &[5, 1, 0, 5, 1, 0, 3, 200, b'a'],
                &[4, 1],
            ] {
                let start = tokio::time::Instant::now();
                dialogue(&gate, said, 100).await;
                assert_eq!(start.elapsed().as_secs(), PATIENCE.as_secs(), "{said:?}");
            }
        });
    }
}
