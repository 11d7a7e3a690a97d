//! Ends the processes below this one where no pid namespace does it.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid};

use super::kin::Kin;

/// Kills this process's own children and nobody else: their numbers cannot be anybody else's
/// before they are waited for. Who is below them becomes a child in turn, for an adopter of
/// orphans.
pub(super) fn kill_children() {
    for pid in children() {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

pub(super) fn children() -> Vec<Pid> {
    let me = getpid().as_raw();
    let mut all = Kin::all();
    all.retain(|kin| kin.parent == me);
    all.into_iter().map(|kin| Pid::from_raw(kin.pid)).collect()
}

/// Ends children, and those who become children by that, until only `others` are left: whoever
/// became the launcher by exec may have had children before.
pub(super) fn end_children(others: &[Pid]) {
    loop {
        let mut left = children();
        left.retain(|pid| !others.contains(pid));
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill(pid, Signal::SIGKILL);
            while waitpid(pid, None) == Err(Errno::EINTR) {}
        }
    }
}
