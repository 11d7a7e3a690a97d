//! Files of a session for the app to show. A path means what it means in the session: links are
//! followed step by step through what the session sees, and never on the host.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat};

use super::folders::{Folder, in_words, open_through_links};
use super::names::{MountName, shortened};
use crate::egress::base64;
use crate::policy::{InsidePath, SessionId};
use crate::report;
use crate::session::Places;

/// In base64 and with what is around it, this still fits the longest answer.
const LARGEST: u64 = 7 << 20;
/// As many as the kernel follows.
const MOST_LINKS: usize = 40;
/// However a path winds, it is walked in so many steps or not at all.
const MOST_STEPS: usize = 4096;

/// What a session sees of the host.
#[derive(Debug)]
pub(super) struct SessionView<'a> {
    pub(super) name: &'a SessionId,
    /// Where its home is to be found.
    pub(super) places: &'a Places,
    pub(super) mounts: Vec<Shown>,
}

/// A folder of the host's, and where the session sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    /// Absolute, in the session.
    at: PathBuf,
    folder: Folder,
}

impl Shown {
    /// Under the name of a mount.
    pub(super) fn named(session: &SessionId, name: &MountName, folder: Folder) -> Self {
        let at = home_of(session).join("mnt").join(name.as_str());
        Self { at, folder }
    }

    /// At a place of its own.
    pub(super) fn at(place: &InsidePath, folder: Folder) -> Self {
        Self {
            at: place.as_path().to_owned(),
            folder,
        }
    }
}

fn home_of(session: &SessionId) -> PathBuf {
    Path::new("/sessions").join(session.as_str())
}

/// The bytes of a regular file in base64. Blocks for as long as a dead disk does.
pub(super) fn read_file(view: &SessionView<'_>, path: &str) -> Result<String, String> {
    let refuse = |why: &str| format!("cannot read {}, because {why}", shortened(path));
    let found = find(view, path).map_err(|why| refuse(&why))?;
    let kind = fstat(&found).map_err(|e| refuse(&in_words(e)))?;
    if !is(&kind, SFlag::S_IFREG) {
        let what = match is(&kind, SFlag::S_IFDIR) {
            true => "it is a folder",
            false => "it is not an ordinary file",
        };
        return Err(refuse(what));
    }
    let too_large = || {
        let (size, most) = (kind.st_size >> 20, LARGEST >> 20);
        refuse(&format!(
            "it has {size} MiB and at most {most} MiB can be shown; open it from its folder"
        ))
    };
    if u64::try_from(kind.st_size).is_ok_and(|size| size > LARGEST) {
        return Err(too_large());
    }
    let because = |error: std::io::Error| refuse(&report::without_number(&error.to_string()));
    let mut bytes = Vec::with_capacity(usize::try_from(kind.st_size).unwrap_or_default() + 1);
    reopen(&found)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(because)?;
    match bytes.len() as u64 > LARGEST {
        // It has grown meanwhile.
        true => Err(too_large()),
        false => Ok(base64(&bytes)),
    }
}

/// The file itself, which was looked at through a descriptor that cannot read.
fn reopen(found: &OwnedFd) -> std::io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

fn is(found: &FileStat, kind: SFlag) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

/// Where a walk has come to.
enum At {
    /// A folder that is the session's alone: the root, `/sessions`, the folder of mounts.
    Inside,
    Host(OwnedFd),
}

fn find(view: &SessionView<'_>, path: &str) -> Result<OwnedFd, String> {
    let said = Path::new(path);
    if path.contains('\0') {
        return Err("its name contains a NUL byte".to_owned());
    }
    if !said.is_absolute() {
        return Err("its name does not start at the root".to_owned());
    }
    if said.components().any(|part| part == Component::ParentDir) {
        return Err("`..` has no place in its name".to_owned());
    }
    let mut walk = Walk::new(view, said);
    for _ in 0..MOST_STEPS {
        if let Some(found) = walk.step()? {
            return Ok(found);
        }
    }
    Err(in_words(Errno::ELOOP))
}

struct Walk<'a> {
    view: &'a SessionView<'a>,
    /// What is still to be walked.
    ahead: VecDeque<OsString>,
    /// Where `at` is in the session; there is no link in it.
    done: PathBuf,
    at: At,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(view: &'a SessionView<'a>, path: &Path) -> Self {
        Self {
            view,
            ahead: parts(path).collect(),
            done: PathBuf::from("/"),
            at: At::Inside,
            links: 0,
        }
    }

    /// One part of the path; what was looked for, once there is none left.
    fn step(&mut self) -> Result<Option<OwnedFd>, String> {
        let Some(part) = self.ahead.pop_front() else {
            return match std::mem::replace(&mut self.at, At::Inside) {
                At::Host(found) => Ok(Some(found)),
                At::Inside => Err("it is a folder of the session's".to_owned()),
            };
        };
        if part == ".." {
            let mut back = self.done.clone();
            back.pop();
            self.start_over(&back);
            return Ok(None);
        }
        let place = self.done.join(&part);
        let next = match self.mounted_at(&place)? {
            Some(there) => there,
            None => match &self.at {
                At::Inside => return Err(self.outside()),
                At::Host(folder) => match look_below(folder, &part) {
                    Ok(Entry::Link(target)) => {
                        self.follow(&target)?;
                        return Ok(None);
                    }
                    Ok(Entry::Other(found)) => At::Host(found),
                    Err(error) => return Err(in_words(error)),
                },
            },
        };
        self.at = next;
        self.done = place;
        Ok(None)
    }

    /// What the session sees here that is not part of the folder around it.
    fn mounted_at(&self, place: &Path) -> Result<Option<At>, String> {
        if let Some(shown) = self.view.mounts.iter().rev().find(|it| it.at == place) {
            return open_again(&shown.folder).map(|it| Some(At::Host(it)));
        }
        let home = home_of(self.view.name);
        if place == home {
            let opened = self.view.places.open_home(self.view.name);
            let opened = opened.map_err(|error| report::in_one_line(&error))?;
            return Ok(Some(At::Host(opened)));
        }
        let leads_on = |it: &Shown| it.at.starts_with(place);
        let is_way = home.starts_with(place)
            || place == home.join("mnt")
            || matches!(self.at, At::Inside) && self.view.mounts.iter().any(leads_on);
        Ok(is_way.then_some(At::Inside))
    }

    fn follow(&mut self, target: &Path) -> Result<(), String> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(in_words(Errno::ELOOP));
        }
        for part in parts(target).collect::<Vec<_>>().into_iter().rev() {
            self.ahead.push_front(part);
        }
        if target.is_absolute() {
            self.start_over(Path::new("/"));
        }
        Ok(())
    }

    /// Walks again to a place that it has been to, and then on.
    fn start_over(&mut self, place: &Path) {
        for part in parts(place).collect::<Vec<_>>().into_iter().rev() {
            self.ahead.push_front(part);
        }
        self.done = PathBuf::from("/");
        self.at = At::Inside;
    }

    fn outside(&self) -> String {
        let home = home_of(self.view.name);
        match self.done.starts_with(home.join("mnt")) {
            true => "no folder is mounted there".to_owned(),
            false => format!("only what lies below {} is shown", home.display()),
        }
    }
}

/// The parts of a path, `..` among them.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

enum Entry {
    Link(PathBuf),
    Other(OwnedFd),
}

/// One entry of a folder, never through a link.
fn look_below(folder: &OwnedFd, name: &OsStr) -> Result<Entry, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let found = openat2(folder, name, how)?;
    match is(&fstat(&found)?, SFlag::S_IFLNK) {
        true => Ok(Entry::Link(readlinkat(&found, "")?.into())),
        false => Ok(Entry::Other(found)),
    }
}

/// The folder that was mounted, if it is still the same one.
fn open_again(folder: &Folder) -> Result<OwnedFd, String> {
    let opened = open_through_links(&folder.path).map_err(in_words)?;
    let found = fstat(&opened).map_err(in_words)?;
    match folder.is_same(found.st_dev, found.st_ino) {
        true => Ok(opened),
        false => Err("the folder was exchanged since it was mounted".to_owned()),
    }
}
