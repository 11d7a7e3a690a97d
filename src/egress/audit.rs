//! What is kept of a connection: who, where to, how much, and by which rule.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A connection that is over, or was never made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Connection {
    /// Counts up within a session.
    pub id: u64,
    /// Milliseconds since 1970.
    pub began: u64,
    /// The program's name, where the supervisor could see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// `redirect`, `http`, `socks`, `dns`, `claude`, `host-port`, `publish`.
    pub door: String,
    pub host: String,
    pub port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// From the box to the host, and back.
    pub sent: u64,
    pub received: u64,
    pub milliseconds: u64,
    /// The rule that allowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why it was refused, or how it failed: one sentence, and the word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refused {
    pub word: String,
    pub because: String,
    /// A rule, or the want of one: not a failure of the network.
    pub is_by_rule: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// The rule that forbids it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A request, where HTTP can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Request {
    /// Milliseconds since 1970, and how many until the answer was through.
    pub began: u64,
    pub milliseconds: u64,
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
