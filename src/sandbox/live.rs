//! Changing the mounts of a box that runs, without privileges and without the box's help.
//!
//! Two short-lived processes do it, because no single one may. One, in a user namespace of its own,
//! may copy a mount; the other, whose user owns the box's user namespace, may enter the box and
//! attach the copy there. The copy has its flags before it appears anywhere. Only the first one
//! touches the folder, so that the other can be ended at any time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, umount2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, getpid, getppid, unlinkat};

use super::change::{Change, die_with, stand_alone};
use super::mounts::open_seen;
use super::open_files;
use super::owners;
use super::wire::{self, Message};
use crate::plan::{BindMode, Identity, Seen};
use crate::policy::InsidePath;
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_SETUID, ATTR_READ_ONLY};
use crate::sys::process::{self, SingleThreaded};

const SAFE: u64 = ATTR_NO_SETUID | ATTR_NO_DEVICES;

/// A folder to be shown in a box that runs.
#[derive(Debug, Clone)]
pub struct LiveMount {
    pub source: PathBuf,
    pub seen: Seen,
    pub is_folder: bool,
    pub mode: BindMode,
    /// The folder of mounts in the box, and the name in it.
    pub below: InsidePath,
    pub name: String,
    /// The number of the mount that pid 1 writes through, once there is one.
    pub door: Option<u64>,
}

impl LiveMount {
    /// Where it is in the box.
    pub fn place(&self) -> String {
        format!("{}/{}", self.below, self.name)
    }
}

/// The namespaces of a box, for whoever may enter them.
#[derive(Debug)]
pub(super) struct Entrance {
    user: OwnedFd,
    mounts: OwnedFd,
}

impl Entrance {
    /// Taken while the box's first process can still be looked at.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let open =
            |kind: &str| std::fs::File::open(format!("/proc/{pid}/ns/{kind}")).map(OwnedFd::from);
        Ok(Self {
            user: open("user")?,
            mounts: open("mnt")?,
        })
    }

    fn descriptors(&self) -> [RawFd; 2] {
        [self.user.as_raw_fd(), self.mounts.as_raw_fd()]
    }

    /// Makes this process one of the box's, with all rights in there.
    fn enter(&self, identity: &Identity) -> io::Result<()> {
        let parent = getppid();
        process::join_namespace(self.user.as_raw_fd(), libc::CLONE_NEWUSER)?;
        process::join_namespace(self.mounts.as_raw_fd(), libc::CLONE_NEWNS)?;
        if identity.from_root {
            // Root has no number in there.
            owners::become_inside(identity)?;
        }
        die_with(parent)
    }
}

/// Begins to show the folder in the box. Every process in there sees it when that is done; the
/// writable copy of a guarded one comes back, for pid 1.
pub(super) fn attach(
    proof: &SingleThreaded,
    entrance: &Entrance,
    identity: &Identity,
    wanted: &LiveMount,
) -> io::Result<Change> {
    Change::begin(proof, &entrance.descriptors(), || {
        let mut trees = copies(proof, identity, wanted)?;
        let door = match wanted.mode {
            BindMode::Guarded => trees.pop(),
            BindMode::Read | BindMode::Write => None,
        };
        let tree = trees.pop().ok_or_else(|| io::Error::from(Errno::ENOENT))?;
        entrance.enter(identity)?;
        let points = mount_points(&wanted.below)?;
        match wanted.is_folder {
            true => mkdirat(
                &points,
                wanted.name.as_str(),
                Mode::from_bits_truncate(0o755),
            )?,
            false => drop(nix::fcntl::openat(
                &points,
                wanted.name.as_str(),
                OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC,
                Mode::from_bits_truncate(0o444),
            )?),
        }
        let attached = place(&wanted.below, &wanted.name)
            .and_then(|place| mount::attach(tree.as_fd(), place.as_fd()));
        attached.inspect_err(|_| {
            let _ = remove_point(&points, &wanted.name);
        })?;
        Ok(door)
    })
}

/// Begins to take it away again. One that is in use stays, unless `force`: then it is gone for
/// whoever comes, and for those who use it when they are done. What one that was killed has done
/// of it already is no reason to fail.
pub(super) fn detach(
    proof: &SingleThreaded,
    entrance: &Entrance,
    identity: &Identity,
    gone: &LiveMount,
    force: bool,
) -> io::Result<Change> {
    Change::begin(proof, &entrance.descriptors(), || {
        entrance.enter(identity)?;
        if !force && gone.door.is_some_and(open_files::is_any_on) {
            return Err(Errno::EBUSY.into());
        }
        let flags = match force {
            true => MntFlags::MNT_DETACH,
            false => MntFlags::empty(),
        };
        let place = gone.below.as_path().join(&gone.name);
        match umount2(&place, flags | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let _ = remove_point(&mount_points(&gone.below)?, &gone.name);
        Ok(None)
    })
}

fn remove_point(points: &OwnedFd, name: &str) -> nix::Result<()> {
    match unlinkat(points, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOTDIR) => unlinkat(points, name, UnlinkatFlags::NoRemoveDir),
        done => done,
    }
}

/// The folder of mounts as a copy that can be written to: inside it is read-only for everybody.
fn mount_points(below: &InsidePath) -> io::Result<OwnedFd> {
    let shown = place(below, ".")?;
    let copy = mount::copy_mount(shown.as_fd(), Path::new(""))?;
    mount::loosen_mount(copy.as_fd(), ATTR_READ_ONLY)?;
    Ok(copy)
}

/// A place below the box's folder of mounts, which no program can have put a link into.
fn place(below: &InsidePath, name: &str) -> io::Result<OwnedFd> {
    let root = crate::sys::at::open_path(Path::new("/"))?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    Ok(openat2(&root, &below.relative().join(name), how)?)
}

/// Detached copies of the source with their flags set: one to show, and for a guarded one a second
/// to write to.
fn copies(
    proof: &SingleThreaded,
    identity: &Identity,
    wanted: &LiveMount,
) -> io::Result<Vec<OwnedFd>> {
    let (ours, theirs) = wire::pair()?;
    let parent = getpid();
    in_a_child(proof, || {
        stand_alone(parent, vec![theirs.as_fd().as_raw_fd()])?;
        let trees = match identity.from_root {
            true => make_copies(wanted, |source| {
                owners::with_owner_of(proof, identity, source, &wanted.seen)
            }),
            false => {
                process::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
                die_with(parent)?;
                make_copies(wanted, |source| {
                    mount::copy_tree(source.as_fd(), Path::new(""))
                })
            }
        };
        theirs.send(&Message::Trees(trees?))
    })?;
    drop(theirs);
    match ours.receive()? {
        Some(Message::Trees(trees)) => Ok(trees),
        _ => Err(Errno::EPROTO.into()),
    }
}

fn make_copies(
    wanted: &LiveMount,
    copy: impl Fn(&OwnedFd) -> io::Result<OwnedFd>,
) -> io::Result<Vec<OwnedFd>> {
    let source = open_seen(&wanted.source, &wanted.seen, wanted.is_folder)?;
    let read_only = match wanted.mode {
        BindMode::Write => 0,
        BindMode::Read | BindMode::Guarded => ATTR_READ_ONLY,
    };
    let shown = copy(&source)?;
    mount::restrict_tree(shown.as_fd(), SAFE | read_only)?;
    let mut trees = vec![shown];
    if wanted.mode == BindMode::Guarded {
        let door = copy(&source)?;
        mount::restrict_tree(door.as_fd(), SAFE)?;
        trees.push(door);
    }
    Ok(trees)
}

/// Does something in a process of its own; its exit code is the kernel's number for what failed.
fn in_a_child(proof: &SingleThreaded, job: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match process::fork(proof)? {
        None => process::exit_now(match job() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }),
        Some(pid) => loop {
            match process::wait(pid, 0) {
                Ok((_, 0)) => return Ok(()),
                Ok((_, status)) if libc::WIFEXITED(status) => {
                    return Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status)));
                }
                Ok(_) => return Err(Errno::EINTR.into()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        },
    }
}
