//! Finds the best way to hold limits that this host offers: a control group that is the
//! caller's already, one that systemd gives, or none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::base::{self, Base};
use super::dbus::Address;
use super::group::Group;
use super::tree::{Tree, controllers};
use super::{Limit, VIEW, View, Wanted, scope};
use crate::policy::SessionId;

/// How long systemd may take; a busy one takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);
const PREFIX: &str = "cowork-";

/// What will be tried, without having touched anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prospect {
    /// A group below this one, which is the caller's to divide.
    Below(PathBuf),
    /// A scope from the caller's systemd.
    Scope(Vec<Address>),
    Supervision {
        because: String,
    },
}

impl std::fmt::Display for Prospect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Below(path) => write!(f, "by a cgroup below {}", path.display()),
            Self::Scope(_) => f.write_str("by a cgroup that systemd gives"),
            Self::Supervision { because } => write!(f, "by supervision, because {because}"),
        }
    }
}

impl Prospect {
    /// What the box would be shown of its limits.
    pub fn view(&self) -> Option<View> {
        match self {
            Self::Below(_) | Self::Scope(_) => Some(VIEW),
            Self::Supervision { .. } => None,
        }
    }
}

/// A group for the box, or in a sentence why there is none.
pub(super) type Found = Result<(Base, Group), String>;

/// Looks for a way and touches nothing.
pub fn foresee(wanted: &Wanted) -> Prospect {
    match prospects(wanted) {
        Ok(mut all) => all.swap_remove(0),
        Err(because) => Prospect::Supervision { because },
    }
}

pub(super) fn find(wanted: &Wanted, id: &SessionId) -> Found {
    let mut reasons = Vec::new();
    for prospect in prospects(wanted)? {
        let tried = match &prospect {
            Prospect::Below(base) => below(base, id),
            Prospect::Scope(addresses) => in_a_scope(addresses, wanted, id),
            Prospect::Supervision { .. } => continue,
        };
        match tried {
            Ok(found) => return Ok(found),
            Err(why) => reasons.push(why),
        }
    }
    Err(reasons.join("; "))
}

/// The ways worth trying, best first; never none.
fn prospects(wanted: &Wanted) -> Result<Vec<Prospect>, String> {
    // Processes are limited as well by each one's own limits, and the rest is counted anyway.
    if wanted.memory.is_none() && wanted.milli_cpus.is_none() && wanted.io.is_none() {
        return Err("no limit asks for a cgroup".to_owned());
    }
    let tree = Tree::here()?;
    let mut found = Vec::new();
    let why = match own(&tree, wanted) {
        Ok(base) => {
            found.push(Prospect::Below(base));
            String::new()
        }
        Err(why) => why,
    };
    let is_root = nix::unistd::geteuid().is_root();
    let mut addresses = scope::addresses(is_root, |name| std::env::var(name).ok());
    addresses.retain(|address| match address {
        Address::Path(path) => path.exists(),
        Address::Abstract(_) => true,
    });
    if !addresses.is_empty() {
        found.push(Prospect::Scope(addresses));
    }
    match found.is_empty() {
        true => Err(format!("{why}, and no systemd can be asked for a cgroup")),
        false => Ok(found),
    }
}

/// Which limits take a controller, and which one.
fn needed(wanted: &Wanted) -> Vec<(Limit, &'static str)> {
    [
        (wanted.memory.is_some(), Limit::Memory, "memory"),
        (wanted.pids.is_some(), Limit::Pids, "pids"),
        (wanted.milli_cpus.is_some(), Limit::Cpus, "cpu"),
        (wanted.io.is_some(), Limit::Io, "io"),
    ]
    .into_iter()
    .filter_map(|(is_wanted, limit, controller)| is_wanted.then_some((limit, controller)))
    .collect()
}

/// Limits whose controller a group does not have.
pub(super) fn without(group: &Path, wanted: &Wanted) -> Vec<Limit> {
    let there = controllers(group, "cgroup.controllers");
    let is_missing = |name: &str| !there.iter().any(|one| one == name);
    let missing = needed(wanted).into_iter();
    missing
        .filter(|(_, controller)| is_missing(controller))
        .map(|(limit, _)| limit)
        .collect()
}

/// Whether a group is worth using: it holds the memory, or whatever else is wanted.
fn serves(group: &Path, wanted: &Wanted) -> Result<(), String> {
    let missing = without(group, wanted);
    let is_useless = match wanted.memory {
        Some(_) => missing.contains(&Limit::Memory),
        None => missing.len() == needed(wanted).len(),
    };
    match is_useless {
        false => Ok(()),
        true => {
            let names: Vec<&str> = needed(wanted)
                .into_iter()
                .filter(|(limit, _)| missing.contains(limit))
                .map(|(_, controller)| controller)
                .collect();
            let at = group.display();
            Err(format!("{at} has no controller for {}", names.join(", ")))
        }
    }
}

/// The group above this process's own, when it holds nothing but groups, or the own one.
fn own(tree: &Tree, wanted: &Wanted) -> Result<PathBuf, String> {
    if let Some(above) = tree.above(&tree.own) {
        let is_empty = std::fs::read_to_string(above.join("cgroup.procs"))
            .is_ok_and(|processes| processes.trim().is_empty());
        if is_empty && tree.is_ours(above).is_ok() && serves(above, wanted).is_ok() {
            return Ok(above.to_owned());
        }
    }
    serves(&tree.own, wanted)?;
    tree.is_ours(&tree.own)?;
    Ok(tree.own.clone())
}

fn below(base: &Path, id: &SessionId) -> Found {
    Base::make_group(base, &format!("{PREFIX}{id}"), false)
        .map_err(|error| format!("no group can be made in {}: {error}", base.display()))
}

fn in_a_scope(addresses: &[Address], wanted: &Wanted, id: &SessionId) -> Found {
    let pid = std::process::id();
    let name = format!("{PREFIX}{id}-{pid}.scope");
    let mut why = String::new();
    for address in addresses {
        match scope::start(address, &name, pid, PATIENCE) {
            Ok(()) => {
                let tree = Tree::here()?;
                if !tree.own.ends_with(&name) {
                    return Err("systemd made a scope without this process".to_owned());
                }
                serves(&tree.own, wanted)?;
                return Base::make_group(&tree.own, "box", true)
                    .map_err(|error| format!("no group can be made in {name}: {error}"));
            }
            Err(error) => why = format!("systemd at {address} gave no cgroup: {error}"),
        }
    }
    Err(why)
}

/// Removes the groups of boxes whose supervisor was killed, and tells how many there were. What
/// systemd gave it takes back by itself.
pub fn remove_left_overs() -> usize {
    let Ok(tree) = Tree::here() else { return 0 };
    let places = [tree.above(&tree.own), Some(tree.own.as_path())];
    let ours = places
        .into_iter()
        .flatten()
        .filter(|place| tree.is_ours(place).is_ok());
    ours.map(|place| base::remove_left_overs(place, PREFIX))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_their_controllers_and_a_group_without_memory_is_no_help() {
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cgroup.controllers"), "cpu pids\n").unwrap();
        let wanted = Wanted {
            memory: Some(1 << 30),
            pids: Some(10),
            ..Wanted::default()
        };
        assert_eq!(without(group.path(), &wanted), [Limit::Memory]);
        assert!(serves(group.path(), &wanted).is_err());
        let only_pids = Wanted {
            memory: None,
            io: Some(1),
            ..wanted
        };
        assert_eq!(without(group.path(), &only_pids), [Limit::Io]);
        assert!(serves(group.path(), &only_pids).is_ok());
    }

    #[test]
    fn nothing_wanted_asks_for_no_group() {
        let idle = Wanted {
            idle: Some(PATIENCE),
            disk: Some(1 << 30),
            pids: Some(100),
            ..Wanted::default()
        };
        let Prospect::Supervision { because } = foresee(&idle) else {
            panic!()
        };
        assert!(because.contains("no limit"), "{because}");
    }
}
