//! What can be asked of a pipe besides reading and writing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Moves up to `most` bytes out of a pipe into `to` without copying them through this process.
pub(crate) fn splice_out(
    pipe: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    most: usize,
) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: both descriptors are borrowed for the call, and null offsets mean "where you are".
    let moved = unsafe {
        libc::splice(
            pipe.as_raw_fd(),
            ptr::null_mut(),
            to.as_raw_fd(),
            ptr::null_mut(),
            most,
            flags,
        )
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// How many bytes lie in the pipe unread; either end may be asked.
pub(crate) fn unread(pipe: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, and `count` is one that outlives the call.
    let ret = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if ret == 0 {
        Ok(usize::try_from(count).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}
