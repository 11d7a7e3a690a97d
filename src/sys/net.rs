//! Sockets: the loopback device of a fresh network namespace, where a connection was meant to go, and where it is.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, getsockname, getsockopt, socket, sockopt,
};

use super::check;

/// Switches `lo` on; the kernel then adds 127.0.0.1 and ::1 by itself.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero request is valid; the fields used are set below.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and is of the type this ioctl reads.
    let ret = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    check(ret.into()).map(drop)
}

/// Where a redirected connection was meant to go.
pub(crate) fn original_destination(stream: &impl AsFd) -> io::Result<SocketAddr> {
    let here: SockaddrStorage = getsockname(stream.as_fd().as_raw_fd())?;
    let here = here.as_sockaddr_in6().map_or_else(
        || here.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into())),
        |it| Some(SocketAddr::V6((*it).into())),
    );
    let meant = match here {
        Some(SocketAddr::V6(_)) => getsockopt(stream, sockopt::Ip6tOriginalDst).map(|meant| {
            let address = Ipv6Addr::from(meant.sin6_addr.s6_addr);
            SocketAddr::from((address, u16::from_be(meant.sin6_port)))
        }),
        _ => getsockopt(stream, sockopt::OriginalDst).map(|meant| {
            let address = Ipv4Addr::from(u32::from_be(meant.sin_addr.s_addr));
            SocketAddr::from((address, u16::from_be(meant.sin_port)))
        }),
    };
    match (meant, here) {
        // Nothing redirects on such a kernel: it came straight to where it was meant to go.
        (Err(Errno::ENOENT | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP), Some(here)) => Ok(here),
        (meant, _) => Ok(meant?),
    }
}

/// The processor that handled what came in last.
pub(crate) fn last_processor(stream: &TcpStream) -> Option<usize> {
    let mut number: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: number and length live through the call, and the length is that of the number.
    let ret = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    check(ret.into()).ok()?;
    usize::try_from(number).ok()
}
