//! Ends the processes below this one where no pid namespace does it.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid};

/// Kills this process's own children and nobody else: their numbers cannot be anybody else's
/// before they are waited for. Who is below them becomes a child in turn, for an adopter of
/// orphans.
pub(super) fn kill_children() {
    for pid in children() {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

pub(super) fn children() -> Vec<Pid> {
    let me = Some(getpid().as_raw());
    let list = fs::read_dir("/proc").into_iter().flatten();
    list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| parent_of(*pid) == me)
        .map(Pid::from_raw)
        .collect()
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

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything, closing ones too.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_whatever_the_name() {
        assert_eq!(
            parent_of(getpid().as_raw()),
            Some(nix::unistd::getppid().as_raw())
        );
        assert_eq!(parent_of(-1), None);
    }
}
