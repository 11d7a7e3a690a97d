//! Seccomp's user notification: a filter that asks, and the answers to it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::seccomp::as_kernel_has_it;

/// Wakes the asking thread on the answering one's processor; since Linux 6.6.
const FD_SYNC_WAKE_UP: u64 = 1;

/// One call that a program made and that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) id: u64,
    /// The calling thread, as numbered in the reader's own pid namespace; 0 when it has none there.
    pub(crate) thread: u32,
    pub(crate) call: i64,
    pub(crate) args: [u64; 6],
}

/// Puts the filter on the calling thread and returns where its questions arrive.
///
/// Signals that do not kill leave an accepted question alone where the kernel can do that
/// (Linux 5.19): Go interrupts its threads all the time, and a half-done call would be repeated.
pub(crate) fn listen(program: &[u8]) -> io::Result<OwnedFd> {
    let calm =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    match install(program, calm) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            install(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
        }
        other => other,
    }
}

fn install(program: &[u8], flags: libc::c_ulong) -> io::Result<OwnedFd> {
    let program = as_kernel_has_it(program)?;
    // SAFETY: the program outlives the call and its length is the true one; the kernel copies it
    // byte by byte, so that its alignment does not matter, and checks every instruction.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    let fd = i32::try_from(check(fd)?).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the call just made this descriptor and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes the next question. `None` when the asker is gone again.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<Request>> {
    let mut raw = libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    };
    // SAFETY: the number carries the size of `raw`, which is zeroed as the kernel demands.
    let ret = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut raw,
        )
    };
    match check(ret.into()) {
        Ok(_) => Ok(Some(Request {
            id: raw.id,
            thread: raw.pid,
            call: raw.data.nr.into(),
            args: raw.data.args,
        })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the asker still waits, so that what was read about its thread was about it.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads eight bytes.
    let ret = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    ret == 0
}

/// Lets the kernel do the call as if nobody had asked.
pub(crate) fn carry_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
    respond(listener, id, 0, flags)
}

/// Ends the call with success (0) or an error number.
pub(crate) fn finish(listener: BorrowedFd<'_>, id: u64, errno: i32) -> io::Result<()> {
    respond(listener, id, -errno, 0)
}

fn respond(listener: BorrowedFd<'_>, id: u64, error: i32, flags: u32) -> io::Result<()> {
    let mut raw = libc::seccomp_notif_resp {
        id,
        val: 0,
        error,
        flags,
    };
    // SAFETY: the number carries the size of `raw`.
    let ret = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw mut raw,
        )
    };
    check(ret.into()).map(drop)
}

/// Gives the asker a copy of `file`, and the copy's number as the call's result.
pub(crate) fn finish_with_file(
    listener: BorrowedFd<'_>,
    id: u64,
    file: BorrowedFd<'_>,
    close_on_exec: bool,
) -> io::Result<()> {
    let raw = libc::seccomp_notif_addfd {
        id,
        flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).unwrap_or(2),
        srcfd: file.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: if close_on_exec {
            libc::O_CLOEXEC.cast_unsigned()
        } else {
            0
        },
    };
    // SAFETY: the number carries the size of `raw`, and the kernel only reads it.
    let ret = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            &raw const raw,
        )
    };
    check(ret.into()).map(drop)
}

/// Asks for the quicker hand-over between asker and answerer; older kernels say no.
pub(crate) fn wake_in_step(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the kernel takes the flags by value.
    let ret = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            FD_SYNC_WAKE_UP,
        )
    };
    check(ret.into()).map(drop)
}

fn check(ret: i64) -> io::Result<i64> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}
