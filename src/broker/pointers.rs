//! Files that send git elsewhere: the file `.git` of a worktree or submodule, and `commondir`.
//!
//! Git on the host obeys the configuration of whatever they name, so a program may not choose
//! what they say: it could name a folder outside of every door. But where a real worktree or
//! submodule is being made, what they have to say follows from where they are. Then they are
//! written here, and the program gets a file to write to that nobody reads.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

use super::git;
use super::guarding::guarded;
use super::resolve::Place;
use super::{Answer, Case};
use crate::policy::guard::{self, GIT_POINTER};

impl Case<'_> {
    /// Whether this name is one of those, and git is watched at all.
    pub(super) fn is_pointer(&self, place: &Place<'_>) -> bool {
        let path = place.relative();
        let name = path.file_name().map(guard::fold);
        self.broker.rules.watches_git() && name.is_some_and(|name| guard::is_git_pointer(&name))
    }

    /// Writes what the file has to say; a stand-in for the program to write to.
    pub(super) fn write_pointer(&self, place: &Place<'_>) -> Result<OwnedFd, Answer> {
        self.may_touch(place)?;
        let content = match place.name().to_bytes() {
            b".git" => self
                .begun_worktree(place)
                .or_else(|| worktree(place))
                .or_else(|| submodule(place))
                .map(|target| {
                    let target = from_here(&place.below, &target);
                    [b"gitdir: ", target.as_os_str().as_bytes(), b"\n"].concat()
                }),
            b"commondir" => is_worktree_record(&place.below).then(|| b"../..\n".to_vec()),
            _ => None,
        };
        let content = content.ok_or_else(|| guarded(place, GIT_POINTER.to_owned()))?;
        self.write_file(&place.dir, place.name(), &content, 0o644)?;
        Ok(memfd_create(c"pointer", MFdFlags::MFD_CLOEXEC)?)
    }
}

/// How many records are remembered: git writes the pointer right after the record.
const MOST_BEGUN: usize = 32;

impl Case<'_> {
    /// Remembers the record of a worktree, which may become one anywhere behind the door.
    pub(super) fn note_record(&self, place: &Place<'_>) {
        if place.name() == c"gitdir" && is_worktree_record(&place.below) {
            let mut begun = self.broker.begun.borrow_mut();
            let at = place.door.inside.join(&place.below);
            begun.retain(|known| *known != at);
            if begun.len() == MOST_BEGUN {
                begun.remove(0);
            }
            begun.push(at);
        }
    }

    fn begun_worktree(&self, place: &Place<'_>) -> Option<PathBuf> {
        let begun = self.broker.begun.borrow();
        let mut behind = begun
            .iter()
            .rev()
            .filter_map(|at| at.strip_prefix(&place.door.inside).ok());
        behind
            .find(|record| belongs(place, record))
            .map(Path::to_owned)
    }
}

/// Whether the record of a worktree says that it belongs to this very file.
fn belongs(place: &Place<'_>, record: &Path) -> bool {
    let content = open(place, record).and_then(|dir| git::read(&dir, c"gitdir").ok()?);
    let wanted = place.inside();
    content.is_some_and(|(bytes, _)| bytes.trim_ascii_end() == wanted.as_os_str().as_bytes())
}

/// The record of a worktree below the repository it belongs to.
fn worktree(place: &Place<'_>) -> Option<PathBuf> {
    above(&place.below).find_map(|base| {
        let records = base.join(".git/worktrees");
        let folder = open(place, &records)?;
        let mut list = Dir::from_fd(folder.try_clone().ok()?).ok()?;
        let names: Vec<CString> = list
            .iter()
            .flatten()
            .map(|entry| entry.file_name().to_owned())
            .collect();
        let record = |name: &CString| records.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        names
            .iter()
            .map(record)
            .find(|record| belongs(place, record))
    })
}

/// Where the nearest repository keeps a submodule that is checked out here, by the name git
/// gives it. Git writes the pointer first, so there may be nothing yet; whatever comes there
/// comes through the same door.
fn submodule(place: &Place<'_>) -> Option<PathBuf> {
    above(&place.below).skip(1).find_map(|base| {
        let own = place.below.strip_prefix(&base).ok()?;
        let repository = base.join(".git/modules").join(own);
        let folder = open(place, &base.join(".git"))?;
        git::read(&folder, c"HEAD").ok().flatten()?;
        Some(repository)
    })
}

/// `<repository>/.git/worktrees/<name>`
fn is_worktree_record(path: &Path) -> bool {
    let mut names = path.iter().rev().skip(1);
    names.next().is_some_and(|name| name == "worktrees")
        && names.next().is_some_and(|name| name == ".git")
}

/// The folder and what is above it, up to the door.
fn above(path: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    path.ancestors().map(Path::to_owned)
}

fn open(place: &Place<'_>, path: &Path) -> Option<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .mode(Mode::empty())
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    openat2(&place.door.writable, path, how).ok()
}

/// A path below the door as seen from a folder below it: true inside and on the host.
fn from_here(here: &Path, target: &Path) -> PathBuf {
    let shared = here
        .iter()
        .zip(target.iter())
        .take_while(|(a, b)| a == b)
        .count();
    let up = here.iter().skip(shared).map(|_| "..");
    up.map(PathBuf::from)
        .chain(target.iter().skip(shared).map(PathBuf::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_from_where_the_pointer_is() {
        let say = |here: &str, target: &str| from_here(Path::new(here), Path::new(target));
        assert_eq!(
            say("sub", ".git/modules/sub"),
            Path::new("../.git/modules/sub")
        );
        assert_eq!(
            say("a/b", "a/.git/worktrees/b"),
            Path::new("../.git/worktrees/b")
        );
        assert_eq!(say("", ".git/worktrees/b"), Path::new(".git/worktrees/b"));
    }

    #[test]
    fn only_a_worktrees_record_may_name_the_common_directory() {
        assert!(is_worktree_record(Path::new("x/.git/worktrees/w")));
        assert!(!is_worktree_record(Path::new("x/.git/worktrees")));
        assert!(!is_worktree_record(Path::new("evil/worktrees/w")));
    }
}
