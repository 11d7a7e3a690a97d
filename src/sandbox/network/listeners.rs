//! The doors themselves: sockets that listen in the box's network namespace. They are made here,
//! held by the gateway outside, and no process in the box keeps one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};

use super::Redirected;
use crate::plan::{Door, Egress, OWN_V4, OWN_V6, REDIRECT_PORT};

/// Every listener with its door's place in the plan. A door has several where the kernel cannot
/// redirect, and none where it does not know the kind of address.
pub(super) fn open(egress: &Egress, redirected: Redirected) -> io::Result<Vec<(u16, OwnedFd)>> {
    let mut open = Vec::with_capacity(egress.doors.len());
    for (place, door) in egress.doors.iter().enumerate() {
        let addresses = match door {
            Door::Redirect4 => addresses(redirected.four, OWN_V4.into(), &egress.low_ports),
            Door::Redirect6 => addresses(redirected.six, OWN_V6.into(), &egress.low_ports),
            own => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, own.port()))],
        };
        for address in addresses {
            let listener = match door {
                Door::DnsDatagrams => datagrams(address)?,
                _ => streams(address)?,
            };
            open.push((place as u16, listener));
        }
    }
    Ok(open)
}

/// How connections of one kind of address reach the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    ByRedirect,
    /// Every address is the box's own, so a listener for all of them hears one port. No program can
    /// want such a port for itself: those below 1024 are not for it.
    ByPort,
    Not,
}

fn addresses(reached: Reached, own: IpAddr, low_ports: &[u16]) -> Vec<SocketAddr> {
    let any = match own {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    match reached {
        Reached::ByRedirect => vec![(own, REDIRECT_PORT).into()],
        Reached::ByPort => low_ports.iter().map(|port| (any, *port).into()).collect(),
        Reached::Not => Vec::new(),
    }
}

fn streams(address: SocketAddr) -> io::Result<OwnedFd> {
    let listener = bound(address, SockType::Stream)?;
    // As many as this host lets wait.
    listen(&listener, Backlog::MAXALLOWABLE)?;
    Ok(listener)
}

fn datagrams(address: SocketAddr) -> io::Result<OwnedFd> {
    bound(address, SockType::Datagram)
}

fn bound(address: SocketAddr, kind: SockType) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, kind, flags, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(socket)
}
