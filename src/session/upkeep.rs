//! How much room a session takes on the disk, and giving some of it back. The home is closed to
//! everybody while programs run and afterwards; here is how its owner gets to see it all the same.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::client::{AskError, Call};
use super::control::Client;
use super::forget::{RemoveError, held};
use super::places::{NotOwn, Places};
use super::remove::remove_tree;
use super::talk::{Ask, Say};
use crate::plan::OwnFolder;
use crate::policy::SessionId;

/// How many entries are looked at between two looks at the clock.
const BATCH: usize = 64;
/// The kernel takes no longer names at once.
const LONGEST_PATH: usize = 4000;
/// Where what is to be removed waits, so that the session's lock is held for a moment only.
const PRUNED: &str = "pruned";
/// How long a session may take to hand its home out.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    #[error("there is no session called {0}")]
    None(SessionId),
    #[error("the session {0} is running")]
    Running(SessionId),
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
    #[error(transparent)]
    Asked(#[from] AskError),
    #[error("cannot look into {path}")]
    Files { path: String, source: io::Error },
}

impl From<RemoveError> for UpkeepError {
    fn from(error: RemoveError) -> Self {
        match error {
            RemoveError::NotOwn(error) => Self::NotOwn(error),
            RemoveError::Running(id) | RemoveError::Outputs(id) => Self::Running(id),
            RemoveError::Files { path, source } => Self::Files { path, source },
        }
    }
}

/// What folders hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// Whether everything was counted, rather than what could be seen in time.
    pub is_whole: bool,
}

/// What of a session can be made anew at any time.
#[derive(Debug, Clone, Copy)]
pub struct Disposable<'a> {
    /// Folders below its home.
    pub caches: &'a [&'a str],
    /// What it left in its own folder for temporary files, if it is older than this.
    pub temporary: Option<Duration>,
}

impl Places {
    /// A session's home, open. One that runs is asked for it, because nobody else can get there.
    pub fn open_home(&self, id: &SessionId) -> Result<OwnedFd, UpkeepError> {
        let folder = self.own_folder(id)?;
        if self.is_running(id) {
            return Ok(Call::to(&self.runtime, id)?.home()?);
        }
        let _lock = held(&folder, id)?;
        self.unsealed_home(id, &folder)
    }

    /// The home of a session whose lock is held. The folder before it is closed again at once.
    fn unsealed_home(&self, id: &SessionId, folder: &Path) -> Result<OwnedFd, UpkeepError> {
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENOENT) => UpkeepError::None(id.clone()),
            _ => UpkeepError::Files {
                path: folder.join(OwnFolder::Home.path()).display().to_string(),
                source,
            },
        };
        let top = open_top(folder).map_err(failed)?;
        let inner = Path::new("inner");
        let handle = beneath(&top, inner, OFlag::O_PATH).map_err(failed)?;
        let mode = fstat(handle.as_fd()).map_err(|e| failed(e.into()))?.st_mode & 0o7777;
        let by_number = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let set = |mode: u32| {
            let rights = Permissions::from_mode(mode);
            std::fs::set_permissions(&by_number, rights)
        };
        set(0o700).map_err(failed)?;
        let home = beneath(&top, Path::new(OwnFolder::Home.path()), OFlag::O_RDONLY);
        set(mode).map_err(failed)?;
        home.map_err(failed)
    }

    /// What the session's folder holds, as far as it can be counted until then.
    pub fn size(&self, id: &SessionId, until: Instant) -> Result<Size, UpkeepError> {
        let folder = self.own_folder(id)?;
        let top = open_top(&folder).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT) => UpkeepError::None(id.clone()),
            _ => UpkeepError::Files {
                path: folder.display().to_string(),
                source,
            },
        })?;
        let mut sum = measure(top.as_fd(), Some("inner"), until);
        match self.open_home(id) {
            Ok(home) => {
                let inside = measure(home.as_fd(), None, until);
                sum.bytes += inside.bytes;
                sum.is_whole &= inside.is_whole;
            }
            Err(UpkeepError::None(_)) => {}
            Err(_) => sum.is_whole = false,
        }
        Ok(sum)
    }

    /// Removes what a session that does not run can do without; how many bytes that were.
    ///
    /// The session can be started while the removal still goes on: what goes was moved away.
    pub fn prune(
        &self,
        id: &SessionId,
        what: Disposable<'_>,
        until: Instant,
    ) -> Result<u64, UpkeepError> {
        let folder = self.own_folder(id)?;
        let failed = |source: io::Error| UpkeepError::Files {
            path: folder.display().to_string(),
            source,
        };
        if self.is_running(id) {
            return Err(UpkeepError::Running(id.clone()));
        }
        let lock = held(&folder, id)?;
        let top = open_top(&folder).map_err(failed)?;
        let home = match self.unsealed_home(id, &folder) {
            Err(UpkeepError::None(_)) => None,
            other => Some(other?),
        };
        let away = Away::open(&top).map_err(failed)?;
        let moved = move_out(&away, &top, home.as_ref(), what);
        // From here on the session may start again.
        drop(lock);
        let bytes = measure(away.folder.as_fd(), None, until).bytes;
        away.remove(&top).map_err(failed)?;
        moved.map_err(failed).map(|()| bytes)
    }
}

impl Call {
    /// The session's home as the box's supervisor holds it.
    fn home(&self) -> Result<OwnedFd, AskError> {
        self.ask(&Ask::Home, &[])?;
        match self.answer(Instant::now() + PATIENCE)? {
            (Say::Home, fds) => fds.into_iter().next().ok_or_else(|| self.odd()),
            _ => Err(self.odd()),
        }
    }
}

impl Client {
    /// What a client may have that asks for the home: it is the same user, in no box.
    pub(super) fn hand_out(&self, home: Option<&OwnedFd>) -> io::Result<()> {
        match home {
            Some(home) => self.line.say(&Say::Home, &[home.as_raw_fd()]),
            None => {
                let why = "it has no home of its own on the disk".to_owned();
                self.line.say(&Say::Refused { why }, &[])
            }
        }
    }
}

fn move_out(
    away: &Away,
    top: &OwnedFd,
    home: Option<&OwnedFd>,
    what: Disposable<'_>,
) -> io::Result<()> {
    let mut first_error = Ok(());
    let mut number = 0u64;
    let mut take = |from: &OwnedFd, name: &OsStr| {
        number += 1;
        match renameat(
            from,
            name,
            &away.folder,
            format!("{}-{number}", away.stamp).as_str(),
        ) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) if first_error.is_ok() => first_error = Err(error.into()),
            Err(_) => {}
        }
    };
    for cache in what.caches {
        let path = Path::new(cache);
        let (Some(home), Some(parent), Some(name)) = (home, path.parent(), path.file_name()) else {
            continue;
        };
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        let Ok(parent) = beneath(home, parent, OFlag::O_PATH) else {
            continue;
        };
        // A link is no cache, wherever it leads.
        if kind(&parent, name) == Some(SFlag::S_IFDIR) {
            take(&parent, name);
        }
    }
    if let Some(age) = what.temporary
        && let Ok(tmp) = beneath(top, Path::new(OwnFolder::Tmp.path()), OFlag::O_RDONLY)
    {
        let entries = Dir::from_fd(tmp.try_clone()?)?.into_iter();
        for entry in entries.flatten() {
            let name = OsString::from(OsStr::from_bytes(entry.file_name().to_bytes()));
            if !matches!(name.as_bytes(), b"." | b"..") && is_older(&tmp, &name, age) {
                take(&tmp, &name);
            }
        }
    }
    first_error
}

/// By the time of the last change, which programs cannot set.
fn is_older(folder: &OwnedFd, name: &OsStr, age: Duration) -> bool {
    let Ok(found) = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
        return false;
    };
    let seconds = u64::try_from(found.st_ctime).unwrap_or_default();
    let since = UNIX_EPOCH + Duration::from_secs(seconds);
    let passed = SystemTime::now().duration_since(since).unwrap_or_default();
    passed >= age
}

fn kind(folder: &OwnedFd, name: &OsStr) -> Option<SFlag> {
    let found = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    Some(file_kind(&found))
}

fn file_kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits())
}

/// A folder of what is to go. Two that prune at the same time do not meet: names differ.
struct Away {
    folder: OwnedFd,
    stamp: u128,
}

impl Away {
    fn open(top: &OwnedFd) -> io::Result<Self> {
        match mkdirat(top, PRUNED, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            folder: beneath(top, Path::new(PRUNED), OFlag::O_RDONLY)?,
            stamp: now.unwrap_or_default().as_nanos(),
        })
    }

    /// Removes everything in it, also what an earlier removal was killed over.
    fn remove(self, top: &OwnedFd) -> io::Result<()> {
        for entry in Dir::from_fd(self.folder.try_clone()?)?
            .into_iter()
            .flatten()
        {
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                remove_tree(&self.folder, name)?;
            }
        }
        match unlinkat(top, PRUNED, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn open_top(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(folder, flags, Mode::empty())?)
}

/// A folder below another on the same mount, with no link on the way.
fn beneath(folder: impl AsFd, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    Ok(openat2(folder, path, how)?)
}

/// Counts what lies below a folder on the same mount, each file once, without following links.
fn measure(root: BorrowedFd<'_>, except: Option<&str>, until: Instant) -> Size {
    let mut sum = Size {
        bytes: 0,
        is_whole: true,
    };
    let mut linked = HashSet::new();
    let mut ahead = vec![PathBuf::from(".")];
    let mut seen = 0usize;
    while let Some(path) = ahead.pop() {
        let opened = beneath(root, &path, OFlag::O_RDONLY);
        let listed =
            |folder: &OwnedFd| Some(Dir::from_fd(folder.try_clone().ok()?).ok()?.into_iter());
        let Some((folder, entries)) = opened
            .ok()
            .and_then(|it| listed(&it).map(|list| (it, list)))
        else {
            sum.is_whole = false;
            continue;
        };
        for entry in entries.flatten() {
            seen += 1;
            if seen.is_multiple_of(BATCH) && Instant::now() >= until {
                sum.is_whole = false;
                return sum;
            }
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_top = path == Path::new(".");
            if matches!(name.as_bytes(), b"." | b"..")
                || (is_top && except.is_some_and(|it| name == it))
            {
                continue;
            }
            let Ok(found) = fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            let is_folder = file_kind(&found) == SFlag::S_IFDIR;
            if is_folder || found.st_nlink < 2 || linked.insert((found.st_dev, found.st_ino)) {
                sum.bytes += u64::try_from(found.st_blocks).unwrap_or_default() * 512;
            }
            if is_folder {
                match path.as_os_str().len() + name.len() < LONGEST_PATH {
                    true => ahead.push(path.join(name)),
                    false => sum.is_whole = false,
                }
            }
        }
    }
    sum
}
