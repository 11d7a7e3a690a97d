//! What the first bytes of a connection say about whom it is for: TLS's server name, HTTP's Host.
//!
//! Where a server would read a name and this reader would not, a wall has a hole. So whatever
//! begins like TLS or HTTP and then leaves the rules is malformed, never "something else".

use crate::policy::egress::Name;

/// As much as is ever looked at.
pub(super) const LONGEST_START: usize = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sniffed {
    /// Not enough bytes yet to tell.
    More,
    /// A TLS ClientHello, with the server name if it has one.
    Tls { name: Option<Name> },
    /// The beginning of an HTTP/1 request.
    Http,
    /// HTTP/2 without TLS: what it asks for is packed, and not seen.
    Http2,
    /// Something else: nothing can be seen.
    Other,
    /// TLS or HTTP that breaks its own rules in a way that could hide a name (two names, a name
    /// that is none, a hello that does not fit its own lengths).
    Malformed(&'static str),
}

/// What bytes are if no more follow; more of them may tell otherwise.
struct Unclear(Sniffed);

type Look = Result<Sniffed, Unclear>;

/// Looks at the first bytes; `more_may_come` is false when the peer has gone quiet or the buffer
/// is full, and then the answer is never `More`. An answer other than `More` stays the same
/// whatever follows.
pub(super) fn sniff(bytes: &[u8], more_may_come: bool) -> Sniffed {
    match look(bytes) {
        Ok(sniffed) => sniffed,
        Err(Unclear(_)) if more_may_come => Sniffed::More,
        Err(Unclear(sniffed)) => sniffed,
    }
}

fn look(bytes: &[u8]) -> Look {
    const CUT: Sniffed = Sniffed::Malformed("TLS that breaks off before its hello is over");
    match bytes {
        [] => Err(Unclear(Sniffed::Other)),
        [HANDSHAKE, 3, ..] => hello_in_records(bytes),
        // Some servers pass over a warning before the hello.
        [0x14..=0x18, 3, ..] => Ok(Sniffed::Malformed("TLS that does not begin with a hello")),
        [0x14..=0x18] => Err(Unclear(CUT)),
        _ => text(bytes),
    }
}

const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;

/// Collects a hello from as many records as it was cut into.
fn hello_in_records(bytes: &[u8]) -> Look {
    const CUT: Sniffed = Sniffed::Malformed("a TLS hello that breaks off");
    let wrong = |why| Ok(Sniffed::Malformed(why));
    let mut hello = Vec::new();
    let mut rest = bytes;
    loop {
        let [kind, major, _, high, low, payload @ ..] = rest else {
            return Err(Unclear(CUT));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if (*kind, *major) != (HANDSHAKE, 3) {
            return wrong("something between the parts of a TLS hello");
        }
        if length == 0 || length > 1 << 14 {
            return wrong("a TLS record of no possible length");
        }
        hello.extend_from_slice(&payload[..length.min(payload.len())]);
        if let [kind, ..] = hello[..]
            && kind != CLIENT_HELLO
        {
            return wrong("TLS that does not begin with a hello");
        }
        if let [_, a, b, c, body @ ..] = &hello[..] {
            let needed = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if needed > LONGEST_START {
                return wrong("a TLS hello longer than any");
            }
            if let Some(body) = body.get(..needed) {
                let found = server_name_of(&mut Reader(body));
                return Ok(found.unwrap_or_else(Sniffed::Malformed));
            }
        }
        match payload.get(length..) {
            Some(next) => rest = next,
            None => return Err(Unclear(CUT)),
        }
    }
}

fn server_name_of(hello: &mut Reader<'_>) -> Result<Sniffed, &'static str> {
    const MISFIT: &str = "a TLS hello that does not fit its own lengths";
    // Version, random bytes, session, ciphers, compression.
    hello.take(2 + 32).ok_or(MISFIT)?;
    hello.vector(1).ok_or(MISFIT)?;
    hello.vector(2).ok_or(MISFIT)?;
    hello.vector(1).ok_or(MISFIT)?;
    let mut name = None;
    if !hello.0.is_empty() {
        let mut extensions = Reader(hello.vector(2).ok_or(MISFIT)?);
        while !extensions.0.is_empty() {
            let kind = extensions.take(2).ok_or(MISFIT)?;
            let content = extensions.vector(2).ok_or(MISFIT)?;
            if kind == [0, 0] {
                let one = one_name(&mut Reader(content))?;
                if name.replace(one).is_some() {
                    return Err("a TLS hello with two lists of server names");
                }
            }
        }
    }
    match hello.0 {
        [] => Ok(Sniffed::Tls { name }),
        _ => Err(MISFIT),
    }
}

fn one_name(content: &mut Reader<'_>) -> Result<Name, &'static str> {
    const MISFIT: &str = "a TLS hello without exactly one server name in its list";
    let mut list = Reader(content.vector(2).ok_or(MISFIT)?);
    let kind = list.take(1).ok_or(MISFIT)?;
    let name = list.vector(2).ok_or(MISFIT)?;
    if kind != [0] || !list.0.is_empty() || !content.0.is_empty() {
        return Err(MISFIT);
    }
    let text = std::str::from_utf8(name).ok();
    text.and_then(|text| Name::parse(text).ok())
        .ok_or("a TLS server name that is no name")
}

/// Takes pieces off the front, or nothing at all if there is too little.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (piece, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(piece)
    }

    /// Bytes with their length before them, in so many bytes.
    fn vector(&mut self, length_of_length: usize) -> Option<&'a [u8]> {
        let digits = self.take(length_of_length)?;
        let length = digits
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        self.take(length)
    }
}

const METHODS: [&[u8]; 21] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"QUERY",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"SEARCH",
    b"REPORT",
    b"PURGE",
    b"PRI",
];
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const BROKEN_OFF: Sniffed = Sniffed::Malformed("an HTTP request that breaks off in its first line");

/// Whether a line of text is the first of a request.
fn text(bytes: &[u8]) -> Look {
    if bytes.starts_with(HTTP2) {
        return Ok(Sniffed::Http2);
    }
    if HTTP2.starts_with(bytes) {
        return Err(Unclear(BROKEN_OFF));
    }
    // Servers pass over empty lines and spaces before a request.
    let blank = |byte: &u8| matches!(byte, b'\r' | b'\n' | b' ' | b'\t');
    let Some(start) = bytes.iter().position(|byte| !blank(byte)) else {
        return Err(Unclear(BROKEN_OFF));
    };
    let line = &bytes[start..];
    let Some(end) = line.iter().position(|byte| !is_token(*byte)) else {
        let is_begun = METHODS.iter().any(|method| method.starts_with(line));
        return Err(Unclear(if is_begun { BROKEN_OFF } else { Sniffed::Other }));
    };
    let (word, rest) = line.split_at(end);
    match rest {
        [b' ' | b'\t', target @ ..] if end > 0 => match METHODS.contains(&word) {
            true if is_target(target) => Ok(Sniffed::Http),
            true => first_line(target, BROKEN_OFF),
            // Methods can be made up.
            false => first_line(target, Sniffed::Other),
        },
        _ => Ok(Sniffed::Other),
    }
}

/// Whether this is certainly what is asked for in a request.
fn is_target(bytes: &[u8]) -> bool {
    let scheme = bytes.get(..4).unwrap_or_default();
    matches!(bytes, [b'/' | b'*', ..]) || scheme.eq_ignore_ascii_case(b"http")
}

/// What the rest of a line makes it, up to its end or to what no line has. `otherwise` is for one
/// that is not over, or no text.
fn first_line(rest: &[u8], otherwise: Sniffed) -> Look {
    let is_end = |byte: &u8| matches!(byte, 0..0x20 | 0x7f) && !matches!(byte, b'\t' | b'\r');
    let Some(end) = rest.iter().position(is_end) else {
        return Err(Unclear(otherwise));
    };
    if rest[end] != b'\n' {
        return Ok(otherwise);
    }
    let words = rest[..end].split(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    let is_version = |word: &[u8]| {
        word.get(..5)
            .is_some_and(|w| w.eq_ignore_ascii_case(b"http/"))
    };
    Ok(match words.into_iter().any(is_version) {
        true => Sniffed::Http,
        false => Sniffed::Other,
    })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::super::testing::hello;
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn vector(length_of_length: usize, content: &[u8]) -> Vec<u8> {
        let mut bytes = content.len().to_be_bytes()[8 - length_of_length..].to_vec();
        bytes.extend(content);
        bytes
    }

    fn server_name(names: &[(u8, &[u8])]) -> Vec<u8> {
        let list: Vec<u8> = names
            .iter()
            .flat_map(|(kind, name)| [vec![*kind], vector(2, name)].concat())
            .collect();
        [vec![0, 0], vector(2, &vector(2, &list))].concat()
    }

    /// The message without any record around it.
    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend(vector(1, &[9; 32]));
        body.extend(vector(2, &[0x13, 1, 0x13, 2]));
        body.extend(vector(1, &[0]));
        body.extend(vector(2, &extensions.concat()));
        [vec![CLIENT_HELLO], vector(3, &body)].concat()
    }

    fn record(content: &[u8]) -> Vec<u8> {
        [vec![HANDSHAKE, 3, 1], vector(2, content)].concat()
    }

    /// Looks at the bytes as if they came one by one, and once as a whole.
    fn decided(bytes: &[u8]) -> Sniffed {
        let whole = sniff(bytes, true);
        let first = (0..=bytes.len()).find(|end| sniff(&bytes[..*end], true) != Sniffed::More);
        if let Some(first) = first {
            for end in first..=bytes.len() {
                assert_eq!(sniff(&bytes[..end], true), whole, "after {end} bytes");
            }
        }
        whole
    }

    #[test]
    fn a_real_hello_shows_its_name() {
        let said = hello("api.example.com");
        let wanted = Sniffed::Tls {
            name: Some(name("api.example.com")),
        };
        assert_eq!(decided(&said), wanted);
        // The same, each byte in a record of its own.
        let pieces: Vec<u8> = said[5..].iter().flat_map(|byte| record(&[*byte])).collect();
        assert_eq!(sniff(&pieces, true), wanted);
        // An address is not said.
        let unnamed = hello("192.0.2.1");
        assert_eq!(decided(&unnamed), Sniffed::Tls { name: None });
    }

    #[test]
    fn a_hello_has_one_name_or_none() {
        let good: (u8, &[u8]) = (0, b"Example.COM");
        let seen = |extensions: &[Vec<u8>]| decided(&record(&message(extensions)));
        let named = Sniffed::Tls {
            name: Some(name("example.com")),
        };
        let other = vec![0, 23, 0, 0];
        assert_eq!(seen(&[]), Sniffed::Tls { name: None });
        assert_eq!(seen(&[other.clone(), server_name(&[good])]), named);
        let wrong: [(&str, Vec<Vec<u8>>); 10] = [
            ("two names", vec![server_name(&[good, (0, b"evil.test")])]),
            (
                "two lists",
                vec![server_name(&[good]), other, server_name(&[good])],
            ),
            ("no name", vec![server_name(&[])]),
            ("no list", vec![vec![0, 0, 0, 0]]),
            ("another kind", vec![server_name(&[(1, b"example.com")])]),
            ("an empty name", vec![server_name(&[(0, b"")])]),
            (
                "a zero byte",
                vec![server_name(&[(0, b"example.com\0.evil")])],
            ),
            ("an address", vec![server_name(&[(0, b"127.0.0.1")])]),
            ("no letters", vec![server_name(&[(0, &[0xff, 0xfe])])]),
            ("too long", vec![server_name(&[(0, &[b'a'; 300])])]),
        ];
        for (what, extensions) in wrong {
            let seen = seen(&extensions);
            assert!(matches!(seen, Sniffed::Malformed(_)), "{what}: {seen:?}");
        }
    }

    #[test]
    fn a_hello_without_extensions_is_one_without_a_name() {
        let whole = message(&[]);
        let body = &whole[4..whole.len() - 2];
        let bare = [vec![CLIENT_HELLO], vector(3, body)].concat();
        assert_eq!(decided(&record(&bare)), Sniffed::Tls { name: None });
    }

    #[test]
    fn tls_that_leaves_its_rules_is_not_something_else() {
        let good = message(&[server_name(&[(0, b"example.com")])]);
        let warning = [0x15, 3, 1, 0, 2, 1, 0];
        let mut too_long = record(&good);
        too_long[3] = 0xff;
        let mut longer_inside = good.clone();
        longer_inside[3] += 1;
        longer_inside.push(0);
        let mut endless = good.clone();
        endless[1] = 0xff;
        let cases: [(&str, Vec<u8>); 8] = [
            ("a warning first", [&warning[..], &record(&good)].concat()),
            (
                "a warning between",
                [&record(&good[..9])[..], &warning, &record(&good[9..])].concat(),
            ),
            (
                "an empty record",
                [&record(&[])[..], &record(&good)].concat(),
            ),
            ("a record too long", too_long),
            ("a byte too many", record(&longer_inside)),
            ("a hello too long", record(&endless)),
            ("another message", record(&[2, 0, 0, 1, 0])),
            ("data first", vec![0x17, 3, 3, 0, 1, 0]),
        ];
        for (what, bytes) in cases {
            let seen = decided(&bytes);
            assert!(matches!(seen, Sniffed::Malformed(_)), "{what}: {seen:?}");
        }
        for cut in 1..record(&good).len() {
            let seen = sniff(&record(&good)[..cut], false);
            assert!(matches!(seen, Sniffed::Malformed(_)), "{cut}: {seen:?}");
        }
    }

    #[test]
    fn requests_are_known_by_their_first_line() {
        for request in [
            "GET / HTTP/1.1\r\n",
            "POST /x",
            "OPTIONS * HTTP/1.1\r\n",
            "GET http://example.com/ HTTP/1.1\r\n",
            "CONNECT example.com:443 HTTP/1.1\r\n",
            "\r\n\r\nGET / HTTP/1.0\r\n",
            "  GET\t/ HTTP/1.1\r\n",
            "BREW pot HTTP/1.1\r\n",
            "get /x http/1.1\n",
            "PRI * HTTP/1.1\r\n",
            "GET x HTTP/2.0\r\n",
        ] {
            assert_eq!(decided(request.as_bytes()), Sniffed::Http, "{request:?}");
        }
        assert_eq!(decided(HTTP2), Sniffed::Http2);
    }

    #[test]
    fn what_is_neither_is_passed_on_soon() {
        for other in [
            &b"SSH-2.0-OpenSSH_10.0p2 Debian-5\r\n"[..],
            b"EHLO box.example\r\n",
            b"QUIT\r\n",
            b"USER anonymous\r\n",
            b"get key\r\n",
            b"GET key\r\n",
            b"OPTIONS rtsp://example.com/ RTSP/1.0\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
            b"\x80\x2e\x01\x03\x01",
            b"\x16\x02\x00",
            b"<stream>",
            b"{\"id\":1}\n",
            b"AMQP\x00\x00\x09\x01",
            b"0033git-upload-pack /project.git\0host=example.com\0",
            b"\xff\xfb\x01",
            b"/",
        ] {
            assert_eq!(decided(other), Sniffed::Other, "{other:?}");
        }
    }

    #[test]
    fn a_pause_hides_no_request() {
        for begun in [
            &b"G"[..],
            b"GE",
            b"GET",
            b"GET ",
            b"GET htt",
            b"\r\n",
            b"PRI * HTT",
            b"GET x\x01",
            b"\x16",
        ] {
            let seen = sniff(begun, false);
            assert!(matches!(seen, Sniffed::Malformed(_)), "{begun:?}: {seen:?}");
        }
        // But somebody who is no such client is not kept waiting.
        for other in [&b"HELLO"[..], b"hello there", b""] {
            assert_eq!(sniff(other, true), Sniffed::More);
            assert_eq!(sniff(other, false), Sniffed::Other);
        }
    }
}
