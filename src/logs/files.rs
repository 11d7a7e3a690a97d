//! A log's folder and the files in it, opened so that nothing of somebody else's is ever read or
//! written: no links, no other owner, and every check on what is open already.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, OFlag, fcntl, open, openat, renameat};
use nix::libc;
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::error::{LogError, Unfit};

/// How many files a log has at most.
pub(super) const SEGMENTS: usize = 4;
/// Their names, from the one being written to the oldest.
pub(super) const NAMES: [&str; SEGMENTS] = ["log.0", "log.1", "log.2", "log.3"];
/// A file that is not ready to be seen.
pub(super) const NEW: &str = "log.new";

/// For whom a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Everything goes to its end, whatever else happens to it.
    Append,
}

#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, LogError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            // Asked for a folder, the kernel says this of a link too.
            Errno::ELOOP | Errno::ENOTDIR if path.is_symlink() => {
                LogError::unfit(path, Unfit::Symlink)
            }
            Errno::ENOTDIR if path.exists() => LogError::unfit(path, Unfit::NotAFolder),
            _ => LogError::failed("open", path, errno.into()),
        })?;
        let folder = File::from(fd);
        let meta = folder
            .metadata()
            .map_err(|e| LogError::failed("open", path, e))?;
        owned(meta.uid(), meta.mode()).map_err(|why| LogError::unfit(path, why))?;
        Ok(Self {
            fd: folder.into(),
            path: path.to_owned(),
        })
    }

    /// Where a file of this folder lies, for a message.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file; none if there is none.
    pub(super) fn file(&self, name: &str, access: Access) -> Result<Option<File>, LogError> {
        let how = match access {
            Access::Read => OFlag::O_RDONLY,
            Access::Append => OFlag::O_RDWR | OFlag::O_APPEND,
        };
        // Without O_NONBLOCK, opening a FIFO would wait for a writer that never comes.
        let flags =
            how | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let unfit = |why| Err(LogError::unfit(&self.path(name), why));
        let file = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => return unfit(Unfit::Symlink),
            // A socket, and a folder that is to be written.
            Err(Errno::ENXIO | Errno::EISDIR) => return unfit(Unfit::NotAFile),
            // Somebody else's file that may not even be opened.
            Err(Errno::EACCES) => {
                return match self
                    .owner(name)
                    .filter(|owner| *owner != geteuid().as_raw())
                {
                    Some(owner) => unfit(Unfit::Owner(owner)),
                    None => Err(LogError::failed(
                        "open",
                        &self.path(name),
                        Errno::EACCES.into(),
                    )),
                };
            }
            Err(errno) => return Err(LogError::failed("open", &self.path(name), errno.into())),
        };
        match fit(&file) {
            Ok(Ok(())) => Ok(Some(file)),
            Ok(Err(why)) => unfit(why),
            Err(error) => Err(LogError::failed("open", &self.path(name), error)),
        }
    }

    /// Makes a file that was not there.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDWR
            | OFlag::O_APPEND
            | OFlag::O_CREAT
            | OFlag::O_EXCL
            | OFlag::O_NOFOLLOW
            | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.fd, name, flags, Mode::S_IRUSR)?);
        // Whatever the caller's umask is.
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        Ok(file)
    }

    /// Gives a file another name; what had that name is gone.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.fd, from, &self.fd, to)?)
    }

    /// Whether it is gone afterwards, or was before.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn size(&self, name: &str) -> Option<u64> {
        let found = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        u64::try_from(found.st_size).ok()
    }

    /// Whether this open file is the one of that name.
    pub(super) fn is(&self, name: &str, file: &File) -> bool {
        let named = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        match (named, file.metadata()) {
            (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.dev(), open.ino()),
            _ => false,
        }
    }

    fn owner(&self, name: &str) -> Option<u32> {
        let found = fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        Some(found.st_uid)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn fit(file: &File) -> io::Result<Result<(), Unfit>> {
    let meta = file.metadata()?;
    Ok(if !meta.is_file() {
        Err(Unfit::NotAFile)
    } else if meta.nlink() > 1 {
        // None is right too: the log has just moved on and dropped this file.
        Err(Unfit::Linked)
    } else {
        owned(meta.uid(), meta.mode())
    })
}

fn owned(uid: u32, mode: u32) -> Result<(), Unfit> {
    if uid != geteuid().as_raw() {
        Err(Unfit::Owner(uid))
    } else if mode & 0o022 != 0 {
        Err(Unfit::Writable(mode & 0o7777))
    } else {
        Ok(())
    }
}

/// The whole file, as the kernel's locks want it said.
fn whole(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Marks a file as being written until it is closed, or its writer is killed. False if somebody
/// else writes it. A filesystem that knows no locks is no reason not to write.
pub(super) fn hold(file: &File) -> bool {
    let taken = fcntl(file, FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK)));
    !matches!(taken, Err(Errno::EAGAIN | Errno::EACCES))
}

/// Takes the mark away, also from copies of the descriptor that a child was started with.
pub(super) fn release(file: &File) {
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&whole(libc::F_UNLCK)));
}

/// Whether somebody has the file marked. Only asks, so that it can never be in a writer's way.
pub(super) fn is_held(file: &File) -> bool {
    let mut lock = whole(libc::F_RDLCK);
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock));
    asked.is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
}
