//! Puts up the last walls, in this order: capabilities, Landlock, seccomp.

use std::io;

use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::plan::{Landlock, Rights};
use crate::sys;

/// Empties every capability set; nothing can fill them again.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let lost = |_| io::Error::last_os_error();
    sys::process::drop_bounding_set()?;
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

/// Restricts this process and all it starts to the plan's paths, ports and scopes.
pub(super) fn landlock(wall: &Landlock) -> io::Result<()> {
    let Landlock::Enforced { abi, files, no_tcp } = wall else {
        return Ok(());
    };
    let abi = known_abi(*abi);
    let made = || -> Result<RulesetStatus, landlock::RulesetError> {
        let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        if !files.is_empty() {
            ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
        }
        if *no_tcp && abi >= ABI::V4 {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        if abi >= ABI::V6 {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
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
            let access = rights(abi, rule.rights);
            created = created.add_rule(
                PathBeneath::new(path, access).set_compatibility(CompatLevel::BestEffort),
            )?;
        }
        Ok(created.restrict_self()?.ruleset)
    };
    match made() {
        Ok(RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced) => Ok(()),
        Ok(RulesetStatus::NotEnforced) => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        Err(_) => Err(io::Error::last_os_error()),
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
