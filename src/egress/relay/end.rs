//! One side of a connection that is passed on.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, splice};
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;

/// Heard of when something comes, and not whenever there is room for more to go: every acknowledgement makes
/// room, and would wake us up to do nothing.
#[derive(Debug)]
pub(super) struct End(AsyncFd<TcpStream>);

impl End {
    pub(super) fn new(stream: tokio::net::TcpStream) -> io::Result<Self> {
        let stream = stream.into_std()?;
        sys::awaited::stream(stream, Interest::READABLE).map(Self)
    }

    fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    /// The processor at which the other side's last word arrived: on one computer that of who said it.
    pub(super) fn processor(&self) -> Option<usize> {
        sys::net::last_processor(self.stream())
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(drop)
    }

    /// What there is; would block when nothing has come.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |mut stream: &TcpStream| stream.read(buffer);
        self.0.try_io(Interest::READABLE, read)
    }

    /// The same into a pipe, which must be empty: a full one would look like a stream with nothing in it.
    pub(super) fn try_pour_into(&self, pipe: &OwnedFd, most: usize) -> io::Result<usize> {
        let pour = |stream: &TcpStream| moved(stream.as_fd(), pipe.as_fd(), most);
        self.0.try_io(Interest::READABLE, pour)
    }

    /// As much as there is room for; would block when there is none.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    /// The same from a pipe.
    pub(super) fn try_pour_from(&self, pipe: &OwnedFd, most: usize) -> io::Result<usize> {
        moved(pipe.as_fd(), self.stream().as_fd(), most)
    }

    /// Waits for room, which is rarely needed.
    pub(super) async fn writable(&self) -> io::Result<()> {
        // The same stream under another number, because each number is waited for once.
        let again = self.stream().try_clone()?;
        let waiting = sys::awaited::stream(again, Interest::WRITABLE)?;
        waiting.writable().await.map(drop)
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more comes; the other direction goes on.
    pub(super) fn shutdown(&self) -> io::Result<()> {
        match shutdown(self.stream().as_raw_fd(), Shutdown::Write) {
            // The other side is gone already, which the other direction will notice.
            Ok(()) | Err(Errno::ENOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

fn moved(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
    Ok(splice(from, None, to, None, most, flags)?)
}
