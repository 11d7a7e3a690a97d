//! What a supervisor waits for.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use super::control::Control;
use super::holder::HeldOpen;
use super::supervise::Life;
use crate::sandbox::Running;

/// What a supervisor was woken by.
#[derive(Debug, Default)]
pub(super) struct Woken {
    pub(super) told: bool,
    pub(super) signalled: bool,
    /// Nobody holds the session open any more.
    pub(super) let_go: bool,
    /// Who asks something, by place.
    pub(super) asked: Vec<bool>,
}

impl Life<'_> {
    /// Waits until there is something to do.
    pub(super) fn wait(&mut self, running: &Running, signals: &SignalFd) -> io::Result<Woken> {
        let mut waiting = Vec::with_capacity(8);
        waiting.push(PollFd::new(running.line(), PollFlags::POLLIN));
        waiting.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
        if let Some(control) = &self.control {
            control.interests(&mut waiting);
        }
        let asking = self.control.as_ref().map_or(0, Control::count);
        let behind_until = self.control.as_ref().and_then(Control::behind_until);
        self.front.interests(&mut waiting);
        if let Some(outputs) = &self.outputs {
            outputs.interests(&mut waiting, behind_until.is_some());
        }
        self.limits.interests(&mut waiting);
        self.network.interests(&mut waiting);
        self.changes.interests(&mut waiting);
        waiting.extend(self.held_open.iter().map(HeldOpen::interest));
        let next = [
            self.ask_at,
            self.end_at,
            behind_until,
            self.limits.wake_at(),
            self.changes.wake_at(),
            self.control.as_ref().and_then(Control::wake_at),
        ];
        let next = next.into_iter().flatten().min();
        let timeout = next.map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut waiting, timeout) {
            Ok(_) => {
                let is = |fd: &PollFd<'_>| fd.any() == Some(true);
                // A flag that nix has no name for, as when a socket's other end is closed, makes it none.
                let is_closed = |fd: &PollFd<'_>| fd.any() != Some(false);
                Ok(Woken {
                    told: is(&waiting[0]),
                    signalled: is(&waiting[1]),
                    let_go: self.held_open.is_some() && waiting.last().is_some_and(is_closed),
                    asked: waiting[2..2 + asking].iter().map(is).collect(),
                })
            }
            Err(Errno::EINTR) => Ok(Woken::default()),
            Err(error) => Err(error.into()),
        }
    }
}
