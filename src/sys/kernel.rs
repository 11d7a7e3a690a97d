//! Questions to the kernel about itself.

use super::check;

/// The kernel's Landlock version; 0 when it has none or has it switched off.
pub(crate) fn landlock_abi() -> i32 {
    const VERSION: libc::c_long = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with the version flag the kernel reads no structure, so none is given.
    let ret = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    ret.max(0) as i32
}

/// Whether a filter may ask another process for its verdict.
pub(crate) fn has_seccomp_notify() -> bool {
    let action: u32 = libc::SECCOMP_RET_USER_NOTIF;
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
pub(crate) fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    // SAFETY: the buffer is writable for its whole length.
    let ret = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match check(ret as libc::c_long)? as usize == bytes.len() {
        true => Ok(()),
        false => Err(std::io::Error::from_raw_os_error(libc::EIO)),
    }
}
