//! Every reader of bytes that come from a box or from the app, under seeds and what becomes of them when they are
//! damaged: no reader panics, and none is more credulous than another reader of the same protocol.
//! The seeds are those of `make fuzz`, which looks longer and deeper.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use cowork_linux::egress::fuzzing::{self, Start};
use cowork_linux::service;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

const ROUNDS: usize = 20_000;
/// Where the other reader is a whole server.
const FEWER: usize = 8_000;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let project = std::env::var_os("CARGO_MANIFEST_DIR");
    let project = project.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let folder = Path::new(&project).join("tests/fuzz/seeds").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 5, "only {} seeds in {folder:?}", files.len());
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// The same numbers in every run, so that what fails once fails again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        // Numbers at the edges of things do the most damage.
        const EDGES: [u8; 12] = [0, 1, 3, 4, 5, 63, 64, 0x7f, 0x80, 0xc0, 0xfe, 0xff];
        match self.below(2) {
            0 => EDGES[self.below(EDGES.len())],
            _ => self.below(256) as u8,
        }
    }

    fn damage(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(7) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                4 if at < bytes.len() => bytes[at] = self.byte(),
                5 => {
                    // The end of another one.
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend(&other[from..]);
                }
                _ => {
                    // A piece of itself once more.
                    let until = at + self.below(16);
                    let piece = bytes[at..until.min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }

    fn noise(&mut self) -> Vec<u8> {
        (0..self.below(80)).map(|_| self.byte()).collect()
    }
}

/// Each seed as it is, then damaged ones, then noise. What was understood is counted: readers that
/// understand nothing prove nothing.
fn throw(target: &str, rounds: usize, mut at: impl FnMut(&[u8]) -> bool) {
    let seeds = seeds(target);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut understood = 0;
    for seed in &seeds {
        at(seed);
    }
    for round in 0..rounds {
        let bytes = match round % 8 {
            0 => dice.noise(),
            _ => dice.damage(&seeds),
        };
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| at(&bytes)));
        match said {
            Ok(said) => understood += usize::from(said),
            Err(_) => panic!("{target}, round {round}: {bytes:02x?}"),
        }
    }
    assert!(
        understood > rounds / 100,
        "{target}: {understood} of {rounds} were understood"
    );
}

#[test]
fn names_that_are_answered_are_the_names_that_were_asked_for() {
    throw("dns", ROUNDS, |packet| {
        let Some(answer) = fuzzing::dns(packet) else {
            return false;
        };
        // What says neither that there is something nor that there is nothing is no answer to a
        // name, and the other reader knows fewer classes.
        if answer[7] == 0 && answer[9] == 0 {
            return false;
        }
        let said = match simple_dns::Packet::parse(&answer) {
            // Kinds that it does not know.
            Err(simple_dns::SimpleDnsError::InvalidQType(_)) => return true,
            said => said.unwrap(),
        };
        if said.answers.is_empty() {
            return true;
        }
        // The question alone: what nobody needs may be as damaged as it likes.
        let mut alone = packet.to_vec();
        alone[2..4].fill(0);
        alone[10..12].fill(0);
        let asked = simple_dns::Packet::parse(&alone).unwrap();
        let name = asked.questions[0].qname.to_string().to_ascii_lowercase();
        assert_eq!(said.questions[0].qname, asked.questions[0].qname);
        assert_eq!(said.answers[0].name, asked.questions[0].qname);
        let below = format!(".{}", fuzzing::KNOWN_BELOW);
        let is_known = name == fuzzing::KNOWN || name.ends_with(&below);
        let is_local = name == "localhost" || name.ends_with(".localhost");
        assert!(is_known || is_local || name.ends_with(".arpa"), "{name}");
        true
    });
}

#[test]
fn socks_asks_for_hosts() {
    throw("socks", ROUNDS, |bytes| fuzzing::socks(bytes).is_some());
}

#[test]
fn patterns_have_one_spelling() {
    throw("host", ROUNDS, |bytes| {
        fuzzing::host_pattern(bytes).is_some()
    });
}

/// What a server of TLS makes of the same bytes: the name, if it takes the hello at all.
fn as_a_server_reads_it(bytes: &[u8]) -> Option<Option<String>> {
    let mut server = rustls::server::Acceptor::default();
    let mut rest = Cursor::new(bytes);
    while (rest.position() as usize) < bytes.len() {
        match server.read_tls(&mut rest) {
            Ok(count) if count > 0 => {}
            _ => return None,
        }
        match server.accept() {
            Ok(Some(accepted)) => {
                let name = accepted
                    .client_hello()
                    .server_name()
                    .map(str::to_ascii_lowercase);
                return Some(name);
            }
            Ok(None) => {}
            Err(_) => return None,
        }
    }
    None
}

#[test]
fn no_server_reads_a_name_that_we_do_not() {
    let mut named = 0;
    throw("tls", FEWER, |bytes| {
        let ours = fuzzing::first_bytes(bytes);
        let theirs = as_a_server_reads_it(bytes);
        named += usize::from(matches!(theirs, Some(Some(_))));
        match (theirs, &ours) {
            // What is refused reaches no server.
            (_, Start::Malformed) | (None, _) => {}
            (Some(name), Start::Tls(ours)) => {
                let name = name.map(|name| name.trim_end_matches('.').to_owned());
                assert_eq!(name, *ours);
            }
            (Some(name), other) => panic!("a hello for {name:?} was taken for {other:?}"),
        }
        ours != Start::Malformed
    });
    assert!(named > FEWER / 100, "{named} hellos with names");
}

/// Whether a server of HTTP/1 takes these bytes for a request.
async fn is_served(bytes: &[u8]) -> bool {
    let (mut client, server) = tokio::io::duplex(64 << 10);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let served = std::cell::Cell::new(false);
    let service = hyper::service::service_fn(|_: Request<hyper::body::Incoming>| {
        served.set(true);
        async { Ok::<_, std::convert::Infallible>(Response::new(Empty::<Bytes>::new())) }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
    // It has all it will ever get.
    let _ = tokio::time::timeout(Duration::from_secs(10), connection).await;
    served.get()
}

#[test]
fn no_request_is_taken_for_something_else() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    throw("http", FEWER, |bytes| {
        let ours = fuzzing::first_bytes(bytes);
        let is_request = runtime.block_on(is_served(bytes));
        if is_request {
            let is_seen = matches!(ours, Start::Http | Start::Malformed);
            assert!(is_seen, "a request was taken for {ours:?}");
        }
        is_request
    });
}

#[test]
fn no_request_reaches_anybody_that_nobody_allowed() {
    throw("requests", FEWER, |bytes| {
        fuzzing::requests(bytes).contains(&403)
    });
}

/// The methods of all messages that another reader of frames and JSON finds, up to the first that is none.
fn as_json_reads_it(mut bytes: &[u8]) -> Vec<Option<String>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some(body) = rest
            .get(..length)
            .filter(|_| (1..=10 << 20).contains(&length))
        else {
            break;
        };
        bytes = &rest[length..];
        let value = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
        let fits = matches!(
            value["params"],
            serde_json::Value::Null | serde_json::Value::Object(_)
        );
        let method = value["method"].as_str().filter(|_| fits);
        all.push(method.map(str::to_owned));
    }
    all
}

#[test]
fn what_the_app_says_is_read_as_anybody_would_read_it() {
    throw("frames", ROUNDS, |bytes| {
        let ours = service::fuzzing::frames(bytes);
        assert_eq!(ours, as_json_reads_it(bytes));
        ours.iter().any(Option::is_some)
    });
    throw("params", ROUNDS, |bytes| {
        service::fuzzing::params(bytes) > 0
    });
}
