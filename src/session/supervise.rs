//! The launcher while the box runs: relays the terminal, passes signals on, keeps the time.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::directory::{Directory, DirectoryError};
use super::outcome::Outcome;
use crate::plan::{Plan, Stdio};
use crate::sandbox::{self, Belongings, LaunchError, Message, Running};
use crate::sys;
use crate::terminal::{FileCopy, OuterTerminal, Relay};

/// Between asking a program to end and ending it.
const GRACE: Duration = Duration::from_secs(2);
/// How long output that is already there may take to be shown.
const LAST_WORDS: Duration = Duration::from_secs(5);
const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("cannot watch over the box")]
    Watch(#[from] io::Error),
}

impl RunError {
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Directory(error) => error.help(),
            Self::Launch(error) => error.help(),
            Self::Watch(_) => Some("run the command again; nothing of it is left".into()),
        }
    }
}

/// What is left to say when a box is gone.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    /// Guarded paths the program tried to change: rule and path.
    pub refused: Vec<String>,
    /// Standard streams whose file failed the launcher, and why.
    pub lost: Vec<(usize, io::Error)>,
    pub outputs: Option<PathBuf>,
}

/// Carries a plan out from start to end.
pub fn run(plan: &Plan, filters: &[Vec<u8>]) -> Result<Ended, RunError> {
    let none = || io::Error::other("the plan is not one of a session");
    let mut directory = Directory::open(plan.session.as_ref().ok_or_else(none)?)?;
    let ended = live(plan, filters, &mut directory);
    if ended.is_err() {
        directory.undo();
    }
    ended
}

fn live(plan: &Plan, filters: &[Vec<u8>], directory: &mut Directory) -> Result<Ended, RunError> {
    let turns = directory.turns()?;
    directory.seal()?;
    let signals = watch_signals()?;
    let belongings = Belongings {
        directory: directory.path(),
        turns,
    };
    let mut running = sandbox::launch(plan, filters, Some(belongings))?;
    let mut life = Life::begin(plan, &mut running)?;
    let outcome = life.live(&running, &signals)?;
    life.last_words();
    if life.said_ended {
        running.has_ended();
    }
    Ok(Ended {
        outcome,
        refused: life.refused,
        lost: life.lost,
        outputs: directory.outputs(),
    })
}

fn watch_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in PASSED_ON.into_iter().chain([Signal::SIGWINCH]) {
        // Under nohup and the like a signal is ignored on purpose.
        if !sys::kernel::is_ignored(signal as i32) {
            set.add(signal);
        }
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// The moving parts of a run.
#[derive(Debug)]
struct Life<'a> {
    plan: &'a Plan,
    relay: Option<Relay>,
    outer: Option<OuterTerminal>,
    /// With the number of the stream that each stands for.
    copies: Vec<(usize, FileCopy)>,
    lost: Vec<(usize, io::Error)>,
    refused: Vec<String>,
    not_executed: Option<i32>,
    /// When the program is asked to end, and when it is ended.
    ask_at: Option<Instant>,
    end_at: Option<Instant>,
    timed_out: bool,
    /// The signal that woke the launcher is still to be read, and the program has been woken.
    is_woken: bool,
    /// Pid 1 has said that nothing runs any more, rather than vanished.
    said_ended: bool,
}

impl<'a> Life<'a> {
    fn begin(plan: &'a Plan, running: &mut Running) -> io::Result<Self> {
        let mut copies = Vec::new();
        for (number, pipe) in running.streams.pipes.iter_mut().enumerate() {
            let Some(pipe) = pipe.take() else { continue };
            let file = sys::fds::duplicate(number as i32)?;
            let copy = match number {
                0 => FileCopy::inward(file, pipe)?,
                _ => FileCopy::outward(pipe, file)?,
            };
            copies.push((number, copy));
        }
        Ok(Self {
            plan,
            relay: None,
            outer: None,
            copies,
            lost: Vec::new(),
            refused: Vec::new(),
            not_executed: None,
            // A limit beyond the end of time is none.
            ask_at: plan
                .timeout
                .and_then(|limit| Instant::now().checked_add(limit)),
            end_at: None,
            timed_out: false,
            is_woken: false,
            said_ended: false,
        })
    }

    /// Waits for whatever comes next, until the program has ended.
    fn live(&mut self, running: &Running, signals: &SignalFd) -> Result<Outcome, RunError> {
        loop {
            let (told, signalled) = self.wait(running, signals)?;
            self.keep_time(running);
            if signalled {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.pass_on(running, signal.ssi_signo as i32);
                }
            }
            self.progress()?;
            if told && let Some(outcome) = self.hear(running)? {
                return Ok(outcome);
            }
        }
    }

    fn wait(&mut self, running: &Running, signals: &SignalFd) -> io::Result<(bool, bool)> {
        let mut waiting = Vec::with_capacity(8);
        waiting.push(PollFd::new(running.line(), PollFlags::POLLIN));
        waiting.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        if let Some(relay) = &self.relay {
            relay.interests(&mut waiting);
        }
        for (_, copy) in &self.copies {
            copy.interests(&mut waiting);
        }
        let next = [self.ask_at, self.end_at].into_iter().flatten().min();
        let timeout = next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut waiting, timeout) {
            Ok(_) => Ok((
                waiting[0].any() == Some(true),
                waiting[1].any() == Some(true),
            )),
            Err(Errno::EINTR) => Ok((false, false)),
            Err(error) => Err(error.into()),
        }
    }

    fn progress(&mut self) -> io::Result<()> {
        if let Some(relay) = &mut self.relay {
            relay.progress()?;
        }
        for (number, copy) in &mut self.copies {
            // Such as a full disk. The copy has closed its pipe, which tells the program.
            if let Err(error) = copy.progress() {
                self.lost.push((*number, error));
            }
        }
        Ok(())
    }

    fn hear(&mut self, running: &Running) -> Result<Option<Outcome>, RunError> {
        let message = match running.receive() {
            Ok(message) => message,
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => None,
            Err(error) => return Err(error.into()),
        };
        match message {
            Some(Message::Failed { step, errno, .. }) => {
                let cause = io::Error::from_raw_os_error(errno);
                return Err(sandbox::explain(self.plan, step, cause).into());
            }
            Some(Message::NotExecuted { errno }) => self.not_executed = Some(errno),
            Some(Message::Terminal(master)) => self.take_terminal(master)?,
            Some(Message::Stopped { .. }) => self.stop_with_it(running)?,
            Some(Message::Refused(what)) => self.refused.push(what),
            Some(Message::Ended { status }) => {
                self.said_ended = true;
                return Ok(Some(match (self.timed_out, self.not_executed) {
                    (true, _) => Outcome::TimedOut,
                    (false, Some(errno)) => Outcome::NotExecuted(errno),
                    (false, None) => Outcome::from_status(status),
                }));
            }
            Some(
                Message::Go
                | Message::Signal { .. }
                | Message::Listener(_)
                | Message::Starting
                | Message::Here,
            ) => {}
            // Pid 1 is gone without a word: somebody killed it, and the box with it.
            None if self.timed_out => return Ok(Some(Outcome::TimedOut)),
            None => return Ok(Some(Outcome::Killed(libc::SIGKILL))),
        }
        Ok(None)
    }

    /// Connects the box's terminal with the caller's.
    fn take_terminal(&mut self, master: std::os::fd::OwnedFd) -> io::Result<()> {
        let is = |number: usize| self.plan.stdio[number] == Stdio::Terminal;
        let output = [1, 2].into_iter().find(|number| is(*number));
        if is(0) && is(1) {
            let outer = OuterTerminal::take_and_survive(sys::fds::standard(0))?;
            self.outer = Some(outer);
        }
        let input = is(0).then(|| sys::fds::standard(0));
        let relay = Relay::new(master, input, output.map(|n| sys::fds::standard(n as i32)))?;
        relay.resize()?;
        self.relay = Some(relay);
        Ok(())
    }

    fn pass_on(&mut self, running: &Running, signal: i32) {
        if signal == Signal::SIGWINCH as i32 {
            if let Some(relay) = &self.relay {
                let _ = relay.resize();
            }
            return;
        }
        if signal == Signal::SIGCONT as i32 && std::mem::take(&mut self.is_woken) {
            // A second one could undo a ^Z that was typed meanwhile.
            return;
        }
        if signal == Signal::SIGHUP as i32 && self.end_at.is_none() {
            self.end_at = Some(Instant::now() + GRACE);
        }
        let _ = running.signal(signal);
    }

    /// The program was stopped: the launcher stops too, so that the shell gets its turn.
    fn stop_with_it(&mut self, running: &Running) -> io::Result<()> {
        let soon = Instant::now() + LAST_WORDS;
        if let Some(relay) = &mut self.relay {
            relay.suspend(soon)?;
        }
        if let Some(outer) = &mut self.outer {
            outer.suspend()?;
        }
        loop {
            kill(nix::unistd::getpid(), Signal::SIGSTOP)?;
            let ours = self
                .outer
                .as_mut()
                .map_or(Ok(true), OuterTerminal::resume)?;
            if ours {
                break;
            }
        }
        if let Some(relay) = &mut self.relay {
            relay.resume()?;
            relay.resize()?;
        }
        self.is_woken = true;
        running.signal(Signal::SIGCONT as i32)
    }

    fn keep_time(&mut self, running: &Running) {
        let now = Instant::now();
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            self.timed_out = true;
            self.end_at = Some(now + GRACE);
            let _ = running.signal(Signal::SIGTERM as i32);
        }
        if self.end_at.is_some_and(|at| at <= now) {
            self.end_at = None;
            let _ = running.kill();
        }
    }

    /// Shows what the program had said before it ended.
    fn last_words(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        if let Some(relay) = &mut self.relay {
            let _ = relay.drain(deadline);
        }
        for (number, copy) in &mut self.copies {
            if let Err(error) = copy.drain(deadline) {
                self.lost.push((*number, error));
            }
        }
        self.outer = None;
    }
}
