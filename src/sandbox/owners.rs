//! Who owns what: the user map of the box, and for a launcher run by root the mounts whose
//! files change owner on the way in, so that the program never has root's number.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::mounts::{open_own, open_seen};
use super::trouble::{InPart, Trouble};
use crate::plan::{BuildStep, Identity, OwnFolder, Part, Plan, Seen};
use crate::sys::mount;
use crate::sys::process::{self, Forked, SingleThreaded};

/// Trees opened by the launcher, by step number, and second copies for pid 1.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    trees: Vec<(usize, OwnedFd)>,
    doors: Vec<(usize, OwnedFd)>,
}

impl Prepared {
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let all = self.trees.iter().chain(&self.doors);
        all.map(|(_, tree)| tree.as_raw_fd()).collect()
    }

    pub(super) fn take(&mut self, step: usize) -> Option<OwnedFd> {
        take(&mut self.trees, step)
    }

    pub(super) fn take_door(&mut self, step: usize) -> Option<OwnedFd> {
        take(&mut self.doors, step)
    }
}

fn take(list: &mut Vec<(usize, OwnedFd)>, step: usize) -> Option<OwnedFd> {
    let at = list.iter().position(|(number, _)| *number == step)?;
    Some(list.swap_remove(at).1)
}

/// What kept the launcher from preparing a tree.
#[derive(Debug)]
pub(super) enum Unprepared {
    /// No user namespace could be made: that is the host's doing, not the folder's.
    Namespace(io::Error),
    Step(usize, io::Error),
}

/// For root: opens the caller's folders and maps their owner to the box's user. Others need
/// nothing of this: their box has their own number.
pub(super) fn prepare(
    proof: &SingleThreaded,
    plan: &Plan,
    directory: Option<&Path>,
) -> Result<Prepared, Unprepared> {
    let mut prepared = Prepared::default();
    let (Some(directory), true) = (directory, plan.identity.from_root) else {
        return Ok(prepared);
    };
    for (number, step) in plan.build.iter().enumerate() {
        let at = |error| Unprepared::Step(number, error);
        let map = |source: &OwnedFd, owner| mapped(proof, &plan.identity, source, owner, at);
        match step {
            BuildStep::Own {
                folder, guarded, ..
            } => {
                let source = open_own(&directory.join(folder.path())).map_err(at)?;
                if *folder == OwnFolder::Home {
                    // It belongs to the box's own number already.
                    let tree = mount::copy_tree(source.as_fd(), Path::new("")).map_err(at)?;
                    prepared.trees.push((number, tree));
                    continue;
                }
                prepared.trees.push((number, map(&source, (0, 0))?));
                if *guarded {
                    prepared.doors.push((number, map(&source, (0, 0))?));
                }
            }
            BuildStep::Bind {
                from,
                seen,
                mode,
                is_folder,
                ..
            } => {
                let source = open_seen(from, seen, *is_folder).map_err(at)?;
                let owner = (seen.uid, seen.gid);
                let tree = map(&source, owner)?;
                prepared.trees.push((number, tree));
                if mode.is_guarded() {
                    let door = map(&source, owner)?;
                    prepared.doors.push((number, door));
                }
            }
            _ => {}
        }
    }
    Ok(prepared)
}

fn mapped(
    proof: &SingleThreaded,
    identity: &Identity,
    source: &OwnedFd,
    (uid, gid): (u32, u32),
    at: impl Fn(io::Error) -> Unprepared,
) -> Result<OwnedFd, Unprepared> {
    let tree = mount::copy_tree(source.as_fd(), Path::new("")).map_err(&at)?;
    let userns = user_namespace(
        proof,
        &format!("{uid} {} 1\n", identity.host_uid),
        &format!("{gid} {} 1\n", identity.host_gid),
    )
    .map_err(Unprepared::Namespace)?;
    mount::map_owners(tree.as_fd(), userns.as_fd()).map_err(at)?;
    Ok(tree)
}

/// A copy of a tree whose owner is the box's user inside.
pub(super) fn with_owner_of(
    proof: &SingleThreaded,
    identity: &Identity,
    source: &OwnedFd,
    seen: &Seen,
) -> io::Result<OwnedFd> {
    let owner = (seen.uid, seen.gid);
    let made = mapped(proof, identity, source, owner, |error| {
        Unprepared::Step(0, error)
    });
    made.map_err(|unprepared| match unprepared {
        Unprepared::Namespace(error) | Unprepared::Step(_, error) => error,
    })
}

/// A user namespace that exists only to carry a map; its one process is gone on return.
fn user_namespace(proof: &SingleThreaded, uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let (release, wait) = std::io::pipe()?;
    match process::clone_into(proof, libc::CLONE_NEWUSER)? {
        Forked::Child => {
            drop(wait);
            let mut byte = [0u8; 1];
            let _ = io::Read::read(&mut &release, &mut byte);
            process::exit_now(0)
        }
        Forked::Parent { pid, .. } => {
            drop(release);
            let made = write_maps(pid, uids, gids)
                .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
            drop(wait);
            let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(pid), None);
            made.map(OwnedFd::from)
        }
    }
}

fn write_maps(pid: i32, uids: &str, gids: &str) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/uid_map"), uids)?;
    fs::write(format!("/proc/{pid}/gid_map"), gids)
}

/// Root's half: writes the box's maps from outside, which only root may do for other numbers.
pub(super) fn write_maps_from_outside(identity: &Identity, pid: i32) -> io::Result<()> {
    write_maps(
        pid,
        &format!("{} {} 1\n", identity.uid, identity.host_uid),
        &format!("{} {} 1\n", identity.gid, identity.host_gid),
    )
}

/// The box's half: maps the caller's own number, or takes on the one that root mapped.
pub(super) fn become_inside(identity: &Identity) -> io::Result<()> {
    if identity.from_root {
        setgroups(&[])?;
        let gid = Gid::from_raw(identity.gid);
        setresgid(gid, gid, gid)?;
        let uid = Uid::from_raw(identity.uid);
        setresuid(uid, uid, uid)?;
        // A change of number clears the wish to die with the launcher.
        return process::die_with_parent();
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write(
        "/proc/self/uid_map",
        format!("{} {} 1\n", identity.uid, identity.host_uid),
    )?;
    fs::write(
        "/proc/self/gid_map",
        format!("{} {} 1\n", identity.gid, identity.host_gid),
    )
}

/// In a user namespace that was there before: takes on the numbers wanted in it.
pub(super) fn switch(uid: Option<u32>, gid: Option<u32>) -> Result<(), Trouble> {
    if let Some(uid) = uid {
        nix::unistd::setuid(Uid::from_raw(uid)).in_part(Part::SwitchUser)?;
    }
    if let Some(gid) = gid {
        nix::unistd::setgid(Gid::from_raw(gid)).in_part(Part::SwitchGroup)?;
    }
    Ok(())
}

/// Maps the caller to the given numbers in the user namespace just made.
pub(super) fn map_caller(identity: &Identity, uid: u32, gid: u32) -> Result<(), Trouble> {
    let proc = crate::sys::at::open_path(Path::new("/proc"))?;
    write_own_maps(
        &proc,
        (uid, identity.host_uid),
        (gid, identity.host_gid),
        true,
    )
}

/// Writes this process's maps, in the order in which callers of bubblewrap know the failures.
pub(super) fn write_own_maps(
    proc: &OwnedFd,
    uid: (u32, u32),
    gid: (u32, u32),
    first: bool,
) -> Result<(), Trouble> {
    let map = |(inside, outside): (u32, u32)| format!("{inside} {outside} 1\n");
    write_at(proc, "self/uid_map", map(uid).as_bytes()).in_part(Part::UserMap)?;
    match first.then(|| write_at(proc, "self/setgroups", b"deny\n")) {
        None | Some(Ok(())) => {}
        // A kernel without the file needs none.
        Some(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => {}
        Some(Err(error)) => return Err(Trouble::new(Part::Groups, error)),
    }
    write_at(proc, "self/gid_map", map(gid).as_bytes()).in_part(Part::GroupMap)
}

/// A user namespace inside the first: the one to be seen from inside, and if it is the last one
/// that can be made, beyond the reach of whoever might want to change that.
pub(super) fn second_namespace(
    proc: &OwnedFd,
    uid: (u32, u32),
    gid: (u32, u32),
    is_last: bool,
) -> Result<(), Trouble> {
    if is_last {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let name = "sys/user/max_user_namespaces";
        let limit = nix::fcntl::openat(proc, name, flags, Mode::empty()).in_part(Part::Sysctl)?;
        nix::unistd::write(&limit, b"1").in_part(Part::SysctlWrite)?;
    }
    process::unshare(libc::CLONE_NEWUSER).in_part(Part::Unshare)?;
    write_own_maps(proc, uid, gid, false)
}

/// Writes to a file below a folder that may have no name here any more.
pub(super) fn write_at(folder: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(folder, name, flags, Mode::empty())?;
    io::Write::write_all(&mut fs::File::from(file), content)
}
