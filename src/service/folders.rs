//! From the app's words for a folder to the folder that is shared, or why it is not. A folder is
//! opened once; everything is decided on what was opened, never on its name again.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode as Rights, makedev, mkdirat};
use nix::unistd::{AccessFlags, UnlinkatFlags, access, getuid, unlinkat};

use super::names::shortened;
use super::off_limits::{self, OffLimits};
use super::written::{A_SESSIONS_LINK, Written};
use crate::plan::Seen;
use crate::session::{MountMode, MountWish};
use crate::sys;

/// Where folders come from.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    pub(super) home: PathBuf,
    /// Whether the whole home may be shared.
    pub(super) allow_home: bool,
    /// What is ours: the state of sessions, their sockets, the folder of the app's socket.
    pub(super) own: Vec<PathBuf>,
    /// The app's own folder, in which it keeps its sessions' files.
    pub(super) app_data: Option<PathBuf>,
    /// Where sessions could have left links.
    pub(super) written: Written,
}

/// What a session may do in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    /// Everything but remove what it did not make.
    Keep,
    Write,
}

impl Mode {
    /// `ro`, `rw` and `rwd`; what is not said or not known is `rw`.
    pub(super) fn of(text: Option<&str>) -> Self {
        match text {
            Some("ro") => Self::Read,
            Some("rwd") => Self::Write,
            _ => Self::Keep,
        }
    }

    fn for_sessions(self) -> MountMode {
        match self {
            Self::Read => MountMode::Read,
            Self::Keep => MountMode::Keep,
            Self::Write => MountMode::Write,
        }
    }
}

/// What became of the app's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Folder(Folder),
    /// A file: the app names some, and means nothing by it.
    Skipped,
}

/// A folder that may be shared, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    /// Without a link in it.
    pub(super) path: PathBuf,
    pub(super) seen: Seen,
    pub(super) mode: Mode,
}

impl Folder {
    /// The wish to see it at this place: a mount's name, or an absolute path in the session.
    pub(super) fn wish(&self, place: &str) -> MountWish {
        MountWish {
            source: self.path.clone(),
            seen: self.seen,
            is_folder: true,
            mode: self.mode.for_sessions(),
            place: place.to_owned(),
            replace: true,
            despite_overlap: true,
        }
    }

    /// Whether it is for certain still what is meant by these words, as far as can be told without asking the
    /// disk that it lies on, which may be dead. When this says no, it has to be looked for.
    pub(super) fn is_certainly(&self, text: &str) -> bool {
        const MAY_READ: u32 = 0o500;
        let words = text.strip_prefix('/').unwrap_or(text);
        let path = self.path.as_os_str().as_bytes();
        if path.strip_prefix(b"/") != Some(words.as_bytes()) {
            return false;
        }
        let known = sys::at::open_if_known(&self.path)
            .and_then(|opened| sys::at::remembered(opened.as_fd()));
        known.is_ok_and(|known| {
            let device = makedev(known.device.0.into(), known.device.1.into());
            let seen = Seen {
                device,
                inode: known.inode,
                uid: known.uid,
                gid: known.gid,
            };
            seen == self.seen && known.uid == getuid().as_raw() && known.mode & MAY_READ == MAY_READ
        })
    }

    pub(super) fn is_same(&self, device: u64, inode: u64) -> bool {
        (self.seen.device, self.seen.inode) == (device, inode)
    }
}

impl Sources {
    /// The folder that the app means. Blocks for as long as a dead disk does.
    pub(super) fn find(&self, text: &str, mode: Mode) -> Result<Found, String> {
        let refuse = |why: &str| format!("cannot share {}, because {why}", shortened(text));
        let off_limits = OffLimits::new(self);
        for path in self.candidates(text).map_err(|why| refuse(&why))? {
            match self.written.open(&path) {
                Ok(opened) => {
                    return decide(&opened, mode, &off_limits).map_err(|why| refuse(&why));
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(error) => return Err(refuse(&in_words(error))),
            }
        }
        if mode == Mode::Read {
            return Err(refuse("it is not there"));
        }
        self.make(text, mode, &off_limits)
            .map_err(|why| refuse(&why))
    }

    /// The places it may be at, the likeliest first. The app leaves out the first slash; older
    /// ones leave out the home.
    pub(super) fn candidates(&self, text: &str) -> Result<Vec<PathBuf>, String> {
        if text.is_empty() {
            return Err("the app named none".to_owned());
        }
        if text.contains('\0') {
            return Err("its name contains a NUL byte".to_owned());
        }
        let said = Path::new(text);
        if said.components().any(|part| part == Component::ParentDir) {
            return Err("`..` has no place in its name".to_owned());
        }
        let whole: PathBuf = said.components().collect();
        Ok(match said.is_absolute() {
            true => vec![whole],
            false => vec![Path::new("/").join(&whole), self.home.join(&whole)],
        })
    }

    /// Where it would be if it were there, and whether the app said so from the root on.
    fn missing(&self, text: &str) -> (PathBuf, bool) {
        let said: PathBuf = Path::new(text).components().collect();
        let from_root = Path::new("/").join(&said);
        let first: PathBuf = from_root.components().take(2).collect();
        match said.is_absolute() || first.is_dir() {
            true => (from_root, true),
            false => (self.home.join(said), false),
        }
    }

    /// The home without a link in it; none if everything would lie in it.
    pub(super) fn real_home(&self) -> Option<PathBuf> {
        let home = fs::canonicalize(&self.home).ok();
        home.filter(|home| home.components().count() > 1)
    }

    /// The app's folder without a link in it, if it can be one: the app says where it is, and what
    /// holds the home or belongs to the system is not the app's.
    pub(super) fn real_data(&self) -> Option<PathBuf> {
        let data = fs::canonicalize(self.app_data.as_ref()?).ok()?;
        let home = fs::canonicalize(&self.home).ok()?;
        (!home.starts_with(&data) && !off_limits::is_systems(&data, &home)).then_some(data)
    }

    /// Makes a folder that the app has not come to make yet: anywhere in its own, or right in one
    /// of the home's.
    fn make(&self, text: &str, mode: Mode, off_limits: &OffLimits) -> Result<Found, String> {
        let (path, is_said) = self.missing(text);
        let path = path.as_path();
        let is_there = |path: &&Path| fs::symlink_metadata(path).is_ok();
        let base = path.ancestors().find(is_there).unwrap_or(Path::new("/"));
        let rest = path.strip_prefix(base).unwrap_or(Path::new(""));
        let opened = self.written.open(base).map_err(|error| match error {
            Errno::ENOENT => "it is a link that leads nowhere".to_owned(),
            error => in_words(error),
        })?;
        let (real, _) = look(&opened)?;
        let is_in = |folder: Option<PathBuf>| folder.is_some_and(|it| real.starts_with(it));
        // In the home only one that is named from the root on, so that a word that means nothing
        // leaves nothing behind.
        let is_next = is_said && rest.components().count() == 1;
        let may_be_made = is_in(self.real_data()) || is_next && is_in(self.real_home());
        if !may_be_made {
            return Err("it is not there".to_owned());
        }
        if let Some(why) = off_limits.objection_to_making(&opened, &real.join(rest)) {
            return Err(why.to_owned());
        }
        let mut made = Made::default();
        match made.all(opened, rest) {
            Ok(folder) => decide(&folder, mode, off_limits).inspect_err(|_| made.undo()),
            Err(error) => {
                made.undo();
                Err(format!(
                    "it is not there and cannot be made: {}",
                    in_words(error)
                ))
            }
        }
    }
}

/// Folders that were made, each with the one it is in.
#[derive(Default)]
struct Made(Vec<(OwnedFd, PathBuf)>);

impl Made {
    fn all(&mut self, mut at: OwnedFd, rest: &Path) -> Result<OwnedFd, Errno> {
        for part in rest.components() {
            let name = Path::new(part.as_os_str());
            match mkdirat(&at, name, Rights::S_IRWXU) {
                Ok(()) => {
                    let parent = at.try_clone().map_err(|_| Errno::EMFILE)?;
                    self.0.push((parent, name.to_owned()));
                }
                // Somebody was faster; a link in its place is not followed.
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error),
            }
            at = open_below(&at, name)?;
        }
        Ok(at)
    }

    /// Only what is still empty goes.
    fn undo(&mut self) {
        for (parent, name) in self.0.drain(..).rev() {
            let _ = unlinkat(&parent, &name, UnlinkatFlags::RemoveDir);
        }
    }
}

/// Whether what was opened may be shared.
fn decide(opened: &OwnedFd, mode: Mode, off_limits: &OffLimits) -> Result<Found, String> {
    let (path, metadata) = look(opened)?;
    if metadata.is_file() {
        return Ok(Found::Skipped);
    }
    if !metadata.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    if metadata.nlink() == 0 || !path.is_absolute() {
        return Err("it was removed".to_owned());
    }
    if let Some(why) = off_limits.objection(opened, &path) {
        return Err(why.to_owned());
    }
    let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
    access(by_number.as_str(), AccessFlags::R_OK | AccessFlags::X_OK).map_err(in_words)?;
    Ok(Found::Folder(Folder {
        path,
        seen: Seen {
            device: metadata.dev(),
            inode: metadata.ino(),
            uid: metadata.uid(),
            gid: metadata.gid(),
        },
        mode,
    }))
}

/// What a descriptor stands for, by the one name it has now.
pub(super) fn look(opened: &OwnedFd) -> Result<(PathBuf, fs::Metadata), String> {
    let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let failed = |error: io::Error| crate::report::without_number(&error.to_string());
    let path = fs::read_link(&by_number).map_err(failed)?;
    let metadata = fs::metadata(&by_number).map_err(failed)?;
    Ok((path, metadata))
}

/// Links are followed now and never again; those of /proc, which lead anywhere, are not.
pub(super) fn open_through_links(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(AT_FDCWD, path, how)
}

/// A folder right in or below another, with no link on the way.
pub(super) fn open_below(folder: &impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new()
        .flags(flags)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(folder, name, how)
}

/// In words of our own: those of the C libraries differ.
pub(super) fn in_words(error: Errno) -> String {
    match error {
        Errno::ENOENT => "it is not there".to_owned(),
        Errno::EACCES | Errno::EPERM => "you may not read it".to_owned(),
        Errno::ELOOP => "its links lead in a circle or through /proc".to_owned(),
        A_SESSIONS_LINK => {
            "a link on the way lies in a folder that a session can write to; share what it leads to"
                .to_owned()
        }
        Errno::ENOTDIR => "it is not a folder".to_owned(),
        Errno::ENAMETOOLONG => "its name is too long".to_owned(),
        Errno::EHOSTDOWN | Errno::ENOTCONN | Errno::EIO | Errno::ESTALE => {
            "the disk it lies on does not answer".to_owned()
        }
        other => other.desc().to_owned(),
    }
}

/// Bytes of a path that is not text are refused before they get here; the app speaks JSON.
pub(super) fn text_of(path: &Path) -> Option<&str> {
    std::str::from_utf8(path.as_os_str().as_bytes()).ok()
}
