//! Connections into the box. A socket belongs to the network namespace it was made in, for good, so
//! pid 1 makes them and hands them out; whoever holds one can use it from anywhere.
//!
//! Over a line of packets, in the order in which they were asked for:
//!
//! | packet | bytes |
//! |---|---|
//! | question | a number of the asker's choosing (4), the port (2) |
//! | answer | the same number (4), 0 or the kernel's number for what went wrong (4); with a 0 a socket comes along |
//!
//! Numbers are little-endian. The socket does not block, is not inherited, and is connected to the
//! port on the box's own loopback, or about to be: somebody who does not accept makes nobody wait here.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrStorage, connect,
    getsockopt, recv, sendmsg, socket, socketpair, sockopt,
};

/// The older ones are let go of when somebody asks for more lines than this.
const MOST_LINES: usize = 4;
/// Questions answered before it is anybody else's turn.
const AT_ONCE: usize = 16;

/// The asker's end and the box's end.
pub(super) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        flags,
    )?)
}

/// Pid 1's ends of the lines that sockets are asked for on.
#[derive(Debug, Default)]
pub(super) struct Dialers(Vec<OwnedFd>);

impl Dialers {
    pub(super) fn add(&mut self, line: OwnedFd) {
        if self.0.len() >= MOST_LINES {
            self.0.remove(0);
        }
        self.0.push(line);
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// Answers what was asked on this line; one that is closed or does not listen is let go of.
    pub(super) fn serve(&mut self, line: RawFd) {
        let Some(at) = self.0.iter().position(|it| it.as_raw_fd() == line) else {
            return;
        };
        for _ in 0..AT_ONCE {
            match answer(&self.0[at]) {
                Ok(()) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    self.0.remove(at);
                    return;
                }
            }
        }
    }
}

/// The next question: `EAGAIN` when there is none, any other error when nothing can be said there.
fn answer(line: &OwnedFd) -> Result<(), Errno> {
    // One byte more than a question has, to tell a longer packet from it.
    let mut question = [0u8; 7];
    let length = recv(line.as_raw_fd(), &mut question, MsgFlags::MSG_DONTWAIT)?;
    if length != question.len() - 1 {
        return Err(Errno::EPROTO);
    }
    let [a, b, c, d, low, high, _] = question;
    let (errno, dialled) = match dial(u16::from_le_bytes([low, high])) {
        Ok(socket) => (0, Some(socket)),
        Err(errno) => (errno as i32, None),
    };
    let [e, f, g, h] = errno.to_le_bytes();
    let said = [a, b, c, d, e, f, g, h];
    let fds: Vec<RawFd> = dialled.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    match sendmsg::<()>(
        line.as_raw_fd(),
        &[IoSlice::new(&said)],
        rights,
        flags,
        None,
    ) {
        // An asker who does not take its answers would wait for one that never comes.
        Err(Errno::EAGAIN) => Err(Errno::ENOBUFS),
        other => other.map(drop),
    }
}

/// A connection to a port of the box's own, by whichever kind of address somebody listens on.
fn dial(port: u16) -> Result<OwnedFd, Errno> {
    let kinds = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    let mut first = None;
    for address in kinds {
        match dial_at(SocketAddr::new(address, port)) {
            Ok(socket) => return Ok(socket),
            Err(errno) => first = first.or(Some(errno)),
        }
    }
    Err(first.unwrap_or(Errno::ECONNREFUSED))
}

fn dial_at(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => return Ok(socket),
        Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno),
    }
    // A refusal over the loopback is there at once.
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    poll(&mut ready, PollTimeout::ZERO)?;
    match getsockopt(&socket, sockopt::SocketError)? {
        0 => Ok(socket),
        errno => Err(Errno::from_raw(errno)),
    }
}
