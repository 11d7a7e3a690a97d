//! A terminal from the box's own set, fitted to the caller's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, unlockpt};
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};

use super::wire::{Message, Wire};
use crate::plan::{Plan, Stdio};
use crate::sys;
use crate::sys::tty::Size;

/// Before the program can look at it: the caller's size, and no second echo or line ending where
/// the caller's terminal stays as it is.
fn fit_to_callers(plan: &Plan, master: BorrowedFd<'_>) -> io::Result<()> {
    let is = |number: usize| plan.stdio[number] == Stdio::Terminal;
    let callers = (0..3).find(|number| is(*number));
    let callers = callers.map(|n| sys::tty::size(sys::fds::standard(n as i32)));
    // Nobody sits there yet: what programs take for a terminal when they are not told.
    let usual = Size {
        rows: 24,
        columns: 80,
        width: 0,
        height: 0,
    };
    sys::tty::set_size(master, callers.and_then(Result::ok).unwrap_or(usual))?;
    if !(is(0) && is(1)) {
        let mut modes = tcgetattr(master)?;
        modes.local_flags.remove(LocalFlags::ECHO);
        modes.output_flags.remove(OutputFlags::OPOST);
        tcsetattr(master, SetArg::TCSANOW, &modes)?;
    }
    Ok(())
}

/// Opens a terminal from the box's own set and hands the other end to the launcher.
pub(super) fn own_terminal(plan: &Plan, wire: &Wire, slot: &mut Option<OwnedFd>) -> io::Result<()> {
    if !plan.stdio.contains(&Stdio::Terminal) {
        return Ok(());
    }
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    fit_to_callers(plan, master.as_fd())?;
    let name = nix::pty::ptsname_r(&master)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    *slot = Some(nix::fcntl::open(name.as_str(), flags, Mode::empty())?);
    let master = sys::fds::duplicate(std::os::fd::AsRawFd::as_raw_fd(&master))?;
    wire.send(&Message::Terminal(master))
}
