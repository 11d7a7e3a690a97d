//! What limits on other processes take: their resource limits, a hold on them that outlives
//! their numbers, and the marks on a control group.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

use super::check;

/// A descriptor for the process that has this number now.
pub(crate) fn open_process(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: takes integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = check(fd)? as libc::c_int;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A limit of another process: what holds now, and how far the process may raise it by itself.
pub(crate) fn limit_of(pid: libc::pid_t, resource: libc::c_int) -> io::Result<(u64, u64)> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: no new limit is given, and the slot for the old one outlives the call.
    let ret = unsafe { libc::prlimit(pid, resource as _, std::ptr::null(), &raw mut old) };
    check(ret.into())?;
    Ok((old.rlim_cur, old.rlim_max))
}

pub(crate) fn set_limit_of(
    pid: libc::pid_t,
    resource: libc::c_int,
    soft: u64,
    hard: u64,
) -> io::Result<()> {
    let new = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the new limit outlives the call, and nobody asks for the old one.
    let ret = unsafe { libc::prlimit(pid, resource as _, &raw const new, std::ptr::null_mut()) };
    check(ret.into()).map(drop)
}

/// The first byte of an extended attribute; none when there is none or it cannot be read.
pub(crate) fn attribute(path: &Path, name: &CStr) -> Option<u8> {
    let mut value = [0u8; 16];
    let length = nix::NixPath::with_nix_path(path, |path| {
        let room = value.as_mut_ptr().cast();
        // SAFETY: both names are C strings, and the kernel writes at most the length given.
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room, value.len()) }
    });
    matches!(length, Ok(length) if length > 0).then_some(value[0])
}

/// The device number that the kernel gives to files in memory that lie in no folder.
pub(crate) fn device_of_unnamed_memory() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: a constant C string.
    let fd = unsafe { libc::memfd_create(c"cowork".as_ptr(), libc::MFD_CLOEXEC) };
    check(fd.into())?;
    // SAFETY: the kernel just made this descriptor for us alone.
    let file = unsafe { std::fs::File::from_raw_fd(fd) };
    Ok(file.metadata()?.dev())
}
