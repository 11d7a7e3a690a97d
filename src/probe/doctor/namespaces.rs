//! Tries what the launcher does first: the full set of namespaces, and one use of each right that
//! it brings, because some hosts give the namespace and keep the rights.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use nix::mount::{MsFlags, mount as mount_by_path};
use nix::unistd::sethostname;

use super::child::{Tried, attempt};
use super::evidence::Evidence;
use super::explain::explain;
use super::remedy::Remedy;
use super::{Row, State, Wanted, unless};
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_EXEC, ATTR_NO_SETUID};
use crate::sys::net::loopback_up;
use crate::sys::process::SingleThreaded;

const ALL: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// The row, and whether other attempts may build on namespaces.
pub(super) fn row(proof: &SingleThreaded, evidence: &Evidence, wanted: &Wanted) -> (Row, bool) {
    let name = "user namespaces";
    let work = || {
        let at = |stage| move |error| (stage, error);
        map_user(evidence).map_err(at(1))?;
        private_mounts().map_err(at(2))?;
        tmpfs_over_root().map_err(at(3))?;
        sethostname("doctor").map_err(|error| (4, error.into()))?;
        loopback_up().map_err(at(5))?;
        Ok(0)
    };
    match attempt(proof, ALL, &work) {
        Tried::Worked(_) => {
            let found = "all seven work: user, mount, pid, net, ipc, uts, cgroup";
            let means = "the box has its own files, processes, network and names";
            (Row::new(name, State::Good, found, means), true)
        }
        Tried::Failed { stage, error } => {
            let cause = explain(evidence, stage, error.raw_os_error().unwrap_or(0));
            let state = unless(wanted.namespaces);
            let means = match state {
                State::Missing => "no box can be built",
                _ => "no box of its own; the policy asks for `isolation = \"landlock\"`",
            };
            let row = Row::new(name, state, cause.found, means).fix(cause.remedy);
            (row, false)
        }
    }
}

/// A container covers parts of its /proc, and the kernel then gives nobody in it a whole one.
pub(super) fn proc(
    proof: &SingleThreaded,
    evidence: &Evidence,
    wanted: &Wanted,
    namespaces_work: bool,
) -> Row {
    let name = "private /proc";
    if !namespaces_work {
        return not_tried(name);
    }
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    let work = || {
        map_user(evidence).map_err(|error| (1, error))?;
        let attributes = ATTR_NO_SETUID | ATTR_NO_DEVICES | ATTR_NO_EXEC;
        mount::new_filesystem(c"proc", &[], attributes).map_err(|error| (2, error))?;
        Ok(0)
    };
    match attempt(proof, namespaces, &work) {
        Tried::Worked(_) => Row::new(
            name,
            State::Good,
            "can be mounted",
            "programs inside see only each other",
        ),
        Tried::Failed { error, .. } if error.raw_os_error() == Some(libc::EPERM) => Row::new(
            name,
            unless(wanted.namespaces),
            "refused: parts of this shell's own /proc are covered",
            "no box can be built",
        )
        .fix(match evidence.container {
            Some("podman") => Remedy::say(
                "start the container with `podman run --security-opt unmask=ALL`, or use \
                 `--isolation landlock`",
            ),
            _ => Remedy::say(
                "start the container with `docker run --security-opt systempaths=unconfined`, or \
                 use `--isolation landlock`",
            ),
        }),
        Tried::Failed { error, .. } => Row::new(
            name,
            unless(wanted.namespaces),
            format!("refused: {}", in_words(&error)),
            "no box can be built",
        ),
    }
}

pub(super) fn not_tried(name: &'static str) -> Row {
    Row::new(
        name,
        State::Info,
        "not tried",
        "it needs user namespaces first",
    )
}

/// The caller's own number, as the launcher maps it.
pub(super) fn map_user(evidence: &Evidence) -> io::Result<()> {
    let (uid, gid) = (evidence.uid, evidence.gid);
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1\n"))
}

pub(super) fn private_mounts() -> io::Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount_by_path(
        None::<&str>,
        "/",
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}

/// An empty filesystem of the child's own, and the child in it.
pub(super) fn tmpfs_over_root() -> io::Result<()> {
    let empty = mount::new_filesystem(c"tmpfs", &[], ATTR_NO_SETUID | ATTR_NO_DEVICES)?;
    mount::restrict_tree(empty.as_fd(), ATTR_NO_EXEC)?;
    let root = fs::File::open("/")?;
    mount::attach(empty.as_fd(), root.as_fd())?;
    Ok(nix::unistd::fchdir(&empty)?)
}

pub(super) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
