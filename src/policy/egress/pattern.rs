//! One line of an allow-list: `HOST[:PORTS]`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::addresses::{Class, classify};
use super::host::{Host, Name, shown};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// `*`: every name, and every public address.
    Any,
    Exact(Name),
    /// `*.example.com`: what lies below, not the name itself.
    Below(Name),
    Net(IpNet),
}

/// Ranges of ports, sorted, not overlapping. What is not said means 80 and 443.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ports(Vec<(u16, u16)>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct HostPattern {
    pub target: Target,
    pub ports: Ports,
}

impl Ports {
    /// What a rule that allows means if it says none.
    pub fn usual() -> Self {
        Self(vec![(80, 80), (443, 443)])
    }

    pub fn all() -> Self {
        Self(vec![(1, u16::MAX)])
    }

    /// Port 0 is none, so nothing would be left.
    pub fn one(port: u16) -> Self {
        Self(if port == 0 {
            Vec::new()
        } else {
            vec![(port, port)]
        })
    }

    /// Reads `443`, `80,443`, `8000-8100` and `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::all());
        }
        text.split(',')
            .map(|part| {
                let (low, high) = part.split_once('-').unwrap_or((part, part));
                match (port(low)?, port(high)?) {
                    (low, high) if low <= high => Ok((low, high)),
                    (low, high) => Err(format!("the ports {low}-{high} are the wrong way round")),
                }
            })
            .collect::<Result<Vec<_>, String>>()
            .map(Self::merged)
    }

    /// Sorted, and what overlaps or touches made one.
    pub(super) fn merged(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some((_, end)) if low <= end.saturating_add(1) => *end = high.max(*end),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    pub fn contains(&self, port: u16) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&port))
    }

    /// Whether every port of `others` is one of these.
    pub fn cover(&self, others: &Self) -> bool {
        others.0.iter().all(|(low, high)| {
            self.0
                .iter()
                .any(|(first, last)| first <= low && high <= last)
        })
    }

    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }
}

/// A port as people write it: no sign, no leading zero that could mean another number, not 0.
pub(super) fn port(text: &str) -> Result<u16, String> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain).ok_or_else(|| {
        format!(
            "`{}` is no port; ports are numbers from 1 to 65535",
            shown(text)
        )
    })
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("*");
        }
        for (index, (low, high)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match low == high {
                true => write!(f, "{comma}{low}")?,
                false => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

impl Target {
    pub(super) fn is_name(&self, name: &Name) -> bool {
        match self {
            // This machine is not meant by `*`, nor by a rule for a whole family of names.
            Self::Any | Self::Below(_) if name.is_localhost() => false,
            Self::Any => true,
            Self::Exact(exact) => exact == name,
            Self::Below(parent) => name.is_below(parent),
            Self::Net(_) => false,
        }
    }

    /// Whether every host this stands for is one of `other`'s.
    fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, Self::Any) => true,
            (Self::Exact(name), other) => other.is_name(name),
            (Self::Below(name), Self::Below(parent)) => name == parent || name.is_below(parent),
            (Self::Below(name), Self::Any) => !name.is_localhost(),
            (Self::Net(net), Self::Net(whole)) => net == whole,
            _ => false,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => name.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => {
                Host::from(net.addr()).fmt(f)
            }
            Self::Net(IpNet::V4(net)) => net.fmt(f),
            Self::Net(IpNet::V6(net)) => write!(f, "[{net}]"),
        }
    }
}

impl HostPattern {
    /// Reads `example.com`, `*.example.com:443,8000-8100`, `10.0.0.0/8:5432`, `[2001:db8::1]:22`, `*:*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text, Ports::usual)
    }

    /// The same for a rule that forbids: without ports it means every port.
    pub fn parse_denied(text: &str) -> Result<Self, String> {
        Self::read(text, Ports::all)
    }

    fn read(text: &str, unsaid: fn() -> Ports) -> Result<Self, String> {
        let because = |why: String| format!("`{}` names no host to match: {why}", shown(text));
        let (host, ports) = split(text).map_err(because)?;
        Ok(Self {
            target: target(host).map_err(because)?,
            ports: ports
                .map_or_else(|| Ok(unsaid()), Ports::parse)
                .map_err(because)?,
        })
    }

    /// Whether everything this allows is allowed by `other`.
    pub fn within(&self, other: &Self) -> bool {
        self.target.within(&other.target) && other.ports.cover(&self.ports)
    }
}

/// The host's part and the ports' part. Only an IPv6 address in brackets may have colons.
fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    if text.contains("://") {
        return Err("leave out the scheme before `//`, and the path; write the host alone".into());
    }
    let after_brackets = text.find(']').map_or(0, |end| end + 1);
    match text[after_brackets..].split_once(':') {
        None => Ok((text, None)),
        Some((_, ports)) if ports.contains(':') => {
            Err("write an IPv6 address in brackets: `[2001:db8::1]:443`".into())
        }
        Some((_, ports)) => Ok((&text[..text.len() - ports.len() - 1], Some(ports))),
    }
}

fn target(text: &str) -> Result<Target, String> {
    if text == "*" {
        return Ok(Target::Any);
    }
    if let Some(parent) = text.strip_prefix("*.") {
        return match Host::parse(parent).map_err(|e| e.why.to_owned())? {
            Host::Name(name) => Ok(Target::Below(name)),
            Host::Address(_) => Err("nothing lies below an address".into()),
        };
    }
    if text.contains('/') {
        return net(text).map(Target::Net);
    }
    match Host::parse(text).map_err(|e| e.why.to_owned())? {
        Host::Name(name) => Ok(Target::Exact(name)),
        Host::Address(address) if classify(address) == Class::Unspecified => {
            Err("nobody has this address; write the one that is meant".into())
        }
        Host::Address(address) => Ok(Target::Net(address.into())),
    }
}

/// `10.0.0.0/8`, `[2001:db8::/32]` or `[2001:db8::]/32`.
fn net(text: &str) -> Result<IpNet, String> {
    let (address, length) = match text.strip_prefix('[') {
        None => text.split_once('/'),
        Some(rest) => rest
            .strip_suffix(']')
            .and_then(|inner| inner.split_once('/'))
            .or_else(|| rest.split_once("]/")),
    }
    .unwrap_or((text, ""));
    let plain = !length.is_empty()
        && length.bytes().all(|b| b.is_ascii_digit())
        && (length == "0" || !length.starts_with('0'));
    let address = match (text.starts_with('['), plain) {
        (_, false) => None,
        (true, true) => address.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        (false, true) => address.parse().ok(),
    };
    let net = address
        .zip(length.parse().ok())
        .and_then(|(address, length)| IpNet::new(address, length).ok())
        .ok_or("before the slash belongs an address, after it the length of its prefix, as in 10.0.0.0/8")?;
    if net.addr() != net.network() {
        return Err(format!(
            "the net it lies in is {}",
            Target::Net(net.trunc())
        ));
    }
    if matches!(net, IpNet::V6(net) if net.addr().to_ipv4_mapped().is_some()) {
        return Err("write IPv4 addresses as such, as in 10.0.0.0/8".into());
    }
    if net.prefix_len() == net.max_prefix_len() && net.addr().is_unspecified() {
        return Err("nobody has this address; write the one that is meant".into());
    }
    Ok(net)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)?;
        if self.ports == Ports::usual() {
            return Ok(());
        }
        write!(f, ":{}", self.ports)
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        HostPattern::parse(text).unwrap().to_string()
    }

    #[test]
    fn patterns_are_read_and_said_in_one_form() {
        let cases = [
            ("example.com", "example.com"),
            ("EXAMPLE.com.", "example.com"),
            ("example.com:443,80", "example.com"),
            ("example.com:443", "example.com:443"),
            ("example.com:*", "example.com:*"),
            ("example.com:1-65535", "example.com:*"),
            (
                "example.com:22,20-21,8000-8100,8050-8200",
                "example.com:20-22,8000-8200",
            ),
            ("*.Example.com", "*.example.com"),
            ("*", "*"),
            ("*:*", "*:*"),
            ("192.0.2.1:22", "192.0.2.1:22"),
            ("192.0.2.1/32", "192.0.2.1"),
            ("10.0.0.0/8:5432", "10.0.0.0/8:5432"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("[2001:db8::1]:22", "[2001:db8::1]:22"),
            ("[2001:db8::]/32", "[2001:db8::/32]"),
            ("[2001:db8::/32]:22", "[2001:db8::/32]:22"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ];
        for (text, said) in cases {
            assert_eq!(again(text), said, "{text}");
            assert_eq!(again(said), said, "{said}");
        }
    }

    #[test]
    fn a_rule_that_forbids_means_every_port() {
        let denied = HostPattern::parse_denied("example.com").unwrap();
        assert!(denied.ports.contains(22));
        assert_eq!(denied.to_string(), "example.com:*");
        let said = HostPattern::parse_denied("example.com:25").unwrap();
        assert!(!said.ports.contains(22));
    }

    #[test]
    fn what_cannot_be_matched_is_refused_and_said_why() {
        let cases = [
            ("", "empty"),
            (":443", "empty"),
            ("https://example.com/", "scheme"),
            ("example.com/path", "prefix"),
            ("user@example.com", "user"),
            ("exa*mple.com", "front"),
            ("*example.com", "front"),
            ("*.*.com", "front"),
            ("**", "front"),
            ("*.", "empty"),
            ("*.10.0.0.1", "address"),
            ("example.com:", "port"),
            ("example.com:0", "port"),
            ("example.com:080", "port"),
            ("example.com:+80", "port"),
            ("example.com:65536", "port"),
            ("example.com:90-80", "wrong way"),
            ("example.com:80,,81", "port"),
            ("example.com:https", "port"),
            ("2001:db8::1", "brackets"),
            ("::1:443", "brackets"),
            ("[fe80::1%eth0]", "zone"),
            ("[::1]443", "brackets"),
            ("0.0.0.0", "nobody"),
            ("0.0.0.0/32", "nobody"),
            ("[::]", "nobody"),
            ("[::/128]", "nobody"),
            ("10.0.0.5/8", "10.0.0.0/8"),
            ("[2001:db8::1/32]", "[2001:db8::/32]"),
            ("10.0.0.0/33", "prefix"),
            ("10.0.0.0/08", "prefix"),
            ("10.0.0.0/", "prefix"),
            ("10.0.0.0/+8", "prefix"),
            ("[10.0.0.0/8]", "prefix"),
            ("[::ffff:0:0/96]", "IPv4"),
            ("0x7f000001", "number"),
            ("127.1", "number"),
            ("bücher.example", "xn--"),
            ("exam ple.com", "space"),
        ];
        for (text, word) in cases {
            let why = HostPattern::parse(text).unwrap_err();
            assert!(why.contains(word), "{text:?}: {why}");
        }
    }

    #[test]
    fn one_pattern_lies_within_another_only_if_all_of_it_does() {
        let within = |a: &str, b: &str| {
            HostPattern::parse(a)
                .unwrap()
                .within(&HostPattern::parse(b).unwrap())
        };
        assert!(within("a.example.com:443", "*.example.com"));
        assert!(within("*.a.example.com", "*.example.com"));
        assert!(within("example.com", "*"));
        assert!(within("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!within("example.com", "*.example.com"));
        assert!(!within("a.example.com:22", "*.example.com"));
        assert!(!within("*", "*.example.com"));
        assert!(!within("localhost", "*"));
        assert!(!within("127.0.0.1", "*"));
        assert!(!within("10.0.0.1", "10.0.0.0/8"));
    }
}
