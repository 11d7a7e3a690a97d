//! A network namespace as ground for a gateway: the loopback is on, has an address that is no
//! loopback's, and every other address leads to it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::netlink::{self, Batch, Refused};

const LOOPBACK: i32 = 1;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const CREATE: u16 = 0x400;

const HOST_SCOPE: u8 = 254;
const MAIN_TABLE: u8 = 254;
const BY_ADMINISTRATOR: u8 = 4;
const LOCAL: u8 = 2;

const LINK: usize = 0;
const FOUR: std::ops::RangeInclusive<usize> = 1..=2;

/// Which kinds of address lead to the loopback now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Why addresses of the fourth version do not, if they do not.
    pub(crate) four: Result<(), Errno>,
    pub(crate) six: Result<(), Errno>,
}

/// Does all of it in one packet. Only a loopback that stays off is an error.
pub(crate) fn lay(own: (Ipv4Addr, Ipv6Addr)) -> io::Result<Ways> {
    let mut batch = Batch::new();
    let up = libc::IFF_UP as u32;
    batch.message(NEW_LINK, 0, &link(up), |_| {});
    for own in [IpAddr::V4(own.0), IpAddr::V6(own.1)] {
        address(&mut batch, own);
        everything_is_local(&mut batch, own);
    }
    let last = batch.count() - 1;
    let refused = netlink::tell(SockProtocol::NetlinkRoute, &mut batch, last)?;
    if let Some(trouble) = find(&refused, |message| message == LINK) {
        return Err(trouble.into());
    }
    let of = |belongs: &dyn Fn(usize) -> bool| find(&refused, belongs).map_or(Ok(()), Err);
    Ok(Ways {
        four: of(&|message| FOUR.contains(&message)),
        // A kernel without it, or told to do without: then the box does without it too.
        six: of(&|message| message > *FOUR.end()),
    })
}

fn find(refused: &[Refused], belongs: impl Fn(usize) -> bool) -> Option<Errno> {
    let found = refused.iter().find(|refused| belongs(refused.message));
    found.map(|refused| refused.errno)
}

/// `struct ifinfomsg`.
fn link(flags: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&flags.to_ne_bytes());
    fixed
}

/// Programs that find nothing but a loopback's addresses on a machine take it to be offline, and
/// resolve no name; the C library does so for `AI_ADDRCONFIG`.
fn address(batch: &mut Batch, own: IpAddr) {
    const HERE: u16 = 1;
    const LOCAL_END: u16 = 2;
    let (family, bits, bytes) = in_bytes(own);
    // `struct ifaddrmsg`. Nobody else can have the address, so that nobody needs to be asked: until
    // that had been done it could not be used.
    const NO_DUPLICATES: u8 = 2;
    let mut fixed = [family, bits, NO_DUPLICATES, 0, 0, 0, 0, 0];
    fixed[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
    batch.message(NEW_ADDRESS, CREATE, &fixed, |with| {
        with.bytes(HERE, &bytes);
        with.bytes(LOCAL_END, &bytes);
    });
}

/// Without a source of their own, connections would come from the very address they go to, and one
/// whose port happens to be the same would be connected to itself.
fn everything_is_local(batch: &mut Batch, own: IpAddr) {
    const DEVICE: u16 = 4;
    const SOURCE: u16 = 7;
    let (family, _, bytes) = in_bytes(own);
    // `struct rtmsg`. The kernel takes no scope with the sixth version.
    let scope = if own.is_ipv4() { HOST_SCOPE } else { 0 };
    let fixed = [
        family,
        0,
        0,
        0,
        MAIN_TABLE,
        BY_ADMINISTRATOR,
        scope,
        LOCAL,
        0,
        0,
        0,
        0,
    ];
    batch.message(NEW_ROUTE, CREATE, &fixed, |with| {
        with.bytes(DEVICE, &LOOPBACK.to_ne_bytes());
        with.bytes(SOURCE, &bytes);
    });
}

/// The family's number, the address's length in bits, and the address.
fn in_bytes(address: IpAddr) -> (u8, u8, Vec<u8>) {
    match address {
        IpAddr::V4(four) => (libc::AF_INET as u8, 32, four.octets().to_vec()),
        IpAddr::V6(six) => (libc::AF_INET6 as u8, 128, six.octets().to_vec()),
    }
}
