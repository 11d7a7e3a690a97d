//! Capability sets as bits: what nix and caps do one capability and one call at a time.

use std::io;

use super::check;
use super::process::prctl;

/// More than any kernel has.
const MANY: libc::c_ulong = 64;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

const fn myself() -> Header {
    Header {
        version: VERSION_3,
        pid: 0,
    }
}

/// The effective and the permitted set of this process.
pub(crate) fn read() -> io::Result<(u64, u64)> {
    let mut header = myself();
    let mut halves = [Half::default(); 2];
    // SAFETY: the header says version 3, for which the kernel fills exactly two halves.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_capget,
            &raw mut header,
            (&raw mut halves).cast::<Half>(),
        )
    };
    check(ret)?;
    let whole = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let [low, high] = halves;
    Ok((
        whole(low.effective, high.effective),
        whole(low.permitted, high.permitted),
    ))
}

/// Makes the effective, permitted and inheritable sets of this process exactly this.
pub(crate) fn set(capabilities: u64) -> io::Result<()> {
    let mut header = myself();
    let half = |bits: u32| Half {
        effective: bits,
        permitted: bits,
        inheritable: bits,
    };
    let halves = [half(capabilities as u32), half((capabilities >> 32) as u32)];
    // SAFETY: the header says version 3, for which the kernel reads exactly two halves.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_capset,
            &raw mut header,
            (&raw const halves).cast::<Half>(),
        )
    };
    check(ret).map(drop)
}

/// Takes everything but `keep` out of the set that exec could ever bring back. The capability
/// that could not be taken comes with the error.
pub(crate) fn bound_to(keep: u64) -> Result<(), (u8, io::Error)> {
    for capability in (0..MANY).filter(|capability| keep >> capability & 1 == 0) {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            // Past the last one this kernel knows.
            Err(error) if capability > 0 && error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err((capability as u8, error)),
        }
    }
    Ok(())
}

/// Hands these on through exec, as far as this process has them to hand on.
pub(crate) fn hand_on(capabilities: u64) -> Result<(), (u8, io::Error)> {
    for capability in (0..MANY).filter(|capability| capabilities >> capability & 1 == 1) {
        let (raise, number) = (libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong, capability);
        // SAFETY: takes integers only; unused arguments must be zero.
        let ret = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, number, 0, 0) };
        match check(ret.into()).map_err(|error| error.raw_os_error()) {
            // Not permitted, not inheritable, or not known: it is not handed on.
            Ok(_) | Err(Some(libc::EPERM | libc::EINVAL)) => {}
            Err(_) => return Err((capability as u8, io::Error::last_os_error())),
        }
    }
    Ok(())
}
