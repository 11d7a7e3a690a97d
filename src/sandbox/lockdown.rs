//! Puts up the last walls, in this order: capabilities, Landlock, seccomp.

use std::io;
use std::os::fd::AsFd;

use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::trouble::Trouble;
use crate::plan::{Landlock, LandlockRule, Part, Rights, Tcp};
use crate::policy::Isolation;
use crate::sys;

/// Empties every capability set; nothing can fill them again.
///
/// Without a user namespace an ordinary user's bounding set stays: emptying it takes a capability
/// that such a user never has. It bounds what programs could gain, and `no_new_privs`, which is
/// set before, lets them gain nothing.
pub(super) fn drop_capabilities(isolation: Isolation) -> io::Result<()> {
    let lost = |_| io::Error::last_os_error();
    let stays = isolation == Isolation::Landlock
        && caps::read(None, CapSet::Permitted)
            .map_err(lost)?
            .is_empty();
    if !stays {
        sys::capabilities::bound_to(0).map_err(|(_, error)| error)?;
    }
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(lost)?;
    }
    Ok(())
}

/// Leaves exactly the capabilities that were asked for.
pub(super) fn limit_capabilities(set: u64, bounding: bool, changed: bool) -> Result<(), Trouble> {
    if bounding {
        match sys::capabilities::bound_to(set) {
            // Some hosts forbid it; `no_new_privs` lets nothing be gained all the same.
            Err((_, error)) if error.raw_os_error() == Some(libc::EPERM) => {}
            Err((capability, error)) => {
                return Err(Trouble::new(Part::Bounds, error).with(&[capability]));
            }
            Ok(()) => {}
        }
    }
    if changed {
        // What the caller does not have cannot be kept, and is no reason to keep the rest.
        let (_, permitted) = sys::capabilities::read()?;
        sys::capabilities::set(set & permitted)?;
    }
    Ok(sys::process::show_to_others()?)
}

/// The Landlock version from on which signals can be kept in.
pub(super) const SIGNAL_SCOPE: i32 = 6;

/// Keeps this process's signals, and those of all it starts, away from everybody else; where the
/// kernel can. Files are left alone: this process writes for the program.
pub(super) fn signals_stay_inside(wall: &Landlock) -> io::Result<()> {
    stay_inside(wall, Scope::Signal.into())
}

/// The same for everything that Landlock can keep in, around a box whose programs may reach each
/// other: see [`Wall::among_others`].
pub(super) fn all_stays_inside(wall: &Landlock) -> io::Result<()> {
    stay_inside(wall, Scope::from_all(ABI::V6))
}

fn stay_inside(wall: &Landlock, what: BitFlags<Scope>) -> io::Result<()> {
    match wall {
        Landlock::Enforced { abi, .. } if *abi >= SIGNAL_SCOPE => {}
        _ => return Ok(()),
    }
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(what)
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    match made {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        Err(_) => Err(said_by_kernel()),
    }
}

/// Landlock's rules, known to the kernel and not yet in force for anybody.
#[derive(Debug)]
pub(super) struct Wall(RulesetCreated);

impl Wall {
    /// Makes the rules of a plan; none where they are excused.
    pub(super) fn of(wall: &Landlock) -> io::Result<Option<Self>> {
        Self::with(wall, Scope::from_all)
    }

    /// For programs of a box that come one by one: what one of them left running, another may signal
    /// and talk to. The wall around all of them is the box's.
    pub(super) fn among_others(wall: &Landlock) -> io::Result<Option<Self>> {
        Self::with(wall, |_| BitFlags::empty())
    }

    fn with(wall: &Landlock, scopes: fn(ABI) -> BitFlags<Scope>) -> io::Result<Option<Self>> {
        match wall {
            Landlock::Enforced { abi, files, tcp } => {
                let abi = known_abi(*abi);
                let (tcp, scopes) = (ruled(abi, *tcp), scopes(abi));
                // The kernel takes no wall that keeps nothing out.
                match files.is_empty() && tcp.is_empty() && scopes.is_empty() {
                    true => Ok(None),
                    false => rules(abi, files, tcp, scopes).map(|rules| Some(Self(rules))),
                }
            }
            Landlock::Excused(_) => Ok(None),
        }
    }

    /// Restricts this process and all it starts. The rules can be put up again by others.
    pub(super) fn put_up(&self) -> io::Result<()> {
        match self.0.try_clone()?.restrict_self() {
            Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
                Err(io::Error::from_raw_os_error(libc::ENOSYS))
            }
            Ok(_) => Ok(()),
            Err(_) => Err(said_by_kernel()),
        }
    }
}

/// Restricts this process and all it starts to the plan's paths, ports and scopes.
pub(super) fn landlock(wall: &Landlock) -> io::Result<()> {
    Wall::of(wall)?.map_or(Ok(()), |wall| wall.put_up())
}

fn ruled(abi: ABI, tcp: Tcp) -> BitFlags<AccessNet> {
    match tcp {
        _ if abi < ABI::V4 => BitFlags::empty(),
        Tcp::Free => BitFlags::empty(),
        Tcp::NoListening => AccessNet::BindTcp.into(),
        Tcp::None => AccessNet::from_all(abi),
    }
}

fn rules(
    abi: ABI,
    files: &[LandlockRule],
    tcp: BitFlags<AccessNet>,
    scopes: BitFlags<Scope>,
) -> io::Result<RulesetCreated> {
    let made = || -> Result<RulesetCreated, landlock::RulesetError> {
        let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        if !files.is_empty() {
            ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
        }
        if !tcp.is_empty() {
            ruleset = ruleset.handle_access(tcp)?;
        }
        if !scopes.is_empty() {
            ruleset = ruleset.scope(scopes)?;
        }
        let mut created = ruleset.create()?;
        if abi >= ABI::V7 {
            // The host's audit log is to tell what the program was refused, not only what this
            // process was before it became the program.
            created = created.log_new_exec(true)?;
        }
        for rule in files {
            let Ok(path) = PathFd::new(rule.path.as_path()) else {
                continue;
            };
            let access = rights(abi, rule.rights) & for_kind(&path, abi);
            created = created.add_rule(PathBeneath::new(path, access))?;
        }
        Ok(created)
    };
    made().map_err(|_| said_by_kernel())
}

/// The last error, and never "Success": some rules are refused before the kernel is asked.
fn said_by_kernel() -> io::Error {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(0) | None => io::Error::from_raw_os_error(libc::EINVAL),
        Some(_) => error,
    }
}

/// What can be done with an object of this kind: nothing is made in a file.
fn for_kind(path: &PathFd, abi: ABI) -> BitFlags<AccessFs> {
    let is_folder = nix::sys::stat::fstat(path.as_fd())
        .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR);
    match is_folder {
        true => AccessFs::from_all(abi),
        false => AccessFs::from_file(abi),
    }
}

fn rights(abi: ABI, rights: Rights) -> BitFlags<AccessFs> {
    let all = AccessFs::from_all(abi);
    let wanted = match rights {
        Rights::Read => AccessFs::from_read(abi),
        Rights::Use => {
            AccessFs::from_read(abi) | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
        }
        Rights::Write => all,
    };
    wanted & all
}

fn known_abi(number: i32) -> ABI {
    match number {
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    }
}

/// Loads the compiled filters, the narrower one last.
pub(super) fn seccomp(programs: &[Vec<u8>]) -> io::Result<()> {
    programs
        .iter()
        .try_for_each(|program| sys::seccomp::load(program))
}
