//! Descriptors: what crosses into a program, what is passed between our own processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::check;

/// Marks every descriptor from `first` up to be closed when a program is started.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOEXEC: libc::c_uint = 4;
    // SAFETY: takes integers; a flag is set, nothing is closed yet.
    let ret = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOEXEC) };
    check(ret).map(drop)
}

/// Marks these of the caller's to be closed when a program is started.
pub(crate) fn close_on_exec(numbers: &[RawFd]) {
    for number in numbers {
        // SAFETY: takes integers; a number that is not open is an error nobody needs to hear of.
        unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Closes everything but the three standard descriptors and those to keep. Only for a process
/// just forked: what its parent's values own is never used here again.
pub(crate) fn close_all_but(mut keep: Vec<RawFd>) -> io::Result<()> {
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().filter_map(|fd| u32::try_from(fd).ok()) {
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = from.max(fd + 1);
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes integers; the only caller says why nothing that is used lies in the range.
    let ret = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check(ret).map(drop)
}

/// Closes every descriptor from `first` up.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: takes integers; only for a forked child that uses no Rust value owning one of them
    // and leaves without dropping any.
    let ret = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    check(ret).map(drop)
}

/// Waits for the lock on an open file, or gives it back.
pub(crate) fn lock(fd: BorrowedFd<'_>, hold: bool) -> io::Result<()> {
    let operation = if hold { libc::LOCK_EX } else { libc::LOCK_UN };
    loop {
        // SAFETY: takes integers.
        let ret = unsafe { libc::flock(fd.as_raw_fd(), operation) };
        match check(ret.into()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Makes `from` known under the fixed number `to` as well, for the next program.
pub(crate) fn place_at(from: RawFd, to: RawFd) -> io::Result<()> {
    if from == to {
        // dup2 onto itself would keep the close-on-exec flag.
        // SAFETY: takes integers.
        let ret = unsafe { libc::fcntl(from, libc::F_SETFD, 0) };
        return check(ret.into()).map(drop);
    }
    // SAFETY: takes integers; only called in a forked child right before exec, where numbers 0
    // to 2 are not owned by any Rust value that is still used.
    let ret = unsafe { libc::dup2(from, to) };
    check(ret.into()).map(drop)
}

/// A second descriptor for what the number stands for, above the three standard ones.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers; a bad number is an error, not undefined behaviour.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    check(copy.into())?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Takes over a descriptor that arrived in a message.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel installed it for this process when the message was received, and the
    // caller is the only one who saw the number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A file in memory that nobody has a name for.
pub(crate) fn memory(name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the flags are integers.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    check(fd.into())?;
    Ok(adopt(fd))
}

/// Puts the null device behind these numbers.
pub(crate) fn put_null_at(numbers: &[RawFd]) -> io::Result<()> {
    let flags = nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC;
    let null = nix::fcntl::open("/dev/null", flags, nix::sys::stat::Mode::empty())?;
    numbers
        .iter()
        .try_for_each(|number| place_at(null.as_raw_fd(), *number))
}

/// Whether there is something behind a number.
pub(crate) fn is_open(fd: RawFd) -> bool {
    // SAFETY: takes integers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Takes over a descriptor of the caller's for good.
pub(crate) fn take(fd: RawFd) -> io::Result<std::fs::File> {
    match is_open(fd) {
        // SAFETY: it is open, and the caller of this program gave it away by naming it.
        true => Ok(unsafe { std::fs::File::from_raw_fd(fd) }),
        false => Err(io::Error::from_raw_os_error(libc::EBADF)),
    }
}

/// A descriptor of the caller's, to be used and left open.
pub(crate) fn given(fd: RawFd) -> io::Result<std::mem::ManuallyDrop<std::fs::File>> {
    take(fd).map(std::mem::ManuallyDrop::new)
}

/// Closes a descriptor of the caller's.
pub(crate) fn close_given(fd: RawFd) {
    drop(take(fd));
}

/// Puts something behind a number that can be neither read nor written and leads nowhere, so that
/// nothing of ours gets it.
pub(crate) fn occupy(fd: RawFd) -> io::Result<()> {
    // SAFETY: a constant C string.
    let place = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    check(place.into())?;
    if place == fd {
        return Ok(());
    }
    // SAFETY: takes integers; nobody owns a number that is not open.
    let ret = unsafe { libc::dup3(place, fd, libc::O_CLOEXEC) };
    let done = check(ret.into()).map(drop);
    // SAFETY: the descriptor just opened here, which nobody else knows.
    unsafe { libc::close(place) };
    done
}

/// One of the three standard descriptors, which this process keeps open for its whole life.
pub(crate) fn standard(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: `open_standard_descriptors` made sure at start that 0, 1 and 2 are open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Opens /dev/null for those of 0, 1, 2 that the caller left closed, so that no file of ours
/// can ever land there.
pub(crate) fn open_standard_descriptors() -> io::Result<()> {
    for number in 0..3 {
        // SAFETY: takes integers.
        let there = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        if !there {
            // SAFETY: a constant C string; the lowest free number is the one just found closed.
            let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
            check(fd.into())?;
        }
    }
    Ok(())
}

/// Gives the terminal behind `fd` to this session.
pub(crate) fn make_controlling_terminal(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers.
    let ret = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY as _, 0) };
    check(ret.into()).map(drop)
}

/// Whether nothing is noted on a file: no extended attribute, and so no access list either.
pub(crate) fn has_no_attributes(path: &std::path::Path) -> bool {
    let length = nix::NixPath::with_nix_path(path, |path| {
        // SAFETY: the path is a C string; with no buffer only the length is told.
        unsafe { libc::llistxattr(path.as_ptr(), std::ptr::null_mut(), 0) }
    });
    // A filesystem that knows no attributes has none.
    matches!(length, Ok(length) if length <= 0)
}
