//! Questions to the kernel about itself.

use std::io;

use super::check;

/// The kernel's Landlock version; 0 when it has none or has it switched off.
pub(crate) fn landlock_abi() -> i32 {
    landlock_version().unwrap_or(0)
}

/// The kernel's Landlock version, or why there is none: `ENOSYS` when it was not built or a
/// filter hides it, `EOPNOTSUPP` when it was not switched on at boot.
pub(crate) fn landlock_version() -> io::Result<i32> {
    const VERSION: libc::c_long = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with the version flag the kernel reads no structure, so none is given.
    let ret = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    check(ret).map(|version| version as i32)
}

/// Whether a filter may ask another process for its verdict.
pub(crate) fn has_seccomp_notify() -> bool {
    has_seccomp_action(libc::SECCOMP_RET_USER_NOTIF)
}

/// Whether filters can be loaded that answer a call with an error.
pub(crate) fn has_seccomp_filter() -> bool {
    has_seccomp_action(libc::SECCOMP_RET_ERRNO)
}

fn has_seccomp_action(action: u32) -> bool {
    // SAFETY: the action outlives the call, which only reads it.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    check(ret).is_ok()
}

/// Whether this process was started with the signal ignored, as under nohup.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero structure is valid to be overwritten.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with no new action given the call only fills in the old one.
    let ret = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) };
    ret == 0 && old.sa_sigaction == libc::SIG_IGN
}

/// Random bytes from the kernel.
pub(crate) fn random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer is writable for its whole length.
    let ret = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match check(ret as libc::c_long)? as usize == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

/// The calls a box cannot be made without, asked in a way the kernel itself must answer with
/// `EINVAL` before it looks at rights: any other answer comes from a filter around this process,
/// or, for `ENOSYS`, from a kernel that is too old.
pub(crate) fn refused_namespace_calls() -> Vec<(&'static str, io::Error)> {
    let namespace = libc::c_long::from(libc::CLONE_NEWUSER);
    let never_valid = libc::c_long::from(libc::CLONE_PARENT_SETTID);
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: a size of zero is refused before the structure is read.
    let clone3 = check(unsafe { libc::syscall(libc::SYS_clone3, none, 0) });
    // SAFETY: takes an integer; the second flag makes the kernel refuse it untried.
    let unshare = check(unsafe { libc::syscall(libc::SYS_unshare, namespace | never_valid) });
    [("clone3", clone3), ("unshare", unshare)]
        .into_iter()
        .filter_map(|(name, answer)| Some((name, answer.err()?)))
        .filter(|(_, error)| error.raw_os_error() != Some(libc::EINVAL))
        .collect()
}

/// Those calls of the descriptor-based mount API that this kernel, or a filter, does not know.
pub(crate) fn missing_mount_calls() -> Vec<&'static str> {
    let (bad, none) = (-1 as libc::c_long, std::ptr::null::<libc::c_void>());
    let calls = [
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("fsopen", libc::SYS_fsopen),
        ("fsconfig", libc::SYS_fsconfig),
        ("fsmount", libc::SYS_fsmount),
        ("mount_setattr", libc::SYS_mount_setattr),
    ];
    let is_missing = |number: libc::c_long| {
        // SAFETY: neither a descriptor nor a flag word of all ones is valid for any of them, and
        // null pointers are answered with an error: nothing is done.
        let ret = unsafe { libc::syscall(number, bad, none, bad, none, bad) };
        check(ret).is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS))
    };
    calls
        .into_iter()
        .filter(|(_, number)| is_missing(*number))
        .map(|(name, _)| name)
        .collect()
}
