//! The caller's terminal: raw while the box has it, and exactly as it was before and after.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use nix::sys::termios::{self, FlushArg, SetArg, Termios};
use nix::unistd;

use super::keeper::Keeper;
use crate::sys::tty::{self, Size};

/// Raw mode for as long as this value lives. The program inside has its own line discipline; were
/// this one on as well, everything would be echoed twice and ^C would end the launcher.
#[derive(Debug)]
pub struct OuterTerminal {
    terminal: OwnedFd,
    before: Termios,
    raw: bool,
    /// Does the same when this process is killed.
    keeper: Option<Keeper>,
}

impl OuterTerminal {
    /// Remembers the settings of a terminal and makes it raw.
    pub fn take(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let mut outer = Self::look_at(terminal)?;
        outer.make_raw()?;
        Ok(outer)
    }

    /// The same, with the terminal given back even if this process is killed.
    pub fn take_and_survive(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        let mut outer = Self::look_at(terminal)?;
        outer.keeper = Some(Keeper::start(terminal, &outer.before)?);
        outer.make_raw()?;
        Ok(outer)
    }

    fn look_at(terminal: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            terminal: terminal.try_clone_to_owned()?,
            before: termios::tcgetattr(terminal)?,
            raw: false,
            keeper: None,
        })
    }

    /// Gives the terminal back for a while, as when the program inside has been stopped with ^Z.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.restore()
    }

    /// Takes the terminal again. Says false, and leaves it alone, if the shell has kept it (`bg`):
    /// then the launcher should stop again.
    pub fn resume(&mut self) -> io::Result<bool> {
        if !self.is_foreground() {
            return Ok(false);
        }
        if !self.raw {
            // The shell or the user may have changed it meanwhile.
            self.before = termios::tcgetattr(&self.terminal)?;
            self.make_raw()?;
        }
        Ok(true)
    }

    pub fn size(&self) -> io::Result<Size> {
        tty::size(self.terminal.as_fd())
    }

    /// Whether this process may use the terminal now. One that is nobody's may be used by all.
    pub fn is_foreground(&self) -> bool {
        unistd::tcgetpgrp(&self.terminal).map_or(true, |group| group == unistd::getpgrp())
    }

    fn make_raw(&mut self) -> io::Result<()> {
        let mut raw = self.before.clone();
        termios::cfmakeraw(&mut raw);
        set(&self.terminal, &raw)?;
        self.raw = true;
        Ok(())
    }

    /// Unread input is thrown away: answers to questions that the box put to the terminal would
    /// otherwise be typed into the shell.
    fn restore(&mut self) -> io::Result<()> {
        if !self.raw {
            return Ok(());
        }
        // A background process that touches the settings is stopped by SIGTTOU, unless it blocks
        // it. Here stopping would mean never to give the terminal back.
        let unblocked = block(Signal::SIGTTOU)?;
        let restored = set(&self.terminal, &self.before)
            .and_then(|()| Ok(termios::tcflush(&self.terminal, FlushArg::TCIFLUSH)?));
        pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&unblocked), None)?;
        self.raw = false;
        restored
    }
}

impl Drop for OuterTerminal {
    fn drop(&mut self) {
        // A terminal that has hung up needs no settings, and nobody is left to be told.
        let _ = self.restore();
    }
}

/// Never waits for output to drain: a terminal whose other side does not read would hold us for ever.
fn set(terminal: &OwnedFd, settings: &Termios) -> io::Result<()> {
    loop {
        match termios::tcsetattr(terminal, SetArg::TCSANOW, settings) {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

fn block(signal: Signal) -> io::Result<SigSet> {
    let mut before = SigSet::empty();
    let mut wanted = SigSet::empty();
    wanted.add(signal);
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&wanted), Some(&mut before))?;
    Ok(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use nix::sys::termios::{LocalFlags, tcgetattr};
    use nix::unistd::pipe;

    #[test]
    fn the_terminal_is_raw_while_taken_and_as_before_afterwards() {
        let pair = openpty(None, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let mut outer = OuterTerminal::take(pair.slave.as_fd()).unwrap();
        let is_raw = || {
            !tcgetattr(&pair.slave)
                .unwrap()
                .local_flags
                .contains(LocalFlags::ICANON)
        };
        assert!(is_raw());
        outer.suspend().unwrap();
        assert_eq!(tcgetattr(&pair.slave).unwrap(), before);
        assert!(outer.resume().unwrap() && is_raw());
        drop(outer);
        assert_eq!(tcgetattr(&pair.slave).unwrap(), before);
    }

    #[test]
    fn what_is_no_terminal_cannot_be_taken() {
        let (end, _other) = pipe().unwrap();
        assert!(OuterTerminal::take(end.as_fd()).is_err());
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let pair = openpty(None, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let caught = std::panic::catch_unwind(|| {
            let _outer = OuterTerminal::take(pair.slave.as_fd()).unwrap();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(caught.is_err());
        assert_eq!(tcgetattr(&pair.slave).unwrap(), before);
    }
}
