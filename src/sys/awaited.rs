//! Streams of those who wait for many at once, which nobody does who builds a box.

use std::io;
use std::net::TcpStream;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A stream that is waited for in this way and no other.
pub(crate) fn stream(stream: TcpStream, interest: Interest) -> io::Result<AsyncFd<TcpStream>> {
    // SAFETY: the stream owns its descriptor, which stays the same and open as long as it does.
    let registered = unsafe { AsyncFd::register_with_interest(stream, interest) };
    Ok(registered?)
}
