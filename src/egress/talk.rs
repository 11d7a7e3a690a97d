//! What supervisor and gateway say to each other: JSON packets over one socket pair.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::audit::{Connection, Request};
use crate::policy::egress::{HostPattern, Rule, Rules};

/// A packet's most.
pub const LONGEST: usize = 64 << 10;
/// The same towards the gateway: as many rules as a session can be told at once.
pub const LONGEST_TELL: usize = 192 << 10;

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tell {
    Allow(Rule),
    /// Connections that the rule covers end at once.
    Deny(Rule),
    /// These and no others. Connections that they do not allow end at once.
    Rules(Rules),
    /// Another value for a secret.
    Secret {
        name: String,
        value: Unsaid,
    },
    /// Takes every rule with this pattern back, of either kind.
    Forget(HostPattern),
    Totals,
}

/// Text that is never printed.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Unsaid(pub String);

impl fmt::Debug for Unsaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// From the gateway.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hear {
    /// The doors are open.
    Ready,
    /// Somebody inside connected from this port, so that the supervisor can see who.
    Opened {
        id: u64,
        port: u16,
    },
    Over(Connection),
    /// A request inside a connection.
    Request {
        connection: u64,
        host: String,
        port: u16,
        request: Request,
    },
    /// So many words more than the supervisor could take.
    Lost {
        words: u64,
    },
    Totals(Totals),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Totals {
    pub open: u32,
    pub connections: u64,
    pub refused: u64,
    pub sent: u64,
    pub received: u64,
    pub questions: u64,
    /// The busiest hosts, most bytes first.
    pub hosts: Vec<HostTotal>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostTotal {
    pub host: String,
    pub connections: u64,
    pub refused: u64,
    pub sent: u64,
    pub received: u64,
}
