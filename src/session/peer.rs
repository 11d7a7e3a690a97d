//! Who may talk to a supervisor: its own user, and only from where that user's commands are run. A
//! program in a box has its user's number too, and must not get out by asking for a mount.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

use super::talk::Line;

/// Why somebody may not; nothing when they may. `ours` is what a caller is compared with.
pub(super) fn refusal(line: &Line, ours: &Standing) -> Option<&'static str> {
    const STRANGER: &str = "the session is somebody else's";
    const BOXED: &str = "the caller is in a box, or cannot be looked at";
    const CONFINED: &str = "the caller is confined more narrowly than whoever started the session, and could leave \
         its confinement through it";
    let me = nix::unistd::getuid().as_raw();
    let Ok(peer) = line.peer() else {
        return Some(STRANGER);
    };
    if peer.uid() != me && peer.uid() != 0 {
        return Some(STRANGER);
    }
    let theirs = Standing::of(&peer.pid().to_string());
    // Another view of the files, or rights in a user namespace of its own: that is a box, ours or
    // somebody else's. Its paths would not be ours either.
    if theirs.namespaces.is_none() || theirs.namespaces != ours.namespaces {
        return Some(BOXED);
    }
    match (theirs.confinement, ours.confinement) {
        (Some(theirs), Some(ours)) if theirs.is_within(&ours) => {}
        _ => return Some(CONFINED),
    }
    // The number was looked at, and must still have been that of whoever connected.
    match is_still_there(line) {
        true => None,
        false => Some(BOXED),
    }
}

/// Where a process stands.
#[derive(Debug)]
pub(super) struct Standing {
    /// Those of users and of mounts.
    namespaces: Option<[(u64, u64); 2]>,
    confinement: Option<Confinement>,
}

impl Standing {
    /// The supervisor's, which stays what it is: it never leaves a namespace, and is never confined
    /// more narrowly.
    pub(super) fn own() -> Self {
        Self::of("self")
    }

    fn of(pid: &str) -> Self {
        let namespaces = namespace(pid, "user").zip(namespace(pid, "mnt"));
        Self {
            namespaces: namespaces.map(<[_; 2]>::from),
            confinement: Confinement::of(pid),
        }
    }
}

fn namespace(pid: &str, kind: &str) -> Option<(u64, u64)> {
    let found = fs::metadata(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some((found.dev(), found.ino()))
}

/// What the kernel tells of a process that others have walled in.
#[derive(Debug, Clone, Copy)]
struct Confinement {
    no_new_privileges: u64,
    filters: u64,
}

impl Confinement {
    fn of(pid: &str) -> Option<Self> {
        // As long as it can be; the kernel writes all of it anew for every piece that is read.
        let mut status = String::with_capacity(8 << 10);
        let mut file = fs::File::open(format!("/proc/{pid}/status")).ok()?;
        file.read_to_string(&mut status).ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        Some(Self {
            no_new_privileges: field("NoNewPrivs:")?,
            // Kernels before 5.10 do not count; there it is whether there is any.
            filters: field("Seccomp_filters:").or_else(|| field("Seccomp:"))?,
        })
    }

    fn is_within(&self, ours: &Self) -> bool {
        self.no_new_privileges <= ours.no_new_privileges && self.filters <= ours.filters
    }
}

/// Whether the process that connected lives. Kernels before 6.5 cannot be asked: there a number
/// would have to come around again between the call and our answer.
fn is_still_there(line: &Line) -> bool {
    match getsockopt(&line.as_fd(), sockopt::PeerPidfd) {
        Ok(process) => {
            let mut waiting = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            poll(&mut waiting, PollTimeout::ZERO) == Ok(0)
        }
        Err(nix::errno::Errno::ENOPROTOOPT) => true,
        Err(_) => false,
    }
}
