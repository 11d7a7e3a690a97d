//! A refusal, for whoever has to act on it: a person, a model, a log.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::addresses::Class;
use super::host::{Host, shown};
use super::pattern::Ports;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No rule names the host.
    NotListed,
    /// A rule names the host, but not this port.
    Port,
    /// A rule forbids it by name.
    Denied,
    /// The address is none of the public internet, and no rule lists it.
    Address { class: Class, address: IpAddr },
    /// The name on the inside of the connection is another one.
    OtherName(String),
    /// The name does not exist outside, or nobody could be asked.
    Unresolved(String),
    /// Nobody answered outside.
    Unreachable(String),
    /// What was asked for is no host, or no request.
    Malformed(String),
    /// As many connections as there may be.
    TooMany,
}

impl Reason {
    /// A rule, or the want of one: not a failure of the network.
    pub fn is_by_rule(&self) -> bool {
        match self {
            Self::NotListed | Self::Port | Self::Denied | Self::Address { .. } => true,
            Self::OtherName(_) => true,
            Self::Unresolved(_) | Self::Unreachable(_) | Self::Malformed(_) | Self::TooMany => {
                false
            }
        }
    }
}

/// A refusal in words: what, why, and what would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The host as asked for, cleaned of control characters and cut to a bearable length.
    pub host: String,
    pub port: u16,
    pub reason: Reason,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
}

impl Refusal {
    /// `host` may be whatever somebody sent; it is cleaned here.
    pub fn new(host: impl fmt::Display, port: u16, reason: Reason) -> Self {
        Self {
            host: shown(&host.to_string()),
            port,
            reason,
            rule: None,
        }
    }

    pub(super) fn by(self, rule: &str) -> Self {
        Self {
            rule: Some(rule.to_owned()),
            ..self
        }
    }

    /// One sentence a person or a model can act on, with the flag that would allow it.
    pub fn sentence(&self) -> String {
        let (host, port) = (&self.host, self.port);
        let what = match &self.reason {
            Reason::NotListed => format!("{host} is not on the list of hosts this box may reach"),
            Reason::Port => format!(
                "{host} may be reached, but not at port {port}{}",
                self.rule_in_brackets()
            ),
            Reason::Denied => format!(
                "{host} at port {port} is forbidden for this box{}",
                self.rule_in_brackets()
            ),
            Reason::Address { class, address } if *host == Host::from(*address).to_string() => {
                format!("{host} is {}, which no rule lists", class.words())
            }
            Reason::Address { class, address } => {
                format!(
                    "{host} is at {address}: {}, which no rule lists",
                    class.words()
                )
            }
            Reason::OtherName(other) => format!(
                "the connection to {host} asks for {} inside, and both have to be the same host",
                shown(other)
            ),
            Reason::Unresolved(why) => {
                format!("the address of {host} was not found: {}", line(why))
            }
            Reason::Unreachable(why) => {
                format!("{host} did not answer at port {port}: {}", line(why))
            }
            Reason::Malformed(why) => format!("the request cannot be served: {}", line(why)),
            Reason::TooMany => "this box has as many connections open as it may have".to_owned(),
        };
        match (self.flag(), &self.reason) {
            (Some(flag), Reason::TooMany) => {
                format!("{what}; close some, or start it with a larger `{flag}`.")
            }
            (Some(flag), _) => format!("{what}; the user can allow it with `{flag}`."),
            (None, Reason::Denied) => format!("{what}; a rule that forbids wins over all others."),
            (None, _) => format!("{what}."),
        }
    }

    fn rule_in_brackets(&self) -> String {
        self.rule
            .as_ref()
            .map_or_else(String::new, |rule| format!(" (by {rule})"))
    }

    /// The flag that would allow it, where one would.
    pub fn flag(&self) -> Option<String> {
        let (host, port) = (&self.host, self.port);
        match &self.reason {
            Reason::NotListed if Ports::usual().contains(port) => {
                Some(format!("--allow-host {host}"))
            }
            Reason::NotListed | Reason::Port => Some(format!("--allow-host {host}:{port}")),
            Reason::Address {
                class: Class::Unspecified | Class::Multicast,
                ..
            } => None,
            Reason::Address { address, .. } => {
                Some(format!("--allow-host {}:{port}", Host::from(*address)))
            }
            Reason::TooMany => Some("--net-connections".to_owned()),
            _ => None,
        }
    }

    /// A short word for logs: `not-listed`, `denied`, `port`, `private-address`, ...
    pub fn word(&self) -> &'static str {
        match &self.reason {
            Reason::NotListed => "not-listed",
            Reason::Port => "port",
            Reason::Denied => "denied",
            Reason::Address { class, .. } => match class {
                Class::Public => "address",
                Class::Loopback => "loopback-address",
                Class::Private => "private-address",
                Class::LinkLocal => "link-local-address",
                Class::Metadata => "metadata-address",
                Class::Shared => "shared-address",
                Class::Multicast => "multicast-address",
                Class::Embedded => "embedded-address",
                Class::Unspecified => "unspecified-address",
                Class::Reserved => "reserved-address",
                Class::Own => "own-address",
            },
            Reason::OtherName(_) => "other-name",
            Reason::Unresolved(_) => "unresolved",
            Reason::Unreachable(_) => "unreachable",
            Reason::Malformed(_) => "malformed",
            Reason::TooMany => "too-many",
        }
    }
}

/// A cause in somebody else's words, in one line of bearable length.
fn line(text: &str) -> String {
    const LONGEST: usize = 200;
    text.chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(host: &str, port: u16, reason: Reason) -> Refusal {
        Refusal::new(host, port, reason)
    }

    #[test]
    fn a_refusal_says_what_why_and_what_would_allow_it() {
        let private = Reason::Address {
            class: Class::Private,
            address: "10.0.0.5".parse().unwrap(),
        };
        let cases = [
            (
                refusal("example.com", 443, Reason::NotListed),
                "not-listed",
                Some("--allow-host example.com"),
                "example.com is not on the list of hosts this box may reach; the user can allow \
                 it with `--allow-host example.com`.",
            ),
            (
                refusal("example.com", 22, Reason::NotListed),
                "not-listed",
                Some("--allow-host example.com:22"),
                "example.com is not on the list of hosts this box may reach; the user can allow \
                 it with `--allow-host example.com:22`.",
            ),
            (
                refusal("example.com", 22, Reason::Port).by("--allow-host example.com"),
                "port",
                Some("--allow-host example.com:22"),
                "example.com may be reached, but not at port 22 (by --allow-host example.com); \
                 the user can allow it with `--allow-host example.com:22`.",
            ),
            (
                refusal("example.com", 443, Reason::Denied).by("--deny-host *.com:*"),
                "denied",
                None,
                "example.com at port 443 is forbidden for this box (by --deny-host *.com:*); a \
                 rule that forbids wins over all others.",
            ),
            (
                refusal("db.example.com", 5432, private.clone()),
                "private-address",
                Some("--allow-host 10.0.0.5:5432"),
                "db.example.com is at 10.0.0.5: a private address, which no rule lists; the user \
                 can allow it with `--allow-host 10.0.0.5:5432`.",
            ),
            (
                refusal("10.0.0.5", 443, private),
                "private-address",
                Some("--allow-host 10.0.0.5:443"),
                "10.0.0.5 is a private address, which no rule lists; the user can allow it with \
                 `--allow-host 10.0.0.5:443`.",
            ),
            (
                refusal("a.example", 443, Reason::OtherName("b.example".into())),
                "other-name",
                None,
                "the connection to a.example asks for b.example inside, and both have to be the \
                 same host.",
            ),
            (
                refusal("a.example", 443, Reason::TooMany),
                "too-many",
                Some("--net-connections"),
                "this box has as many connections open as it may have; close some, or start it \
                 with a larger `--net-connections`.",
            ),
        ];
        for (refusal, word, flag, sentence) in cases {
            assert_eq!(refusal.word(), word);
            assert_eq!(refusal.flag().as_deref(), flag);
            assert_eq!(refusal.sentence(), sentence);
        }
    }

    #[test]
    fn nothing_a_peer_says_reaches_a_terminal_unwashed() {
        let evil = "\u{1b}]0;x\u{7}\r\n403";
        for reason in [
            Reason::OtherName(evil.to_owned()),
            Reason::Unresolved(evil.to_owned()),
            Reason::Unreachable(evil.to_owned()),
            Reason::Malformed(evil.to_owned()),
            Reason::NotListed,
        ] {
            let said = Refusal::new(evil, 1, reason).sentence();
            assert!(!said.contains(char::is_control), "{said:?}");
        }
    }
}
