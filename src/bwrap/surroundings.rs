//! What is to be known about the caller before there is a plan.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::args::{Asked, Start};
use super::errors::text_of;
use super::plan::Surroundings;
use crate::plan::{AskedStep, Origin};
use crate::sys;

/// The last one that any kernel has so far.
const LAST_CAPABILITY: u8 = 40;

/// The caller as far as the words of the command line depend on it.
pub(super) fn start() -> Result<Start, String> {
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    if nix::unistd::geteuid() != uid {
        let other = nix::unistd::geteuid();
        return Err(format!(
            "Unexpected setuid user {other}: this bwrap works with the caller's own rights; \
             remove the setuid bit (chmod u-s)"
        ));
    }
    let (effective, permitted) = sys::capabilities::read().map_err(said("capget failed"))?;
    if !uid.is_root() && permitted != 0 {
        return Err("Unexpected capabilities but not setuid, old file caps config?".to_owned());
    }
    Ok(Start {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        effective: if uid.is_root() { effective } else { 0 },
        env: std::env::vars_os().collect(),
        last_capability: LAST_CAPABILITY,
        labels: Path::new("/sys/fs/selinux/enforce").exists(),
    })
}

fn said(what: &str) -> impl Fn(io::Error) -> String {
    move |error| {
        format!(
            "{what}: {}",
            text_of(error.raw_os_error().unwrap_or(libc::EIO))
        )
    }
}

/// A descriptor that was named and is not open must stay so: were its number given to a file of
/// ours, that file would be taken for the caller's.
pub(super) fn keep_places_of(numbers: &[RawFd], asked: &Asked) -> Result<(), String> {
    let is_closed =
        |number: RawFd| !sys::fds::is_open(number) || sys::start::stream_was_closed(number);
    for number in numbers.iter().filter(|number| is_closed(**number)) {
        let is_source = asked.steps.iter().any(|step| {
            matches!(step, AskedStep::Bind { from: Origin::Descriptor(fd), .. } if fd == number)
        });
        if is_source {
            let reason = text_of(libc::ENOENT);
            return Err(format!(
                "Can't find source path /proc/self/fd/{number}: {reason}"
            ));
        }
        sys::fds::occupy(*number).map_err(said("Can't open /dev/null"))?;
    }
    Ok(())
}

/// Standard streams that the caller left closed are closed for the program; until then nothing of
/// ours may land there.
pub(super) fn keep_streams_closed() -> Result<(), String> {
    let closed = (0..3).filter(|number| sys::start::stream_was_closed(*number));
    closed
        .into_iter()
        .try_for_each(|number| sys::fds::occupy(number).map_err(said("Can't open /dev/null")))
}

/// Everything else that decides what is done.
pub(super) fn look(asked: &Asked) -> Result<Surroundings, String> {
    let unshare = &asked.unshare;
    let exists = |path: &str| Path::new(path).exists();
    let has_cgroup_namespaces =
        (unshare.cgroup || unshare.cgroup_try) && exists("/proc/self/ns/cgroup");
    if unshare.cgroup && !has_cgroup_namespaces {
        let why = "Cannot create new cgroup namespace because the kernel does not support it";
        return Err(why.to_owned());
    }
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    Ok(Surroundings {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        umask: umask.bits(),
        directory: directory(asked),
        console: match asked.needs_terminals {
            true => sys::tty::name_of_output(),
            false => None,
        },
        has_user_namespaces: unshare.user_try && can_unshare_user(),
        has_cgroup_namespaces,
        landlock_abi: match asked.extras.landlock || asked.extras.profile.is_some() {
            true => sys::kernel::landlock_abi(),
            false => 0,
        },
    })
}

/// Whether a user namespace can be had, as far as the kernel says so beforehand.
fn can_unshare_user() -> bool {
    let says = |path: &str, no: &str| std::fs::read_to_string(path).is_ok_and(|text| text == no);
    Path::new("/proc/self/ns/user").exists()
        && !says("/sys/module/user_namespace/parameters/enable", "N\n")
        && !says("/proc/sys/user/max_user_namespaces", "0\n")
}

/// The caller's directory by the caller's own name for it, when that is true.
fn directory(asked: &Asked) -> Option<PathBuf> {
    let named = asked.env.iter().find(|(name, _)| name == "PWD");
    let who = |path: &Path| path.metadata().map(|it| (it.dev(), it.ino())).ok();
    let named = named.map(|(_, value)| PathBuf::from(value));
    match named.filter(|path| path.is_absolute()) {
        Some(path) if who(&path).is_some() && who(&path) == who(Path::new(".")) => Some(path),
        _ => std::env::current_dir().ok(),
    }
}

/// Ends with the caller, also with one that ended a moment ago.
pub(super) fn die_with_caller() -> Result<(), String> {
    let caller = sys::start::first_parent();
    sys::process::die_with_parent().map_err(said("prctl"))?;
    match nix::unistd::getppid() == caller {
        true => Ok(()),
        false => sys::process::exit_now(1),
    }
}
