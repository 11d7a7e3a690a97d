//! The signals that somebody in front of a program is told, for the program.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys;

const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Takes them from here on; those that were ignored on purpose stay so.
pub(super) fn watch_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in PASSED_ON.into_iter().chain([Signal::SIGWINCH]) {
        // Under nohup and the like a signal is ignored on purpose.
        if !sys::kernel::is_ignored(signal as i32) {
            set.add(signal);
        }
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}
