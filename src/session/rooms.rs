//! Finding a session's directory: its own by name, or the first room nobody is in. State is not
//! trusted because it exists.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::Flock;

use super::directory::DirectoryError;
use super::made::Made;
use crate::plan::Session;
use crate::sys;

pub(super) fn own(
    path: &Path,
    session: &Session,
    made: &mut Made,
) -> Result<(PathBuf, Flock<File>), DirectoryError> {
    // A box whose launcher was killed holds the lock until the kernel has taken it down, which is
    // a matter of milliseconds: whoever starts it again at once is not told that it is running.
    const TRIES: u32 = 25;
    for _ in 0..TRIES {
        all_ours(path, made)?;
        match made.lock(path) {
            Ok(lock) => return Ok((path.to_owned(), lock)),
            Err(error) if is_taken(&error) => std::thread::sleep(Duration::from_millis(10)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DirectoryError::make(path, error)),
        }
    }
    Err(DirectoryError::Running(session.id.clone()))
}

/// The first room nobody is in.
pub(super) fn free_room(
    rooms: &Path,
    made: &mut Made,
) -> Result<(PathBuf, Flock<File>), DirectoryError> {
    for number in 0..=u16::MAX {
        let room = rooms.join(number.to_string());
        all_ours(&room, made)?;
        match made.lock(&room) {
            Ok(lock) => return Ok((room, lock)),
            // Somebody is in there, or is just removing what did not come to be.
            Err(error) if is_taken(&error) || error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DirectoryError::make(&room, error)),
        }
    }
    Err(DirectoryError::make(
        rooms,
        io::Error::from_raw_os_error(libc::ENOSPC),
    ))
}

pub(super) fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EWOULDBLOCK)
}

/// Gives us back the rights that a program took away from a folder of its session; whether it is
/// a folder at all. Mounts cover these while a program runs: none can put a link in their place.
pub(super) fn open_up(folder: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(folder) else {
        return false;
    };
    if metadata.is_dir() && metadata.mode() & 0o700 != 0o700 {
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    }
    metadata.is_dir()
}

/// State is not trusted because it exists: each level must be a folder, ours, closed to others.
/// It is looked at before anything is made in it; a level that is missing is made.
pub(super) fn all_ours(path: &Path, made: &mut Made) -> Result<(), DirectoryError> {
    let mut levels: Vec<&Path> = path.ancestors().take(3).collect();
    levels.reverse();
    for level in levels {
        if level.symlink_metadata().is_err() {
            made.folder(level)?;
        }
        ours(level).map_err(|why| DirectoryError::foreign(level, why))?;
    }
    Ok(())
}

pub(super) fn ours(path: &Path) -> Result<(), &'static str> {
    let metadata = fs::symlink_metadata(path).map_err(|_| "it cannot be looked at")?;
    match () {
        () if metadata.is_symlink() => Err("it is a symbolic link"),
        () if !metadata.is_dir() => Err("it is not a folder"),
        () if metadata.uid() != nix::unistd::getuid().as_raw() => Err("it belongs to another user"),
        () if metadata.mode() & 0o022 != 0 => Err("others can write to it"),
        () => Ok(()),
    }
}

/// Whether a folder has exactly these entries, our mode, and nothing noted on it.
pub(super) fn holds_only(folder: &Path, names: &[&str]) -> bool {
    let plain = fs::symlink_metadata(folder)
        .is_ok_and(|m| m.is_dir() && m.mode() & 0o7777 == 0o700)
        && sys::fds::has_no_attributes(folder);
    let Some(list) = fs::read_dir(folder).ok().filter(|_| plain) else {
        return false;
    };
    let mut found = 0;
    for entry in list {
        match entry {
            Ok(entry) if names.iter().any(|name| entry.file_name() == *name) => found += 1,
            _ => return false,
        }
    }
    found == names.len()
}
