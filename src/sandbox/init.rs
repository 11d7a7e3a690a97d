//! Pid 1 of the box: starts the program, reaps, passes signals on, tells the launcher. Locked
//! down like the program itself; holds nothing of the host but the line to the launcher.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::program::{self, Start};
use super::streams::BoxEnds;
use super::wire::{self, Message, Wire};
use super::{child, lockdown, orphans};
use crate::broker::{Broker, Door};
use crate::plan::{Guarding, Landlock, Plan};
use crate::policy::Isolation;
use crate::policy::guard::GuardRules;
use crate::sys;
use crate::sys::process::{SingleThreaded, exit_now};

/// A finished and locked box, about to run its program.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    pub(super) plan: &'a Plan,
    pub(super) filters: &'a [Vec<u8>],
    /// Those that were read when everything else stood.
    pub(super) more_filters: Vec<Vec<u8>>,
    /// Where the program starts, when that was found out inside.
    pub(super) start: Option<PathBuf>,
    pub(super) ends: BoxEnds,
    pub(super) wire: Wire,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) doors: Vec<(PathBuf, OwnedFd)>,
    pub(super) turns: Option<OwnedFd>,
    /// Set when the program is to be walled in more narrowly than pid 1.
    pub(super) wall: Option<&'a Landlock>,
}

/// Never returns: when the program ends, so does the box.
pub(super) fn main(proof: &SingleThreaded, locked: Locked<'_>) -> ! {
    let reach = Reach::of(locked.plan);
    let status = start_and_wait(proof, locked, reach).unwrap_or(125 << 8);
    end_the_rest(reach);
    exit_now(status >> 8 & 0xff)
}

/// Whom `kill(-1)` of this process would hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The box alone: it has a pid namespace, or Landlock keeps signals in.
    Box,
    /// All of the caller's processes.
    Host,
}

impl Reach {
    fn of(plan: &Plan) -> Self {
        match &plan.lock.landlock {
            _ if plan.isolation == Isolation::Namespaces => Self::Box,
            Landlock::Enforced { abi, .. } if *abi >= lockdown::SIGNAL_SCOPE => Self::Box,
            _ => Self::Host,
        }
    }
}

fn start_and_wait(proof: &SingleThreaded, locked: Locked<'_>, reach: Reach) -> io::Result<i32> {
    let Locked {
        plan,
        ends,
        wire,
        terminal,
        doors,
        turns,
        wall,
        ..
    } = locked;
    let children = watch_children()?;
    if let Some(terminal) = &terminal {
        lead_session(terminal)?;
    }
    let mut broker = open_doors(plan, doors, turns);
    let (hear, listen) = match broker {
        Some(_) => Some(wire::pair()?).unzip(),
        None => (None, None),
    };
    let start = Start {
        plan,
        filters: [&[], &[]],
        directory: None,
        ends: &ends,
        terminal: terminal.as_ref(),
        wire: &wire,
        listen: listen.as_ref(),
        wall,
        steps: child::last_walls(plan),
    };
    let main = Pid::from_raw(sys::process::spawn(proof, &mut || program::run(&start))?);
    drop((ends, listen)); // or readers of the program's output would wait for ever
    if let (Some(broker), Some(hear)) = (&mut broker, hear)
        && let Ok(Some(Message::Listener(listener))) = hear.receive()
    {
        broker.watch(listener);
    }
    let status = serve(main, &children, &wire, &mut broker)?;
    end_the_rest(reach);
    for refusal in broker.iter().flat_map(|broker| broker.refusals()) {
        let what = format!("{}\t{}", refusal.rule, refusal.path.display());
        wire.send(&Message::Refused(what))?;
    }
    wire.send(&Message::Ended { status })?;
    Ok(status)
}

fn open_doors(
    plan: &Plan,
    doors: Vec<(PathBuf, OwnedFd)>,
    turns: Option<OwnedFd>,
) -> Option<Broker> {
    let Guarding::On { rules, .. } = &plan.lock.guarding else {
        return None;
    };
    let doors = doors
        .into_iter()
        .map(|(inside, writable)| Door { inside, writable })
        .collect();
    Some(Broker::new(doors, GuardRules::new(rules)).take_turns(turns?))
}

/// Pid 1's life: until the program ends, with the status it ended with.
fn serve(
    main: Pid,
    children: &SignalFd,
    wire: &Wire,
    broker: &mut Option<Broker>,
) -> io::Result<i32> {
    loop {
        let mut waiting = vec![
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
            PollFd::new(wire.as_fd(), PollFlags::POLLIN),
        ];
        let listeners = broker.iter().flat_map(Broker::listeners);
        waiting.extend(listeners.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut waiting, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let ready = |index: usize| waiting[index].any().unwrap_or(false);
        let (ended, told) = (ready(0), ready(1));
        let asked: Vec<(RawFd, bool)> = waiting[2..]
            .iter()
            .filter_map(|fd| fd.revents().map(|what| (fd.as_fd().as_raw_fd(), what)))
            .filter(|(_, what)| !what.is_empty())
            .map(|(fd, what)| (fd, what.contains(PollFlags::POLLIN)))
            .collect();
        drop(waiting);
        for (listener, readable) in asked {
            if let Some(broker) = broker {
                match readable {
                    true => broker.serve(listener)?,
                    false => broker.forget(listener),
                }
            }
        }
        if ended {
            let _ = children.read_signal();
            if let Some(status) = reap(main, wire)? {
                return Ok(status);
            }
        }
        if told {
            match wire.receive()? {
                Some(Message::Signal { signal }) => hand_on(main, signal),
                Some(_) => {}
                None => return Ok(125 << 8), // the launcher is gone: so is everything here
            }
        }
    }
}

/// Leads the session on the box's terminal. Were the program itself its leader, nobody in the
/// session could take care of a stopped group, and the kernel lets no such group be stopped: ^Z
/// would do nothing.
fn lead_session(terminal: &OwnedFd) -> io::Result<()> {
    nix::unistd::setsid()?;
    sys::fds::make_controlling_terminal(terminal.as_fd())
}

fn watch_children() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// Collects whoever ended; the wait status when it was the program itself.
fn reap(main: Pid, wire: &Wire) -> io::Result<Option<i32>> {
    loop {
        match sys::process::wait(-1, libc::WNOHANG | libc::WUNTRACED) {
            Ok((0, _)) | Err(Errno::ECHILD) => return Ok(None),
            Ok((pid, status)) if pid == main.as_raw() && libc::WIFSTOPPED(status) => {
                let signal = libc::WSTOPSIG(status);
                wire.send(&Message::Stopped { signal })?;
            }
            Ok((pid, status)) if pid == main.as_raw() => return Ok(Some(status)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends what the program left behind before the launcher hears that it is over.
fn end_the_rest(reach: Reach) {
    let everyone = Pid::from_raw(-1);
    while sys::process::wait(-1, libc::WNOHANG) != Err(Errno::ECHILD) {
        match reach {
            Reach::Box => drop(nix::sys::signal::kill(everyone, Signal::SIGKILL)),
            Reach::Host => orphans::kill_children(),
        }
        let _ = sys::process::wait(-1, 0);
    }
}

/// What a terminal would send to the foreground goes to the program's group, the rest to it.
fn hand_on(main: Pid, signal: i32) {
    let Ok(signal) = Signal::try_from(signal) else {
        return;
    };
    let group = matches!(
        signal,
        Signal::SIGINT
            | Signal::SIGQUIT
            | Signal::SIGHUP
            | Signal::SIGTSTP
            | Signal::SIGCONT
            | Signal::SIGWINCH
    );
    let sent = match group {
        true => nix::sys::signal::kill(Pid::from_raw(-main.as_raw()), signal),
        false => Err(Errno::ESRCH),
    };
    // A program that is only just being started leads no group yet.
    if sent == Err(Errno::ESRCH) {
        let _ = nix::sys::signal::kill(main, signal);
    }
}
