//! From a path in the caller's words to a directory behind a door and a name in it.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlink, readlinkat};
use nix::sys::stat::Mode;

use super::caller::{Caller, open_inside};
use super::{Answer, Case, OpenDoor};
use crate::sys::at::{self, Identity};

/// The kernel's own limit.
const LINKS_FOLLOWED: usize = 40;

/// An object behind a door, existing or not.
#[derive(Debug)]
pub(super) struct Place<'b> {
    pub(super) door: &'b OpenDoor,
    /// The parent directory in the box's view.
    native: OwnedFd,
    /// The same directory through the door.
    pub(super) dir: OwnedFd,
    /// Where `dir` is, counted from the door.
    pub(super) below: PathBuf,
    /// `None` when `dir` itself is meant.
    pub(super) name: Option<CString>,
    /// The path ended with a slash, so only a directory will do.
    pub(super) slash: bool,
    /// What following the path already told about the object, with `None` for nothing there.
    seen: Option<Option<Identity>>,
    /// Whether the box's view of `dir` is the door's own mount and not one below or beside it.
    on_door: bool,
}

/// Where a parent directory turned out to be.
enum Spot<'b> {
    Behind(Place<'b>),
    Outside(OwnedFd, PathBuf),
}

/// What to do with a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Follow,
    Keep,
}

impl Case<'_> {
    /// Finds the object; `CarryOn` when it is not behind a door.
    pub(super) fn place(&self, dirfd: i32, path: &[u8], last: Last) -> Result<Place<'_>, Answer> {
        self.place_within(dirfd, path, last, ResolveFlag::empty())
    }

    pub(super) fn place_within(
        &self,
        dirfd: i32,
        path: &[u8],
        last: Last,
        limits: ResolveFlag,
    ) -> Result<Place<'_>, Answer> {
        let mut base = match path.first() {
            None => return Err(Answer::CarryOn),
            Some(b'/') => None,
            Some(_) => Some(self.caller.base(dirfd)?),
        };
        // From a working directory on the door's mount a caller cannot but share our view.
        let relative = base.is_some();
        let mut path = path.to_vec();
        for _ in 0..LINKS_FOLLOWED {
            if last == Last::Follow
                && let Some(number) = Caller::descriptor_in(&path)
            {
                return self.place_of_descriptor(number);
            }
            let (parent, name, slash) = split(&path);
            let native = match (base.take(), parent) {
                (Some(base), b"") => base,
                (base, parent) => open_inside(base.as_ref(), parent, limits)?,
            };
            // Whoever follows links follows them into a door, too: /workspace is one.
            let (native, link) = match self.enter(native, name, slash)? {
                Spot::Behind(mut place) => match place.link(last)? {
                    Some(link) => (place.native, link),
                    None if relative && place.on_door => {
                        self.confirm()?;
                        return Ok(place);
                    }
                    None => {
                        self.confirm_view()?;
                        return Ok(place);
                    }
                },
                Spot::Outside(native, here) => match name {
                    Some(name) if last == Last::Follow && !here.starts_with("/proc") => {
                        let link = readlinkat(&native, OsStr::from_bytes(name));
                        (native, link.map_err(|_| Answer::CarryOn)?)
                    }
                    _ => return Err(Answer::CarryOn),
                },
            };
            if !limits.is_empty() {
                return Err(Errno::ELOOP.into());
            }
            path = link.into_vec();
            if slash {
                path.push(b'/');
            }
            base = (!path.starts_with(b"/")).then_some(native);
        }
        Err(Errno::ELOOP.into())
    }

    /// Finds what an open descriptor stands for. Descriptors that came through a door carry on:
    /// their mount is writable, and their file was decided upon when it was opened.
    pub(super) fn place_of_descriptor(&self, number: i32) -> Result<Place<'_>, Answer> {
        let (path, identity) = self.caller.named(number)?;
        let place = self.place(libc::AT_FDCWD, path.as_os_str().as_bytes(), Last::Keep)?;
        match place.look()? {
            Some(found) if found.is_same_object(&identity) => Ok(place),
            _ => Err(Answer::CarryOn),
        }
    }

    fn enter(&self, native: OwnedFd, name: Option<&[u8]>, slash: bool) -> Result<Spot<'_>, Answer> {
        // A place too deep to have a name is the kernel's, to whom guarded mounts are read-only.
        let here = readlink(own(&native).as_c_str()).map_err(|_| Answer::CarryOn)?;
        let here = PathBuf::from(here);
        let doors = &self.broker.doors;
        if let Some(name) = name.map(OsStr::from_bytes) {
            let whole = here.join(name);
            if let Some(door) = doors.iter().find(|door| door.inside == whole) {
                let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
                let native = openat(&native, name, flags, Mode::empty())?;
                return Place::new(door, native, Path::new(""), None, slash).map(Spot::Behind);
            }
        }
        let behind = doors
            .iter()
            .find_map(|door| Some((door, here.strip_prefix(&door.inside).ok()?)));
        let whole = name.map_or_else(|| here.clone(), |name| here.join(OsStr::from_bytes(name)));
        match behind {
            Some((door, _)) if self.broker.is_closed_off(door, &whole) => {
                Ok(Spot::Outside(native, here))
            }
            Some((door, below)) => Place::new(door, native, below, name, slash).map(Spot::Behind),
            None => Ok(Spot::Outside(native, here)),
        }
    }

    /// A caller with another root sees other things under these names.
    fn confirm_view(&self) -> Result<(), Answer> {
        let root = self.caller.root()?;
        self.confirm()?;
        match self.broker.root {
            Some(ours) if ours.is_same_object(&root) && ours.mount == root.mount => Ok(()),
            _ => Err(Answer::CarryOn),
        }
    }
}

impl<'b> Place<'b> {
    /// Reopens a directory of the box through its door. When that is not the same directory (it
    /// was removed, or something else is mounted over it) the box's own view counts.
    fn new(
        door: &'b OpenDoor,
        native: OwnedFd,
        below: &Path,
        name: Option<&[u8]>,
        slash: bool,
    ) -> Result<Self, Answer> {
        let dir = if below.as_os_str().is_empty() {
            door.writable.try_clone().map_err(|_| Answer::CarryOn)?
        } else {
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
                .resolve(
                    ResolveFlag::RESOLVE_BENEATH
                        | ResolveFlag::RESOLVE_NO_SYMLINKS
                        | ResolveFlag::RESOLVE_NO_MAGICLINKS,
                );
            openat2(&door.writable, below, how).map_err(|_| Answer::CarryOn)?
        };
        let shown = at::identify(native.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
        let on_door = door.mount == Some(shown.mount);
        if !on_door || below.as_os_str().as_bytes().ends_with(b" (deleted)") {
            let reached = at::identify(dir.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
            if !shown.is_same_object(&reached) {
                return Err(Answer::CarryOn);
            }
        }
        let name = match name {
            Some(name) if name.len() > 255 => return Err(Errno::ENAMETOOLONG.into()),
            Some(name) => Some(CString::new(name).map_err(|_| Answer::CarryOn)?),
            None => None,
        };
        Ok(Self {
            door,
            native,
            dir,
            below: below.to_owned(),
            name,
            slash,
            seen: None,
            on_door,
        })
    }

    /// What is there now; `None` for nothing. Something mounted over the very name is not behind
    /// the door and is left to the kernel.
    pub(super) fn look(&self) -> Result<Option<Identity>, Answer> {
        const TRIES: usize = 3;
        let Some(name) = &self.name else {
            let identity = at::identify(self.dir.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
            return Ok(Some(identity));
        };
        let keep = libc::AT_SYMLINK_NOFOLLOW;
        // The host may be replacing the file at this moment: ask again before giving up.
        let mut seen = self.seen;
        for _ in 0..TRIES {
            let reached = match seen.take() {
                Some(seen) => seen,
                None => self.reach(name)?,
            };
            let Some(reached) = reached else {
                return Ok(None);
            };
            match at::identify(self.native.as_raw_fd(), name, keep) {
                Ok(shown) if shown.is_same_object(&reached) => return Ok(Some(reached)),
                _ => {}
            }
        }
        Err(Answer::CarryOn)
    }

    fn reach(&self, name: &CStr) -> Result<Option<Identity>, Errno> {
        match at::identify(self.dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// What is there, or the error for nothing, or the one for a file with a slash behind it.
    pub(super) fn existing(&self) -> Result<Identity, Answer> {
        match self.look()? {
            None => Err(Errno::ENOENT.into()),
            Some(found) if self.slash && found.kind() != libc::S_IFDIR => {
                Err(Errno::ENOTDIR.into())
            }
            Some(found) => Ok(found),
        }
    }

    /// The link to be followed, if there is one.
    fn link(&mut self, last: Last) -> Result<Option<std::ffi::OsString>, Answer> {
        let (Some(name), Last::Follow) = (&self.name, last) else {
            return Ok(None);
        };
        let found = self.reach(name)?;
        if found.is_some_and(|found| found.kind() == libc::S_IFLNK) {
            return Ok(Some(readlinkat(&self.dir, name.as_c_str())?));
        }
        self.seen = Some(found);
        Ok(None)
    }

    /// The name in `dir`; where `dir` itself is meant, the empty one.
    pub(super) fn name(&self) -> &CStr {
        self.name.as_deref().unwrap_or(c"")
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The object itself as a descriptor for use with [`own`].
    pub(super) fn object(&self) -> Result<OwnedFd, Answer> {
        match &self.name {
            None => self.dir.try_clone().map_err(|_| Answer::CarryOn),
            Some(name) => {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                Ok(openat(&self.dir, name.as_c_str(), flags, Mode::empty())?)
            }
        }
    }

    /// The path from the door on.
    pub(super) fn relative(&self) -> PathBuf {
        match &self.name {
            Some(name) => self.below.join(OsStr::from_bytes(name.to_bytes())),
            None => self.below.clone(),
        }
    }

    /// The path as the box knows it.
    pub(super) fn inside(&self) -> PathBuf {
        self.door.inside.join(self.relative())
    }
}

/// The path by which this process can name one of its own descriptors.
pub(super) fn own(fd: &OwnedFd) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// A path as parent, last name and whether slashes follow. A path that ends with a dot name is
/// all parent.
fn split(path: &[u8]) -> (&[u8], Option<&[u8]>, bool) {
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |at| at + 1);
    let (bare, slash) = (&path[..end], end < path.len());
    let start = bare
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |at| at + 1);
    match &bare[start..] {
        b"" | b"." | b".." => (path, None, slash),
        name => (&bare[..start], Some(name), slash),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_where_the_kernel_splits_them() {
        assert_eq!(split(b"a"), (&b""[..], Some(&b"a"[..]), false));
        assert_eq!(split(b"/a"), (&b"/"[..], Some(&b"a"[..]), false));
        assert_eq!(split(b"a/b//"), (&b"a/"[..], Some(&b"b"[..]), true));
        assert_eq!(split(b"a/.."), (&b"a/.."[..], None, false));
        assert_eq!(split(b"./"), (&b"./"[..], None, true));
        assert_eq!(split(b"//"), (&b"//"[..], None, true));
    }
}
