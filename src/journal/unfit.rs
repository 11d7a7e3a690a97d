//! Which files can be a journal of ours at all, by everything but what is written in them.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use super::file::LARGEST;

/// Why a file is not used as a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("its name is not that of a session's journal")]
    Name,
    #[error("it is a symbolic link")]
    Link,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it belongs to the user {0}")]
    Owner(u32),
    #[error("it has {0} names; a journal has one")]
    Names(u64),
    #[error("others may write to it (mode {0:o})")]
    Writable(u32),
    #[error("it has {0} bytes; a journal is smaller")]
    TooLarge(u64),
    #[error("you may not read it")]
    Denied,
    #[error("another process writes to it: the session is running")]
    InUse,
}

impl From<Unfit> for io::Error {
    fn from(why: Unfit) -> Self {
        let kind = match why {
            Unfit::InUse => io::ErrorKind::WouldBlock,
            Unfit::Owner(_) | Unfit::Denied | Unfit::Writable(_) => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, why)
    }
}

/// Opens a file that somebody else may have put there. Neither a link nor a pipe can hold us up.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<Result<File, Unfit>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    match options.custom_flags(flags.bits()).open(path) {
        Ok(file) => Ok(Ok(file)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ELOOP) => Ok(Err(Unfit::Link)),
            // A folder, a socket, a device without a driver.
            Some(libc::EISDIR | libc::ENXIO | libc::ENODEV) => Ok(Err(Unfit::NotAFile)),
            Some(libc::EACCES | libc::EPERM) if path.symlink_metadata().is_ok() => {
                Ok(Err(Unfit::Denied))
            }
            _ => Err(error),
        },
    }
}

/// The checks are made on the open file, which cannot be swapped any more.
pub(super) fn check(about: &Metadata) -> Result<(), Unfit> {
    let mode = about.mode() & 0o7777;
    if !about.is_file() {
        Err(Unfit::NotAFile)
    } else if about.uid() != nix::unistd::geteuid().as_raw() {
        Err(Unfit::Owner(about.uid()))
    } else if about.nlink() > 1 {
        Err(Unfit::Names(about.nlink()))
    } else if mode & 0o022 != 0 {
        Err(Unfit::Writable(mode))
    } else {
        Ok(())
    }
}

/// The same for the folder of journals: one that leads elsewhere is not written to.
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    let about = folder.symlink_metadata()?;
    let owner = about.uid();
    match () {
        () if about.is_symlink() => Err(Unfit::Link.into()),
        () if owner != nix::unistd::geteuid().as_raw() => Err(Unfit::Owner(owner).into()),
        () => Ok(()),
    }
}

/// No journal grows this large; a file that did is not read at all.
pub(super) fn check_size(about: &Metadata) -> Result<(), Unfit> {
    match about.len() <= LARGEST {
        true => Ok(()),
        false => Err(Unfit::TooLarge(about.len())),
    }
}

/// Whether the name still leads to the file that was opened by it.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    Ok(path
        .symlink_metadata()
        .is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes the lock that a writer holds for as long as its session runs; it is gone with the last
/// copy of the descriptor. Where a filesystem has no locks, nobody keeps a second writer out.
pub(super) fn lock(file: &File) -> io::Result<Result<(), Unfit>> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file())) {
        Ok(_) | Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(Ok(())),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(Err(Unfit::InUse)),
        Err(error) => Err(error.into()),
    }
}

/// Whether a writer holds it. To ask takes no lock and so keeps nobody out.
pub(super) fn is_locked(file: &File) -> bool {
    let mut question = whole_file();
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut question)).is_ok()
        && question.l_type != libc::F_UNLCK as i16
}
