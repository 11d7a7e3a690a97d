//! The side of a command that asks a running session something.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use super::front::Front;
use super::outcome::Outcome;
use super::signals::watch_signals;
use super::talk::{Ask, Line, Packet, Say, Seen};
use super::wish::MountWish;
use super::words::Words;
use super::{changes, socket, supervise};
use crate::limits::Wanted;
use crate::plan::Stdio;
use crate::policy::SessionId;
use crate::sys;

/// How long an answer to a simple question may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The same where a session may have to wait for a folder, and then to take it back.
pub(super) const LONG_PATIENCE: Duration = Duration::from_secs(4 * changes::LONGEST.as_secs());
/// More than a session with all the mounts the kernel allows has to tell.
pub(super) const LONGEST_SEEN: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("cannot reach the session {id}, because {}", unreachable(source))]
    Unreachable { id: SessionId, source: io::Error },
    #[error("cannot do that in the session {id}, because {why}")]
    Refused { id: SessionId, why: String },
    #[error("cannot go on talking to the session {id}")]
    Lost { id: SessionId, source: io::Error },
    #[error("cannot start in {folder}")]
    Folder { folder: String, source: io::Error },
    #[error("cannot connect the program's streams")]
    Streams(#[source] io::Error),
}

fn unreachable(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => "it is not running",
        Some(libc::ECONNREFUSED) => "its supervisor was killed",
        Some(libc::EPERM | libc::EACCES) => "it is somebody else's",
        _ => "its socket does not answer",
    }
}

impl AskError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { source, .. } => match source.raw_os_error() {
                Some(libc::ECONNREFUSED) => {
                    "`cowork-linux gc` clears up after it; the box died with it".into()
                }
                _ => "`cowork-linux ls` lists those that run".into(),
            },
            Self::Refused { .. } => "`cowork-linux inspect` shows the session as it is".into(),
            Self::Lost { .. } => "`cowork-linux ls` shows whether it still runs".into(),
            Self::Folder { .. } => "name a folder in the box: --workdir DIR".into(),
            Self::Streams(_) => "raise the limit on open files: ulimit -n 1024".into(),
        })
    }
}

/// A conversation with one session.
#[derive(Debug)]
pub struct Call {
    id: SessionId,
    line: Line,
}

impl Call {
    pub fn to(runtime: &Path, id: &SessionId) -> Result<Self, AskError> {
        let line = socket::call(runtime, id).map_err(|source| AskError::Unreachable {
            id: id.clone(),
            source,
        })?;
        Ok(Self {
            id: id.clone(),
            line,
        })
    }

    fn lost(&self, source: io::Error) -> AskError {
        AskError::Lost {
            id: self.id.clone(),
            source,
        }
    }

    pub(super) fn ask(&self, ask: &Ask, fds: &[RawFd]) -> Result<(), AskError> {
        match self.line.say(ask, fds) {
            // Turned away before anything could be asked: what was said is still there.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => match self.next() {
                Err(refused @ AskError::Refused { .. }) => Err(refused),
                _ => Err(self.lost(error)),
            },
            done => done.map_err(|error| self.lost(error)),
        }
    }

    /// The next sentence, waited for until then; descriptors that came with it.
    pub(super) fn answer(&self, until: Instant) -> Result<(Say, Vec<OwnedFd>), AskError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut waiting = [PollFd::new(self.line.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, timeout) {
                Ok(0) if left.is_zero() => {
                    return Err(self.lost(io::Error::from_raw_os_error(libc::ETIMEDOUT)));
                }
                Ok(0) | Err(Errno::EINTR) => continue,
                Err(error) => return Err(self.lost(error.into())),
                Ok(_) => {}
            }
            return self.next();
        }
    }

    fn next(&self) -> Result<(Say, Vec<OwnedFd>), AskError> {
        let packet = self.packet()?;
        let say = self.understood(&packet)?;
        Ok((say, packet.fds))
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    pub(super) fn packet(&self) -> Result<Packet, AskError> {
        let packet = match self.line.receive() {
            // Said once when the other side left before it had heard all; what it said comes next.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => self.line.receive(),
            other => other,
        };
        let packet = packet.map_err(|error| self.lost(error))?;
        let gone = || io::Error::from_raw_os_error(libc::ECONNRESET);
        packet.ok_or_else(|| self.lost(gone()))
    }

    pub(super) fn understood(&self, packet: &Packet) -> Result<Say, AskError> {
        match packet.read().map_err(|error| self.lost(error))? {
            Say::Refused { why } => Err(AskError::Refused {
                id: self.id.clone(),
                why,
            }),
            say => Ok(say),
        }
    }

    pub(super) fn send_output(&self, stream: u8, bytes: &[u8]) -> Result<(), AskError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => self
                .line
                .output(stream, bytes)
                .map_err(|error| self.lost(error)),
        }
    }

    pub(super) fn odd(&self) -> AskError {
        self.lost(io::Error::from_raw_os_error(libc::EPROTO))
    }

    pub fn inspect(&self) -> Result<Seen, AskError> {
        self.ask_to_inspect()?;
        self.inspected(Instant::now() + PATIENCE)
    }

    /// The question alone, for those who ask many before they listen.
    pub(super) fn ask_to_inspect(&self) -> Result<(), AskError> {
        self.ask(&Ask::Inspect, &[])
    }

    pub(super) fn inspected(&self, until: Instant) -> Result<Seen, AskError> {
        let (say, fds) = self.answer(until)?;
        let file = fds.into_iter().next().filter(|_| say == Say::Seen);
        let mut file = File::from(file.ok_or_else(|| self.odd())?);
        let mut text = Vec::new();
        let read = file
            .rewind()
            .and_then(|()| file.take(LONGEST_SEEN).read_to_end(&mut text));
        read.map_err(|error| self.lost(error))?;
        serde_json::from_slice(&text).map_err(|error| self.lost(error.into()))
    }

    /// Sends a signal to the session's own program.
    pub fn signal(&self, signal: i32) -> Result<(), AskError> {
        self.ask(&Ask::plain_signal(signal), &[])?;
        match self.answer(Instant::now() + PATIENCE)?.0 {
            Say::Done => Ok(()),
            _ => Err(self.odd()),
        }
    }

    /// Asks the session to end, and waits until it has.
    pub fn stop(&self, grace: Duration) -> Result<(), AskError> {
        let grace_ms = grace.as_millis() as u64;
        let asked = self.ask(&Ask::Stop { grace_ms }, &[]);
        match asked.and_then(|()| self.answer(Instant::now() + grace + PATIENCE)) {
            Ok(_) => {
                // The line is closed when the session's name is free again.
                let _ = self.answer(Instant::now() + PATIENCE);
                Ok(())
            }
            // Gone without a word is gone as well.
            Err(AskError::Lost { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Shows a folder in the session; every process in there sees it when this returns.
    pub fn mount(&self, wish: &MountWish) -> Result<(), AskError> {
        let ask = Ask::mount(wish);
        self.done_within(&ask, LONG_PATIENCE)
    }

    pub fn unmount(&self, name: &str, force: bool) -> Result<(), AskError> {
        let name = name.to_owned();
        self.done_within(&Ask::Unmount { name, force }, LONG_PATIENCE)
    }

    /// What must be known about the new limits, if anything.
    pub fn limit(&self, wanted: &Wanted) -> Result<Option<String>, AskError> {
        let ask = Ask::Limit {
            memory: wanted.memory,
            milli_cpus: wanted.milli_cpus,
            pids: wanted.pids,
            disk: wanted.disk,
            io: wanted.io,
            files: wanted.files,
            idle_ms: wanted.idle.map(|idle| idle.as_millis() as u64),
        };
        self.ask(&ask, &[])?;
        match self.answer(Instant::now() + PATIENCE)?.0 {
            Say::Done => Ok(None),
            Say::Noted { note } => Ok(Some(note)),
            _ => Err(self.odd()),
        }
    }

    pub(super) fn done(&self, ask: &Ask) -> Result<(), AskError> {
        self.done_within(ask, PATIENCE)
    }

    pub(super) fn done_with(&self, ask: &Ask, fd: RawFd) -> Result<(), AskError> {
        self.ask(ask, &[fd])?;
        match self.answer(Instant::now() + PATIENCE)?.0 {
            Say::Done => Ok(()),
            _ => Err(self.odd()),
        }
    }

    fn done_within(&self, ask: &Ask, patience: Duration) -> Result<(), AskError> {
        self.ask(ask, &[])?;
        match self.answer(Instant::now() + patience)?.0 {
            Say::Done => Ok(()),
            _ => Err(self.odd()),
        }
    }

    /// Runs a program in the session, in front of the caller.
    pub fn exec(&self, errand: &Words, stdio: [Stdio; 3]) -> Result<Outcome, AskError> {
        let signals = watch_signals().map_err(AskError::Streams)?;
        let mut front = self.start(errand, stdio)?;
        let mut not_executed = None;
        loop {
            let mut waiting = vec![
                PollFd::new(self.line.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            front.interests(&mut waiting);
            match poll(&mut waiting, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(self.lost(error.into())),
            }
            let is = |number: usize| waiting[number].any() == Some(true);
            let (told, signalled) = (is(0), is(1));
            drop(waiting);
            while signalled && let Ok(Some(signal)) = signals.read_signal() {
                match signal.ssi_signo as i32 {
                    winch if winch == Signal::SIGWINCH as i32 => front.resize(),
                    signal => self.ask(&Ask::plain_signal(signal), &[])?,
                }
            }
            front.progress().map_err(AskError::Streams)?;
            if !told {
                continue;
            }
            match self.next()? {
                (Say::Terminal, fds) => {
                    let master = fds.into_iter().next().ok_or_else(|| self.odd())?;
                    front.take_terminal(master).map_err(AskError::Streams)?;
                }
                (Say::NotExecuted { errno, in_folder }, _) => {
                    if in_folder {
                        front.last_words(Instant::now() + supervise::LAST_WORDS);
                        return Err(AskError::Folder {
                            folder: errand.folder.display().to_string(),
                            source: io::Error::from_raw_os_error(errno),
                        });
                    }
                    not_executed = Some(errno);
                }
                (Say::Ended { status }, _) => {
                    front.last_words(Instant::now() + supervise::LAST_WORDS);
                    return Ok(match not_executed {
                        Some(errno) => Outcome::NotExecuted(errno),
                        None => Outcome::from_status(status),
                    });
                }
                _ => {}
            }
        }
    }

    /// Hands the program over with its streams.
    fn start(&self, words: &Words, stdio: [Stdio; 3]) -> Result<Front, AskError> {
        let made = || -> io::Result<(Front, OwnedFd, [Option<OwnedFd>; 3])> {
            let mut ours = [None, None, None];
            let mut theirs = [None, None, None];
            for (number, kind) in stdio.into_iter().enumerate() {
                match kind {
                    Stdio::Terminal => {}
                    Stdio::Kept => {
                        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
                        let mode = nix::sys::stat::Mode::empty();
                        theirs[number] = Some(nix::fcntl::open("/dev/null", flags, mode)?);
                    }
                    Stdio::Direct => {
                        theirs[number] = Some(sys::fds::duplicate(number as RawFd)?);
                    }
                    Stdio::Copied => {
                        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                        let (mine, its) = match number {
                            0 => (write, read),
                            _ => (read, write),
                        };
                        ours[number] = Some(mine);
                        theirs[number] = Some(its);
                    }
                }
            }
            let mut file = File::from(sys::fds::memory(c"words")?);
            file.write_all(&words.to_bytes())?;
            Ok((Front::new(stdio, &mut ours)?, file.into(), theirs))
        };
        let (front, file, theirs) = made().map_err(AskError::Streams)?;
        let mut fds = vec![file.as_raw_fd()];
        fds.extend(theirs.iter().flatten().map(AsRawFd::as_raw_fd));
        let ask = Ask::Exec {
            terminal: stdio.contains(&Stdio::Terminal),
            streams: [0, 1, 2].map(|number: usize| theirs[number].is_some()),
            confirm: false,
            only_env: false,
        };
        self.ask(&ask, &fds)?;
        match self.answer(Instant::now() + PATIENCE)?.0 {
            Say::Started { .. } => Ok(front),
            _ => Err(self.odd()),
        }
    }
}
