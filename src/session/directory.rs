//! A session's directory on the host: `home` and `outputs`, held by a lock while it runs.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// What was not there before, in the order of making.
    made: Vec<PathBuf>,
    _lock: Flock<File>,
}

impl Directory {
    /// Opens or makes it. What was made is removed again when that fails halfway.
    pub fn open(session: &Session) -> Result<Self, DirectoryError> {
        let path = &session.directory;
        let sessions = path.parent().unwrap_or(path);
        let state = sessions.parent().unwrap_or(sessions);
        let mut made = Made::default();
        for folder in [state, sessions, path] {
            made.folder(folder)?;
            ours(folder).map_err(|why| foreign(folder, why))?;
        }
        let lock = made
            .lock(path)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EWOULDBLOCK) => DirectoryError::Running(session.id.clone()),
                _ => cannot_make(path, error),
            })?;
        for name in ["home", "home/mnt", "outputs", "tmp"] {
            let folder = path.join(name);
            made.folder(&folder)?;
            if !fs::symlink_metadata(&folder).is_ok_and(|m| m.is_dir()) {
                return Err(foreign(&folder, "it is not a folder"));
            }
        }
        Ok(Self {
            path: path.clone(),
            kept: session.kept,
            made: std::mem::take(&mut made.0),
            _lock: lock,
        })
    }

    /// The box never came to be: a session that is new with it is not kept either.
    pub fn undo(&mut self) {
        drop(Made(std::mem::take(&mut self.made)));
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

/// Files and folders that go again with this value. Only empty folders do: what somebody else
/// has put there meanwhile stays.
#[derive(Debug, Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn folder(&mut self, path: &Path) -> Result<(), DirectoryError> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                self.0.push(path.to_owned());
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => match path.parent() {
                Some(parent) if parent.symlink_metadata().is_err() => {
                    self.folder(parent)?;
                    self.folder(path)
                }
                _ => Err(cannot_make(path, error)),
            },
            // Of a read-only filesystem the kernel says so even when the folder is there.
            Err(_) if path.is_dir() => Ok(()),
            Err(error) => Err(cannot_make(path, error)),
        }
    }

    fn lock(&mut self, session: &Path) -> io::Result<Flock<File>> {
        let path = session.join("lock");
        let open = |is_new: bool| {
            fs::OpenOptions::new()
                .write(true)
                .create_new(is_new)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open(&path)
        };
        let file = match open(true) {
            Ok(file) => {
                self.0.push(path.clone());
                file
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(false)?,
            Err(error) => return Err(error),
        };
        patient_lock(file)
    }
}

/// A box whose launcher was killed holds the lock until the kernel has taken it down, which is a
/// matter of milliseconds: whoever starts it again at once is not told that it is running.
fn patient_lock(mut file: File) -> io::Result<Flock<File>> {
    const TRIES: u32 = 25;
    for _ in 0..TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((back, nix::errno::Errno::EWOULDBLOCK)) => file = back,
            other => return other.map_err(|(_, errno)| errno.into()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK))
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            let _ = fs::remove_dir(path).or_else(|_| match path.ends_with("lock") {
                true => fs::remove_file(path),
                false => Ok(()),
            });
        }
    }
}

fn cannot_make(path: &Path, source: io::Error) -> DirectoryError {
    let path = path.display().to_string();
    DirectoryError::Make { path, source }
}

fn foreign(path: &Path, why: &'static str) -> DirectoryError {
    let path = path.display().to_string();
    DirectoryError::Foreign { path, why }
}

/// State is not trusted because it exists: it must be a folder, ours, and closed to others.
fn ours(path: &Path) -> Result<(), &'static str> {
    let metadata = fs::symlink_metadata(path).map_err(|_| "it cannot be looked at")?;
    match () {
        () if metadata.is_symlink() => Err("it is a symbolic link"),
        () if !metadata.is_dir() => Err("it is not a folder"),
        () if metadata.uid() != nix::unistd::getuid().as_raw() => Err("it belongs to another user"),
        () if metadata.mode() & 0o022 != 0 => Err("others can write to it"),
        () => Ok(()),
    }
}
