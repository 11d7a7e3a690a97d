//! The rules applied to places: what may be touched, removed, moved away, and what may arrive.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::resolve::Place;
use super::{Answer, Case};
use crate::policy::guard::{self, GIT_CONFIG, GIT_HOOKS, GitDirectory, Names, Part};
use crate::sys::at;

/// Something that is about to get a new name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrival<'a> {
    NewDirectory,
    Directory(&'a OwnedFd),
    Link,
    Other,
}

/// The path that rules are matched against: a door called `.vscode` is one.
fn matched(place: &Place<'_>) -> PathBuf {
    let label = place.door.inside.file_name().unwrap_or(OsStr::new("/"));
    Path::new(label).join(place.relative())
}

impl Case<'_> {
    /// Whether this may change at all.
    pub(super) fn may_touch(&self, place: &Place<'_>) -> Result<(), Answer> {
        match self.rule_of(place) {
            None => Ok(()),
            Some(rule) => Err(guarded(place, rule)),
        }
    }

    /// Whether its permissions may change. A configuration is not run, and git finds out with
    /// its own whether the filesystem knows an executable bit.
    pub(super) fn may_change_mode(&self, place: &Place<'_>) -> Result<(), Answer> {
        match self.rule_of(place) {
            None => Ok(()),
            Some(rule) if rule == GIT_CONFIG => Ok(()),
            Some(rule) => Err(guarded(place, rule)),
        }
    }

    pub(super) fn rule_of(&self, place: &Place<'_>) -> Option<String> {
        let path = matched(place);
        let names = Names::of(&path);
        let rules = &self.broker.rules;
        if let Some(rule) = rules.covering(&names) {
            return Some(rule.to_owned());
        }
        let look = |depth: usize| {
            let below: PathBuf = place.relative().components().take(depth - 1).collect();
            git_directory(&place.door.writable, &below, names.name_at(depth - 1))
        };
        rules.git_covering(&names, look).map(str::to_owned)
    }

    /// Whether it may be deleted. A git configuration that only describes is no loss: without
    /// this nobody could remove a clone.
    pub(super) fn may_remove(&self, place: &Place<'_>) -> Result<(), Answer> {
        match self.rule_of(place) {
            None => Ok(()),
            Some(rule) if rule == GIT_CONFIG && self.config_is_harmless(place) => Ok(()),
            Some(rule) => Err(guarded(place, rule)),
        }
    }

    /// Whether it may get another name. A folder with guarded files in it, or a place for them,
    /// stays: under another name they would be free.
    pub(super) fn may_leave(&self, place: &Place<'_>, is_directory: bool) -> Result<(), Answer> {
        self.may_touch(place)?;
        if !is_directory {
            return Ok(());
        }
        let path = matched(place);
        let names = Names::of(&path);
        if let Some((rule, _)) = self.broker.rules.begun(&names).next() {
            return Err(guarded(place, rule.to_owned()));
        }
        if !self.broker.rules.watches_git() {
            return Ok(());
        }
        if is_among_modules(&names) {
            // Its configuration was read for the place where it is.
            return Err(guarded(place, GIT_CONFIG.to_owned()));
        }
        match names.last() {
            ".git" => Err(guarded(place, GIT_CONFIG.to_owned())),
            "hooks" if self.parent_is_obeyed(place) => Err(guarded(place, GIT_HOOKS.to_owned())),
            _ => Ok(()),
        }
    }

    /// Whether something may appear under this name.
    pub(super) fn may_arrive(&self, place: &Place<'_>, what: Arrival<'_>) -> Result<(), Answer> {
        self.may_touch(place)?;
        let path = matched(place);
        let names = Names::of(&path);
        for (rule, rest) in self.broker.rules.begun(&names) {
            let brings = match what {
                Arrival::Link => true,
                Arrival::Directory(dir) => holds(dir, rest),
                Arrival::NewDirectory | Arrival::Other => false,
            };
            if brings {
                return Err(guarded(place, rule.to_owned()));
            }
        }
        if !self.broker.rules.watches_git() {
            return Ok(());
        }
        match (names.last(), what) {
            (_, Arrival::Directory(_)) if is_among_modules(&names) => {
                Err(guarded(place, GIT_CONFIG.to_owned()))
            }
            (name, Arrival::Other) | (name @ "commondir", Arrival::Link)
                if guard::is_git_pointer(name) =>
            {
                Err(guarded(place, guard::GIT_POINTER.to_owned()))
            }
            (".git", Arrival::Link) => Err(guarded(place, GIT_CONFIG.to_owned())),
            (".git", Arrival::Directory(dir)) => {
                let before = git_directory(dir, Path::new(""), "");
                if before.is_obeyed() {
                    return Ok(());
                }
                self.settle_git(dir, place, &place.relative())
            }
            ("hooks", Arrival::Link) if self.parent_is_obeyed(place) => {
                Err(guarded(place, GIT_HOOKS.to_owned()))
            }
            ("hooks", Arrival::Directory(dir))
                if self.parent_is_obeyed(place) && !only_samples(dir, c".") =>
            {
                Err(guarded(place, GIT_HOOKS.to_owned()))
            }
            (name, _) if guard::is_git_marker(name) => {
                let before = self.parent_of(place);
                if before.is_obeyed() || !before.with(name).is_obeyed() {
                    return Ok(());
                }
                self.settle_git(&place.dir, place, &place.below)
            }
            _ => Ok(()),
        }
    }

    /// A directory is about to become one that git obeys: what it already holds must be harmless
    /// and must not be changeable through descriptors opened before.
    fn settle_git(&self, dir: &OwnedFd, place: &Place<'_>, at: &Path) -> Result<(), Answer> {
        if !only_samples(dir, c"hooks") {
            return Err(guarded(place, GIT_HOOKS.to_owned()));
        }
        for name in [c"config", c"config.worktree"] {
            if !self.refresh_config(dir, name, at)? {
                return Err(guarded(place, GIT_CONFIG.to_owned()));
            }
        }
        Ok(())
    }

    fn parent_of(&self, place: &Place<'_>) -> GitDirectory {
        let label = place.door.inside.file_name().unwrap_or_default();
        let own = place.below.file_name().unwrap_or(label);
        git_directory(&place.dir, Path::new(""), &guard::fold(own))
    }

    fn parent_is_obeyed(&self, place: &Place<'_>) -> bool {
        self.parent_of(place).is_obeyed()
    }
}

/// Whether this is where a repository keeps those of its submodules, or one of them.
fn is_among_modules(names: &Names<'_>) -> bool {
    (1..names.len()).any(|at| names.name_at(at - 1) == ".git" && names.name_at(at) == "modules")
}

pub(super) fn guarded(place: &Place<'_>, rule: String) -> Answer {
    Answer::Guarded {
        path: place.inside(),
        rule,
    }
}

fn git_directory(base: &OwnedFd, below: &Path, folded: &str) -> GitDirectory {
    let has = |name: &str| {
        CString::new(below.join(name).into_os_string().as_bytes()).is_ok_and(|path| {
            at::identify(base.as_raw_fd(), &path, libc::AT_SYMLINK_NOFOLLOW).is_ok()
        })
    };
    GitDirectory {
        named_git: folded == ".git",
        head: has("HEAD"),
        objects: has("objects"),
        refs: has("refs"),
    }
}

/// Whether a directory holds the rest of a rule's path.
fn holds(dir: &OwnedFd, rest: &[Part]) -> bool {
    let Some((first, rest)) = rest.split_first() else {
        return true;
    };
    let Ok(mut entries) = Dir::openat(dir, c".", listing(), Mode::empty()) else {
        // What cannot be looked into cannot be vouched for.
        return true;
    };
    entries.iter().any(|entry| {
        let Ok(entry) = entry else { return true };
        let name = entry.file_name();
        let fits = match first {
            Part::Any => !matches!(name.to_bytes(), b"." | b".."),
            Part::Name(wanted) => *guard::fold(OsStr::from_bytes(name.to_bytes())) == **wanted,
        };
        fits && (rest.is_empty() || deeper(dir, name, rest))
    })
}

fn deeper(dir: &OwnedFd, name: &CStr, rest: &[Part]) -> bool {
    match openat(dir, name, listing() | OFlag::O_NOFOLLOW, Mode::empty()) {
        Ok(inner) => holds(&inner, rest),
        // A link counts: the host's tools would follow it.
        Err(nix::errno::Errno::ELOOP) => true,
        Err(errno) => errno != nix::errno::Errno::ENOTDIR || is_link(dir, name),
    }
}

fn is_link(dir: &OwnedFd, name: &CStr) -> bool {
    at::identify(dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|found| found.kind() == libc::S_IFLNK)
}

/// Whether a hooks directory is absent, or holds nothing that git would run.
fn only_samples(dir: &OwnedFd, name: &CStr) -> bool {
    match Dir::openat(dir, name, listing() | OFlag::O_NOFOLLOW, Mode::empty()) {
        Ok(mut entries) => entries.iter().all(|entry| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name().to_bytes();
                matches!(name, b"." | b"..") || name.ends_with(b".sample")
            })
        }),
        Err(nix::errno::Errno::ENOENT) => true,
        Err(nix::errno::Errno::ENOTDIR) => !is_link(dir, name),
        Err(_) => false,
    }
}

fn listing() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC
}
