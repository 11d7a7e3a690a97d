//! Loading a compiled filter. Compiling is elsewhere and earlier.

use std::io;

use super::check;

/// Installs a compiled filter on this process. `no_new_privs` must be set before.
pub(crate) fn load(program: &[u8]) -> io::Result<()> {
    let (instructions, rest) = program.as_chunks::<8>();
    let length = u16::try_from(instructions.len())
        .ok()
        .filter(|n| (1..=4096).contains(n));
    let (Some(len), true) = (length, rest.is_empty()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let filter: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|bytes| libc::sock_filter {
            code: u16::from_le_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let program = libc::sock_fprog {
        len,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program outlives the call, its length is the true one, and the kernel checks
    // every instruction.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    check(ret).map(drop)
}
