//! The rule that sends every TCP connection to one listener, whatever address and port it is meant
//! for; the kernel remembers both. It holds in a network namespace of its own, so that it takes no
//! rights outside and is gone with the namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sys::socket::SockProtocol;

use super::netlink::{self, Attributes, Batch};

const BEGIN: u16 = 0x10;
const END: u16 = 0x11;
const NF_TABLES: u16 = 10;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = NF_TABLES << 8 | 3;
const NEW_RULE: u16 = NF_TABLES << 8 | 6;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

/// Both kinds of address in one table.
const INET: u8 = 1;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;

const TABLE: &str = "cowork";
const CHAIN: &str = "out";

/// The registers that a rule works with.
const FIRST: u32 = 1;
const SECOND: u32 = 2;

/// Sends them to this port at the namespace's own address of their kind. One packet; it holds as a
/// whole or not at all.
pub(crate) fn set_up(own: (Ipv4Addr, Ipv6Addr), port: u16) -> io::Result<()> {
    let mut batch = Batch::new();
    batch.message(BEGIN, 0, &generic(0, NF_TABLES), |_| {});
    batch.message(NEW_TABLE, CREATE, &generic(INET, 0), |with| {
        with.text(1, TABLE);
    });
    batch.message(NEW_CHAIN, CREATE, &generic(INET, 0), chain);
    rule(&mut batch, IpAddr::V4(own.0), port);
    rule(&mut batch, IpAddr::V6(own.1), port);
    let last = batch.count() - 1;
    batch.message(END, 0, &generic(0, NF_TABLES), |_| {});
    let refused = netlink::tell(SockProtocol::NetlinkNetFilter, &mut batch, last)?;
    match refused.first() {
        Some(trouble) => Err(trouble.errno.into()),
        None => Ok(()),
    }
}

/// `struct nfgenmsg`.
fn generic(family: u8, subsystem: u16) -> [u8; 4] {
    let [high, low] = subsystem.to_be_bytes();
    [family, 0, high, low]
}

/// Where programs' packets begin, before they are sent on their way.
fn chain(with: &mut Attributes<'_>) {
    const LOCAL_OUT: u32 = 3;
    const DESTINATIONS: i32 = -100;
    with.text(1, TABLE);
    with.text(3, CHAIN);
    with.nest(4, |hook| {
        hook.number(1, LOCAL_OUT);
        hook.number(2, DESTINATIONS as u32);
    });
    with.text(7, "nat");
}

/// TCP to anywhere but the loopback and the own address goes to the listener there.
fn rule(batch: &mut Batch, own: IpAddr, port: u16) {
    const NF_PROTOCOL: u32 = 15;
    const TRANSPORT: u32 = 16;
    batch.message(NEW_RULE, CREATE | APPEND, &generic(INET, 0), |with| {
        with.text(1, TABLE);
        with.text(2, CHAIN);
        with.nest(4, |list| {
            let family = if own.is_ipv4() { IPV4 } else { IPV6 };
            about_packet(list, NF_PROTOCOL);
            compare(list, true, &[family]);
            about_packet(list, TRANSPORT);
            compare(list, true, &[TCP]);
            match own {
                IpAddr::V4(own) => {
                    // Of 127.0.0.0/8 the first byte alone says it.
                    destination(list, 16, 1);
                    compare(list, false, &[127]);
                    destination(list, 16, 4);
                    compare(list, false, &own.octets());
                    put(list, FIRST, &own.octets());
                }
                IpAddr::V6(own) => {
                    destination(list, 24, 16);
                    compare(list, false, &Ipv6Addr::LOCALHOST.octets());
                    compare(list, false, &own.octets());
                    put(list, FIRST, &own.octets());
                }
            }
            put(list, SECOND, &port.to_be_bytes());
            new_destination(list, family);
        });
    });
}

fn expression(list: &mut Attributes<'_>, name: &str, arguments: impl FnOnce(&mut Attributes<'_>)) {
    list.nest(1, |element| {
        element.text(1, name);
        element.nest(2, arguments);
    });
}

/// Something the kernel knows of a packet, into the first register.
fn about_packet(list: &mut Attributes<'_>, what: u32) {
    expression(list, "meta", |with| {
        with.number(1, FIRST);
        with.number(2, what);
    });
}

/// A part of the network header, into the first register.
fn destination(list: &mut Attributes<'_>, offset: u32, length: u32) {
    const NETWORK_HEADER: u32 = 1;
    expression(list, "payload", |with| {
        with.number(1, FIRST);
        with.number(2, NETWORK_HEADER);
        with.number(3, offset);
        with.number(4, length);
    });
}

/// Goes on with the rule only if the first register is this, or is not.
fn compare(list: &mut Attributes<'_>, equal: bool, value: &[u8]) {
    expression(list, "cmp", |with| {
        with.number(1, FIRST);
        with.number(2, u32::from(!equal));
        with.nest(3, |data| data.bytes(1, value));
    });
}

fn put(list: &mut Attributes<'_>, register: u32, value: &[u8]) {
    expression(list, "immediate", |with| {
        with.number(1, register);
        with.nest(2, |data| data.bytes(1, value));
    });
}

/// To the address in the first register and the port in the second.
fn new_destination(list: &mut Attributes<'_>, family: u8) {
    const DESTINATION: u32 = 1;
    expression(list, "nat", |with| {
        with.number(1, DESTINATION);
        with.number(2, family.into());
        with.number(3, FIRST);
        with.number(5, SECOND);
    });
}
