//! One end of a relay: reads and writes that never wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::sys::termios;
use nix::unistd;

/// What came of an attempt to read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Bytes(usize),
    NotNow,
    /// End of file.
    Ended,
}

#[derive(Debug)]
pub(super) struct Stream {
    fd: OwnedFd,
    /// Other processes share the open file, so that it cannot be made non-blocking; this is how
    /// much may be written to it at once.
    shared: Option<usize>,
}

/// The most that is written at once where a write might block. A pipe that polls as writable takes
/// this much; a terminal only promises room for something, and waits for the rest.
const TO_SHARED_PIPE: usize = 4096;
const TO_SHARED_TERMINAL: usize = 1;

impl Stream {
    /// A descriptor of our own making, which nobody shares.
    pub(super) fn own(fd: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { fd, shared: None })
    }

    /// A terminal of the caller's. O_NONBLOCK belongs to the open file and not to the descriptor:
    /// set here, the shell would find it set too, and fail to read its next command. So the
    /// terminal is opened once more. Where even that is refused, it is asked by poll before every
    /// step and given as little at a time as cannot block; slow, but ^S does not freeze us.
    pub(super) fn caller(fd: BorrowedFd<'_>) -> io::Result<Self> {
        if !unistd::isatty(fd).unwrap_or(false) {
            return Ok(Self {
                fd: fd.try_clone_to_owned()?,
                shared: Some(TO_SHARED_PIPE),
            });
        }
        match open_again(fd) {
            Ok(fd) => Ok(Self { fd, shared: None }),
            Err(_) => Ok(Self {
                fd: fd.try_clone_to_owned()?,
                shared: Some(TO_SHARED_TERMINAL),
            }),
        }
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        if self.shared.is_some() && !self.is_ready(PollFlags::POLLIN)? {
            return Ok(Moved::NotNow);
        }
        Ok(match outcome(|| unistd::read(&self.fd, buffer))? {
            Moved::Bytes(0) => Moved::Ended,
            moved => moved,
        })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Moved> {
        let most = match self.shared {
            None => bytes.len(),
            Some(most) if self.is_ready(PollFlags::POLLOUT)? => most.min(bytes.len()),
            Some(_) => return Ok(Moved::NotNow),
        };
        outcome(|| unistd::write(&self.fd, &bytes[..most]))
    }

    /// Whether the other side is gone for good.
    pub(super) fn is_hung_up(&self) -> bool {
        self.state(PollFlags::empty())
            .is_ok_and(|state| state.contains(PollFlags::POLLHUP))
    }

    fn is_ready(&self, wanted: PollFlags) -> io::Result<bool> {
        Ok(!self.state(wanted)?.is_empty())
    }

    fn state(&self, wanted: PollFlags) -> io::Result<PollFlags> {
        let mut asked = [PollFd::new(self.fd.as_fd(), wanted)];
        outcome(|| poll(&mut asked, PollTimeout::ZERO).map(|_| 0))?;
        Ok(asked[0].revents().unwrap_or(PollFlags::empty()))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The terminal as a new open file. Its node belongs to whoever logged in, which after `su` is
/// somebody else; /dev/tty is everybody's, but only ever the terminal of one's own session.
fn open_again(fd: BorrowedFd<'_>) -> nix::Result<OwnedFd> {
    let access = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path.as_str(), flags, Mode::empty()).or_else(|errno| {
        let session = unistd::getsid(None)?;
        if termios::tcgetsid(fd) != Ok(session) {
            return Err(errno);
        }
        open("/dev/tty", flags, Mode::empty())
    })
}

/// Calls again after a signal, and tells "not now" from failure.
pub(super) fn outcome(mut call: impl FnMut() -> nix::Result<usize>) -> io::Result<Moved> {
    loop {
        match call() {
            Ok(count) => return Ok(Moved::Bytes(count)),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(Moved::NotNow),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    #[test]
    fn a_shared_terminal_that_nobody_reads_is_not_waited_for() {
        let pair = openpty(None, None).unwrap();
        let mut raw = termios::tcgetattr(&pair.slave).unwrap();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(&pair.slave, termios::SetArg::TCSANOW, &raw).unwrap();
        let stream = Stream {
            fd: pair.slave,
            shared: Some(TO_SHARED_TERMINAL),
        };
        let mut written = 0;
        while let Moved::Bytes(count) = stream.write(&[b'\n'; 4096]).unwrap() {
            written += count;
        }
        assert!(written > 0 && written < 1 << 20);
    }
}
