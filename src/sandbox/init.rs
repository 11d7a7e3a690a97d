//! Pid 1 of the box: starts the program, reaps, passes signals on, tells the launcher. Locked
//! down like the program itself; holds nothing of the host but the line to the launcher.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::dialer::Dialers;
use super::execs::{self, Execs, Given};
use super::filters::Filters;
use super::program;
use super::streams::BoxEnds;
use super::wire::{Message, Wire};
use super::{lockdown, orphans, rlimits, subtree};
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
    pub(super) filters: &'a Filters,
    /// Those that were read when everything else stood.
    pub(super) more_filters: Vec<Vec<u8>>,
    /// Where the program starts, when that was found out inside.
    pub(super) start: Option<PathBuf>,
    pub(super) ends: BoxEnds,
    pub(super) wire: Wire,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) doors: Vec<(PathBuf, OwnedFd)>,
    pub(super) turns: Option<OwnedFd>,
    /// Set when programs are to be walled in more narrowly than pid 1.
    pub(super) wall: Option<lockdown::Wall>,
}

/// Never returns: when the program ends, so does the box, unless it is to stay.
pub(super) fn main(proof: &SingleThreaded, locked: Locked<'_>, stays: bool) -> ! {
    let reach = Reach::of(locked.plan);
    let status = start_and_wait(proof, locked, reach, stays).unwrap_or(125 << 8);
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

fn start_and_wait(
    proof: &SingleThreaded,
    mut locked: Locked<'_>,
    reach: Reach,
    stays: bool,
) -> io::Result<i32> {
    let children = watch_children()?;
    if locked.plan.terms.announces {
        // Its caller goes away; nothing of the caller's is to be held open in here.
        sys::fds::put_null_at(&[0, 1, 2])?;
    }
    if let Some(terminal) = &locked.terminal {
        lead_session(terminal)?;
    }
    let doors = std::mem::take(&mut locked.doors);
    let mut broker = open_doors(locked.plan, doors, locked.turns.take());
    let ends = std::mem::replace(&mut locked.ends, BoxEnds::of([None, None, None]));
    let mut main = None;
    if !locked.plan.program.argv.is_empty() {
        let ready = program::in_the_kernels_words(&locked.plan.program, None)?;
        let given = Given {
            exec: 0,
            ready: &ready,
            folder: None,
            ends: &ends,
            terminal: locked.terminal.as_ref(),
            confirm: false,
            files: rlimits::files_of_program(locked.plan),
        };
        main = Some(execs::spawn(proof, &locked, &mut broker, &given)?);
    }
    drop(ends); // or readers of the program's output would wait for ever
    if locked.plan.terms.announces {
        // After any bad news: the program's process has said it by now.
        locked.wire.send(&Message::Starting)?;
    }
    let mut life = Life {
        proof,
        locked: &locked,
        stays,
        main,
        status: 0,
        execs: Execs::new(rlimits::files_of_program(locked.plan)),
        dialers: Dialers::default(),
        told: 0,
    };
    let status = life.serve(&children, &mut broker)?;
    end_the_rest(reach);
    life.tell_refusals(&mut broker)?;
    locked.wire.send(&Message::Ended { status })?;
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
        .map(|(inside, writable)| Door {
            keeps: plan.keeps(&inside),
            inside,
            writable,
        })
        .collect();
    let broker = Broker::new(doors, GuardRules::new(rules)).take_turns(turns?);
    Some(match plan.terms.changeable {
        true => broker.remember_made(),
        false => broker,
    })
}

/// Pid 1's life: until the program ends, or until it is told.
struct Life<'a, 'b> {
    proof: &'a SingleThreaded,
    locked: &'a Locked<'b>,
    stays: bool,
    main: Option<Pid>,
    /// How the first program ended, when it has.
    status: i32,
    execs: Execs,
    dialers: Dialers,
    /// How many refusals the launcher has heard of.
    told: usize,
}

impl Life<'_, '_> {
    /// The status that the first program ended with.
    fn serve(&mut self, children: &SignalFd, broker: &mut Option<Broker>) -> io::Result<i32> {
        let wire = &self.locked.wire;
        loop {
            let mut waiting = vec![readable(children.as_fd()), readable(wire.as_fd())];
            waiting.extend(self.dialers.lines().map(readable));
            let first_listener = waiting.len();
            waiting.extend(broker.iter().flat_map(Broker::listeners).map(readable));
            match poll(&mut waiting, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let ready = |index: usize| waiting[index].any().unwrap_or(false);
            let (ended, mut told) = (ready(0), ready(1));
            let (dialers, listeners) = waiting[2..].split_at(first_listener - 2);
            let dialled = dialers.iter().filter(|fd| fd.any() == Some(true));
            let dialled: Vec<RawFd> = dialled.map(|fd| fd.as_fd().as_raw_fd()).collect();
            let asked: Vec<(RawFd, bool)> = listeners
                .iter()
                .filter_map(|fd| fd.revents().map(|what| (fd.as_fd().as_raw_fd(), what)))
                .filter(|(_, what)| !what.is_empty())
                .map(|(fd, what)| (fd, what.contains(PollFlags::POLLIN)))
                .collect();
            drop(waiting);
            // First of all: whoever was told that something may be done asks only after that.
            while told {
                match wire.receive()? {
                    Some(Message::Signal { signal }) => {
                        self.main.inspect(|main| hand_on(*main, signal));
                    }
                    Some(Message::ExecSignal {
                        exec,
                        signal,
                        subtree,
                    }) => self.signal_exec(exec, signal, subtree),
                    Some(Message::Exec(errand)) => {
                        self.execs.start(self.proof, self.locked, broker, errand);
                    }
                    Some(Message::Door {
                        inside,
                        writable,
                        keeps,
                    }) => {
                        let inside = PathBuf::from(inside);
                        match (broker.as_mut(), writable) {
                            (Some(broker), Some(writable)) => broker.open(Door {
                                inside,
                                writable,
                                keeps,
                            }),
                            (Some(broker), None) => broker.keep(&inside, keeps),
                            (None, _) => {}
                        }
                    }
                    Some(Message::Wall { inside }) => {
                        let inside = PathBuf::from(inside);
                        broker.iter_mut().for_each(|it| it.close_off(&inside));
                    }
                    Some(Message::NoDoor { inside }) => {
                        let inside = PathBuf::from(inside);
                        broker.iter_mut().for_each(|it| it.close(&inside));
                    }
                    Some(Message::Dialer(line)) => self.dialers.add(line),
                    Some(Message::OpenFiles(most)) => self.execs.files = Some(most.into()),
                    Some(Message::Stop) => return Ok(self.status),
                    Some(_) => {}
                    None => return Ok(125 << 8), // the launcher is gone: so is everything here
                }
                told = is_readable(wire.as_fd())?;
            }
            for (listener, readable) in asked {
                if let Some(broker) = broker {
                    match readable {
                        true => broker.serve(listener)?,
                        false => broker.forget(listener),
                    }
                    while let Some(refused) = broker.next_new_call() {
                        wire.send(&Message::RefusedCall(refused))?;
                    }
                }
            }
            dialled
                .into_iter()
                .for_each(|line| self.dialers.serve(line));
            if ended {
                let _ = children.read_signal();
                if self.reap(broker)? {
                    return Ok(self.status);
                }
            }
        }
    }

    fn signal_exec(&self, exec: u32, signal: i32, subtree: bool) {
        let is_box = Reach::of(self.locked.plan) == Reach::Box;
        match (self.execs.pid(exec), Signal::try_from(signal)) {
            (Some(pid), Ok(signal)) if subtree => subtree::signal(pid, signal, is_box),
            (Some(pid), _) => hand_on(pid, signal),
            (None, _) => {}
        }
    }

    /// Collects whoever ended; whether that was the program the box is for.
    fn reap(&mut self, broker: &mut Option<Broker>) -> io::Result<bool> {
        let wire = &self.locked.wire;
        loop {
            let (pid, status) = match sys::process::wait(-1, libc::WNOHANG | libc::WUNTRACED) {
                Ok((0, _)) | Err(Errno::ECHILD) => return Ok(false),
                Ok((pid, status)) => (Pid::from_raw(pid), status),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if libc::WIFSTOPPED(status) {
                if Some(pid) == self.main {
                    let signal = libc::WSTOPSIG(status);
                    wire.send(&Message::Stopped { signal })?;
                }
                continue;
            }
            if Some(pid) == self.main {
                self.main = None;
                self.status = status;
                if !self.stays {
                    return Ok(true);
                }
                self.tell_refusals(broker)?;
                wire.send(&Message::ExecEnded { exec: 0, status })?;
            } else if let Some(exec) = self.execs.gone(pid) {
                self.tell_refusals(broker)?;
                wire.send(&Message::ExecEnded { exec, status })?;
            }
        }
    }

    /// Says what was left as it is since the last time.
    fn tell_refusals(&mut self, broker: &mut Option<Broker>) -> io::Result<()> {
        let refused = broker.iter_mut().flat_map(Broker::take_refused_calls);
        for refused in refused {
            self.locked.wire.send(&Message::RefusedCall(refused))?;
        }
        let refusals = broker.iter().flat_map(|broker| broker.refusals());
        for refusal in refusals.skip(self.told) {
            let what = format!("{}\t{}", refusal.rule, refusal.path.display());
            self.locked.wire.send(&Message::Refused(what))?;
            self.told += 1;
        }
        Ok(())
    }
}

/// Whether there is more to read by now.
fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match poll(&mut [readable(fd)], PollTimeout::ZERO) {
        Err(Errno::EINTR) => Ok(false),
        other => Ok(other? > 0),
    }
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::POLLIN)
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
