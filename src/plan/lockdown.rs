//! The walls that stand after the set-up: Landlock, seccomp, guards. Decided here, put up by
//! `sandbox::lockdown`.

use std::fmt;

use serde::Serialize;

use super::error::PlanError;
use super::{BindMode, BuildStep, Facts, Guarding, Session};
use crate::policy::{InsidePath, Isolation, Layer, NetMode, Policy};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lockdown {
    pub capabilities: Capabilities,
    pub landlock: Landlock,
    pub seccomp: Seccomp,
    pub guarding: Guarding,
}

/// What a program may do that is root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capabilities {
    /// Nothing, and nothing can bring it back.
    None,
    /// These, as bits; `bounding` empties the bounding set of the others, `changed` is false
    /// when root keeps what it has.
    Only {
        set: u64,
        bounding: bool,
        changed: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Landlock {
    Enforced {
        abi: i32,
        /// Empty when programs inside are to mount: the kernel forbids mounts with file rules.
        files: Vec<LandlockRule>,
        tcp: Tcp,
    },
    Excused(String),
}

/// What of TCP is left to programs, whatever the network has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tcp {
    Free,
    /// They can connect, and choose no port to listen on. One that the kernel chooses remains.
    NoListening,
    /// None at all, not even on the box's own loopback.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LandlockRule {
    pub path: InsidePath,
    pub rights: Rights,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rights {
    /// Read and run.
    Read,
    /// Read and run, write to what is there, talk to devices; make nothing.
    Use,
    /// Everything.
    Write,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Seccomp {
    /// A filter compiled ahead and carried in the program.
    BuiltIn {
        name: String,
        and_no_inet: bool,
    },
    /// A user's profile, compiled when the plan is carried out and kept for the next time.
    Profile {
        path: std::path::PathBuf,
        and_no_inet: bool,
    },
    /// Programs of the caller's making: how many are known beforehand.
    Given(usize),
    Excused(String),
}

impl Landlock {
    /// Folders that are shown later lie below this one; what may be done there is up to the mounts,
    /// because a rule cannot be added to a program that runs.
    pub(super) fn allow_more_mounts(&mut self, session: &Session) {
        if let (Self::Enforced { files, .. }, Ok(path)) = (self, session.home.join("mnt"))
            && !files.is_empty()
        {
            let rights = Rights::Write;
            files.push(LandlockRule { path, rights });
        }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Use => "use",
            Self::Write => "write",
        })
    }
}

/// Decides the walls; a wall that is wanted, missing and not excused is an error.
pub(super) fn decide(
    policy: &Policy,
    facts: &Facts,
    build: &[BuildStep],
    has_gateway: bool,
    changeable: bool,
) -> Result<Lockdown, PlanError> {
    Ok(Lockdown {
        capabilities: Capabilities::None,
        landlock: landlock(policy, facts, build, has_gateway)?,
        seccomp: seccomp(policy),
        guarding: guarding(policy, facts, build, changeable)?,
    })
}

fn landlock(
    policy: &Policy,
    facts: &Facts,
    build: &[BuildStep],
    has_gateway: bool,
) -> Result<Landlock, PlanError> {
    if facts.landlock_abi < 1 {
        let because = "this kernel has no Landlock";
        if policy.lock.isolation == Isolation::Landlock {
            return Err(PlanError::NothingLeft);
        }
        return excuse(policy, Layer::Landlock, because).map(Landlock::Excused);
    }
    let namespaces = policy.lock.isolation == Isolation::Namespaces;
    let tcp = match policy.net.mode {
        NetMode::Host => Tcp::Free,
        NetMode::None if !namespaces => Tcp::None,
        NetMode::None | NetMode::Allow if policy.net.loopback => Tcp::Free,
        // The way to the gateway is TCP too.
        NetMode::None | NetMode::Allow if has_gateway => Tcp::NoListening,
        NetMode::None | NetMode::Allow => Tcp::None,
    };
    let mut files = Vec::new();
    let mut rule = |path: InsidePath, rights| files.push(LandlockRule { path, rights });
    if namespaces && !policy.lock.nesting {
        rule(InsidePath::fixed("/"), Rights::Read);
        rule(InsidePath::fixed("/dev"), Rights::Use);
        rule(InsidePath::fixed("/proc"), Rights::Use);
    }
    if !policy.lock.nesting {
        for step in build {
            match step {
                BuildStep::Tmpfs { at, .. } | BuildStep::Own { at, .. } if namespaces => {
                    rule(at.clone(), Rights::Write);
                }
                BuildStep::Bind { at, mode, .. } if namespaces && *mode != BindMode::Read => {
                    // A rule belongs to the folder itself, so it also covers what pid 1 opens
                    // through its own writable copy of the mount.
                    rule(at.clone(), Rights::Write);
                }
                _ => {}
            }
        }
    }
    if !namespaces {
        files.extend(super::layout::weak_rules(build));
    }
    Ok(Landlock::Enforced {
        abi: facts.landlock_abi,
        files,
        tcp,
    })
}

fn seccomp(policy: &Policy) -> Seccomp {
    // Without namespaces the filter is what keeps sockets shut, so it cannot be excused there.
    let excused = policy.lock.allow_missing.contains(&Layer::Seccomp)
        && policy.lock.isolation == Isolation::Namespaces;
    if excused && policy.lock.seccomp == "none" {
        return Seccomp::Excused("--allow-missing seccomp".to_owned());
    }
    // Without a network namespace the only wall before the network is the filter.
    let and_no_inet =
        policy.lock.isolation == Isolation::Landlock && policy.net.mode == NetMode::None;
    let name = match policy.lock.seccomp.as_str() {
        "default" if policy.lock.nesting => "nested",
        other => other,
    };
    if name.contains('/') {
        Seccomp::Profile {
            path: name.into(),
            and_no_inet,
        }
    } else {
        Seccomp::BuiltIn {
            name: name.to_owned(),
            and_no_inet,
        }
    }
}

fn guarding(
    policy: &Policy,
    facts: &Facts,
    build: &[BuildStep],
    changeable: bool,
) -> Result<Guarding, PlanError> {
    if !policy.guard.enabled {
        return Ok(Guarding::Off("the policy lifts it".to_owned()));
    }
    // Where nothing is shared at first, all that comes later is to be guarded all the same.
    let later = changeable && !policy.files.own_outputs;
    if has_open_mount(build) || (later && !facts.seccomp_notify) {
        let because = "this kernel has no seccomp user notification";
        return excuse(policy, Layer::Guard, because).map(Guarding::Off);
    }
    let doors: Vec<_> = build
        .iter()
        .filter_map(|step| match step {
            BuildStep::Own {
                at, guarded: true, ..
            }
            | BuildStep::Bind {
                at,
                mode: BindMode::Guarded | BindMode::Kept,
                ..
            } => Some(at.clone()),
            _ => None,
        })
        .collect();
    if doors.is_empty() && !later {
        return Ok(Guarding::Off("no mount needs it".to_owned()));
    }
    Ok(Guarding::On {
        rules: policy.guard.clone(),
        doors,
    })
}

/// Whether programs can write to a mount with nobody looking.
pub(super) fn has_open_mount(build: &[BuildStep]) -> bool {
    build.iter().any(|step| {
        let open = BindMode::Write;
        matches!(step, BuildStep::Bind { mode, .. } if *mode == open)
    })
}

/// The reason again if the layer may be missing, an error if not.
fn excuse(policy: &Policy, layer: Layer, because: &str) -> Result<String, PlanError> {
    if policy.lock.allow_missing.contains(&layer) {
        Ok(because.to_owned())
    } else {
        Err(PlanError::MissingLayer {
            layer,
            because: because.to_owned(),
        })
    }
}
