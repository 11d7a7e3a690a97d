//! The signals that somebody in front of a program is told, for the program.

use std::io;
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::supervise::{GRACE, Life};
use crate::sandbox::Running;
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

impl Life<'_> {
    /// Does with a signal what it is meant for: most are the program's.
    pub(super) fn pass_on(&mut self, running: &Running, signal: i32) {
        if signal == Signal::SIGWINCH as i32 {
            self.front.resize();
            return;
        }
        if signal == Signal::SIGCONT as i32 && std::mem::take(&mut self.is_woken) {
            // A second one could undo a ^Z that was typed meanwhile.
            return;
        }
        let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].map(|it| it as i32);
        if !self.has_program && ends.contains(&signal) {
            // There is no program to pass it on to: it is meant for the box that stayed.
            return self.stop(running, GRACE.as_millis() as u64);
        }
        if signal == Signal::SIGHUP as i32 && self.end_at.is_none() {
            self.end_at = Some(Instant::now() + GRACE);
        }
        let _ = running.signal(signal);
    }
}
