//! The other words of the network's flags: published ports, ports of the host, rates.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::host::{Host, shown};
use super::pattern::port;
use crate::policy::Bytes;

/// Where the gateway listens on the box's own loopback.
pub const HTTP_PORT: u16 = 3128;
pub const SOCKS_PORT: u16 = 1080;
pub const CLAUDE_PORT: u16 = 3129;
pub const DNS_PORT: u16 = 53;

/// Strings outside, checked values inside.
macro_rules! spoken {
    ($name:ident) => {
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}
pub(super) use spoken;

/// `-p [IP:]HOSTPORT:BOXPORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Publish {
    pub address: IpAddr,
    /// 0 lets the kernel choose.
    pub outside: u16,
    pub inside: u16,
}

spoken!(Publish);

impl Publish {
    pub fn parse(text: &str) -> Result<Self, String> {
        let because = |why: String| {
            format!(
                "`{}` publishes no port: {why}; write [IP:]HOSTPORT:BOXPORT, as in 8080:80",
                shown(text)
            )
        };
        let two = || because("it needs a port of the host and one of the box".to_owned());
        let (rest, inside) = text.rsplit_once(':').ok_or_else(two)?;
        let inside = port(inside).map_err(because)?;
        // The last colon of an address without port is no border.
        let (address, outside) = match rest.rsplit_once(':') {
            Some((_, end)) if end.ends_with(']') => return Err(two()),
            Some((address, outside)) => (address, outside),
            None => ("127.0.0.1", rest),
        };
        let address = match Host::parse(address) {
            Ok(Host::Address(address)) if address.is_ipv4() || address_in_brackets(rest) => address,
            Ok(_) if address.contains(':') => {
                return Err(because("an IPv6 address stands in brackets".to_owned()));
            }
            _ => return Err(because(format!("`{}` is no address", shown(address)))),
        };
        let outside = match outside {
            "0" => 0,
            outside => port(outside).map_err(because)?,
        };
        Ok(Self {
            address,
            outside,
            inside,
        })
    }
}

fn address_in_brackets(text: &str) -> bool {
    text.starts_with('[')
}

/// The address is left out where it is the usual one.
impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.address != IpAddr::V4(Ipv4Addr::LOCALHOST) {
            write!(f, "{}:", Host::Address(self.address))?;
        }
        write!(f, "{}:{}", self.outside, self.inside)
    }
}

/// `--host-port N`: the box's own 127.0.0.1:N leads to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "u16")]
#[schemars(with = "u16")]
pub struct HostPort(pub u16);

impl HostPort {
    pub fn parse(text: &str) -> Result<Self, String> {
        port(text).and_then(Self::try_from)
    }
}

impl TryFrom<u16> for HostPort {
    type Error = String;

    fn try_from(port: u16) -> Result<Self, String> {
        match port {
            0 => Err("0 is no port of the host; ports are numbers from 1 to 65535".to_owned()),
            HTTP_PORT | SOCKS_PORT | CLAUDE_PORT | DNS_PORT => Err(format!(
                "port {port} is taken in the box: its way to the network listens there; let the \
                 host's program listen at another port"
            )),
            port => Ok(Self(port)),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Bytes in a second, both ways together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rate(pub u64);

impl Rate {
    /// Below this, programs would take a slow line for a dead one.
    pub const LEAST: u64 = 1 << 10;

    /// Reads `512K`, `10M`, `10M/s`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Bytes(rate) = Bytes::parse(text.strip_suffix("/s").unwrap_or(text))?;
        if rate < Self::LEAST {
            return Err(format!(
                "{rate} bytes in a second are too few to work with; give at least 1K"
            ));
        }
        Ok(Self(rate))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bytes(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_ports_are_read_and_said_in_one_form() {
        let cases = [
            ("8080:80", "127.0.0.1", 8080, 80, "8080:80"),
            ("127.0.0.1:8080:80", "127.0.0.1", 8080, 80, "8080:80"),
            ("0:80", "127.0.0.1", 0, 80, "0:80"),
            ("0.0.0.0:1:2", "0.0.0.0", 1, 2, "0.0.0.0:1:2"),
            ("[::1]:65535:1", "::1", 65535, 1, "[::1]:65535:1"),
        ];
        for (text, address, outside, inside, said) in cases {
            let publish = Publish::parse(text).unwrap();
            assert_eq!(
                publish.address,
                address.parse::<IpAddr>().unwrap(),
                "{text}"
            );
            assert_eq!(
                (publish.outside, publish.inside),
                (outside, inside),
                "{text}"
            );
            assert_eq!(publish.to_string(), said);
        }
        for bad in [
            "",
            "80",
            ":80",
            "80:",
            "80:0",
            "a:80",
            "80:a",
            "localhost:1:2",
            "::1:1:2",
            "[::1]:80",
            "1.2.3:1:2",
            "1:2:3:4",
            "-1:2",
            "65536:1",
            "08:1",
            "[127.0.0.1]:1:2",
            "1.1.1.1:80",
            "[::ffff:1.1.1.1:1:2",
        ] {
            let why = Publish::parse(bad).unwrap_err();
            assert!(why.contains("[IP:]HOSTPORT:BOXPORT"), "{bad}: {why}");
        }
    }

    #[test]
    fn a_port_of_the_host_is_not_one_of_ours() {
        assert_eq!(HostPort::parse("5432"), Ok(HostPort(5432)));
        for taken in ["53", "1080", "3128", "3129"] {
            assert!(
                HostPort::parse(taken).unwrap_err().contains("taken"),
                "{taken}"
            );
        }
        for bad in ["", "0", "-1", "65536", "1-2", "http", "05432"] {
            assert!(HostPort::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_sizes_in_a_second() {
        assert_eq!(Rate::parse("10M"), Ok(Rate(10 << 20)));
        assert_eq!(Rate::parse("512K/s"), Ok(Rate(512 << 10)));
        assert_eq!(Rate(10 << 20).to_string(), "10M");
        for bad in ["", "0", "10", "1023", "fast", "-1M", "10M/m"] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }
}
