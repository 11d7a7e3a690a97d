//! What a program may call a host: a name in one spelling, or an address in one spelling.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// A name as the Domain Name System compares it: lower case, ASCII, no dot at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    Name(Name),
    Address(IpAddr),
}

/// Why something is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no host: {why}")]
pub struct BadHost {
    /// As it was written, fit to be printed.
    pub text: String,
    pub why: &'static str,
}

impl BadHost {
    fn new(text: &str, why: &'static str) -> Self {
        Self {
            text: shown(text),
            why,
        }
    }
}

/// A text of unknown origin, fit for a terminal and a log: nothing in it moves a cursor, turns
/// the direction of writing, or fills the screen.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            shown.push_str("...");
            break;
        }
        if c.is_ascii_graphic() || c.is_alphanumeric() {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

impl Name {
    const LONGEST: usize = 253;
    const LONGEST_LABEL: usize = 63;

    pub fn parse(text: &str) -> Result<Self, BadHost> {
        check(text).map_err(|why| BadHost::new(text, why))?;
        let mut name = text.to_ascii_lowercase();
        if name.ends_with('.') {
            name.pop();
        }
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name lies below `parent`, at any depth, and is not `parent` itself.
    pub fn is_below(&self, parent: &Name) -> bool {
        // The dot is what `evilexample.com` lacks.
        self.0
            .strip_suffix(parent.as_str())
            .is_some_and(|rest| rest.ends_with('.'))
    }

    /// `localhost` and what lies below: this machine, whatever a name server says.
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if !text.is_ascii() {
        return Err("it has letters beyond ASCII; write it in its `xn--` form");
    }
    let whole = text.strip_suffix('.').unwrap_or(text);
    if whole.len() > Name::LONGEST {
        return Err("a name has at most 253 letters");
    }
    if let Some(odd) = whole.bytes().find(|b| !is_name_byte(*b)) {
        return Err(match odd {
            b'@' => "a user's name has no place in it",
            b'%' => "percent signs and zones have no place in it",
            b'[' | b']' => "brackets stand around an IPv6 address and nothing else",
            b':' => "a colon has no place in a name, and it is no IPv6 address",
            b'/' => "a slash has no place in it; write the host alone",
            b'*' => "`*` is no host; it stands at the front of a pattern only",
            b' ' | b'\t' | b'\n' | b'\r' => "it has a space in it",
            _ => "a name has letters, digits, `-`, `_` and dots only",
        });
    }
    for label in whole.split('.') {
        if label.is_empty() {
            return Err("it has an empty part between its dots");
        }
        if label.len() > Name::LONGEST_LABEL {
            return Err("a part between dots has at most 63 letters");
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err("a part between dots neither starts nor ends with `-`");
        }
    }
    if whole.rsplit('.').next().is_some_and(is_number) {
        return Err(
            "it ends in a number as an address does, and is no address in its usual \
                    form of four decimal numbers",
        );
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// Whether some reader of addresses takes this for a number: decimal, octal or hexadecimal. What
/// ends so is an address to one program and a name to the next, which is how walls are passed.
fn is_number(label: &str) -> bool {
    let bytes = label.as_bytes();
    match bytes {
        [b'0', b'x' | b'X', rest @ ..] => rest.iter().all(u8::is_ascii_hexdigit),
        _ => bytes.iter().all(u8::is_ascii_digit),
    }
}

impl Host {
    /// Reads `example.com`, `EXAMPLE.com.`, `192.0.2.1`, `[2001:db8::1]` and `2001:db8::1`.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if let Some(rest) = text.strip_prefix('[') {
            return rest
                .strip_suffix(']')
                .and_then(|inner| inner.parse::<Ipv6Addr>().ok())
                .map(|address| Self::from(IpAddr::V6(address)))
                .ok_or_else(|| {
                    BadHost::new(
                        text,
                        "between brackets belongs an IPv6 address, without zone",
                    )
                });
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::from(IpAddr::V4(address)));
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::from(IpAddr::V6(address)));
        }
        Name::parse(text).map(Self::Name)
    }
}

/// An IPv4 address in an IPv6 one's clothes is an IPv4 address, so that no rule is passed by the
/// other spelling.
impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses of the sixth version stand in brackets, ready for a port.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = BadHost;

    fn try_from(text: String) -> Result<Self, BadHost> {
        Self::parse(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl TryFrom<String> for Host {
    type Error = BadHost;

    fn try_from(text: String) -> Result<Self, BadHost> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn a_name_has_one_spelling() {
        for same in ["example.com", "EXAMPLE.com", "example.com.", "eXample.COM."] {
            assert_eq!(name(same).as_str(), "example.com", "{same}");
        }
        for good in [
            "a",
            "localhost",
            "_dmarc.example.com",
            "xn--fa-hia.de",
            "XN--FA-HIA.de",
            "3com.com",
            "1.2.3.example",
            "0x7f.example",
            "a-b.c--d.e",
            "127.0.0.1.example.com",
            "x0x1",
        ] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_and_said_to_be() {
        let long_label = "a".repeat(64);
        let long = format!("{}.com", ["a"; 126].join("."));
        let cases = [
            ("", "empty"),
            (".", "empty part"),
            ("a..b", "empty part"),
            (".example.com", "empty part"),
            ("example.com..", "empty part"),
            ("faß.de", "xn--"),
            ("example\u{3002}com", "xn--"),
            ("ｅxample.com", "xn--"),
            ("example.com\u{a0}", "xn--"),
            ("１２７.0.0.1", "xn--"),
            ("user@example.com", "user"),
            ("example%2ecom", "percent"),
            ("fe80::1%eth0", "colon"),
            ("[example.com]", "brackets"),
            ("example.com]", "brackets"),
            ("[::1", "IPv6"),
            ("[::1]x", "IPv6"),
            ("[127.0.0.1]", "IPv6"),
            ("[fe80::1%25eth0]", "IPv6"),
            ("[fe80::1%eth0]", "IPv6"),
            ("[]", "IPv6"),
            ("example.com:80", "colon"),
            ("https://example.com", "colon"),
            ("example.com/x", "slash"),
            ("*.example.com", "pattern"),
            ("a b", "space"),
            ("a\n", "space"),
            ("a\0b", "letters"),
            ("a\\b", "letters"),
            ("-a.com", "`-`"),
            ("a-.com", "`-`"),
            (&long_label, "63"),
            (&long, "253"),
        ];
        for (text, word) in cases {
            let why = Host::parse(text).unwrap_err().to_string();
            assert!(why.contains(word), "{text:?}: {why}");
        }
        assert!(Name::parse(&long[2..]).is_ok());
        assert!(Name::parse(&format!("{}.", &long[2..])).is_ok());
    }

    #[test]
    fn what_some_reader_takes_for_an_address_is_no_name() {
        for text in [
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "0",
            "0x",
            "0X7F.1",
            "017700000001",
            "127.0.0.1.",
            "1.2.3.4.5",
            "example.1",
            "example.0xff",
            "256.1.1.1",
            "1.2.3.04",
            "2852039166",
            "0x7f.0.0.1",
            "00.0.0.0",
        ] {
            let why = Host::parse(text).unwrap_err().to_string();
            assert!(why.contains("number"), "{text}: {why}");
        }
    }

    #[test]
    fn addresses_are_read_in_their_usual_form() {
        let host = |text: &str| Host::parse(text).unwrap().to_string();
        assert_eq!(host("192.0.2.1"), "192.0.2.1");
        assert_eq!(host("[2001:DB8::1]"), "[2001:db8::1]");
        assert_eq!(host("2001:db8:0:0::1"), "[2001:db8::1]");
        assert_eq!(host("[::ffff:7f00:1]"), "127.0.0.1");
        assert_eq!(host("::ffff:127.0.0.1"), "127.0.0.1");
    }

    #[test]
    fn below_means_below_a_dot() {
        let parent = name("example.com");
        for below in ["a.example.com", "a.b.EXAMPLE.com."] {
            assert!(name(below).is_below(&parent), "{below}");
        }
        for other in [
            "example.com",
            "evilexample.com",
            "example.com.evil.test",
            "com",
            "example.org",
        ] {
            assert!(!name(other).is_below(&parent), "{other}");
        }
    }

    #[test]
    fn a_hostile_name_is_shown_without_its_teeth() {
        let long = format!("\u{1b}[2Jx\u{202e}{}", "y".repeat(500));
        let said = Host::parse(&long).unwrap_err().to_string();
        assert!(
            said.len() < 200 && !said.contains(['\u{1b}', '\u{202e}']),
            "{said}"
        );
    }
}
