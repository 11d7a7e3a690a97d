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
use nix::mount::{MntFlags, umount2};
use nix::unistd::{fchdir, getpid, getppid};

use super::change::{Change, die_with, stand_alone};
use super::mounts::open_seen;
use super::open_files;
use super::owners;
use super::points::{self, Holder};
use super::wire::{self, Message};
use crate::plan::{BindMode, Identity, Point, Seen};
use crate::sys::mount::{self, ATTR_NO_DEVICES, ATTR_NO_SETUID, ATTR_READ_ONLY};
use crate::sys::process::{self, SingleThreaded};

const SAFE: u64 = ATTR_NO_SETUID | ATTR_NO_DEVICES;

/// A folder or file to be shown in a box that runs.
#[derive(Debug, Clone)]
pub struct LiveMount {
    pub source: PathBuf,
    pub seen: Seen,
    pub is_folder: bool,
    pub mode: BindMode,
    pub point: Point,
    /// What it was called by whoever asked for it.
    pub name: String,
    /// Also when its source overlaps with another's.
    pub despite_overlap: bool,
    /// The number of the mount that the box sees, once there is one.
    pub shown: Option<u64>,
    /// The numbers of the mounts that pid 1 writes through, the latest last, once there is one.
    pub doors: Vec<u64>,
    /// The numbers of those it took the place of, which lie under it where the kernel cannot
    /// exchange mounts.
    pub over: Vec<u64>,
}

impl LiveMount {
    /// Where it is in the box.
    pub fn place(&self) -> String {
        self.point.at.to_string()
    }

    /// Whether the other one shows the same in the same way, so that only what pid 1 does for
    /// programs is different.
    pub fn looks_like(&self, other: &Self) -> bool {
        let object = |mount: &Self| (mount.seen.device, mount.seen.inode);
        let is_held = |mount: &Self| mount.mode != BindMode::Write;
        self.source == other.source
            && object(self) == object(other)
            && is_held(self)
            && is_held(other)
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

/// Begins to show it in the box. Every process in there sees it when that is done; what is seen
/// comes back, and for a guarded one the writable copy, for pid 1.
pub(super) fn attach(
    proof: &SingleThreaded,
    entrance: &Entrance,
    identity: &Identity,
    wanted: &LiveMount,
) -> io::Result<Change> {
    Change::begin(proof, &entrance.descriptors(), |line| {
        let trees = copies(proof, identity, wanted)?;
        let tree = trees.first().ok_or(Errno::ENOENT)?;
        line.send(&Message::Go)?;
        entrance.enter(identity)?;
        let point = &wanted.point;
        let place = points::make(point, wanted.is_folder).inspect_err(|_| {
            let _ = points::tidy(point);
        })?;
        let attached = mount::attach(tree.as_fd(), place.as_fd()).and_then(|()| {
            match points::is_at(tree, point)? {
                true => Ok(()),
                // A program moved the place away in this moment.
                false => Err(took_off(tree, Errno::ELOOP)),
            }
        });
        attached.inspect_err(|_| {
            let _ = points::remove(point);
        })?;
        Ok(trees)
    })
}

/// Begins to show it in the place of another, which those who use that one keep. At no moment
/// is there anything else.
pub(super) fn exchange(
    proof: &SingleThreaded,
    entrance: &Entrance,
    identity: &Identity,
    old: &LiveMount,
    wanted: &LiveMount,
) -> io::Result<Change> {
    Change::begin(proof, &entrance.descriptors(), |line| {
        let mut trees = copies(proof, identity, wanted)?;
        let tree = trees.first_mut().ok_or(Errno::ENOENT)?;
        line.send(&Message::Go)?;
        entrance.enter(identity)?;
        let holder = Holder::at_its_place(old).ok_or(Errno::ESTALE)?;
        let top = holder.top()?;
        if Some(points::mount_of(&top)?) != old.shown {
            return Err(Errno::ESTALE.into());
        }
        if old.looks_like(wanted) {
            // Whoever has it for a working directory is not to lose it for that.
            *tree = top;
            return Ok(trees);
        }
        match mount::attach_beneath(tree.as_fd(), top.as_fd()) {
            Ok(()) => set_aside(&holder, top, wanted.is_folder),
            // A kernel that cannot: the new one lies on the old one until both are taken away.
            Err(_) => mount::attach(tree.as_fd(), top.as_fd())?,
        }
        points::sweep();
        Ok(trees)
    })
}

/// Takes away what is on top, in one step. It is not cut off from the box: Landlock finds its rules
/// on the way from a file up to the root, and whoever is about to open one would be refused.
fn set_aside(holder: &Holder, top: OwnedFd, is_folder: bool) {
    let aside = points::aside(is_folder);
    let moved = aside.and_then(|aside| mount::attach(top.as_fd(), aside.as_fd()));
    if moved.is_err() && holder.let_go(MntFlags::MNT_DETACH).is_err() {
        // Both are there: whoever waits takes both away, as if this one had been killed.
        process::exit_now(1);
    }
}

/// Takes off a folder wherever it hangs.
fn took_off(tree: &OwnedFd, why: Errno) -> io::Error {
    if fchdir(tree).is_ok() {
        let _ = umount2(".", MntFlags::MNT_DETACH);
        let _ = nix::unistd::chdir("/");
    }
    why.into()
}

/// Begins to take it away again. One that is in use stays, unless `force`: then it is gone for
/// whoever comes, and for those who use it when they are done, with all that is mounted in it. What
/// one that was killed has done of it already is no reason to fail.
pub(super) fn detach(
    proof: &SingleThreaded,
    entrance: &Entrance,
    identity: &Identity,
    gone: &LiveMount,
    force: bool,
) -> io::Result<Change> {
    Change::begin(proof, &entrance.descriptors(), |line| {
        // The /proc of the box does not know this process.
        let about = crate::sys::at::open_path(Path::new("/proc/self"))?;
        line.send(&Message::Go)?;
        entrance.enter(identity)?;
        if !force && gone.doors.iter().any(|door| open_files::is_any_on(*door)) {
            return Err(Errno::EBUSY.into());
        }
        let mut flags = match force {
            true => MntFlags::MNT_DETACH,
            false => MntFlags::empty(),
        };
        if let Some(holder) = Holder::find(gone, &about)? {
            for _ in 0..gone.over.len() + 2 {
                match holder.let_go(flags) {
                    Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                    Err(error) => return Err(error.into()),
                }
                // What it took the place of goes with it, and is not seen again.
                flags = MntFlags::MNT_DETACH;
                if !holder.holds(gone) {
                    break;
                }
            }
        }
        let _ = points::remove(&gone.point);
        points::sweep();
        Ok(Vec::new())
    })
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
        BindMode::Read | BindMode::Guarded | BindMode::Kept => ATTR_READ_ONLY,
    };
    let shown = copy(&source)?;
    mount::restrict_tree(shown.as_fd(), SAFE | read_only)?;
    let mut trees = vec![shown];
    if wanted.mode.is_guarded() {
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
