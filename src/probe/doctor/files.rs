//! Files: layers over folders, other owners for root, and where sessions keep their state.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::mount::{MsFlags, mount as mount_by_path};
use nix::unistd::{AccessFlags, Pid, access};

use super::child::{Tried, attempt};
use super::evidence::Evidence;
use super::namespaces::{in_words, map_user, not_tried, private_mounts, tmpfs_over_root};
use super::remedy::Remedy;
use super::{Row, State, Wanted, unless};
use crate::probe::state_directory;
use crate::sys::mount;
use crate::sys::process::{self, Forked, SingleThreaded};

type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Mounts a layer over a folder and writes through it.
pub(super) fn overlay(proof: &SingleThreaded, evidence: &Evidence, namespaces_work: bool) -> Row {
    let name = "overlay";
    if !namespaces_work {
        return not_tried(name);
    }
    let work = || {
        let at = |stage| move |error| (stage, error);
        map_user(evidence).map_err(at(1))?;
        private_mounts().map_err(at(2))?;
        tmpfs_over_root().map_err(at(3))?;
        layered().map_err(at(4))?;
        Ok(0)
    };
    match attempt(proof, libc::CLONE_NEWUSER | libc::CLONE_NEWNS, &work) {
        Tried::Worked(_) => Row::new(
            name,
            State::Good,
            "works in a user namespace",
            "a layer over a folder is possible",
        ),
        Tried::Failed { error, .. } => Row::new(
            name,
            State::Weaker,
            format!("refused: {}", in_words(&error)),
            "no layer over a folder; `run` works without",
        )
        .fix(match error.raw_os_error() {
            Some(libc::ENODEV) => Remedy {
                commands: vec!["modprobe overlay".to_owned()],
                ..Remedy::say("load the kernel's module for it")
            },
            _ => Remedy::say("Linux 5.11 and newer allow it; look into the kernel's log"),
        }),
    }
}

fn layered() -> io::Result<()> {
    for folder in ["lower", "upper", "work", "merged"] {
        fs::create_dir(folder)?;
    }
    fs::write("lower/file", "before")?;
    mount_by_path(
        Some("overlay"),
        "merged",
        Some("overlay"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("lowerdir=lower,upperdir=upper,workdir=work,userxattr"),
    )?;
    fs::write("merged/file", "after")?;
    match (fs::read("lower/file")?, fs::read("upper/file")?) {
        (lower, upper) if lower == b"before" && upper == b"after" => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

/// Root's boxes run under another number, so its folders are shown with other owners.
pub(super) fn owners(
    proof: &SingleThreaded,
    evidence: &Evidence,
    wanted: &Wanted,
    env: Env<'_>,
) -> Row {
    let name = "idmapped mounts";
    if evidence.uid != 0 {
        let means = "an ordinary user's box has the user's own number";
        return Row::new(name, State::Info, "not needed", means);
    }
    let state = state_directory(env).unwrap_or_else(|| "/".into());
    let there = nearest(&state);
    match map_owners_of(proof, there) {
        Ok(()) => Row::new(
            name,
            State::Good,
            format!("work at {}", there.display()),
            "root's folders are shared without root's number",
        ),
        Err(error) => Row::new(
            name,
            unless(wanted.namespaces),
            format!("refused at {}: {}", there.display(), in_words(&error)),
            "root cannot share its folders with a box",
        )
        .fix(Remedy::say(match error.raw_os_error() {
            Some(libc::EPERM) => {
                "run as an ordinary user: this root has no rights over the host's mounts, as in a \
                 container or after `unshare -r`"
            }
            _ => {
                "run as an ordinary user, or set XDG_STATE_HOME to a folder on ext4, xfs, btrfs \
                 or tmpfs"
            }
        })),
    }
}

/// A copy of the mount that nobody sees, with a map that a short-lived child carries.
fn map_owners_of(proof: &SingleThreaded, path: &Path) -> io::Result<()> {
    let tree = mount::copy_mount(mount::here(), path)?;
    let (hold, released) = io::pipe()?;
    let (pid, _pidfd) = match process::clone_into(proof, libc::CLONE_NEWUSER)? {
        Forked::Child => {
            drop(released);
            let _ = process::die_with_parent();
            let _ = io::Read::read(&mut &hold, &mut [0]);
            process::exit_now(0)
        }
        Forked::Parent { pid, pidfd } => (pid, pidfd),
    };
    let mapped = fs::write(format!("/proc/{pid}/uid_map"), "0 1000 1\n")
        .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), "0 1000 1\n"))
        .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")))
        .and_then(|userns| mount::map_owners(tree.as_fd(), userns.as_fd()));
    drop(released);
    while nix::sys::wait::waitpid(Pid::from_raw(pid), None) == Err(nix::errno::Errno::EINTR) {}
    mapped
}

/// The path itself, or what is there of the way to it.
fn nearest(path: &Path) -> &Path {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(is_there).unwrap_or(Path::new("/"))
}

/// Whether a session could be kept; looks, makes nothing.
pub(super) fn state(env: Env<'_>) -> Row {
    let name = "state directory";
    let remedy = Remedy::say("set XDG_STATE_HOME to a folder of your own that you can write to");
    let Some(state) = state_directory(env) else {
        let found = "none: neither XDG_STATE_HOME nor HOME is set";
        return Row::new(name, State::Missing, found, "sessions cannot be kept").fix(remedy);
    };
    let shown = state.display();
    match problem(&state) {
        None => Row::new(
            name,
            State::Good,
            format!("{shown}"),
            "sessions keep home and outputs there",
        ),
        Some(why) => Row::new(
            name,
            State::Missing,
            format!("{shown}: {why}"),
            "sessions cannot be kept",
        )
        .fix(remedy),
    }
}

fn problem(state: &Path) -> Option<String> {
    let there = nearest(state);
    let Ok(metadata) = fs::metadata(there) else {
        return Some("it cannot be looked at".to_owned());
    };
    let rights = AccessFlags::W_OK | AccessFlags::X_OK;
    if !metadata.is_dir() {
        return Some(format!("{} is not a folder", there.display()));
    }
    if let Err(error) = access(there, rights) {
        let why = in_words(&error.into());
        return Some(format!("cannot write to {}: {why}", there.display()));
    }
    if there == state && metadata.uid() != nix::unistd::getuid().as_raw() {
        return Some("it belongs to another user".to_owned());
    }
    (there == state && metadata.mode() & 0o022 != 0).then(|| "others can write to it".to_owned())
}

/// Asked for by other tools of this kind; said here so that nobody sets it up for us.
pub(super) fn sub_ids() -> Row {
    Row::new(
        "sub-ids",
        State::Info,
        "not needed",
        "one number is mapped: no newuidmap, nothing in /etc/subuid",
    )
}
