//! A session that lives as long as somebody holds it open: the other end of a pipe or a socket.
//! Whoever dies lets go, however it dies, so nothing has to be asked and nothing can be forgotten.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::{SFlag, fstat};

use super::supervise::Life;
use crate::policy::Isolation;
use crate::sandbox::Running;
use crate::sys;

/// Our end of what holds a session open.
#[derive(Debug)]
pub struct HeldOpen(OwnedFd);

impl HeldOpen {
    /// Takes over a descriptor of the caller's; or why it cannot be what was meant.
    pub fn by(number: RawFd) -> Result<Self, String> {
        if (0..3).contains(&number) {
            return Err(format!(
                "{number} is a standard stream, which is the program's"
            ));
        }
        let end = sys::fds::take(number)
            .map(OwnedFd::from)
            .map_err(|_| format!("no descriptor {number} is open here"))?;
        // At once: no other program that is started from here on may keep it.
        sys::fds::close_on_exec(&[number]);
        let unknown = |error: Errno| format!("descriptor {number} cannot be looked at: {error}");
        let found = fstat(&end).map_err(unknown)?;
        match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFIFO => check_pipe(&end, (found.st_dev, found.st_ino))?,
            SFlag::S_IFSOCK => check_socket(&end)?,
            _ => {
                return Err(format!(
                    "descriptor {number} is neither a pipe nor a socket"
                ));
            }
        }
        let held = Self(end);
        match held.is_let_go() {
            true => Err(format!(
                "the other end of descriptor {number} is closed already"
            )),
            false => Ok(held),
        }
    }

    /// What to wait for: not for words, only for the other end to be closed.
    pub(super) fn interest(&self) -> PollFd<'_> {
        PollFd::new(self.0.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP))
    }

    fn is_let_go(&self) -> bool {
        let mut waiting = [self.interest()];
        loop {
            match poll(&mut waiting, PollTimeout::ZERO) {
                Err(Errno::EINTR) => {}
                other => return other != Ok(0),
            }
        }
    }
}

/// A pipe whose other end this process has as well would never be let go of.
fn check_pipe(end: &OwnedFd, pipe: (u64, u64)) -> Result<(), String> {
    const BOTH: &str = "this process would hold its other end itself";
    let mode = |fd: RawFd| {
        let fd = sys::fds::duplicate(fd).ok()?;
        let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL).ok()?);
        Some(flags & OFlag::O_ACCMODE)
    };
    let own = mode(end.as_raw_fd());
    if own == Some(OFlag::O_RDWR) {
        return Err(BOTH.to_owned());
    }
    let list = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_other_end = |number: &RawFd| {
        let Ok(copy) = sys::fds::duplicate(*number) else {
            return false;
        };
        let is_same = fstat(&copy).is_ok_and(|found| (found.st_dev, found.st_ino) == pipe);
        is_same && mode(*number) != own
    };
    match numbers.into_iter().any(|number| is_other_end(&number)) {
        true => Err(BOTH.to_owned()),
        false => Ok(()),
    }
}

/// Only a connection of two has an other end that is closed one day.
fn check_socket(end: &OwnedFd) -> Result<(), String> {
    let unknown = |error: Errno| format!("it cannot be looked at: {error}");
    let kind = getsockopt(end, sockopt::SockType).map_err(unknown)?;
    let listens = getsockopt(end, sockopt::AcceptConn).map_err(unknown)?;
    match kind {
        SockType::Stream | SockType::SeqPacket if !listens => Ok(()),
        _ => Err("it is a socket, but no end of a connection".to_owned()),
    }
}

impl Life<'_> {
    /// Ends the box at once: nobody is left who wants it.
    pub(super) fn let_go(&mut self, running: &Running) -> io::Result<()> {
        if self.held_open.take().is_none() {
            return Ok(());
        }
        self.is_let_go = true;
        self.diary.let_go();
        match self.plan.isolation {
            Isolation::Namespaces => running.kill(),
            // Its first process ends everybody, also where no program of its own runs.
            Isolation::Landlock => running.stop().or_else(|_| running.kill()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn only_an_end_of_something_with_two_ends_will_do() {
        let why = |number: RawFd| HeldOpen::by(number).unwrap_err();
        assert!(why(1).contains("standard stream"));
        assert!(why(-1).contains("is open here"));
        assert!(why(1 << 20).contains("is open here"));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(why(file.into_raw_fd()).contains("neither a pipe nor a socket"));
        let (alone, _other) = UnixDatagram::pair().unwrap();
        assert!(why(alone.into_raw_fd()).contains("no end of a connection"));
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        assert!(why(listener.into_raw_fd()).contains("no end of a connection"));
        let (read, _write) = std::io::pipe().unwrap();
        assert!(why(read.into_raw_fd()).contains("hold its other end itself"));
        let (read, write) = std::io::pipe().unwrap();
        drop(write);
        assert!(why(read.into_raw_fd()).contains("closed already"));
    }

    #[test]
    fn words_do_not_count_and_the_end_does() {
        use std::io::Write;
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let held = HeldOpen::by(ours.into_raw_fd()).unwrap();
        theirs.write_all(b"anything").unwrap();
        assert!(!held.is_let_go());
        drop(theirs);
        assert!(held.is_let_go());
    }
}
