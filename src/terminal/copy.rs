//! Stands between the box and a regular file the caller redirected to or from. The file itself is
//! never handed in: through /proc/self/fd a program could open it again, for writing, or read what
//! lies before the point the caller had reached. The box gets a pipe, and bytes are copied.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{self, Whence};

use super::stream::{Moved, Stream, outcome};
use crate::sys::pipe;

const PIECE: usize = 64 << 10;
/// How many pieces one call moves, so that signals and other streams get their turn.
const PIECES: usize = 16;

/// Copies in one direction. Expects SIGPIPE to be ignored, as Rust programs start.
#[derive(Debug)]
pub struct FileCopy {
    direction: Direction,
    file: OwnedFd,
    /// Our end of the box's pipe; None when this is over. Closing it is how the box learns.
    pipe: Option<Stream>,
    buffer: Box<[u8]>,
    /// What of the buffer has been read and not been written.
    start: usize,
    end: usize,
    /// How much the pipe has been given.
    given: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// By read and write. Splicing would put the very pages of the file's cache into a pipe that
    /// the box can open for writing, and keeping those apart has gone wrong (CVE-2022-0847).
    Inward,
    /// By splice, which copies out of the box's pages into the file.
    OutwardBySplice,
    /// By read and write, for files that refuse: those opened to append (`>>`).
    Outward,
}

impl FileCopy {
    /// From the caller's file to the box; `pipe` is the end to write to.
    pub fn inward(file: OwnedFd, pipe: OwnedFd) -> io::Result<Self> {
        Self::new(Direction::Inward, file, pipe)
    }

    /// From the box to the caller's file; `pipe` is the end to read from.
    pub fn outward(pipe: OwnedFd, file: OwnedFd) -> io::Result<Self> {
        Self::new(Direction::OutwardBySplice, file, pipe)
    }

    fn new(direction: Direction, file: OwnedFd, pipe: OwnedFd) -> io::Result<Self> {
        let (pipe, buffer) = (Some(Stream::own(pipe)?), vec![0; PIECE].into());
        Ok(Self {
            direction,
            file,
            pipe,
            buffer,
            start: 0,
            end: 0,
            given: 0,
        })
    }

    /// Adds what to poll for now. The file is always ready.
    pub fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        let wanted = match self.direction {
            Direction::Inward => PollFlags::POLLOUT,
            Direction::Outward | Direction::OutwardBySplice => PollFlags::POLLIN,
        };
        out.extend(
            self.pipe
                .as_ref()
                .map(|pipe| PollFd::new(pipe.as_fd(), wanted)),
        );
    }

    /// Moves what can be moved without waiting for the box. After a failure, such as a full disk,
    /// the pipe is closed, so that the program does not go on writing into nothing.
    pub fn progress(&mut self) -> io::Result<()> {
        for _ in 0..PIECES {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// One side has reached its end, and everything has been moved.
    pub fn finished(&self) -> bool {
        self.pipe.is_none()
    }

    /// After the program's end: moves what it left in the pipe, then closes. Processes that live
    /// on may hold the pipe open; they are not waited for.
    ///
    /// Inward, the file is set back to before what nobody has read, so that in
    /// `(cowork-linux run a; b) < file` the second command goes on about where the first stopped.
    pub fn drain(&mut self, deadline: Instant) -> io::Result<()> {
        if self.direction != Direction::Inward {
            while self.step()? && Instant::now() < deadline {}
            self.pipe = None;
            return Ok(());
        }
        self.give_back();
        Ok(())
    }

    /// Says whether it is worth trying again at once.
    fn step(&mut self) -> io::Result<bool> {
        let moved = match self.direction {
            Direction::Inward => self.step_inward(),
            Direction::Outward => self.step_outward(),
            Direction::OutwardBySplice => self.step_by_splice(),
        };
        moved.inspect_err(|_| self.pipe = None)
    }

    fn step_inward(&mut self) -> io::Result<bool> {
        let Some(pipe) = &self.pipe else {
            return Ok(false);
        };
        if self.start == self.end {
            match outcome(|| unistd::read(&self.file, &mut self.buffer))? {
                Moved::Bytes(count) if count > 0 => (self.start, self.end) = (0, count),
                _ => {
                    self.pipe = None;
                    return Ok(false);
                }
            }
        }
        match pipe.write(&self.buffer[self.start..self.end]) {
            Ok(Moved::Bytes(count)) => {
                self.start += count;
                self.given += count;
                Ok(true)
            }
            Ok(Moved::NotNow | Moved::Ended) => Ok(false),
            // Nobody reads any more. That is a program's good right, as with `head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.give_back();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn step_outward(&mut self) -> io::Result<bool> {
        let Some(pipe) = &self.pipe else {
            return Ok(false);
        };
        match pipe.read(&mut self.buffer)? {
            Moved::Bytes(count) => {
                let mut rest = &self.buffer[..count];
                while !rest.is_empty() {
                    match outcome(|| unistd::write(&self.file, rest))? {
                        Moved::Bytes(count) if count > 0 => rest = &rest[count..],
                        _ => return Err(io::ErrorKind::WriteZero.into()),
                    }
                }
                Ok(true)
            }
            Moved::NotNow => Ok(false),
            Moved::Ended => {
                self.pipe = None;
                Ok(false)
            }
        }
    }

    fn step_by_splice(&mut self) -> io::Result<bool> {
        let Some(pipe) = &self.pipe else {
            return Ok(false);
        };
        match pipe::splice_out(pipe.as_fd(), self.file.as_fd(), PIECE) {
            Ok(0) => {
                self.pipe = None;
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINTR) => Ok(true),
                Some(Errno::EAGAIN) => Ok(false),
                Some(Errno::EINVAL | Errno::ENOSYS) => {
                    self.direction = Direction::Outward;
                    Ok(true)
                }
                _ => Err(error),
            },
        }
    }

    fn give_back(&mut self) {
        let Some(pipe) = self.pipe.take() else { return };
        // The box can write into its own pipe: it must not get the file set back beyond what was
        // given to it.
        let in_pipe = pipe::unread(pipe.as_fd()).unwrap_or(0).min(self.given);
        let unread = i64::try_from(in_pipe + self.end - self.start).unwrap_or(0);
        // A file that cannot seek has no place to be set back to.
        let _ = unistd::lseek(&self.file, -unread, Whence::SeekCur);
    }
}
