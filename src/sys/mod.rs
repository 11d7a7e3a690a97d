//! The only room with `unsafe`: one safe function per kernel call nix does not have, or has in
//! a form that does not fit. Nothing here decides anything.

pub(crate) mod at;
pub(crate) mod awaited;
pub(crate) mod capabilities;
pub(crate) mod fds;
pub(crate) mod heap;
pub(crate) mod kernel;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod netlink;
pub(crate) mod notify;
pub(crate) mod pipe;
pub(crate) mod process;
pub(crate) mod redirect;
pub(crate) mod routes;
pub(crate) mod seccomp;
pub(crate) mod start;
pub(crate) mod tty;

use std::io;

/// Turns the return value of a raw system call into a result.
fn check(ret: libc::c_long) -> io::Result<libc::c_long> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}
