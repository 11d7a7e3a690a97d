//! The launcher while the box runs: relays the terminal, passes signals on, keeps the time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;

use super::changes::Changes;
use super::control::Control;
use super::detach;
use super::diary::Diary;
use super::directory::Directory;
use super::doors::Doors;
use super::error::RunError;
use super::front::Front;
use super::holder::HeldOpen;
use super::limits::Limits;
use super::listening::open_control;
use super::manner::Manner;
use super::network::{Network, RefusedHost};
use super::outcome::Outcome;
use super::outputs::Outputs;
use super::record::{Record, now};
use super::refusals::Refused;
use super::signals::watch_signals;
use super::talk::Say;
use super::waiting::Woken;
use crate::plan::Plan;
use crate::sandbox::{self, Belongings, Filters, LiveMount, Message, Running};

/// Between asking a program to end and ending it.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long output that is already there may take to be shown.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// What is left to say when a box is gone.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    /// What the program was refused, each once.
    pub refused: Vec<Refused>,
    pub refused_hosts: Vec<RefusedHost>,
    /// Standard streams whose file failed the launcher, and why.
    pub lost: Vec<(usize, io::Error)>,
    pub outputs: Option<PathBuf>,
}

/// Carries a plan out from start to end.
pub fn run(plan: &Plan, filters: &Filters, manner: Manner) -> Result<Ended, RunError> {
    let none = || io::Error::other("the plan is not one of a session");
    let session = plan.session.as_ref().ok_or_else(none)?;
    let mut directory = Directory::open(session)?;
    let mut last = None;
    let ended = live(plan, filters, &mut directory, manner, &mut last);
    if ended.is_err() {
        directory.undo();
    }
    // Whoever waits for the end hears of it when the session's name is free again.
    drop(directory);
    drop(last);
    ended
}

fn live(
    plan: &Plan,
    filters: &Filters,
    directory: &mut Directory,
    mut manner: Manner,
    last: &mut Option<Control>,
) -> Result<Ended, RunError> {
    let turns = directory.turns()?;
    let signals = watch_signals()?;
    let network = Network::prepare(plan, std::mem::take(&mut manner.outfit))?;
    let mut limits = Limits::choose(plan, &manner.limits)?;
    if let Some(say) = manner.say {
        limits.told().iter().for_each(|note| say(note));
        network.published().iter().for_each(|note| say(note));
    }
    let belongings = Belongings {
        directory: directory.path(),
        turns,
        forget: &network.secrets(),
        cgroup: limits.cgroup(),
    };
    let ground = limits.ground(plan, directory.path());
    directory.seal()?;
    let mut running = sandbox::launch(plan, filters, Some(belongings))?;
    limits.begin(plan, &running, ground)?;
    // The box is being built meanwhile.
    let control = open_control(plan, directory, &manner)?;
    let outputs = match manner.detached {
        Some(_) => Some(Outputs::new(directory.path(), &mut running.streams.pipes)?),
        None => None,
    };
    let told = manner.detached.take();
    let diary = Diary::begin(plan, &manner);
    let mut life = Life::begin(plan, &mut running, control, outputs, told, diary)?;
    life.limits = limits;
    life.network = network;
    life.doors.say = manner.say;
    life.held_open = manner.held_open.take();
    life.write_record(directory.path())?;
    let outcome = life.live(&running, &signals)?;
    // A program that the kernel ended over a limit did not end by itself.
    let outcome = match (&outcome, life.limits.held_last()) {
        (Outcome::Killed(libc::SIGKILL), Some(what)) => Outcome::OverLimit(what),
        _ => outcome,
    };
    life.last_words(&outcome);
    life.network.end(&running, &mut life.diary);
    life.diary.end(&outcome, life.has_program);
    life.record.ended = Some(now());
    let shown_later = life.mounted.iter().map(super::changes::noted);
    life.record.mounts.extend(shown_later);
    life.record.outcome = Some(outcome.clone());
    life.write_record(directory.path())?;
    if life.said_ended {
        running.has_ended();
    }
    *last = life.control.take();
    last.iter_mut().for_each(Control::leave);
    Ok(Ended {
        outcome,
        refused: life.diary.refusals.all().to_vec(),
        refused_hosts: std::mem::take(&mut life.network.refused),
        lost: life.front.lost,
        outputs: directory.outputs(),
    })
}

/// The moving parts of a run.
#[derive(Debug)]
pub(super) struct Life<'a> {
    pub(super) plan: &'a Plan,
    pub(super) front: Front,
    /// What was shown after the start.
    pub(super) mounted: Vec<LiveMount>,
    pub(super) changes: Changes,
    pub(super) limits: Limits,
    pub(super) network: Network,
    pub(super) doors: Doors,
    pub(super) not_executed: Option<i32>,
    /// When the program is asked to end, and when it is ended.
    pub(super) ask_at: Option<Instant>,
    pub(super) end_at: Option<Instant>,
    pub(super) timed_out: bool,
    /// The signal that woke the launcher is still to be read, and the program has been woken.
    pub(super) is_woken: bool,
    /// Pid 1 has said that nothing runs any more, rather than vanished.
    pub(super) said_ended: bool,
    pub(super) control: Option<Control>,
    /// Set when nobody sits in front of the program.
    pub(super) outputs: Option<Outputs>,
    /// Where a caller waits to hear that the program has started.
    pub(super) told: Option<OwnedFd>,
    pub(super) diary: Diary,
    pub(super) record: Record,
    /// The session's own program is running.
    pub(super) has_program: bool,
    pub(super) is_stopping: bool,
    /// What the box ends with, and whether it did.
    pub(super) held_open: Option<HeldOpen>,
    pub(super) is_let_go: bool,
}

impl<'a> Life<'a> {
    fn begin(
        plan: &'a Plan,
        running: &mut Running,
        control: Option<Control>,
        outputs: Option<Outputs>,
        told: Option<OwnedFd>,
        diary: Diary,
    ) -> io::Result<Self> {
        Ok(Self {
            plan,
            front: Front::new(plan.stdio, &mut running.streams.pipes)?,
            mounted: Vec::new(),
            changes: Changes::default(),
            limits: Limits::default(),
            network: Network::default(),
            doors: Doors::default(),
            not_executed: None,
            // A limit beyond the end of time is none.
            ask_at: plan
                .timeout
                .and_then(|limit| Instant::now().checked_add(limit)),
            end_at: None,
            timed_out: false,
            is_woken: false,
            said_ended: false,
            control,
            record: Record::of(plan, outputs.is_some()),
            outputs,
            told,
            diary,
            has_program: !plan.program.argv.is_empty(),
            is_stopping: false,
            held_open: None,
            is_let_go: false,
        })
    }

    /// Waits for whatever comes next, until the program has ended.
    fn live(&mut self, running: &Running, signals: &SignalFd) -> Result<Outcome, RunError> {
        loop {
            let Woken {
                told,
                signalled,
                let_go,
                asked,
            } = self.wait(running, signals)?;
            if let_go {
                self.let_go(running)?;
            }
            self.keep_time(running);
            self.keep_limits(running);
            self.keep_changes(running);
            if asked.contains(&true) {
                self.serve(&asked, running)?;
            }
            self.keep_clients(running);
            if signalled {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.pass_on(running, signal.ssi_signo as i32);
                }
            }
            self.network.progress(running, &mut self.diary);
            self.front.progress()?;
            if let Some(outputs) = &mut self.outputs {
                outputs.progress(&mut self.control);
            }
            if told && let Some(outcome) = self.hear(running)? {
                return Ok(outcome);
            }
        }
    }

    fn hear(&mut self, running: &Running) -> Result<Option<Outcome>, RunError> {
        let message = match running.receive() {
            Ok(message) => message,
            // Said once when pid 1 left before it had heard all; its last words come after that.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => {
                running.receive().unwrap_or(None)
            }
            Err(error) => return Err(error.into()),
        };
        match message {
            Some(Message::Failed { step, errno, .. }) => {
                let cause = io::Error::from_raw_os_error(errno);
                return Err(sandbox::explain(self.plan, step, cause).into());
            }
            Some(Message::NotExecuted { exec: 0, errno, .. }) => self.not_executed = Some(errno),
            Some(Message::NotExecuted {
                exec,
                errno,
                in_folder,
            }) => self.tell(exec, &Say::NotExecuted { errno, in_folder }),
            Some(Message::Executed { exec }) => self.tell(exec, &Say::Executed),
            Some(Message::ExecTerminal { exec, master }) => {
                if let Some(control) = &mut self.control {
                    control.hand_over(exec, master.as_fd());
                }
            }
            Some(Message::ExecEnded { exec: 0, status }) => {
                self.diary.ended(0, status, self.not_executed);
                self.has_program = false;
                self.stop_if_asked(running);
            }
            Some(Message::ExecEnded { exec, status }) => {
                self.diary.ended(exec, status, None);
                self.tell(exec, &Say::Ended { status });
                self.stop_if_asked(running);
            }
            Some(Message::Terminal(master)) => match &mut self.outputs {
                Some(outputs) => outputs.take_terminal(master)?,
                None => self.front.take_terminal(master)?,
            },
            Some(Message::Listeners(listeners)) => self.open_network(listeners, running)?,
            Some(Message::Starting) => {
                // A caller that is gone before it has heard the id would never end it.
                if self.not_executed.is_none()
                    && let Some(told) = self.told.take()
                    && !detach::say(told, 0)
                {
                    self.stop(running, 0);
                }
            }
            // Nobody's shell waits for a session in the background, nor for one that is paused.
            Some(Message::Stopped { .. }) if self.outputs.is_some() || self.limits.is_paused => {}
            Some(Message::Stopped { .. }) => self.stop_with_it(running)?,
            Some(Message::SharedMemory(tables)) => self.limits.count_shared(tables),
            Some(Message::Refused(what)) => self.refused_by_guard(&what),
            Some(Message::RefusedCall(told)) => self.diary.refused_call(self.plan, &told),
            Some(Message::Ended { status }) => {
                self.said_ended = true;
                if let Some(what) = self.limits.over() {
                    return Ok(Some(Outcome::OverLimit(what)));
                }
                return Ok(Some(match (self.timed_out, self.not_executed) {
                    _ if self.is_let_go => Outcome::LetGo,
                    (true, _) => Outcome::TimedOut,
                    (false, Some(errno)) => Outcome::NotExecuted(errno),
                    (false, None) => Outcome::from_status(status),
                }));
            }
            Some(
                Message::Go
                | Message::Signal { .. }
                | Message::Listener(_)
                | Message::Here
                | Message::Exec(_)
                | Message::ExecSignal { .. }
                | Message::Trees(_)
                | Message::OpenFiles(_)
                | Message::Door { .. }
                | Message::NoDoor { .. }
                | Message::Wall { .. }
                | Message::Loose(_)
                | Message::Dialer(_)
                | Message::Stop,
            ) => {}
            // Pid 1 is gone without a word: somebody killed it, and the box with it.
            None if self.is_let_go => return Ok(Some(Outcome::LetGo)),
            None if self.timed_out => return Ok(Some(Outcome::TimedOut)),
            None => {
                let over = self.limits.over().map(Outcome::OverLimit);
                return Ok(Some(over.unwrap_or(Outcome::Killed(libc::SIGKILL))));
            }
        }
        Ok(None)
    }

    /// The program was stopped: the launcher stops too, so that the shell gets its turn.
    fn stop_with_it(&mut self, running: &Running) -> io::Result<()> {
        self.front.stop_with_it(Instant::now() + LAST_WORDS)?;
        self.is_woken = true;
        running.signal(Signal::SIGCONT as i32)
    }

    /// Shows what the program had said before it ended.
    fn last_words(&mut self, outcome: &Outcome) {
        let soon = Instant::now() + LAST_WORDS;
        if let Some(outputs) = &mut self.outputs {
            outputs.last_words(&mut self.control, soon);
        }
        if let Some(control) = &mut self.control {
            control.tell_the_end(outcome.status());
        }
        if let Some(told) = self.told.take() {
            let _ = detach::say(told, outcome.exit_code());
        }
        self.front.last_words(Instant::now() + LAST_WORDS);
    }
}
