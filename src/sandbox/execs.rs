//! Programs that are started in a box later than its first one.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, unlockpt};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::child;
use super::init::Locked;
use super::program::{self, Start};
use super::streams::BoxEnds;
use super::wire::{self, Errand, Message, Wire};
use crate::broker::Broker;
use crate::plan::{Plan, Program};
use crate::sys;
use crate::sys::process::SingleThreaded;

/// More than the kernel would take anyway.
const LONGEST: u64 = 4 << 20;

/// The words of a program as bytes: how many there are of argv and of env, then each with a NUL,
/// and the folder it starts in last.
pub(crate) fn to_bytes(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::new();
    for count in [program.argv.len(), program.env.len()] {
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
    }
    let mut word = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.push(0);
    };
    program
        .argv
        .iter()
        .for_each(|text| word(&[text.as_bytes()]));
    for (name, value) in &program.env {
        word(&[name.as_bytes(), b"=", value.as_bytes()]);
    }
    word(&[program.cwd.as_os_str().as_bytes()]);
    bytes
}

/// The reverse of [`to_bytes`]; nothing when they are not what they should be.
pub(crate) fn from_bytes(bytes: &[u8], umask: u32) -> Option<Program> {
    let count = |at: usize| -> Option<usize> {
        let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (argc, envc) = (count(0)?, count(4)?);
    let mut words = bytes.get(8..)?.split(|byte| *byte == 0);
    let mut next = || Some(OsString::from_vec(words.next()?.to_vec()));
    let argv = (0..argc).map(|_| next()).collect::<Option<Vec<_>>>()?;
    let mut env = Vec::new();
    for _ in 0..envc {
        let word = next()?.into_vec();
        let at = word.iter().position(|byte| *byte == b'=')?;
        let name = OsString::from_vec(word[..at].to_vec());
        env.push((name, OsString::from_vec(word[at + 1..].to_vec())));
    }
    Some(Program {
        argv,
        called: None,
        env,
        cwd: PathBuf::from(next()?),
        umask,
    })
}

/// What a file in memory says, as far as `most`, from its start.
pub(crate) fn read_words(file: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    let mut words = vec![0; file.metadata()?.len().min(most) as usize];
    file.read_exact_at(&mut words, 0)?;
    Ok(words)
}

/// The programs of a box that are running now.
#[derive(Debug)]
pub(super) struct Execs {
    running: Vec<(Pid, u32)>,
    /// How many files each of those that are started from now on may have open.
    pub(super) files: Option<u64>,
}

impl Execs {
    pub(super) fn new(files: Option<u64>) -> Self {
        let running = Vec::new();
        Self { running, files }
    }

    /// The number of a program that is no more.
    pub(super) fn gone(&mut self, pid: Pid) -> Option<u32> {
        let at = self.running.iter().position(|(known, _)| *known == pid)?;
        Some(self.running.swap_remove(at).1)
    }

    pub(super) fn pid(&self, exec: u32) -> Option<Pid> {
        let found = self.running.iter().find(|(_, number)| *number == exec);
        found.map(|(pid, _)| *pid)
    }

    /// Starts a program as the errand says. What cannot be started is told to the launcher.
    pub(super) fn start(
        &mut self,
        proof: &SingleThreaded,
        locked: &Locked<'_>,
        broker: &mut Option<Broker>,
        errand: Errand,
    ) {
        let exec = errand.exec;
        match start(proof, locked, broker, errand, self.files) {
            Ok(pid) => self.running.push((pid, exec)),
            Err(error) => {
                let _ = locked.wire.send(&Message::NotExecuted {
                    exec,
                    errno: error.raw_os_error().unwrap_or(libc::EIO),
                    in_folder: false,
                });
                let _ = locked.wire.send(&Message::ExecEnded {
                    exec,
                    status: 126 << 8,
                });
            }
        }
    }
}

fn start(
    proof: &SingleThreaded,
    locked: &Locked<'_>,
    broker: &mut Option<Broker>,
    errand: Errand,
    files: Option<u64>,
) -> io::Result<Pid> {
    let odd = || io::Error::from_raw_os_error(libc::EINVAL);
    let words = read_words(errand.words, LONGEST)?;
    let program = from_bytes(&words, locked.plan.program.umask).ok_or_else(odd)?;
    let ready = program::in_the_kernels_words(&program, Some(&program.cwd))?;
    let terminal = match errand.terminal {
        true => Some(terminal(&locked.wire, errand.exec)?),
        false => None,
    };
    let ends = BoxEnds::of(errand.streams);
    spawn(
        proof,
        locked,
        broker,
        &Given {
            exec: errand.exec,
            ready: &ready,
            folder: Some(&program.cwd),
            ends: &ends,
            terminal: terminal.as_ref(),
            confirm: errand.confirm,
            files,
        },
    )
}

/// What one program is given.
pub(super) struct Given<'a> {
    pub(super) exec: u32,
    pub(super) ready: &'a program::Ready,
    pub(super) folder: Option<&'a std::path::Path>,
    pub(super) ends: &'a BoxEnds,
    pub(super) terminal: Option<&'a OwnedFd>,
    /// The launcher hears when it has become the program.
    pub(super) confirm: bool,
    /// How many files it may have open.
    pub(super) files: Option<u64>,
}

/// Starts a program behind the walls of the box, and hears what it wants to change from now on.
pub(super) fn spawn(
    proof: &SingleThreaded,
    locked: &Locked<'_>,
    broker: &mut Option<Broker>,
    given: &Given<'_>,
) -> io::Result<Pid> {
    let plan: &Plan = locked.plan;
    let (hear, listen) = match broker {
        Some(_) => Some(wire::pair()?).unzip(),
        None => (None, None),
    };
    let asks = locked.filters.program.as_deref().zip(listen.as_ref());
    if asks.is_some() != (locked.filters.program.is_some() || listen.is_some()) {
        // Refusals that nobody answers could be answered by the program itself.
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let executed = AtomicBool::new(false);
    let start = Start {
        plan,
        exec: given.exec,
        ready: given.ready,
        folder: given.folder,
        filters: [&[], &[]],
        ends: given.ends,
        terminal: given.terminal,
        wire: &locked.wire,
        asks,
        wall: locked.wall.as_ref(),
        files: given.files,
        executed: Some(&executed),
        steps: child::last_walls(plan),
    };
    let pid = Pid::from_raw(sys::process::spawn(proof, &mut || program::run(&start))?);
    drop(listen);
    if given.confirm && executed.load(Ordering::Relaxed) {
        let exec = given.exec;
        locked.wire.send(&Message::Executed { exec })?;
    }
    if let (Some(broker), Some(hear)) = (broker, hear)
        && let Ok(Some(Message::Listener(listener))) = hear.receive()
    {
        broker.watch(listener);
    }
    Ok(pid)
}

/// A terminal from the box's own set; the other end goes to the launcher.
fn terminal(wire: &Wire, exec: u32) -> io::Result<OwnedFd> {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = nix::pty::ptsname_r(&master)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let slave = nix::fcntl::open(name.as_str(), flags, Mode::empty())?;
    let master = sys::fds::duplicate(master.as_raw_fd())?;
    wire.send(&Message::ExecTerminal { exec, master })?;
    Ok(slave)
}
