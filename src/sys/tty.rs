//! Terminal requests that only exist as ioctls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The path of the terminal behind standard output; `None` when it is no terminal.
pub(crate) fn name_of_output() -> Option<std::path::PathBuf> {
    let output = super::fds::standard(1);
    nix::unistd::isatty(output).ok().filter(|is| *is)?;
    nix::unistd::ttyname(output).ok()
}

/// Rows, columns and pixels of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
    pub width: u16,
    pub height: u16,
}

pub(crate) fn size(terminal: BorrowedFd<'_>) -> io::Result<Size> {
    let mut raw = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one winsize, and `raw` is one that outlives the call.
    let ret = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut raw) };
    if ret != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Size {
        rows: raw.ws_row,
        columns: raw.ws_col,
        width: raw.ws_xpixel,
        height: raw.ws_ypixel,
    })
}

/// Sets the size; the kernel sends SIGWINCH to the foreground programs if it changed.
pub(crate) fn set_size(terminal: BorrowedFd<'_>, size: Size) -> io::Result<()> {
    let raw = libc::winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: size.width,
        ws_ypixel: size.height,
    };
    // SAFETY: TIOCSWINSZ reads one winsize, and `raw` is one that outlives the call.
    let ret = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const raw) };
    if ret == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
