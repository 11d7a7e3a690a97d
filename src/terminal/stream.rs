//! One end of a relay: reads and writes that never wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
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
    /// Other processes share the open file, so that it cannot be made non-blocking.
    shared: bool,
}

/// The most that is written at once to a terminal that might block. A terminal that polls as
/// writable has room for about this much; ^S between the two calls is the risk that remains.
const SHARED_WRITE: usize = 256;

impl Stream {
    /// A descriptor of our own making, which nobody shares.
    pub(super) fn own(fd: OwnedFd) -> io::Result<Self> {
        let flags = OFlag::from_bits_truncate(fcntl(&fd, FcntlArg::F_GETFL)?);
        fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        Ok(Self { fd, shared: false })
    }

    /// A terminal of the caller's. O_NONBLOCK belongs to the open file and not to the descriptor:
    /// set here, the shell would find it set too, and fail to read its next command. So the
    /// terminal is opened once more. That is refused where it belongs to somebody else (`su`);
    /// then it is asked by poll before every step, and given little at a time.
    pub(super) fn caller(fd: BorrowedFd<'_>) -> io::Result<Self> {
        if unistd::isatty(fd).unwrap_or(false)
            && let Ok(fd) = open_again(fd)
        {
            return Ok(Self { fd, shared: false });
        }
        Ok(Self {
            fd: fd.try_clone_to_owned()?,
            shared: true,
        })
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<Moved> {
        if self.shared && !self.is_ready(PollFlags::POLLIN)? {
            return Ok(Moved::NotNow);
        }
        Ok(match outcome(|| unistd::read(&self.fd, buffer))? {
            Moved::Bytes(0) => Moved::Ended,
            moved => moved,
        })
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Moved> {
        if !self.shared {
            return outcome(|| unistd::write(&self.fd, bytes));
        }
        if !self.is_ready(PollFlags::POLLOUT)? {
            return Ok(Moved::NotNow);
        }
        outcome(|| unistd::write(&self.fd, &bytes[..bytes.len().min(SHARED_WRITE)]))
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

fn open_again(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let access = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    Ok(open(path.as_str(), flags, Mode::empty())?)
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
        let stream = Stream {
            fd: pair.slave,
            shared: true,
        };
        let mut written = 0;
        while let Moved::Bytes(count) = stream.write(&[b'\n'; 4096]).unwrap() {
            written += count;
        }
        assert!(written > 0 && written < 1 << 20);
    }
}
