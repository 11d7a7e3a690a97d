//! Gives the caller's terminal back when the launcher no longer can. A launcher that is killed
//! runs nothing any more, and a terminal left raw is unusable; so a process of its own waits for
//! that end, holding nothing but the terminal and a pipe.

use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::signal::SigSet;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, setpgid};

use crate::sys::fds;
use crate::sys::process::{self, Forked, SingleThreaded};

/// Dropped by a launcher that lives, it has nothing to do.
#[derive(Debug)]
pub struct Keeper {
    line: PipeWriter,
    pid: Pid,
}

impl Keeper {
    /// Watches over a terminal whose settings were `before`. To be started after the box, which
    /// must not inherit the pipe.
    pub fn start(terminal: BorrowedFd<'_>, before: &Termios) -> io::Result<Self> {
        let proof = SingleThreaded::prove()?;
        let (wait, line) = io::pipe()?;
        match process::clone_into(&proof, 0)? {
            Forked::Parent { pid, .. } => Ok(Self {
                line,
                pid: Pid::from_raw(pid),
            }),
            Forked::Child => {
                keep(terminal.as_raw_fd(), wait.as_raw_fd(), before);
                process::exit_now(0)
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.line.write_all(b".");
        let _ = waitpid(self.pid, None);
    }
}

fn keep(terminal: i32, wait: i32, before: &Termios) {
    // Not for the signals of the terminal, nor for those to the launcher's group.
    let _ = SigSet::all().thread_block();
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // Whatever else was inherited must end with the launcher: locks, lines, the box's terminal.
    let held = fds::place_at(terminal, 0)
        .and_then(|()| fds::place_at(wait, 1))
        .and_then(|()| fds::close_from(2));
    let mut byte = [0u8; 1];
    let mut released = || nix::unistd::read(fds::standard(1), &mut byte);
    if held.is_err() || released().is_ok_and(|length| length > 0) {
        return;
    }
    // Only what the launcher set is undone: a shell may have the terminal by now, with settings
    // of its own, in which signals are on.
    let terminal = fds::standard(0);
    let ours = LocalFlags::ICANON | LocalFlags::ISIG | LocalFlags::ECHO;
    if tcgetattr(terminal).is_ok_and(|now| !now.local_flags.intersects(ours)) {
        let _ = tcsetattr(terminal, SetArg::TCSANOW, before);
    }
}
