//! A session's folders on the host, held by a lock while it runs. A session with a name has a
//! directory of its own; one without moves into a free room and leaves it as it found it, so
//! that a short run makes and removes nothing on the disk.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::Flock;

use super::made::Made;
use super::remove::remove_tree;
use super::rooms::{free_room, holds_only, open_up, own};
use crate::plan::{OwnFolder, Place, Session};
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

    pub(super) fn make(at: &Path, source: io::Error) -> Self {
        Self::Make {
            path: at.display().to_string(),
            source,
        }
    }

    pub(super) fn foreign(at: &Path, why: &'static str) -> Self {
        Self::Foreign {
            path: at.display().to_string(),
            why,
        }
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

/// The folders whose state tells whether a room is clean.
const WATCHED: [&str; 3] = ["inner/home", "inner/home/mnt", "outputs"];

/// An open session directory. Dropping it cleans up and unlocks it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    session: Session,
    /// When its folders had last changed when it was taken, clean.
    as_found: Option<String>,
    /// What was not there before; empty again once it is removed.
    made: Made,
    /// Removed with its lock, so that the place may be somebody else's by now.
    is_gone: bool,
    /// The home, opened before it was closed to everybody.
    home: OnceCell<OwnedFd>,
    lock: Flock<File>,
}

impl Directory {
    /// Opens or makes it. What was made is removed again when that fails halfway.
    pub fn open(session: &Session) -> Result<Self, DirectoryError> {
        let mut made = Made::default();
        let found = match &session.place {
            Place::Own(path) => own(path, session, &mut made),
            Place::Room(rooms) => free_room(rooms, &mut made),
        };
        let (path, lock) = found.inspect_err(|_| made.remove())?;
        let mut opened = Self {
            path,
            session: session.clone(),
            as_found: None,
            made,
            is_gone: false,
            home: OnceCell::new(),
            lock,
        };
        opened.unseal();
        match opened.furnish() {
            Ok(()) => {
                opened.as_found = opened.change_times();
                Ok(opened)
            }
            Err(error) => {
                opened.undo();
                Err(error)
            }
        }
    }

    /// The box never came to be: what is new with it goes, while the lock is still held.
    pub fn undo(&mut self) {
        self.unseal();
        self.is_gone = self.made.has(&self.path.join("lock"));
        self.made.remove();
    }

    /// The directory of sockets; gone again if the box never came to be.
    pub fn runtime(&mut self, folder: &Path) -> Result<(), DirectoryError> {
        self.made.folder(folder)
    }

    /// What the brokers of this user's boxes take turns by.
    pub fn turns(&mut self) -> Result<OwnedFd, DirectoryError> {
        let state = self.session.state_directory();
        let turns = self
            .made
            .turns(state)
            .map_err(|e| DirectoryError::make(state, e))?;
        Ok(turns.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where outputs will lie, if there are any.
    pub fn outputs(&self) -> Option<PathBuf> {
        open_up(&self.folder(OwnFolder::Outputs));
        let any = fs::read_dir(self.folder(OwnFolder::Outputs))
            .is_ok_and(|mut list| list.next().is_some());
        any.then(|| self.kept_place().join(OwnFolder::Outputs.name()))
    }

    fn folder(&self, folder: OwnFolder) -> PathBuf {
        self.path.join(folder.path())
    }

    /// Where what a session leaves behind is kept under its name.
    fn kept_place(&self) -> PathBuf {
        self.session
            .state_directory()
            .join("sessions")
            .join(self.session.id.as_str())
    }

    /// Makes the folders, or checks that they are as they should be.
    fn furnish(&mut self) -> Result<(), DirectoryError> {
        let is_room = matches!(self.session.place, Place::Room(_));
        if is_room && self.is_clean() {
            return Ok(());
        }
        if is_room {
            // Somebody was killed in here: outputs are the user's, the rest is nobody's.
            self.save_outputs()
                .map_err(|e| DirectoryError::make(&self.path, e))?;
            self.clear(OwnFolder::Home)
                .map_err(|e| DirectoryError::make(&self.path, e))?;
        }
        let tmp = Some("tmp").filter(|_| !is_room);
        for name in ["inner", "inner/home", "inner/home/mnt", "outputs"]
            .into_iter()
            .chain(tmp)
        {
            let folder = self.path.join(name);
            self.made.folder(&folder)?;
            if !open_up(&folder) {
                return Err(DirectoryError::foreign(&folder, "it is not a folder"));
            }
        }
        if let Some((uid, gid)) = self.session.home_owner {
            for name in ["inner/home/mnt", "inner/home"] {
                let folder = self.path.join(name);
                chown(&folder, Some(uid), Some(gid))
                    .map_err(|e| DirectoryError::make(&folder, e))?;
            }
        }
        Ok(())
    }

    /// Whether nothing here tells of an earlier session: no file, no mode, no attribute.
    ///
    /// The kernel notes the time of every change to a folder, its entries, mode and attributes
    /// alike, and nobody can set that note back. What was clean at those times still is.
    fn is_clean(&self) -> bool {
        let times = self.change_times();
        if times.is_some() && times == self.noted() {
            return true;
        }
        let home = self.folder(OwnFolder::Home);
        let clean = holds_only(&home, &["mnt"])
            && holds_only(&home.join("mnt"), &[])
            && holds_only(&self.folder(OwnFolder::Outputs), &[]);
        if let (true, Some(times)) = (clean, times) {
            self.note(&times);
        }
        clean
    }

    fn change_times(&self) -> Option<String> {
        let mut times = String::new();
        for name in WATCHED {
            let folder = fs::symlink_metadata(self.path.join(name)).ok()?;
            let _ = writeln!(
                times,
                "{} {} {}",
                folder.ino(),
                folder.ctime(),
                folder.ctime_nsec()
            );
        }
        Some(times)
    }

    /// What the last one to leave the room wrote on the door.
    fn noted(&self) -> Option<String> {
        let mut text = [0u8; 256];
        let length = self.lock.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok().map(str::to_owned)
    }

    /// Only for a time long enough ago: a change in the same tick of the clock would not show.
    fn note(&self, times: &str) {
        let old = |name: &str| {
            let changed = fs::symlink_metadata(self.path.join(name)).ok()?;
            let since = UNIX_EPOCH + Duration::new(changed.ctime().max(0) as u64, 0);
            SystemTime::now()
                .duration_since(since)
                .ok()
                .filter(|age| *age >= Duration::from_secs(2))
        };
        if WATCHED.into_iter().all(|name| old(name).is_some()) {
            let _ = self
                .lock
                .set_len(0)
                .and_then(|()| self.lock.write_all_at(times.as_bytes(), 0));
        }
    }

    fn clear(&self, folder: OwnFolder) -> io::Result<()> {
        let path = self.folder(folder);
        match File::open(path.parent().unwrap_or(&self.path)) {
            Ok(parent) => remove_tree(&OwnedFd::from(parent), folder.name()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Closes the home to everybody but the box, which has it open already or has the right to
    /// pass. A program could otherwise prepare a repository in there and lead git on the host
    /// to it, by a link or a pointer in a folder of the user's.
    pub fn seal(&self) -> Result<(), DirectoryError> {
        if let Ok(home) = File::open(self.folder(OwnFolder::Home)) {
            self.home.get_or_init(|| home.into());
        }
        let inner = self.path.join("inner");
        match self.session.sealed {
            true => fs::set_permissions(&inner, Permissions::from_mode(0o0))
                .map_err(|e| DirectoryError::make(&inner, e)),
            false => Ok(()),
        }
    }

    /// The home as it was before it was closed, for its owner to look into.
    pub(super) fn take_home(&mut self) -> Option<OwnedFd> {
        self.home.take()
    }

    /// What a program set as the times of a folder is not the next one's to read.
    fn reset_times(&self) {
        let now = SystemTime::now();
        let times = FileTimes::new().set_accessed(now).set_modified(now);
        for name in WATCHED {
            let _ = File::open(self.path.join(name)).and_then(|folder| folder.set_times(times));
        }
    }

    fn unseal(&self) {
        open_up(&self.path.join("inner"));
    }

    /// Moves outputs, if there are any, to where they are kept under the session's name.
    fn save_outputs(&self) -> io::Result<()> {
        let outputs = self.folder(OwnFolder::Outputs);
        open_up(&outputs);
        let empty = match fs::read_dir(&outputs) {
            Ok(mut list) => list.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if empty {
            return fs::remove_dir(&outputs);
        }
        let kept = self.kept_place();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&kept)?;
        fs::rename(&outputs, kept.join(OwnFolder::Outputs.name()))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        self.unseal();
        match &self.session.place {
            Place::Room(_) if self.change_times() == self.as_found => {}
            Place::Room(_) => {
                if !self.is_clean() {
                    let _ = self.save_outputs();
                    let _ = self.clear(OwnFolder::Home);
                }
                self.reset_times();
            }
            Place::Own(_) => {
                let _ = self.clear(OwnFolder::Tmp);
                // Only an empty one goes: what a program left in outputs is the user's.
                if self.session.kept {
                    let inner = self.path.join("inner");
                    let _ = fs::set_permissions(inner, Permissions::from_mode(0o0));
                } else {
                    let _ = self.clear(OwnFolder::Home);
                    let _ = fs::remove_dir(self.path.join("inner"));
                    if fs::remove_dir(self.folder(OwnFolder::Outputs)).is_ok() {
                        let _ = fs::remove_file(self.path.join("lock"));
                        let _ = fs::remove_dir(&self.path);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::InsidePath;

    fn session(state: &Path, name: &str) -> Session {
        Session {
            id: SessionId::parse(name).unwrap(),
            place: Place::Room(state.join("cowork-linux/rooms")),
            kept: false,
            home: InsidePath::new("/sessions/x").unwrap(),
            home_owner: None,
            sealed: true,
        }
    }

    #[test]
    fn rooms_are_not_shared_and_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::open(&session(dir.path(), "a")).unwrap();
        let second = Directory::open(&session(dir.path(), "b")).unwrap();
        assert_ne!(first.path(), second.path());
        let used = first.path().to_owned();
        drop(first);
        assert_eq!(
            Directory::open(&session(dir.path(), "c")).unwrap().path(),
            used
        );
    }

    #[test]
    fn nothing_of_a_session_meets_the_next_one_and_outputs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::open(&session(dir.path(), "a")).unwrap();
        fs::write(first.path().join("inner/home/.bashrc"), "evil").unwrap();
        fs::write(first.path().join("outputs/report"), "mine").unwrap();
        let kept = first.outputs().unwrap();
        drop(first);
        assert_eq!(fs::read_to_string(kept.join("report")).unwrap(), "mine");
        let second = Directory::open(&session(dir.path(), "b")).unwrap();
        assert!(second.is_clean());
    }

    #[test]
    fn a_room_somebody_was_killed_in_is_cleaned_before_use() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::open(&session(dir.path(), "a")).unwrap();
        let room = first.path().to_owned();
        drop(first);
        fs::write(room.join("inner/home/leftover"), "x").unwrap();
        fs::write(room.join("outputs/work"), "mine").unwrap();
        let second = Directory::open(&session(dir.path(), "b")).unwrap();
        assert_eq!(second.path(), room);
        assert!(second.is_clean());
        let kept = dir.path().join("cowork-linux/sessions/b/outputs/work");
        assert_eq!(fs::read_to_string(kept).unwrap(), "mine");
    }
}
