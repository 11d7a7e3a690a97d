//! The keys of a policy: what each is called, who set it, and which change of it widens the box.

use std::fmt;
use std::path::PathBuf;

use super::{Isolation, MountSpec, Net, Policy};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Mounts,
    Visible,
    ReadOnlyWorkspace,
    OwnOutputs,
    ChangeablePrograms,
    TmpSize,
    NetMode,
    Loopback,
    Redirect,
    Allow,
    Deny,
    Bundles,
    UpstreamProxy,
    Publish,
    HostPorts,
    Secrets,
    TlsAudit,
    Connections,
    Rate,
    GuardEnabled,
    GuardGit,
    GuardNames,
    EnvPass,
    EnvSet,
    GitIdentity,
    Timeout,
    OpenFiles,
    Processes,
    Isolation,
    Seccomp,
    Nesting,
    AllowMissing,
}

impl Key {
    pub const ALL: [Self; 32] = [
        Self::Mounts,
        Self::Visible,
        Self::ReadOnlyWorkspace,
        Self::OwnOutputs,
        Self::ChangeablePrograms,
        Self::TmpSize,
        Self::NetMode,
        Self::Loopback,
        Self::Redirect,
        Self::Allow,
        Self::Deny,
        Self::Bundles,
        Self::UpstreamProxy,
        Self::Publish,
        Self::HostPorts,
        Self::Secrets,
        Self::TlsAudit,
        Self::Connections,
        Self::Rate,
        Self::GuardEnabled,
        Self::GuardGit,
        Self::GuardNames,
        Self::EnvPass,
        Self::EnvSet,
        Self::GitIdentity,
        Self::Timeout,
        Self::OpenFiles,
        Self::Processes,
        Self::Isolation,
        Self::Seccomp,
        Self::Nesting,
        Self::AllowMissing,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mounts => "files.mounts",
            Self::Visible => "files.visible",
            Self::ReadOnlyWorkspace => "files.read-only-workspace",
            Self::OwnOutputs => "files.own-outputs",
            Self::ChangeablePrograms => "files.changeable-programs",
            Self::TmpSize => "files.tmp-size",
            Self::NetMode => "net.mode",
            Self::Loopback => "net.loopback",
            Self::Redirect => "net.redirect",
            Self::Allow => "net.allow",
            Self::Deny => "net.deny",
            Self::Bundles => "net.bundles",
            Self::UpstreamProxy => "net.upstream-proxy",
            Self::Publish => "net.publish",
            Self::HostPorts => "net.host-ports",
            Self::Secrets => "net.secrets",
            Self::TlsAudit => "net.tls-audit",
            Self::Connections => "net.connections",
            Self::Rate => "net.rate",
            Self::GuardEnabled => "guard.enabled",
            Self::GuardGit => "guard.git",
            Self::GuardNames => "guard.names",
            Self::EnvPass => "env.pass",
            Self::EnvSet => "env.set",
            Self::GitIdentity => "env.git-identity",
            Self::Timeout => "limits.timeout",
            Self::OpenFiles => "limits.open-files",
            Self::Processes => "limits.processes",
            Self::Isolation => "lock.isolation",
            Self::Seccomp => "lock.seccomp",
            Self::Nesting => "lock.nesting",
            Self::AllowMissing => "lock.allow-missing",
        }
    }

    /// Whether `after` allows something by this key that `before` did not. What cannot be
    /// compared, such as two seccomp filters, counts as wider.
    pub fn widens(self, before: &Policy, after: &Policy) -> bool {
        let (b, a) = (before, after);
        match self {
            Self::Mounts => !a.files.mounts.iter().all(|m| shared(&b.files.mounts, m)),
            Self::Visible => !subset(&a.files.visible, &b.files.visible),
            Self::ReadOnlyWorkspace => b.files.read_only_workspace && !a.files.read_only_workspace,
            Self::OwnOutputs => !b.files.own_outputs && a.files.own_outputs,
            Self::ChangeablePrograms => !b.files.changeable_programs && a.files.changeable_programs,
            Self::TmpSize => a.files.tmp_size > b.files.tmp_size,
            Self::NetMode
            | Self::Loopback
            | Self::Redirect
            | Self::Allow
            | Self::Deny
            | Self::Bundles
            | Self::UpstreamProxy
            | Self::Publish
            | Self::HostPorts
            | Self::Secrets
            | Self::TlsAudit
            | Self::Connections
            | Self::Rate => Net::widens(self, &b.net, &a.net),
            Self::GuardEnabled => b.guard.enabled && !a.guard.enabled,
            Self::GuardGit => b.guard.git && !a.guard.git,
            Self::GuardNames => !subset(&b.guard.names, &a.guard.names),
            Self::EnvPass => !a.env.pass.iter().all(|name| passed(&b.env.pass, name)),
            // A variable can redirect what the box was trusted with: the address a key is sent to.
            Self::EnvSet => a
                .env
                .set
                .iter()
                .any(|(name, value)| b.env.set.get(name) != Some(value)),
            Self::GitIdentity => !b.env.git_identity && a.env.git_identity,
            Self::Timeout => raised(b.limits.timeout, a.limits.timeout),
            Self::OpenFiles => raised(b.limits.open_files, a.limits.open_files),
            Self::Processes => raised(b.limits.processes, a.limits.processes),
            Self::Isolation => {
                b.lock.isolation == Isolation::Namespaces && a.lock.isolation == Isolation::Landlock
            }
            Self::Seccomp => a.lock.seccomp != b.lock.seccomp,
            Self::Nesting => !b.lock.nesting && a.lock.nesting,
            Self::AllowMissing => !a.lock.allow_missing.is_subset(&b.lock.allow_missing),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Policy {
    /// The keys by which this policy allows something that `other` does not.
    pub fn wider_than(&self, other: &Self) -> Vec<Key> {
        Key::ALL
            .into_iter()
            .filter(|key| key.widens(other, self))
            .collect()
    }

    pub fn at_least_as_tight(&self, other: &Self) -> bool {
        self.wider_than(other).is_empty()
    }
}

fn shared(before: &[MountSpec], mount: &MountSpec) -> bool {
    before
        .iter()
        .any(|b| b.source == mount.source && b.place == mount.place && mount.access <= b.access)
}

pub(super) fn subset<T: PartialEq>(these: &[T], those: &[T]) -> bool {
    these.iter().all(|this| those.contains(this))
}

fn passed(before: &[String], name: &String) -> bool {
    before.iter().any(|b| match b.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => b == name,
    })
}

pub(super) fn raised<T: PartialOrd>(before: Option<T>, after: Option<T>) -> bool {
    match (before, after) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(before), Some(after)) => after > before,
    }
}

/// Where a key's value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    BuiltIn(&'static str),
    User(PathBuf),
    /// A policy file named on the command line.
    Named(PathBuf),
    Project(PathBuf),
    Flags,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(name) => write!(f, "built-in {name}"),
            Self::User(path) => write!(f, "user policy {}", path.display()),
            Self::Named(path) => write!(f, "policy {}", path.display()),
            Self::Project(path) => write!(f, "project policy {}", path.display()),
            Self::Flags => f.write_str("command line"),
        }
    }
}

/// For every key, the layers its value was made from. A set of bits per key, for this is
/// filled on every launch and read almost never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins {
    layers: Vec<Origin>,
    by_key: [u32; Key::ALL.len()],
}

impl Origins {
    pub(super) const MOST_LAYERS: usize = u32::BITS as usize;

    /// Everything comes from one layer.
    pub(super) fn all_from(origin: Origin) -> Self {
        Self {
            layers: vec![origin],
            by_key: [1; Key::ALL.len()],
        }
    }

    pub(super) fn enter(&mut self, origin: Origin) {
        debug_assert!(self.layers.len() < Self::MOST_LAYERS);
        self.layers.push(origin);
    }

    /// The newest layer alone made the value.
    pub(super) fn set(&mut self, key: Key) {
        self.by_key[key as usize] = self.newest();
    }

    /// The newest layer changed a value that has older parts.
    pub(super) fn join(&mut self, key: Key) {
        self.by_key[key as usize] |= self.newest();
    }

    fn newest(&self) -> u32 {
        1 << (self.layers.len() - 1)
    }

    /// The layers that made a key's value, oldest first.
    pub fn of(&self, key: Key) -> impl Iterator<Item = &Origin> {
        let bits = self.by_key[key as usize];
        self.layers
            .iter()
            .enumerate()
            .filter(move |(index, _)| bits & (1 << index) != 0)
            .map(|(_, origin)| origin)
    }
}
