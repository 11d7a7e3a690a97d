//! Places in a root that others' steps fill: resolved as a process inside would resolve them. Links
//! are followed, and none of them leads out, whoever made it and whenever.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, fstat, mkdirat};

use super::trouble::{InPart, Trouble};
use crate::plan::Part;

/// How often a place is looked up anew because something was renamed on the way.
const TRIES: usize = 256;

/// What a mount needs to be mounted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// Anything but a folder.
    File,
}

/// Mount points that are made: everybody may look, nobody is to write.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;

/// How a place for a mount is made.
const STUB: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_NONBLOCK);

/// Opens a place for reference only.
pub(super) fn open(root: BorrowedFd<'_>, at: &Path) -> io::Result<OwnedFd> {
    open_as(root, at, OFlag::O_PATH, 0)
}

/// Opens or makes a file for writing, emptied.
pub(super) fn create(root: BorrowedFd<'_>, at: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOCTTY;
    open_as(root, at, flags, mode)
}

fn open_as(root: BorrowedFd<'_>, at: &Path, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
    let at = match at.as_os_str().is_empty() {
        true => Path::new("."),
        false => at,
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(Mode::from_bits_truncate(mode))
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    for _ in 0..TRIES {
        match openat2(root, at, how) {
            // Somebody moved a folder meanwhile, and the kernel cannot tell where `..` led.
            Err(Errno::EAGAIN) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::EAGAIN.into())
}

/// The folder a name is to be made in, and the name as it was written.
pub(super) fn parent_of<'a>(
    root: BorrowedFd<'_>,
    at: &'a Path,
) -> io::Result<(OwnedFd, &'a OsStr)> {
    let bytes = at.as_os_str().as_bytes();
    // A slash at the end belongs to the name: only a folder may be called so.
    let end = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    let start = bytes[..end]
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let (parent, name) = match end {
        0 => (&b""[..], &b"."[..]),
        _ => (&bytes[..start], &bytes[start..]),
    };
    let parent = open(root, Path::new(OsStr::from_bytes(parent)))?;
    Ok((parent, OsStr::from_bytes(name)))
}

/// Makes the folders on the way to a place, as far as they are missing.
pub(super) fn make_parents(root: BorrowedFd<'_>, at: &Path, mode: u32) -> Result<(), Trouble> {
    let bytes = at.as_os_str().as_bytes();
    let ends = (1..bytes.len()).filter(|end| bytes[*end] == b'/' && bytes[end - 1] != b'/');
    for end in ends {
        let prefix = Path::new(OsStr::from_bytes(&bytes[..end]));
        make_folder(root, prefix, mode).in_part(Part::Parents)?;
    }
    Ok(())
}

/// Makes a folder, unless there is one.
pub(super) fn make_folder(root: BorrowedFd<'_>, at: &Path, mode: u32) -> io::Result<()> {
    if let Ok(there) = open(root, at) {
        return match is_folder(there.as_fd())? {
            true => Ok(()),
            false => Err(Errno::ENOTDIR.into()),
        };
    }
    let (parent, name) = parent_of(root, at)?;
    match mkdirat(&parent, name, Mode::from_bits_truncate(mode)) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The place to mount something of this kind on; made when it is missing.
pub(super) fn mount_point(
    root: BorrowedFd<'_>,
    at: &Path,
    kind: Kind,
    parent_mode: u32,
) -> Result<OwnedFd, Trouble> {
    if let Ok(there) = open(root, at) {
        return match (kind, is_folder(there.as_fd())?) {
            (Kind::Folder, false) => Err(Trouble::new(Part::Folder, Errno::ENOTDIR.into())),
            (Kind::File, true) => Err(Trouble::new(Part::File, Errno::EISDIR.into())),
            _ => Ok(there),
        };
    }
    make_parents(root, at, parent_mode)?;
    match kind {
        Kind::Folder => make_folder(root, at, FOLDER_MODE).in_part(Part::Folder)?,
        // Somebody may have put a file there meanwhile, which is to stay as it is.
        Kind::File => match open_as(root, at, STUB, FILE_MODE) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                return Err(Trouble::new(Part::File, error));
            }
            _ => {}
        },
    }
    open(root, at).in_part(Part::Mount)
}

pub(super) fn is_folder(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(fstat(fd)?.st_mode & libc::S_IFMT == libc::S_IFDIR)
}
