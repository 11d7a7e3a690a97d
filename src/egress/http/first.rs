//! The first line somebody says at a door for HTTP/1, looked at before it is read: whoever speaks
//! something else is told so in a sentence.

use std::time::Duration;

use hyper::Uri;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::wrong::Wrong;

/// A line that is longer is left to the reader of requests.
const LONGEST: usize = 8 << 10;

/// Reads up to the end of the first line. Nothing if nobody says anything.
pub(super) async fn read(stream: &mut TcpStream, patience: Duration) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let reading = async {
        while bytes.len() < LONGEST && is_open(&bytes) {
            match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
    };
    let _ = tokio::time::timeout(patience, reading).await;
    (!bytes.is_empty()).then_some(bytes)
}

/// Whether this could still become the line of a request.
fn is_open(bytes: &[u8]) -> bool {
    !line(bytes).1 && bytes.first().is_none_or(|first| !is_foreign(*first))
}

/// No request begins with a control character; other protocols do.
fn is_foreign(first: u8) -> bool {
    first < b' ' && first != b'\r' && first != b'\n' || first >= 0x7f
}

/// The first line that has anything in it, and whether it is whole.
fn line(bytes: &[u8]) -> (&[u8], bool) {
    let text = bytes.trim_ascii_start();
    match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (text[..end].trim_ascii_end(), true),
        None => (text, false),
    }
}

/// What is wrong with it, if it is whole and no request's.
pub(super) fn check(bytes: &[u8]) -> Result<(), Wrong> {
    match bytes {
        [0x16, ..] => {
            return Err(Wrong::request(
                "this is a proxy for plain HTTP: name it with http://, also for https sites",
            ));
        }
        [4 | 5, ..] => {
            return Err(Wrong::request(
                "this is a proxy for HTTP; the one for SOCKS is at port 1080",
            ));
        }
        [first, ..] if is_foreign(*first) => {
            return Err(Wrong::request("this is no request of HTTP/1"));
        }
        _ => {}
    }
    let (line, is_whole) = line(bytes);
    if !is_whole {
        return Ok(());
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return Err(Wrong::request("a request's first line is plain text"));
    };
    let mut words = text.split(' ');
    let (_, target, version) = (words.next(), words.next(), words.next());
    match (target, version, words.next()) {
        (Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) => match target.parse::<Uri>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Wrong::request("the request asks for what is no address")),
        },
        (_, Some(version), None) if version.starts_with("HTTP/") => {
            Err(Wrong::request("only HTTP/1.1 and HTTP/1.0 are spoken here"))
        }
        _ => Err(Wrong::request(
            "a request's first line is a method, an address and HTTP/1.1",
        )),
    }
}
