//! One process as /proc shows it: who it is, who gave birth to it, and in which session it is.

use std::fs;
use std::os::fd::AsFd;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::sys;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kin {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) session: i32,
    /// With the number this tells processes apart: a number can be another's later.
    pub(super) started: u64,
    state: char,
}

impl Kin {
    pub(super) fn look(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may hold anything, closing ones too.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: number(1)?,
            session: number(3)?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Everybody who is there.
    pub(super) fn all() -> Vec<Self> {
        let list = fs::read_dir("/proc").into_iter().flatten();
        list.filter_map(|entry| Self::look(entry.ok()?.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    pub(super) fn is_living(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// It cannot give birth before somebody lets it go on. One that waits in the kernel, for a disk
    /// or for a child that is on its way to exec, will be stopped before it runs again.
    pub(super) fn is_held(&self) -> bool {
        !self.is_living() || matches!(self.state, 'T' | 't' | 'D')
    }

    /// Signals exactly the process that was seen: if its number still is the same process after
    /// the descriptor was opened, then so is the descriptor. `is_enough` says that no number can
    /// mean a stranger, for filters that do not allow such descriptors.
    pub(super) fn signal(&self, signal: Signal, is_enough: bool) {
        let opened = sys::limits::open_process(self.pid);
        if Self::look(self.pid).is_none_or(|now| now.started != self.started) {
            return;
        }
        match opened {
            Ok(process) => drop(sys::process::signal(process.as_fd(), signal as i32)),
            Err(_) if is_enough => drop(kill(Pid::from_raw(self.pid), signal)),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_whatever_its_name() {
        let me = Kin::look(nix::unistd::getpid().as_raw()).unwrap();
        assert_eq!(me.parent, nix::unistd::getppid().as_raw());
        let session = nix::unistd::getsid(None).unwrap();
        assert_eq!(me.session, session.as_raw());
        assert!(me.is_living() && me.started > 0);
        assert_eq!(Kin::look(-1), None);
        assert!(
            Kin::all()
                .iter()
                .any(|kin| kin.pid == me.pid && kin.started == me.started)
        );
    }
}
