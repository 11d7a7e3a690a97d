//! Who owns what: the user map of the box, and for a launcher run by root the mounts whose
//! files change owner on the way in, so that the program never has root's number.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::mounts::{open_own, open_seen};
use crate::plan::{BindMode, BuildStep, Identity, OwnFolder, Plan};
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
pub(super) enum Trouble {
    /// No user namespace could be made: that is the host's doing, not the folder's.
    Namespace(io::Error),
    Step(usize, io::Error),
}

/// For root: opens the caller's folders and maps their owner to the box's user. Others need
/// nothing of this: their box has their own number.
pub(super) fn prepare(
    proof: &SingleThreaded,
    plan: &Plan,
    directory: &Path,
) -> Result<Prepared, Trouble> {
    let mut prepared = Prepared::default();
    if !plan.identity.from_root {
        return Ok(prepared);
    }
    for (number, step) in plan.build.iter().enumerate() {
        let at = |error| Trouble::Step(number, error);
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
                if *mode == BindMode::Guarded {
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
    at: impl Fn(io::Error) -> Trouble,
) -> Result<OwnedFd, Trouble> {
    let tree = mount::copy_tree(source.as_fd(), Path::new("")).map_err(&at)?;
    let userns = user_namespace(
        proof,
        &format!("{uid} {} 1\n", identity.host_uid),
        &format!("{gid} {} 1\n", identity.host_gid),
    )
    .map_err(Trouble::Namespace)?;
    mount::map_owners(tree.as_fd(), userns.as_fd()).map_err(at)?;
    Ok(tree)
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
