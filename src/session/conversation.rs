//! A conversation with a running session, for those who serve many at once and may wait for none.

use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, connect, socketpair};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{sleep, timeout};

use super::client::{AskError, LONG_PATIENCE, LONGEST_SEEN, PATIENCE};
use super::outcome::Outcome;
use super::socket;
use super::talk::{Ask, Line, Packet, Say, Seen};
use super::wish::MountWish;
use super::words::Words;
use crate::policy::SessionId;
use crate::policy::egress::Rules;
use crate::sys;

/// When to knock again where many wait at the door, and how often.
const AGAIN: Duration = Duration::from_millis(5);
const TRIES: usize = 200;

/// Why a program does not run.
#[derive(Debug)]
pub enum NotRun {
    /// It was not even tried.
    Asked(AskError),
    /// The kernel's reason not to execute it.
    Program(i32),
    /// The kernel's reason not to start where it was to start.
    Folder(i32),
}

impl From<AskError> for NotRun {
    fn from(error: AskError) -> Self {
        Self::Asked(error)
    }
}

/// One line to one session. A program that was started over it ends with it.
#[derive(Debug)]
pub struct Conversation {
    id: SessionId,
    /// Packets in order, which a datagram socket's calls are right for.
    line: Line<UnixDatagram>,
}

impl Conversation {
    pub async fn with(runtime: &Path, id: &SessionId) -> Result<Self, AskError> {
        let unreachable = |source: io::Error| AskError::Unreachable {
            id: id.clone(),
            source,
        };
        let line = call(runtime, id).await.map_err(unreachable)?;
        let id = id.clone();
        Ok(Self { id, line })
    }

    /// One more line to the same session, brought there over this one: nobody is looked at again, and
    /// it stays open however long nothing is said.
    pub async fn another(&self) -> Result<Self, AskError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
        let (ours, theirs) = pair.map_err(|error| AskError::Streams(error.into()))?;
        let along = [theirs.as_raw_fd()];
        self.within(PATIENCE, self.ask(&Ask::Line, &along)).await?;
        let ours = UnixDatagram::from_std(ours.into()).map_err(AskError::Streams)?;
        Ok(Self {
            id: self.id.clone(),
            line: Line::new(ours),
        })
    }

    fn lost(&self, source: io::Error) -> AskError {
        let id = self.id.clone();
        AskError::Lost { id, source }
    }

    fn odd(&self) -> AskError {
        self.lost(io::Error::from_raw_os_error(libc::EPROTO))
    }

    async fn ask(&self, ask: &Ask, fds: &[RawFd]) -> Result<(), AskError> {
        let say = || self.line.say(ask, fds);
        match self.line.socket().async_io(Interest::WRITABLE, say).await {
            // Turned away before anything could be asked: what was said is still there.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => match self.next().await {
                Err(refused @ AskError::Refused { .. }) => Err(refused),
                _ => Err(self.lost(error)),
            },
            said => said.map_err(|error| self.lost(error)),
        }
    }

    async fn packet(&self) -> Result<Packet, AskError> {
        let receive = || self.line.receive();
        let receive = || self.line.socket().async_io(Interest::READABLE, receive);
        let received = match receive().await {
            // Said once when the other side left before it had heard all; what it said comes next.
            Err(error) if error.raw_os_error() == Some(libc::ECONNRESET) => receive().await,
            other => other,
        };
        let gone = || io::Error::from_raw_os_error(libc::ECONNRESET);
        let packet = received.map_err(|error| self.lost(error))?;
        packet.ok_or_else(|| self.lost(gone()))
    }

    async fn next(&self) -> Result<(Say, Vec<OwnedFd>), AskError> {
        let packet = self.packet().await?;
        match packet.read().map_err(|error| self.lost(error))? {
            Say::Refused { why } => Err(AskError::Refused {
                id: self.id.clone(),
                why,
            }),
            say => Ok((say, packet.fds)),
        }
    }

    async fn within<T>(
        &self,
        patience: Duration,
        what: impl Future<Output = Result<T, AskError>>,
    ) -> Result<T, AskError> {
        let late = || self.lost(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        timeout(patience, what).await.map_err(|_| late())?
    }

    async fn done_within(&self, ask: &Ask, patience: Duration) -> Result<(), AskError> {
        let answered = async {
            self.ask(ask, &[]).await?;
            self.next().await
        };
        match self.within(patience, answered).await?.0 {
            Say::Done => Ok(()),
            _ => Err(self.odd()),
        }
    }

    /// Starts a program with these variables and no others; it runs when this returns.
    pub async fn exec(&self, words: &Words, streams: &[OwnedFd; 3]) -> Result<(), NotRun> {
        let file = || -> io::Result<File> {
            let mut file = File::from(sys::fds::memory(c"words")?);
            file.write_all(&words.to_bytes())?;
            Ok(file)
        };
        let file = file().map_err(AskError::Streams)?;
        let mut fds = vec![file.as_raw_fd()];
        fds.extend(streams.iter().map(AsRawFd::as_raw_fd));
        let ask = Ask::Exec {
            terminal: false,
            streams: [true; 3],
            confirm: true,
            only_env: true,
        };
        self.within(PATIENCE, self.ask(&ask, &fds)).await?;
        loop {
            match self.within(LONG_PATIENCE, self.next()).await?.0 {
                Say::Started { .. } => {}
                Say::Executed => return Ok(()),
                Say::NotExecuted { errno, in_folder } => {
                    return Err(match in_folder {
                        true => NotRun::Folder(errno),
                        false => NotRun::Program(errno),
                    });
                }
                _ => return Err(self.odd().into()),
            }
        }
    }

    /// How the program that was started over this line ended, once it has.
    pub async fn ended(&self) -> Result<Outcome, AskError> {
        loop {
            if let Say::Ended { status } = self.next().await?.0 {
                return Ok(Outcome::from_status(status));
            }
        }
    }

    /// Sends a signal to the program that was started over this line and to all that came of it.
    pub async fn signal(&self, signal: i32) -> Result<(), AskError> {
        let subtree = true;
        let ask = Ask::Signal { signal, subtree };
        self.within(PATIENCE, self.ask(&ask, &[])).await
    }

    /// Shows a folder in the session; every process in there sees it when this returns.
    pub async fn mount(&self, wish: &MountWish) -> Result<(), AskError> {
        self.done_within(&Ask::mount(wish), LONG_PATIENCE).await
    }

    pub async fn unmount(&self, name: &str, force: bool) -> Result<(), AskError> {
        let name = name.to_owned();
        let ask = Ask::Unmount { name, force };
        self.done_within(&ask, LONG_PATIENCE).await
    }

    /// These hosts from now on, and no others.
    pub async fn rules(&self, rules: &Rules) -> Result<(), AskError> {
        let rules = rules.clone();
        self.done_within(&Ask::Rules { rules }, PATIENCE).await
    }

    /// Another value for a secret that the session was started with.
    pub async fn secret(&self, name: &str, value: &str) -> Result<(), AskError> {
        let file = || -> io::Result<File> {
            let mut file = File::from(sys::fds::memory(c"value")?);
            file.write_all(value.as_bytes())?;
            Ok(file)
        };
        let file = file().map_err(AskError::Streams)?;
        let name = name.to_owned();
        let answered = async {
            self.ask(&Ask::Secret { name }, &[file.as_raw_fd()]).await?;
            self.next().await
        };
        match self.within(PATIENCE, answered).await?.0 {
            Say::Done => Ok(()),
            _ => Err(self.odd()),
        }
    }

    pub async fn inspect(&self) -> Result<Seen, AskError> {
        let answered = async {
            self.ask(&Ask::Inspect, &[]).await?;
            self.next().await
        };
        let (say, fds) = self.within(PATIENCE, answered).await?;
        let file = fds.into_iter().next().filter(|_| say == Say::Seen);
        let mut file = File::from(file.ok_or_else(|| self.odd())?);
        let mut text = Vec::new();
        let read = file
            .rewind()
            .and_then(|()| file.take(LONGEST_SEEN).read_to_end(&mut text));
        read.map_err(|error| self.lost(error))?;
        serde_json::from_slice(&text).map_err(|error| self.lost(error.into()))
    }

    /// Asks the session to end, and waits until it has.
    pub async fn stop(&self, grace: Duration) -> Result<(), AskError> {
        let grace_ms = grace.as_millis() as u64;
        let over = async {
            self.ask(&Ask::Stop { grace_ms }, &[]).await?;
            // The line is closed when the session's name is free again.
            loop {
                self.next().await?;
            }
        };
        match self.within(grace + PATIENCE, over).await {
            Ok(()) => Ok(()),
            // Gone without a word is gone as well.
            Err(AskError::Lost { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

async fn call(runtime: &Path, id: &SessionId) -> io::Result<Line<UnixDatagram>> {
    let ours = socket::new()?;
    let at = socket::address(runtime, id)?;
    let mut tries = 0;
    loop {
        match connect(ours.as_raw_fd(), &at.address) {
            // Nothing tells when there is room at the door.
            Err(Errno::EAGAIN) if tries < TRIES => tries += 1,
            done => {
                done?;
                break;
            }
        }
        sleep(AGAIN).await;
    }
    let ours = UnixDatagram::from_std(ours.into())?;
    socket::of_this_user(Line::new(ours))
}
