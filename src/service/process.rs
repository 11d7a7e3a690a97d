//! One process of the app's, from its start to the news of its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::pipe2;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

use super::events::{Exit, Feed, Stream};
use super::input::Input;
use super::output::{self, Streams};
use super::telling;
use crate::session::{Conversation, Outcome};

/// How long a process may take to end that was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// The same for a single command: the app is about to try it again.
const SHORT_GRACE: Duration = Duration::from_secs(1);
/// How soon one that was to be killed is looked at again.
const AGAIN: Duration = Duration::from_millis(250);
/// What the app calls single commands.
const SINGLE: &str = "oneshot-";

/// What the app knows under one id.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: String,
    pub(super) session: String,
    pub(super) input: Input,
    /// It is given nothing to read.
    pub(super) is_single: bool,
    /// Set for Claude Code, which counts on hosts of its own: the API that it was told to use, if any.
    pub(super) claude: RefCell<Option<Option<String>>>,
    /// The mounts that it was started with.
    pub(super) mounts: RefCell<Vec<String>>,
    orders: RefCell<Vec<i32>>,
    ordered: Notify,
    /// The workspace was stopped before it ran.
    is_cancelled: Cell<bool>,
}

impl Process {
    pub(super) fn new(id: &str, session: &str, is_single: bool) -> Self {
        Self {
            id: id.to_owned(),
            session: session.to_owned(),
            input: Input::new(id),
            is_single: is_single || id.starts_with(SINGLE),
            claude: RefCell::default(),
            mounts: RefCell::default(),
            orders: RefCell::default(),
            ordered: Notify::new(),
            is_cancelled: Cell::new(false),
        }
    }

    /// Sends a signal; one that comes before the process does is kept for it.
    pub(super) fn signal(&self, signal: i32) {
        let mut orders = self.orders.borrow_mut();
        // Twice the same before it was sent is once, as with the kernel's own.
        if !orders.contains(&signal) {
            orders.push(signal);
        }
        drop(orders);
        self.ordered.notify_one();
    }

    pub(super) fn cancel(&self) {
        self.is_cancelled.set(true);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    fn grace(&self) -> Duration {
        match self.id.starts_with(SINGLE) {
            true => SHORT_GRACE,
            false => GRACE,
        }
    }

    /// The streams of a process to be: its ends, and ours.
    pub(super) fn streams(&self) -> io::Result<([OwnedFd; 3], Streams)> {
        let (input, mine) = match self.is_single {
            true => {
                let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
                let nothing = nix::fcntl::open("/dev/null", flags, Mode::empty())?;
                (nothing, None)
            }
            false => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                (read, Some(pipe::Sender::from_owned_fd(write)?))
            }
        };
        let (out, out_end) = pipe2(OFlag::O_CLOEXEC)?;
        let (err, err_end) = pipe2(OFlag::O_CLOEXEC)?;
        let streams = Streams {
            input: mine,
            out: pipe::Receiver::from_owned_fd(out)?,
            err: pipe::Receiver::from_owned_fd(err)?,
        };
        Ok(([input, out_end, err_end], streams))
    }

    /// Passes everything on until the process has ended and all it said was told. Its exit code.
    pub(super) async fn live(
        self: &Rc<Self>,
        conversation: &Conversation,
        streams: Streams,
        feed: &Rc<Feed>,
        memory_ran_out: impl AsyncFn() -> bool,
    ) -> i32 {
        let fed = streams.input.map(|pipe| {
            let process = Rc::clone(self);
            spawn_local(async move { process.input.feed(pipe).await })
        });
        if self.is_single {
            let why = format!("process {} is given nothing to read", self.id);
            self.input.close(why);
        }
        let out = output::Pump::start(streams.out, Stream::Out, &self.id, feed);
        let err = output::Pump::start(streams.err, Stream::Err, &self.id, feed);
        let (outcome, was_killed) = self.obey(conversation).await;
        if let Some(fed) = fed {
            fed.abort();
        }
        self.input.close(format!("process {} has exited", self.id));
        output::last_words(&[&out, &err], || self.is_cancelled()).await;
        out.stop_telling();
        err.stop_telling();
        let (exit_code, signal) = match outcome {
            Outcome::Killed(signal) => (128 + signal, Signal::try_from(signal).ok()),
            other => (i32::from(other.exit_code()), None),
        };
        let is_kill = signal == Some(Signal::SIGKILL) && !was_killed;
        let oom_kill_count = u32::from(is_kill && memory_ran_out().await);
        feed.exit(&Exit {
            id: &self.id,
            exit_code,
            signal: signal.map(Signal::as_str),
            oom_kill_count,
        });
        exit_code
    }

    /// Waits for the end, and sends signals meanwhile. Whether it was made to end.
    async fn obey(&self, conversation: &Conversation) -> (Outcome, bool) {
        let mut kill_at: Option<Instant> = None;
        let mut was_killed = false;
        let ended = conversation.ended();
        tokio::pin!(ended);
        loop {
            let late = async {
                match kill_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                outcome = &mut ended => {
                    // A box that is gone has taken the process along.
                    let outcome = outcome.unwrap_or_else(|error| {
                        telling::detail(|| format!("process {}: {error}", self.id));
                        Outcome::Killed(libc::SIGKILL)
                    });
                    return (outcome, was_killed);
                }
                () = late => {
                    // Again until it is gone: a session that has much to do may miss a word.
                    kill_at = Some(Instant::now() + AGAIN);
                    was_killed = true;
                    let _ = conversation.signal(libc::SIGKILL).await;
                }
                () = self.ordered.notified() => {
                    let orders = std::mem::take(&mut *self.orders.borrow_mut());
                    for signal in orders {
                        was_killed |= signal == libc::SIGKILL;
                        let _ = conversation.signal(signal).await;
                        if is_meant_to_end(signal) {
                            let grace = match signal {
                                libc::SIGKILL => AGAIN,
                                _ => self.grace(),
                            };
                            let at = Instant::now() + grace;
                            kill_at = Some(kill_at.map_or(at, |known| known.min(at)));
                        }
                    }
                }
            }
        }
    }
}

fn is_meant_to_end(signal: i32) -> bool {
    [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGABRT,
        libc::SIGKILL,
    ]
    .contains(&signal)
}

/// The number of a signal in any of the app's spellings; none for one that does not exist.
pub(super) fn signal_number(text: &str) -> Option<i32> {
    let upper = text.trim().to_ascii_uppercase();
    if let Ok(number) = upper.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = match upper.starts_with("SIG") {
        true => upper,
        false => format!("SIG{upper}"),
    };
    let signal: Result<Signal, _> = name.parse();
    signal.ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_every_spelling() {
        for text in ["SIGTERM", "term", "sigterm", "15", " TERM "] {
            assert_eq!(signal_number(text), Some(libc::SIGTERM), "{text}");
        }
        assert_eq!(signal_number("KILL"), Some(libc::SIGKILL));
        for text in ["SIGFOO", "", "0", "-9", "65", "SIG"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }
}
