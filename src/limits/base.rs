//! The place in the tree below which a box's group is made. The kernel gives controllers only to
//! groups whose parent has no processes of its own, so whoever is there moves aside first.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::FlockArg;

use super::group::{Group, lock};
use super::tree::controllers;

/// What limits are made of, and what is worth reading where no limit is set.
const USED: [&str; 4] = ["memory", "pids", "cpu", "io"];
/// How often new processes may appear while the others move aside.
const ROUNDS: usize = 50;

/// What to call the group that those who were there move to.
const ASIDE: &str = "cowork-outside";

#[derive(Debug)]
pub(super) struct Base {
    path: PathBuf,
    /// Controllers that were switched on for the box, to be switched off after the last one.
    switched_on: Vec<String>,
    /// Whether somebody else removes the place with all that is in it.
    is_cleared: bool,
}

impl Base {
    /// Makes a group for a box below `path`, with as many controllers as there are.
    pub(super) fn make_group(
        path: &Path,
        name: &str,
        is_cleared: bool,
    ) -> io::Result<(Self, Group)> {
        let _alone = lock(path, FlockArg::LockExclusive)?;
        let there = controllers(path, "cgroup.controllers");
        let on = controllers(path, "cgroup.subtree_control");
        let missing = |name: &&str| {
            let is_in = |list: &[String]| list.iter().any(|one| one == name);
            is_in(&there) && !is_in(&on)
        };
        let switched_on: Vec<String> = USED
            .into_iter()
            .filter(missing)
            .map(str::to_owned)
            .collect();
        let base = Self {
            path: path.to_owned(),
            switched_on,
            is_cleared,
        };
        let is_ready = match base.switched_on.is_empty() {
            true => Ok(()),
            false => base.switch_on(),
        };
        match is_ready.and_then(|()| Group::make(path.join(name))) {
            Ok(group) => Ok((base, group)),
            Err(error) => {
                base.move_back();
                Err(error)
            }
        }
    }

    fn switch_on(&self) -> io::Result<()> {
        // Only the top of the whole tree may have both processes and controllers.
        let is_top = !self.path.join("cgroup.type").exists();
        let words: Vec<String> = self.switched_on.iter().map(|c| format!("+{c}")).collect();
        let control = self.path.join("cgroup.subtree_control");
        for _ in 0..ROUNDS {
            if !is_top {
                match fs::create_dir(self.path.join(ASIDE)) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => move_all(&self.path, &self.path.join(ASIDE))?,
                }
            }
            match write(&control, &words.join(" ")) {
                // Somebody has been born there meanwhile.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && !is_top => {}
                other => return other,
            }
        }
        Err(io::Error::other(
            "processes keep appearing in the group above the box's",
        ))
    }

    /// After the box's group is gone: the place as it was, if no other box needs it.
    pub(super) fn leave(self) {
        if let Ok(_alone) = lock(&self.path, FlockArg::LockExclusive) {
            self.move_back();
        }
    }

    fn move_back(&self) {
        let aside = self.path.join(ASIDE);
        if self.is_cleared || !aside.exists() || self.has_other_groups() {
            return;
        }
        let on = controllers(&self.path, "cgroup.subtree_control");
        let words: Vec<String> = on.iter().map(|name| format!("-{name}")).collect();
        if write(&self.path.join("cgroup.subtree_control"), &words.join(" ")).is_ok() {
            let _ = move_all(&aside, &self.path);
            let _ = fs::remove_dir(&aside);
        }
    }

    fn has_other_groups(&self) -> bool {
        groups_below(&self.path).any(|name| name != ASIDE)
    }
}

fn groups_below(path: &Path) -> impl Iterator<Item = std::ffi::OsString> {
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name())
}

/// Removes groups of boxes whose supervisor was killed. One that is in use is locked.
pub(super) fn remove_left_overs(path: &Path, prefix: &str) -> usize {
    let Ok(_alone) = lock(path, FlockArg::LockExclusive) else {
        return 0;
    };
    let is_ours = |name: &std::ffi::OsString| {
        let name = name.to_str().unwrap_or_default();
        name.starts_with(prefix) && name != ASIDE
    };
    groups_below(path)
        .filter(is_ours)
        .map(|name| path.join(name))
        .filter(|group| lock(group, FlockArg::LockExclusiveNonblock).is_ok())
        .filter(|group| fs::remove_dir(group).is_ok())
        .count()
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    let to = to.join("cgroup.procs");
    for pid in fs::read_to_string(from.join("cgroup.procs"))?.lines() {
        match write(&to, pid) {
            // It has ended meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            other => other?,
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}
