//! A session's directory on the host: `home` and `outputs`, held by a lock while it runs.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::remove::remove_tree;
use crate::plan::Session;
use crate::policy::SessionId;
use crate::sys;

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot make the session's directory {path}")]
    Make { path: String, source: io::Error },
    #[error("cannot use {path}, because {why}")]
    Foreign { path: String, why: &'static str },
    #[error("cannot start the session {0}, because it is running already")]
    Running(SessionId),
    #[error("cannot choose a name for the session")]
    Random(#[source] io::Error),
}

impl DirectoryError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Make { source, .. } => match source.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => {
                    "the disk is full; free some space, or put state elsewhere with XDG_STATE_HOME"
                        .into()
                }
                Some(libc::EROFS | libc::EACCES) => {
                    "set XDG_STATE_HOME to a folder that you can write to".into()
                }
                _ => "set XDG_STATE_HOME to a folder of your own".into(),
            },
            Self::Foreign { .. } => "move it away, or set XDG_STATE_HOME to another folder".into(),
            Self::Running(_) => "choose another --name, or end the one that runs".into(),
            Self::Random(_) => "name it yourself: --name ID".into(),
        })
    }
}

/// A name nobody uses yet.
pub fn fresh_id() -> Result<SessionId, DirectoryError> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0u8; 10];
    sys::kernel::random(&mut bytes).map_err(DirectoryError::Random)?;
    let name: String = bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect();
    SessionId::parse(&name).map_err(|e| DirectoryError::Random(io::Error::other(e)))
}

/// An open session directory. Dropping it unlocks it and, for a session without a name,
/// removes everything but outputs.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    kept: bool,
    _lock: Flock<File>,
}

impl Directory {
    pub fn open(session: &Session) -> Result<Self, DirectoryError> {
        let path = session.directory.clone();
        let make = |at: &Path, source| DirectoryError::Make {
            path: at.display().to_string(),
            source,
        };
        let sessions = path.parent().unwrap_or(&path);
        match new_folder(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(sessions)
                    .map_err(|e| make(sessions, e))?;
                new_folder(&path).map_err(|e| make(&path, e))?;
            }
            Err(error) => return Err(make(&path, error)),
        }
        for own in [sessions.parent().unwrap_or(sessions), sessions, &path] {
            ours(own).map_err(|why| DirectoryError::Foreign {
                path: own.display().to_string(),
                why,
            })?;
        }
        let lock = lock(&path).map_err(|error| match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => DirectoryError::Running(session.id.clone()),
            _ => make(&path, error),
        })?;
        let opened = Self {
            path,
            kept: session.kept,
            _lock: lock,
        };
        for name in ["home", "home/mnt", "outputs", "tmp"] {
            let folder = opened.path.join(name);
            new_folder(&folder).map_err(|e| make(&folder, e))?;
            if !fs::symlink_metadata(&folder).is_ok_and(|m| m.is_dir()) {
                let path = folder.display().to_string();
                return Err(DirectoryError::Foreign {
                    path,
                    why: "it is not a folder",
                });
            }
        }
        Ok(opened)
    }

    /// Where outputs lie, if there are any.
    pub fn outputs(&self) -> Option<PathBuf> {
        let outputs = self.path.join("outputs");
        let any = fs::read_dir(&outputs).is_ok_and(|mut list| list.next().is_some());
        any.then_some(outputs)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let Ok(folder) = File::open(&self.path).map(OwnedFd::from) else {
            return;
        };
        let _ = remove_tree(&folder, "tmp");
        if self.kept {
            return;
        }
        let _ = remove_tree(&folder, "home");
        // Only an empty one goes: what a program left in outputs is the user's.
        if fs::remove_dir(self.path.join("outputs")).is_ok() {
            let _ = fs::remove_file(self.path.join("lock"));
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn new_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// State is not trusted because it exists: it must be a folder, ours, and closed to others.
fn ours(path: &Path) -> Result<(), &'static str> {
    let metadata = fs::symlink_metadata(path).map_err(|_| "it cannot be looked at")?;
    match () {
        () if !metadata.is_dir() => Err("it is not a folder"),
        () if metadata.uid() != nix::unistd::getuid().as_raw() => Err("it belongs to another user"),
        () if metadata.mode() & 0o022 != 0 => Err("others can write to it"),
        () => Ok(()),
    }
}

fn lock(path: &Path) -> io::Result<Flock<File>> {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path.join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}
