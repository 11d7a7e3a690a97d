//! The facts a plan is made from. Everything here is on the path of every launch: a few dozen
//! cheap calls, nothing spawned, no directory of unknown size read.

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, fstat, umask};
use nix::unistd::{getgid, getuid};

use super::{etc, git, local_bin, registries};
use crate::plan::{Facts, Registries, Stdio, SystemEntry};
use crate::policy::{InsidePath, NetMode, Policy};
use crate::sys;

/// Looks at the host as far as this policy needs to know it.
pub fn facts(policy: &Policy, state_directory: PathBuf) -> Facts {
    let uid = getuid().as_raw();
    let mask = umask(Mode::empty());
    umask(mask);
    let git_identity = if policy.env.git_identity {
        git::identity()
    } else {
        None
    };
    let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    Facts {
        registries: match policy.net.wants_registries() {
            true => registries::registries(&env),
            false => Registries::default(),
        },
        uid,
        gid: getgid().as_raw(),
        user: etc::user_name(uid).unwrap_or_else(|| "agent".to_owned()),
        umask: mask.bits(),
        landlock_abi: sys::kernel::landlock_abi(),
        seccomp_notify: sys::kernel::has_seccomp_notify(),
        system: system(),
        programs: match policy.files.changeable_programs {
            true => local_bin::look(Path::new("/")),
            false => None,
        },
        etc: etc::entries(),
        stdio: [stdio(0), stdio(1), stdio(2)],
        state_directory,
        shell: shell(),
        env,
        git_identity,
        resolver: match policy.net.mode {
            NetMode::Host => etc::small_file(Path::new("/etc/resolv.conf"))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default(),
            NetMode::None | NetMode::Allow => String::new(),
        },
    }
}

/// Where sessions and trust live: `$XDG_STATE_HOME/cowork-linux` or below the home.
pub fn state_directory(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |text: OsString| Some(PathBuf::from(text)).filter(|path| path.is_absolute());
    env("XDG_STATE_HOME")
        .and_then(absolute)
        .or_else(|| {
            env("HOME")
                .and_then(absolute)
                .map(|home| home.join(".local/state"))
        })
        .map(|base| base.join("cowork-linux"))
}

/// `/usr`, and beside it what is a link on merged systems and a folder on others.
fn system() -> Vec<SystemEntry> {
    [
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
    ]
    .into_iter()
    .filter_map(|name| {
        let at = InsidePath::fixed(name);
        let kind = std::fs::symlink_metadata(name).ok()?.file_type();
        if kind.is_symlink() {
            let to = std::fs::read_link(name).ok()?;
            return Some(SystemEntry::Link { at, to });
        }
        kind.is_dir().then_some(SystemEntry::Folder(at))
    })
    .collect()
}

/// Where running sessions listen: in the runtime directory of the user's login, else with the
/// state.
pub fn runtime_directory(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let login = env("XDG_RUNTIME_DIR").map(PathBuf::from);
    match login.filter(|path| path.is_absolute()) {
        Some(login) => Some(login.join("cowork-linux")),
        None => state_directory(env).map(|state| state.join("run")),
    }
}

/// How the caller's three streams can be handed over.
pub fn streams() -> [Stdio; 3] {
    [0, 1, 2].map(stdio)
}

/// How a stream can be handed over without handing over more than a stream.
fn stdio(number: i32) -> Stdio {
    let fd = sys::fds::standard(number);
    if fd.is_terminal() {
        return Stdio::Terminal;
    }
    let Ok(stat) = fstat(fd.as_fd()) else {
        return Stdio::Copied;
    };
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        kind if kind == SFlag::S_IFIFO || kind == SFlag::S_IFSOCK => Stdio::Direct,
        // The memory devices: null, zero, full, random.
        kind if kind == SFlag::S_IFCHR && nix::sys::stat::major(stat.st_rdev) == 1 => Stdio::Direct,
        // A file could be opened again from inside, a folder walked out of.
        _ => Stdio::Copied,
    }
}

/// The user's shell when it is part of the system, else the one that always is.
fn shell() -> PathBuf {
    let wanted = std::env::var_os("SHELL").map(PathBuf::from).filter(|path| {
        let system = ["/bin", "/usr/bin", "/usr/local/bin"].map(Path::new);
        path.parent().is_some_and(|dir| system.contains(&dir)) && path.exists()
    });
    wanted.unwrap_or_else(|| PathBuf::from(OsStr::new("/bin/sh")))
}
