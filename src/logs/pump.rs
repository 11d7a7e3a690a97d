//! From what programs print to the log and to whoever watches, a piece at a time, in a loop that
//! has other things to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::unistd::read;

use super::record::Stream;
use super::store::LogStore;

/// How much is taken from one pipe before others have their turn.
const MOST_PER_TURN: usize = 64 << 10;
const PIECE: usize = 16 << 10;

/// The end of a pipe, or of a terminal, that programs print to.
#[derive(Debug)]
pub struct Pump {
    /// None once every program has closed its end.
    pipe: Option<OwnedFd>,
    stream: Stream,
}

/// How a turn went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The turn is over, and more may be there.
    More,
    /// Everything that was there has been taken.
    NothingNow,
    /// Everything has been taken, and nobody is left to print.
    Ended,
}

impl Pump {
    pub fn new(pipe: OwnedFd, stream: Stream) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&pipe, FcntlArg::F_GETFL)?);
        fcntl(&pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self {
            pipe: Some(pipe),
            stream,
        })
    }

    /// Adds what to poll for; nothing after the end.
    pub fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.extend(self.pipe().map(|pipe| PollFd::new(pipe, PollFlags::POLLIN)));
    }

    /// Takes what is there, within bounds, never waiting: to the log, and to `watching`.
    pub fn progress(
        &mut self,
        store: &mut LogStore,
        watching: &mut dyn FnMut(Stream, &[u8]),
    ) -> io::Result<Heard> {
        let mut piece = [0; PIECE];
        let mut taken = 0;
        while let Some(pipe) = &self.pipe {
            if taken >= MOST_PER_TURN {
                return Ok(Heard::More);
            }
            match read(pipe, &mut piece) {
                // A terminal says EIO when its other side is closed.
                Ok(0) | Err(Errno::EIO) => self.pipe = None,
                Ok(count) => {
                    taken += count;
                    store.write(self.stream, &piece[..count]);
                    watching(self.stream, &piece[..count]);
                }
                Err(Errno::EAGAIN) => return Ok(Heard::NothingNow),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Heard::Ended)
    }

    /// None after the end.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    pub fn stream(&self) -> Stream {
        self.stream
    }
}
