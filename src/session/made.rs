//! What a starting session makes on the disk, noted so that it can be removed again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::directory::DirectoryError;

/// Files and folders in the order of making.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a folder and what is missing above it; one that is there is left as it is.
    pub(super) fn folder(&mut self, path: &Path) -> Result<(), DirectoryError> {
        let failed = |error| Err(DirectoryError::make(path, error));
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                self.0.push(path.to_owned());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                // A parent that is there and still not found is a link to nowhere.
                Some(parent) if parent.symlink_metadata().is_err() => {
                    self.folder(parent)?;
                    self.folder(path)
                }
                _ => failed(error),
            },
            Err(error) => failed(error),
        }
    }

    /// Takes the lock of a session. "Not found" when it was removed by whoever had it before:
    /// a lock without a name keeps nobody out.
    pub(super) fn lock(&mut self, session: &Path) -> io::Result<Flock<File>> {
        let path = session.join("lock");
        let (file, is_new) = open_or_make(&path)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io::Error::from(errno))?;
        // A pipe put in its place could be locked as well, but not be written on.
        if !lock.metadata()?.is_file() {
            return Err(io::Error::other("the lock is not a file"));
        }
        let (ours, named) = (lock.metadata()?, path.symlink_metadata()?);
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if is_new {
            self.0.push(path);
        }
        Ok(lock)
    }

    /// What the brokers of this user's boxes take turns by.
    pub(super) fn turns(&mut self, state: &Path) -> io::Result<File> {
        let path = state.join("turns");
        let (file, is_new) = open_or_make(&path)?;
        if is_new {
            self.0.push(path);
        }
        Ok(file)
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.iter().any(|made| made == path)
    }

    /// Removes it all, last things first. Only empty folders go: what somebody else has put there
    /// meanwhile stays.
    pub(super) fn remove(&mut self) {
        for path in self.0.drain(..).rev() {
            let _ = fs::remove_dir(&path).or_else(|_| {
                match path.ends_with("lock") || path.ends_with("turns") {
                    true => fs::remove_file(&path),
                    false => Ok(()),
                }
            });
        }
    }
}

/// A file for locking, and whether it is new. Neither a link nor a pipe can hold us up.
fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    let open = |is_new: bool| {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(is_new)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
    };
    match open(false) {
        Ok(file) => Ok((file, false)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((open(true)?, true)),
        Err(error) => Err(error),
    }
}
