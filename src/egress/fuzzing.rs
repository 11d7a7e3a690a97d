//! Ways in for tests that throw hostile bytes at every reader of the gateway. Each reads them as
//! its door would, panics if a promise of the reader's is broken, and says what was understood so
//! that another reader of the same protocol can be asked for its opinion.

use super::dns;
use super::http;
use super::names::Names;
use super::sniff::{Sniffed, sniff};
use super::socks::{self, Heard};
use crate::policy::egress::{Host, HostPattern, Rule, Rules};

/// A host that the rules of [`dns`] know, and one whose children they know.
pub const KNOWN: &str = "example.com";
pub const KNOWN_BELOW: &str = "wild.test";

/// The answer to a packet, where there is one.
pub fn dns(packet: &[u8]) -> Option<Vec<u8>> {
    let rule = |text: &str| {
        let pattern = HostPattern::parse(text).ok();
        pattern.map(|pattern| Rule::new(pattern, String::new()))
    };
    let below = format!("*.{KNOWN_BELOW}");
    let rules = Rules {
        allow: [rule(KNOWN), rule(&below)].into_iter().flatten().collect(),
        deny: Vec::new(),
    };
    let answer = dns::answer(packet, &mut Names::new(4), &rules)?.packet;
    assert!(answer.len() <= 512, "an answer of {} bytes", answer.len());
    assert_eq!(answer[..2], packet[..2], "the number of another question");
    assert!(answer[2] & 0x80 != 0, "an answer that says it is none");
    assert!(packet[2] & 0x80 == 0, "an answer was answered");
    assert!(dns::answer(&answer, &mut Names::new(4), &rules).is_none());
    Some(answer)
}

/// The host and the port that a client of either version asks for.
pub fn socks(bytes: &[u8]) -> Option<(String, u16)> {
    read(bytes, socks::login);
    let five = read(bytes, socks::request);
    let four = read(bytes, socks::request_of_four);
    read(bytes, socks::greeting);
    assert!(five.is_none() || four.is_none(), "both versions at once");
    let request = five.or(four)?;
    let host = request.host?.ok()?;
    let text = host.to_string();
    assert_eq!(Host::parse(&text).ok(), Some(host), "{text}");
    Some((text, request.port))
}

/// Gives a reader just as much as it asks for, as its door does.
fn read<T>(bytes: &[u8], parse: fn(&[u8]) -> Heard<T>) -> Option<T> {
    // The longest there can be, byte by byte.
    const MOST: usize = 600;
    let mut given = 0;
    for _ in 0..=MOST {
        match parse(bytes.get(..given)?) {
            Heard::Whole(whole) => return Some(whole),
            Heard::Nonsense => return None,
            Heard::More(all) => {
                assert!(all > given && all <= MOST, "{all} after {given}");
                given = all;
            }
        }
    }
    panic!("it asks for ever more");
}

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Tls(Option<String>),
    Http,
    Http2,
    Other,
    Malformed,
}

pub fn first_bytes(bytes: &[u8]) -> Start {
    // Short ones are given piece by piece as well: an opinion never changes.
    let step = bytes.len() / 64 + 1;
    let whole = sniff(bytes, true);
    for end in (0..bytes.len()).step_by(step) {
        let before = sniff(&bytes[..end], true);
        assert!(
            before == Sniffed::More || before == whole,
            "after {end} bytes {before:?}, then {whole:?}"
        );
    }
    match sniff(bytes, false) {
        Sniffed::More => panic!("there is no more"),
        Sniffed::Tls { name } => Start::Tls(name.map(|name| name.to_string())),
        Sniffed::Http => Start::Http,
        Sniffed::Http2 => Start::Http2,
        Sniffed::Other => Start::Other,
        Sniffed::Malformed(_) => Start::Malformed,
    }
}

/// A line of an allow-list, and a host, in the one spelling that each has.
pub fn host_pattern(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    if let Ok(host) = Host::parse(text) {
        let again = host.to_string();
        assert_eq!(Host::parse(&again), Ok(host), "{again}");
    }
    let pattern = HostPattern::parse(text).ok()?;
    let again = pattern.to_string();
    assert_eq!(HostPattern::parse(&again), Ok(pattern), "{again}");
    Some(again)
}

/// What a proxy answers that may reach nobody: the statuses, one for each request.
pub fn requests(bytes: &[u8]) -> Vec<u16> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        panic!("there is no runtime");
    };
    let answered = tokio::task::LocalSet::new().block_on(&runtime, http::answers(bytes));
    let text = format!("\n{}", String::from_utf8_lossy(&answered));
    // Our own words are on one line each, so that what begins one like this is an answer.
    let answers = text.split("\nHTTP/1.").skip(1);
    let statuses: Vec<u16> = answers
        .map(|answer| answer[2..5].parse().unwrap_or(0))
        .collect();
    for status in &statuses {
        assert!(
            (400..600).contains(status),
            "nobody may be reached, but: {status}"
        );
    }
    statuses
}
