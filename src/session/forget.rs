//! Removing what a session left behind, when it is asked for and nobody uses it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::places::{NotOwn, Places};
use super::record::Record;
use super::registry::State;
use super::remove::remove_tree;
use super::rooms::open_up;
use crate::policy::SessionId;

const LOOKS: usize = 200;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error("cannot remove the session {0}, because it is running")]
    Running(SessionId),
    #[error("cannot remove the session {0}, because there is work in its outputs")]
    Outputs(SessionId),
    #[error("cannot remove {path}")]
    Files { path: String, source: io::Error },
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
}

impl RemoveError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Running(id) => format!("end it first: cowork-linux stop {id}, or rm -f {id}"),
            Self::Outputs(id) => {
                format!("take what you need, then: cowork-linux rm --outputs {id}")
            }
            Self::NotOwn(error) => return error.help(),
            Self::Files { .. } => "look at what is there; nothing else was touched".into(),
        })
    }
}

/// Removes a session's directory and socket. Outputs only when that was said.
pub fn remove(places: &Places, id: &SessionId, outputs: bool) -> Result<(), RemoveError> {
    // Nothing is removed through a link; one in the place of the folder goes itself.
    let folder = places.folder(id);
    let is_own = match places.own_folder(id) {
        Ok(_) => true,
        Err(error) if error.path == folder.display().to_string() => false,
        Err(error) => return Err(error.into()),
    };
    let failed = |source: io::Error| RemoveError::Files {
        path: folder.display().to_string(),
        source,
    };
    if !is_own {
        fs::remove_file(&folder).map_err(failed)?;
        places.sweep_one(id);
        return Ok(());
    }
    // Held until the end: nobody moves in meanwhile.
    let lock = held(&folder, id)?;
    // A lock that was put in the place of another says nothing.
    if places.look(id).state == State::Running {
        return Err(RemoveError::Running(id.clone()));
    }
    let kept = folder.join("outputs");
    let any = fs::read_dir(&kept).is_ok_and(|mut list| list.next().is_some());
    if any && !outputs {
        return Err(RemoveError::Outputs(id.clone()));
    }
    open_up(&folder.join("inner"));
    let parent = folder.parent().unwrap_or(&folder);
    match File::open(parent) {
        Ok(parent) => {
            empty(&folder).map_err(failed)?;
            remove_tree(&OwnedFd::from(parent), id.as_str()).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    drop(lock);
    places.sweep_one(id);
    Ok(())
}

/// The lock of a session that does not run, if it has one.
pub(super) fn held(folder: &Path, id: &SessionId) -> Result<Option<Flock<File>>, RemoveError> {
    match open_lock(folder).map(|file| lock(file, folder)) {
        Some(None) => Err(RemoveError::Running(id.clone())),
        held => Ok(held.flatten()),
    }
}

/// The file that is locked; none if it is something else. Neither a link nor a pipe holds us up.
fn open_lock(folder: &Path) -> Option<File> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(folder.join("lock"));
    let is_file = |file: &File| file.metadata().is_ok_and(|found| found.is_file());
    opened.ok().filter(is_file)
}

/// The lock of a session that does not run. One that has just ended holds it for a moment more.
fn lock(mut file: File, folder: &Path) -> Option<Flock<File>> {
    for _ in 0..LOOKS {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((same, _)) => file = same,
        }
        let has_ended = Record::read(folder).is_ok_and(|record| record.outcome.is_some());
        if !has_ended {
            return None;
        }
        // Nothing tells of a lock that becomes free, except to those who would wait for ever.
        std::thread::sleep(BETWEEN_LOOKS);
    }
    None
}

/// Removes what is in a session's folder, all but its lock. Nothing moves out of it on the way, so
/// that those who remove other sessions meanwhile do not get to see it.
fn empty(folder: &Path) -> io::Result<()> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(folder);
    let inside = match opened {
        Ok(inside) => OwnedFd::from(inside),
        // Gone, or something else that was put in its place.
        Err(_) => return Ok(()),
    };
    for entry in fs::read_dir(folder)? {
        if let Some(name) = entry?.file_name().to_str().filter(|name| *name != "lock") {
            remove_tree(&inside, name)?;
        }
    }
    Ok(())
}
