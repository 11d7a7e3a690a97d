//! What is wanted. Nothing here touches the kernel; of the host it reads the policy files it is
//! pointed to, and whether a mount's source exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod builtin;
pub mod egress;
mod error;
mod expand;
pub mod file;
pub mod git_config;
mod git_settings;
pub mod guard;
mod key;
#[cfg(test)]
mod laws;
mod layer;
mod net;
mod paths;
mod read;
mod show;
mod stack;
mod trust;
mod words;

pub use error::{PolicyError, Unfit, ValueError};
pub use expand::Environment;
pub use file::PolicyFile;
pub use key::{Key, Origin, Origins};
pub use layer::{Checked, PROJECT_FILE, Resolved, Sources, check, resolve};
pub use net::{Net, NetMode};
pub use paths::{InsidePath, MountSpec, PathError, SessionId};
pub use show::as_toml;
pub use trust::TrustStore;
pub use words::{
    Cap, DeniedPattern, EnvName, EnvPattern, GuardName, Later, PolicyName, Sentence, net_rate, time,
};

/// This program's folder below one of the XDG base folders. A relative one is ignored, as the
/// specification asks.
fn xdg_folder(variable: &str, below_home: &str, env: Environment<'_>) -> Option<PathBuf> {
    let whole = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    whole(variable)
        .or_else(|| whole("HOME").map(|home| home.join(below_home)))
        .map(|folder| folder.join("cowork-linux"))
}

/// A complete policy: every layer has had its say, nothing in here means "default".
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    pub name: String,
    pub files: Files,
    pub net: Net,
    pub guard: Guard,
    pub env: Env,
    pub limits: Limits,
    pub lock: Lock,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Files {
    /// Folders shared with the box, in the order they were named.
    pub mounts: Vec<MountSpec>,
    /// Host paths shown read-only at the same place inside.
    pub visible: Vec<PathBuf>,
    /// Every mount becomes read-only, whatever it was asked for.
    pub read_only_workspace: bool,
    /// The session has an `outputs` of its own below mnt.
    pub own_outputs: bool,
    /// Programs can be mounted in /usr/local/bin while the session runs.
    pub changeable_programs: bool,
    /// How much /tmp, /run, /var/tmp and /dev/shm may hold together.
    pub tmp_size: Bytes,
}

/// Files in a writable mount that tools on the host run or obey by merely being there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Guard {
    pub enabled: bool,
    /// Paths, matched at any depth; `*` stands for one component.
    pub names: Vec<String>,
    /// Watch git's own directories: hooks, and configuration that names programs.
    pub git: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Env {
    /// Variables handed on from the caller; a trailing `*` stands for any ending.
    pub pass: Vec<String>,
    pub set: BTreeMap<String, String>,
    /// Tell git inside who the user is, so that commits have an author.
    pub git_identity: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Limits {
    pub timeout: Option<Duration>,
    /// Open files per process.
    pub open_files: Option<u64>,
    /// Processes and threads of the box's user.
    pub processes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lock {
    pub isolation: Isolation,
    /// Name of a built-in filter, or the path of an OCI seccomp profile.
    pub seccomp: String,
    /// Let programs inside bring a sandbox of their own.
    pub nesting: bool,
    /// Layers that may be absent on this host.
    pub allow_missing: BTreeSet<Layer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// The whole box.
    Namespaces,
    /// The weaker form for hosts that forbid user namespaces.
    Landlock,
}

/// A wall that can be missing on a host, and be excused by name.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    Landlock,
    LandlockScopes,
    Seccomp,
    Guard,
    Network,
    Keyring,
}

impl Layer {
    pub const ALL: [Self; 6] = [
        Self::Landlock,
        Self::LandlockScopes,
        Self::Seccomp,
        Self::Guard,
        Self::Network,
        Self::Keyring,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::LandlockScopes => "landlock-scopes",
            Self::Seccomp => "seccomp",
            Self::Guard => "guard",
            Self::Network => "network",
            Self::Keyring => "keyring",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a program inside may do with a mount, from little to much. On the command line `ro`, `keep`
/// and `rw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Read,
    /// Make, change and rename, but delete only what it has made itself.
    Keep,
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read only",
            Self::Keep => "read and write, without deleting",
            Self::Write => "read and write",
        })
    }
}

/// A number of bytes; written with binary units in policies and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Reads `512M`, `2G`, `4096`. Zero, signs, fractions and overflow are refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[digits.len()..];
        let shift = match unit
            .to_ascii_uppercase()
            .trim_end_matches("IB")
            .trim_end_matches('B')
        {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(format!("`{unit}` is not a unit; use K, M, G or T")),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!(
                "`{text}` is not a size; write a whole number such as 512M"
            ));
        }
        let number: u64 = digits
            .parse()
            .map_err(|_| format!("`{text}` is too large"))?;
        match number.checked_mul(1 << shift) {
            Some(0) => Err("a size of 0 leaves no room at all".to_owned()),
            Some(bytes) if bytes <= 1 << 50 => Ok(Self(bytes)),
            _ => Err(format!("`{text}` is too large")),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_units() {
        assert_eq!(Bytes::parse("4096"), Ok(Bytes(4096)));
        assert_eq!(Bytes::parse("512M"), Ok(Bytes(512 << 20)));
        assert_eq!(Bytes::parse("2gib"), Ok(Bytes(2 << 30)));
        assert_eq!(Bytes(512 << 20).to_string(), "512M");
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in ["", "0", "-1", "1.5G", "G", "9999999999999G", "12X", "0x10"] {
            assert!(Bytes::parse(text).is_err(), "{text}");
        }
    }
}
