//! Lists of hosts that go by one name.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::host::shown;

/// A list known by name. `registries` has none of its own: the machine's configuration says them.
#[derive(Debug, Clone, Copy)]
pub struct Bundle {
    pub name: &'static str,
    pub about: &'static str,
    pub hosts: &'static [&'static str],
}

/// Only what the work itself needs. Telemetry, error reports and connectors to other services are
/// left out: each is one more way out, and nothing breaks without them.
pub const BUNDLES: &[Bundle] = &[
    Bundle {
        name: "claude",
        about: "Claude's API, signing in, and updates of Claude Code",
        hosts: &[
            "api.anthropic.com:443",
            // Signing in, new tokens for those who have, and a look at start whether it is there.
            "platform.claude.com:443",
            "console.anthropic.com:443",
            "claude.ai:443",
            "claude.com:443",
            "downloads.claude.ai:443",
        ],
    },
    Bundle {
        name: "github",
        about: "GitHub: git over https and ssh, its API, archives and releases",
        hosts: &[
            "github.com:22,443",
            // git over ssh for those behind a firewall.
            "ssh.github.com:443",
            "api.github.com:443",
            "uploads.github.com:443",
            "codeload.github.com:443",
            "gist.github.com:443",
            "lfs.github.com:443",
            "raw.githubusercontent.com:443",
            "gist.githubusercontent.com:443",
            "media.githubusercontent.com:443",
            "objects.githubusercontent.com:443",
            "release-assets.githubusercontent.com:443",
            "github-cloud.githubusercontent.com:443",
        ],
    },
    Bundle {
        name: REGISTRIES,
        about: "Where npm, pip, cargo, go and apt of this machine get packages from",
        hosts: &[],
    },
];

const REGISTRIES: &str = "registries";

/// The name of one of the lists, by its place in the list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct BundleName(usize);

impl BundleName {
    pub fn parse(text: &str) -> Result<Self, String> {
        BUNDLES
            .iter()
            .position(|bundle| bundle.name == text)
            .map(Self)
            .ok_or_else(|| {
                let names: Vec<_> = BUNDLES.iter().map(|bundle| bundle.name).collect();
                format!(
                    "`{}` is no bundle; there are {}",
                    shown(text),
                    names.join(", ")
                )
            })
    }

    pub fn as_str(&self) -> &'static str {
        BUNDLES[self.0].name
    }

    /// Whether the machine has to be asked what it stands for.
    pub fn is_registries(&self) -> bool {
        self.as_str() == REGISTRIES
    }

    /// The hosts, as patterns are written.
    pub(crate) fn hosts(&self) -> &'static [&'static str] {
        BUNDLES[self.0].hosts
    }
}

impl fmt::Display for BundleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for BundleName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<BundleName> for String {
    fn from(name: BundleName) -> Self {
        name.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::egress::{HostPattern, Target};

    #[test]
    fn every_host_of_every_bundle_is_a_pattern_in_its_one_form() {
        for bundle in BUNDLES {
            for host in bundle.hosts {
                let pattern = HostPattern::parse(host).unwrap();
                assert_eq!(pattern.to_string(), *host);
                // Whoever may choose a name below a shared domain could listen there.
                assert!(matches!(pattern.target, Target::Exact(_)), "{host}");
            }
        }
    }

    #[test]
    fn a_bundle_is_known_by_its_name() {
        assert_eq!(BundleName::parse("claude").unwrap().as_str(), "claude");
        assert!(BundleName::parse("registries").unwrap().is_registries());
        let why = BundleName::parse("npm").unwrap_err();
        assert!(why.contains("claude, github, registries"), "{why}");
    }
}
