//! Loading a compiled filter. Compiling is elsewhere and earlier.

use std::io;

use super::check;

/// The size of one instruction.
const INSTRUCTION: usize = size_of::<libc::sock_filter>();
const _: () = assert!(INSTRUCTION == 8);

/// Installs a compiled filter on this process. `no_new_privs` must be set before.
///
/// By the older call: a filter loaded before may know only that one. Nothing is allocated either,
/// for the same reason.
pub(crate) fn load(program: &[u8]) -> io::Result<()> {
    let program = as_kernel_has_it(program)?;
    // SAFETY: the program outlives the call and its length is the true one; the kernel copies it
    // byte by byte, so that its alignment does not matter, and checks every instruction.
    let ret = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER as libc::c_ulong,
            &raw const program,
            0,
            0,
        )
    };
    check(ret.into()).map(drop)
}

/// A program in the form the kernel takes. It points into the slice, which has to outlive it.
pub(super) fn as_kernel_has_it(program: &[u8]) -> io::Result<libc::sock_fprog> {
    let whole = program.len().is_multiple_of(INSTRUCTION);
    let length = u16::try_from(program.len() / INSTRUCTION);
    let (Ok(len), true) = (length, whole) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    Ok(libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut().cast(),
    })
}
