//! What the gateway gives up before it hears a single byte from the box: everything but the network
//! and the few files that looking names up takes. Whoever took it over would have little.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope,
};
use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, getuid, setgroups, setresgid, setresuid};

use crate::filter;
use crate::plan::ROOTS_STAND_IN;
use crate::sys;

/// Parts of the system that looking a name up reads: the C library's configuration, what it loads on
/// the way, and certificates. All of /etc, because whoever changes a file there replaces it, and a rule
/// for the file that was would not cover the one that is.
const READ: [&str; 12] = [
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/share/ca-certs",
    "/usr/share/pki",
];
const RESOLVER: &str = "/etc/resolv.conf";
/// Folders in which programs keep what /etc/resolv.conf is a link to, and replace it.
const RESOLVERS: [&str; 2] = ["/run", "/mnt/wsl"];

/// Locks this process, which has one thread, and all that it starts. Nothing takes it back.
pub(super) fn lock() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    sys::process::no_new_privileges()?;
    read_only_the_system()?;
    if getuid().is_root() {
        be_nobody()?;
    }
    drop_capabilities()?;
    sys::process::hide_from_others()?;
    let none = || io::Error::from(Errno::ENOSYS);
    let filter = filter::builtin("gateway").ok_or_else(none)?;
    sys::seccomp::load(filter.bytes())
}

/// As far as the kernel can: a host without Landlock was accepted by name before it came to this.
fn read_only_the_system() -> io::Result<()> {
    let abi = ABI::V7;
    let made = || -> Result<(), RulesetError> {
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?;
        for path in READ.iter().map(Path::new).chain(resolver().as_deref()) {
            if let Ok(opened) = PathFd::new(path) {
                let access = match path.is_dir() {
                    true => AccessFs::ReadFile | AccessFs::ReadDir,
                    false => AccessFs::ReadFile.into(),
                };
                ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
            }
        }
        ruleset.restrict_self().map(drop)
    };
    made().map_err(io::Error::other)
}

/// What to open for a list of name servers that lies elsewhere: its folder where that is known to
/// hold nothing else, else the file alone.
fn resolver() -> Option<PathBuf> {
    let file = std::fs::canonicalize(RESOLVER).ok()?;
    let folder = file.parent()?;
    let is_kept = |top: &&str| folder.starts_with(top) && folder != Path::new("/run");
    match RESOLVERS.iter().any(is_kept) {
        true => Some(folder.to_owned()),
        false => Some(file),
    }
}

/// Root's gateway becomes the number that root's boxes have outside, which owns nothing of the
/// system's. Where root is one in name only and has no such number, it stays what it is.
fn be_nobody() -> io::Result<()> {
    let (user, group) = (Uid::from_raw(ROOTS_STAND_IN), Gid::from_raw(ROOTS_STAND_IN));
    let changed = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    match changed {
        Ok(()) | Err(Errno::EINVAL | Errno::EPERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    // A change of number clears the wish to die with the supervisor.
    sys::process::die_with_parent()
}

/// What could bring one back is nothing to worry about: `no_new_privs` is set.
fn drop_capabilities() -> io::Result<()> {
    sys::capabilities::set(0)
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
