//! Changes in guarded mounts, done on behalf of the programs in the box.
//!
//! Inside, such a mount is read-only. The box's first process holds a writable clone of it (a
//! door), is asked about every call that would change something, and does the allowed ones
//! itself. It never lets the kernel carry on with a call because of something it has read in the
//! caller's memory: a call that carries on meets the read-only mount.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::stat::{Mode, umask};

mod asked;
mod attributes;
mod caller;
mod calls;
mod git;
mod guarding;
mod keeping;
mod made;
mod names;
mod opening;
mod pointers;
mod refused;
mod resolve;
mod umasks;

use crate::policy::guard::{GuardRules, KEEP};
use crate::sys::at::{self, Identity};
use crate::sys::{fds, notify};
pub use asked::answers;
use caller::Caller;
use made::Made;
pub use refused::RefusedCall;
use refused::RefusedCalls;
use umasks::Umasks;

/// How many different refusals are remembered for the summary.
const REFUSALS_KEPT: usize = 100;

/// Puts an asking filter on this thread, which must have `no_new_privs` and be about to exec.
/// The descriptor belongs to a [`Broker`]; until one serves it, calls that are asked about wait.
pub fn install(program: &[u8]) -> io::Result<OwnedFd> {
    notify::listen(program)
}

/// A guarded mount: where it is in the box, and a detached writable clone of it.
#[derive(Debug)]
pub struct Door {
    pub inside: PathBuf,
    pub writable: OwnedFd,
    /// Programs delete only what they have made themselves.
    pub keeps: bool,
}

/// Something a program was not allowed to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// As seen in the box.
    pub path: PathBuf,
    /// The rule, or the git setting, that said no.
    pub rule: String,
    pub times: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.rule)
    }
}

/// Answers the questions of every filter it watches, one at a time.
#[derive(Debug)]
pub struct Broker {
    /// Innermost first, so that a door within a door is found before the outer one.
    doors: Vec<OpenDoor>,
    /// Places of mounts without a door that may lie in one.
    walls: Vec<PathBuf>,
    rules: GuardRules,
    umasks: Umasks,
    listeners: BTreeMap<RawFd, OwnedFd>,
    refusals: Vec<Refusal>,
    refused_calls: RefusedCalls,
    root: Option<Identity>,
    /// Records of worktrees that programs have begun, as paths in the box; the latest last.
    begun: RefCell<Vec<PathBuf>>,
    /// What programs have made, if that ever matters.
    made: Option<RefCell<Made>>,
    /// Held while looking and acting: two boxes over one folder are two brokers.
    lock: Option<OwnedFd>,
}

/// A door with the number of the mount that the box sees in its place.
#[derive(Debug)]
struct OpenDoor {
    inside: PathBuf,
    writable: OwnedFd,
    keeps: bool,
    mount: Option<u64>,
}

impl OpenDoor {
    fn new(door: Door) -> Self {
        let seen = CString::new(door.inside.as_os_str().as_bytes())
            .ok()
            .and_then(|path| at::identify(libc::AT_FDCWD, &path, 0).ok());
        Self {
            inside: door.inside,
            writable: door.writable,
            keeps: door.keeps,
            mount: seen.map(|identity| identity.mount),
        }
    }
}

/// How a question ends.
#[derive(Debug)]
enum Answer {
    /// The kernel does the call itself, on what the box sees: a read-only mount.
    CarryOn,
    Done,
    Errno(Errno),
    File {
        file: OwnedFd,
        close_on_exec: bool,
    },
    Guarded {
        path: PathBuf,
        rule: String,
    },
    /// Not this program's to delete.
    Kept {
        path: PathBuf,
    },
    /// The asker died meanwhile.
    Gone,
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

type Outcome = Result<Answer, Answer>;

/// One question being answered.
struct Case<'b> {
    broker: &'b Broker,
    listener: BorrowedFd<'b>,
    id: u64,
    caller: Caller,
}

impl Broker {
    /// One more door, for a mount that the box has since now.
    pub fn open(&mut self, door: Door) {
        self.close(&door.inside.clone());
        if door.keeps {
            self.made.get_or_insert_default();
        }
        self.doors.push(OpenDoor::new(door));
        let depth = |door: &OpenDoor| std::cmp::Reverse(door.inside.components().count());
        self.doors.sort_by_key(depth);
    }

    /// Programs delete only what they have made behind this door from now on, or anything.
    pub fn keep(&mut self, inside: &std::path::Path, keeps: bool) {
        let mut doors = self.doors.iter_mut();
        if let Some(door) = doors.find(|door| door.inside == inside) {
            door.keeps = keeps;
            self.made.get_or_insert_default();
        }
    }

    /// The mount at this place is gone.
    pub fn close(&mut self, inside: &std::path::Path) {
        self.doors.retain(|door| door.inside != inside);
        self.walls.retain(|wall| wall != inside);
    }

    /// There is a mount at this place since now that is left to the kernel, whatever it lies in: it
    /// may show the very folder that a door around it leads to, and be read-only.
    pub fn close_off(&mut self, inside: &std::path::Path) {
        self.close(inside);
        self.walls.push(inside.to_owned());
    }

    /// Whether there is a wall between a door and this place in it.
    fn is_closed_off(&self, door: &OpenDoor, place: &std::path::Path) -> bool {
        self.walls
            .iter()
            .any(|wall| wall.starts_with(&door.inside) && place.starts_with(wall))
    }

    /// Whether something is mounted below this place.
    fn has_mount_in(&self, place: &std::path::Path) -> bool {
        let doors = self.doors.iter().map(|door| &door.inside);
        let mut all = doors.chain(&self.walls);
        all.any(|mount| mount != place && mount.starts_with(place))
    }

    /// To be called where the box's view is in place: the paths of doors are looked up in it.
    pub fn new(mut doors: Vec<Door>, rules: GuardRules) -> Self {
        doors.sort_by_key(|door| std::cmp::Reverse(door.inside.components().count()));
        let keeps = doors.iter().any(|door| door.keeps);
        Self {
            doors: doors.into_iter().map(OpenDoor::new).collect(),
            walls: Vec::new(),
            rules,
            umasks: Umasks::default(),
            listeners: BTreeMap::new(),
            refusals: Vec::new(),
            refused_calls: RefusedCalls::default(),
            root: at::identify(libc::AT_FDCWD, c"/", 0).ok(),
            begun: RefCell::default(),
            made: keeps.then(RefCell::default),
            lock: None,
        }
    }

    /// Remembers from the start what programs make: doors may come to keep what was there.
    pub fn remember_made(mut self) -> Self {
        self.made.get_or_insert_default();
        self
    }

    /// Takes turns with the brokers of the caller's other boxes.
    pub fn take_turns(mut self, lock: OwnedFd) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Takes over the questions of one more program.
    pub fn watch(&mut self, listener: OwnedFd) {
        // Speed only; kernels before 6.6 do not know it.
        let _ = notify::wake_in_step(listener.as_fd());
        self.listeners.insert(listener.as_raw_fd(), listener);
    }

    /// What to poll for reading.
    pub fn listeners(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.values().map(AsFd::as_fd)
    }

    /// Forgets a listener; its poll reports a hang-up once the last program under it is gone.
    pub fn forget(&mut self, which: RawFd) {
        self.listeners.remove(&which);
    }

    /// What was refused so far, each path and rule once.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The next call of a kind that was refused for the first time.
    pub fn next_new_call(&mut self) -> Option<RefusedCall> {
        self.refused_calls.next_new()
    }

    /// The calls that were refused since they were told of the last time.
    pub fn take_refused_calls(&mut self) -> Vec<RefusedCall> {
        self.refused_calls.take()
    }

    /// Takes one question from a listener that poll called readable, and answers it.
    pub fn serve(&mut self, which: RawFd) -> io::Result<()> {
        let Some(listener) = self.listeners.get(&which) else {
            return Ok(());
        };
        let listener = listener.as_fd();
        let Some(request) = notify::receive(listener)? else {
            return Ok(());
        };
        let sent = match answers(request.call) {
            true => self.decide(which, &request),
            false => self.refused_calls.refuse(listener, &request),
        };
        match sent {
            // The asker was killed; nobody is left to tell.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn decide(&mut self, which: RawFd, request: &notify::Request) -> io::Result<()> {
        let Some(listener) = self.listeners.get(&which) else {
            return Ok(());
        };
        let listener = listener.as_fd();
        let case = Case {
            broker: self,
            listener,
            id: request.id,
            caller: Caller::new(request.thread),
        };
        let turn = |hold| {
            let lock = self.lock.as_ref().map(|lock| fds::lock(lock.as_fd(), hold));
            lock.unwrap_or(Ok(()))
        };
        // Without its turn a broker decides nothing: what it looks at could be another's by now.
        let (Ok(answer) | Err(answer)) = match turn(true) {
            Ok(()) => case.answer(request),
            Err(_) => Err(Answer::Errno(Errno::EIO)),
        };
        let _ = turn(false);
        let sent = match &answer {
            Answer::CarryOn => notify::carry_on(listener, request.id),
            Answer::Done => notify::finish(listener, request.id, 0),
            Answer::Errno(errno) => notify::finish(listener, request.id, *errno as i32),
            Answer::Guarded { .. } => notify::finish(listener, request.id, libc::EROFS),
            Answer::Kept { .. } => notify::finish(listener, request.id, libc::EPERM),
            Answer::File {
                file,
                close_on_exec,
            } => give(listener, request.id, file, *close_on_exec),
            Answer::Gone => Ok(()),
        };
        match answer {
            Answer::Guarded { path, rule } => self.remember(path, rule),
            Answer::Kept { path } => self.remember(path, KEEP.to_owned()),
            _ => {}
        }
        sent
    }

    fn remember(&mut self, path: PathBuf, rule: String) {
        let same = |old: &&mut Refusal| old.path == path && old.rule == rule;
        if let Some(old) = self.refusals.iter_mut().find(same) {
            old.times += 1;
        } else if self.refusals.len() < REFUSALS_KEPT {
            let times = 1;
            self.refusals.push(Refusal { path, rule, times });
        }
    }
}

impl Case<'_> {
    /// Everything read about the caller so far was about the caller, and it still waits.
    fn confirm(&self) -> Result<(), Answer> {
        if notify::is_waiting(self.listener, self.id) {
            Ok(())
        } else {
            Err(Answer::Gone)
        }
    }

    /// Creates something with the caller's umask. The kernel applies it, so that a default ACL
    /// takes its place where there is one.
    fn creating<T>(&self, create: impl FnOnce() -> Result<T, Errno>) -> Result<T, Answer> {
        let theirs = match self.broker.umasks.known(self.caller.thread()) {
            Some(known) => known,
            None => {
                let read = self.caller.umask()?;
                self.confirm()?;
                self.broker.umasks.note(self.caller.thread(), read);
                read
            }
        };
        let ours = umask(theirs);
        let made = create();
        umask(ours);
        Ok(made?)
    }
}

/// Hands a file over. A signal at the wrong moment would take the file back but leave the answer
/// sent, and the caller would find its terminal under number 0: none may come.
fn give(listener: BorrowedFd<'_>, id: u64, file: &OwnedFd, close_on_exec: bool) -> io::Result<()> {
    let usual = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let given = notify::finish_with_file(listener, id, file.as_fd(), close_on_exec);
    if let Ok(usual) = usual {
        let _ = usual.thread_set_mask();
    }
    given.or_else(|error| {
        // Most likely the caller has no free descriptor.
        notify::finish(listener, id, error.raw_os_error().unwrap_or(libc::EMFILE))
    })
}

/// The permission bits of a mode that may be given to new files.
fn permissions(mode: u64) -> Mode {
    Mode::from_bits_truncate(u32::try_from(mode & 0o1777).unwrap_or(0))
}
