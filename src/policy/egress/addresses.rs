//! Which addresses belong to the public internet, and what the others are for.
//!
//! After the registries of special-purpose addresses. Of the second kind of addresses only the
//! block that is given out for the whole internet counts as public, and of that not everything:
//! what is not known here is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Public,
    Loopback,
    Private,
    LinkLocal,
    Metadata,
    /// Shared address space of carriers.
    Shared,
    Multicast,
    /// An address of the second kind with one of the first kind in it that is not public.
    Embedded,
    Unspecified,
    Reserved,
    /// An address of this host.
    Own,
}

impl Class {
    /// What such an address is called in a sentence, with its article.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Public => "a public address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::Shared => "an address of a carrier's own network",
            Self::Multicast => "a multicast address",
            Self::Embedded => "an address with one in it that is not public",
            Self::Unspecified => "no address of anybody",
            Self::Reserved => "a reserved address",
            Self::Own => "an address of this host itself",
        }
    }

    /// Addresses of these classes are worth attacking one by one, so a rule for a whole net does
    /// not mean them: each has to be written out.
    pub(super) fn wants_exact_rule(self) -> bool {
        matches!(self, Self::Metadata | Self::Embedded | Self::Own)
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(a: u16, b: u16, c: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length)
}

/// The first that holds an address decides.
const SPECIAL_4: &[(Ipv4Net, Class)] = &[
    (v4(0, 0, 0, 0, 32), Class::Unspecified),
    (v4(0, 0, 0, 0, 8), Class::Reserved),
    (v4(10, 0, 0, 0, 8), Class::Private),
    // Alibaba's.
    (v4(100, 100, 100, 200, 32), Class::Metadata),
    (v4(100, 64, 0, 0, 10), Class::Shared),
    (v4(127, 0, 0, 0, 8), Class::Loopback),
    // A public address by its number, but in Azure's machines it is the host below them.
    (v4(168, 63, 129, 16, 32), Class::Metadata),
    (v4(169, 254, 169, 254, 32), Class::Metadata),
    // Credentials of containers and pods at Amazon.
    (v4(169, 254, 170, 2, 32), Class::Metadata),
    (v4(169, 254, 170, 23, 32), Class::Metadata),
    // Tencent's.
    (v4(169, 254, 0, 23, 32), Class::Metadata),
    (v4(169, 254, 0, 0, 16), Class::LinkLocal),
    (v4(172, 16, 0, 0, 12), Class::Private),
    // Oracle's.
    (v4(192, 0, 0, 192, 32), Class::Metadata),
    // Two of these can be reached from everywhere, and are served by the nearest router.
    (v4(192, 0, 0, 0, 24), Class::Reserved),
    (v4(192, 0, 2, 0, 24), Class::Reserved),
    (v4(192, 88, 99, 0, 24), Class::Reserved),
    (v4(192, 168, 0, 0, 16), Class::Private),
    (v4(198, 18, 0, 0, 15), Class::Reserved),
    (v4(198, 51, 100, 0, 24), Class::Reserved),
    (v4(203, 0, 113, 0, 24), Class::Reserved),
    (v4(224, 0, 0, 0, 4), Class::Multicast),
    (v4(240, 0, 0, 0, 4), Class::Reserved),
];

const SPECIAL_6: &[(Ipv6Net, Class)] = &[
    (
        Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128),
        Class::Unspecified,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128),
        Class::Loopback,
    ),
    // Amazon's two, and Google's.
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128),
        Class::Metadata,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23), 128),
        Class::Metadata,
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
        Class::Metadata,
    ),
    (v6(0xfc00, 0, 0, 7), Class::Private),
    (v6(0xfe80, 0, 0, 10), Class::LinkLocal),
    (v6(0xfec0, 0, 0, 10), Class::Private),
    (v6(0xff00, 0, 0, 8), Class::Multicast),
    // Of what is set aside for protocols, two blocks belong to everybody.
    (v6(0x2001, 3, 0, 32), Class::Public),
    (v6(0x2001, 4, 0x112, 48), Class::Public),
    (v6(0x2001, 0, 0, 23), Class::Reserved),
    (v6(0x2001, 0xdb8, 0, 32), Class::Reserved),
    (v6(0x3fff, 0, 0, 20), Class::Reserved),
    (v6(0x2000, 0, 0, 3), Class::Public),
];

pub fn classify(address: IpAddr) -> Class {
    match address.to_canonical() {
        IpAddr::V4(address) => classify_4(address),
        IpAddr::V6(address) => classify_6(address),
    }
}

fn classify_4(address: Ipv4Addr) -> Class {
    find(SPECIAL_4, |net| net.contains(&address)).unwrap_or(Class::Public)
}

fn classify_6(address: Ipv6Addr) -> Class {
    if address.is_unspecified() || address.is_loopback() {
        return find(SPECIAL_6, |net| net.contains(&address)).unwrap_or(Class::Reserved);
    }
    if embedded(address).any(|inner| classify_4(inner) != Class::Public) {
        return Class::Embedded;
    }
    let translated = v6(0x64, 0xff9b, 0, 96).contains(&address) || is_local_translation(address);
    let tunnelled = v6(0x2001, 0, 0, 32).contains(&address);
    if translated || tunnelled {
        return Class::Public;
    }
    find(SPECIAL_6, |net| net.contains(&address)).unwrap_or(Class::Reserved)
}

fn find<Net>(table: &[(Net, Class)], holds: impl Fn(&Net) -> bool) -> Option<Class> {
    table
        .iter()
        .find(|(net, _)| holds(net))
        .map(|(_, class)| *class)
}

/// `64:ff9b:1::a.b.c.d`: the one form of the translators' local block that can be read without
/// knowing how long the network made its prefix.
fn is_local_translation(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, 1, 0, 0, 0, _, _])
}

/// Addresses of the first kind that the network may make of one of the second kind on the way.
pub(super) fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bytes = address.octets();
    let at = |start: usize| {
        Ipv4Addr::new(
            bytes[start],
            bytes[start + 1],
            bytes[start + 2],
            bytes[start + 3],
        )
    };
    let inverted = Ipv4Addr::from_bits(!at(12).to_bits());
    // A prefix of a length nobody knows hides the address it stands for: count it as none.
    let hidden = Ipv4Addr::UNSPECIFIED;
    let (first, second) = match address.segments() {
        [0, 0, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => (Some(at(12)), None),
        // Mapped, and mapped the other way round by translators of old.
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => (Some(at(12)), None),
        [0x64, 0xff9b, 1, ..] if is_local_translation(address) => (Some(at(12)), None),
        [0x64, 0xff9b, 1, ..] => (Some(hidden), None),
        [0x2002, ..] => (Some(at(2)), None),
        [0x2001, 0, ..] => (Some(at(4)), Some(inverted)),
        [.., 0 | 0x200, 0x5efe, _, _] => (Some(at(12)), None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

/// Whether a rule for `net` means this address. A net that reaches beyond one class says nothing
/// about the parts of it that are not public: `0.0.0.0/0` is the internet and not the cellar.
pub(super) fn lists(net: &IpNet, address: IpAddr, class: Class) -> bool {
    if class == Class::Unspecified || !net.contains(&address) {
        return false;
    }
    if net.prefix_len() == net.max_prefix_len() || class == Class::Public {
        return true;
    }
    !class.wants_exact_rule()
        && classify(net.network()) == class
        && classify(net.broadcast()) == class
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Class {
        classify(text.parse().unwrap())
    }

    #[test]
    fn every_special_block_of_the_first_kind_has_its_class_to_the_edge() {
        let cases = [
            ("0.0.0.0", "0.0.0.0", Class::Unspecified),
            ("0.0.0.1", "0.255.255.255", Class::Reserved),
            ("10.0.0.0", "10.255.255.255", Class::Private),
            ("100.64.0.0", "100.127.255.255", Class::Shared),
            ("127.0.0.0", "127.255.255.255", Class::Loopback),
            ("169.254.0.0", "169.254.255.255", Class::LinkLocal),
            ("172.16.0.0", "172.31.255.255", Class::Private),
            ("192.0.0.0", "192.0.0.255", Class::Reserved),
            ("192.0.2.0", "192.0.2.255", Class::Reserved),
            ("192.88.99.0", "192.88.99.255", Class::Reserved),
            ("192.168.0.0", "192.168.255.255", Class::Private),
            ("198.18.0.0", "198.19.255.255", Class::Reserved),
            ("198.51.100.0", "198.51.100.255", Class::Reserved),
            ("203.0.113.0", "203.0.113.255", Class::Reserved),
            ("224.0.0.0", "239.255.255.255", Class::Multicast),
            ("240.0.0.0", "255.255.255.255", Class::Reserved),
        ];
        for (first, last, wanted) in cases {
            assert_eq!(class(first), wanted, "{first}");
            assert_eq!(class(last), wanted, "{last}");
        }
        for outside in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
        ] {
            assert_eq!(class(outside), Class::Public, "{outside}");
        }
    }

    #[test]
    fn metadata_services_are_known_wherever_they_are() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.0.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
        ] {
            assert_eq!(class(address), Class::Metadata, "{address}");
        }
    }

    #[test]
    fn of_the_second_kind_only_the_internet_is_public() {
        let cases = [
            ("::", Class::Unspecified),
            ("::1", Class::Loopback),
            ("::2", Class::Embedded),
            ("100::1", Class::Reserved),
            ("100:0:0:1::1", Class::Reserved),
            ("1fff:ffff::1", Class::Reserved),
            ("2000::1", Class::Public),
            ("2001:1::1", Class::Reserved),
            ("2001:2::1", Class::Reserved),
            ("2001:3::1", Class::Public),
            ("2001:4:112::1", Class::Public),
            ("2001:4:113::1", Class::Reserved),
            ("2001:20::1", Class::Reserved),
            ("2001:1ff:ffff::1", Class::Reserved),
            ("2001:200::1", Class::Public),
            ("2001:db8::1", Class::Reserved),
            ("2606:4700::1111", Class::Public),
            ("3ffe:ffff::1", Class::Public),
            ("3fff:fff::1", Class::Reserved),
            ("3fff:1000::1", Class::Public),
            ("4000::1", Class::Reserved),
            ("5f00::1", Class::Reserved),
            ("fc00::1", Class::Private),
            ("fdff:ffff::1", Class::Private),
            ("fe00::1", Class::Reserved),
            ("fe80::1", Class::LinkLocal),
            ("febf::1", Class::LinkLocal),
            ("fec0::1", Class::Private),
            ("ff02::1", Class::Multicast),
        ];
        for (address, wanted) in cases {
            assert_eq!(class(address), wanted, "{address}");
        }
    }

    #[test]
    fn an_address_inside_an_address_decides() {
        assert_eq!(class("::ffff:127.0.0.1"), Class::Loopback);
        assert_eq!(class("::ffff:10.1.2.3"), Class::Private);
        assert_eq!(class("::ffff:1.1.1.1"), Class::Public);
        for hidden in [
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1:a00:1::",
            "64:ff9b:1:101:1:101::",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            // A client, then a server, that is private.
            "2001:0:101:101::f5ff:fffe",
            "2001:0:a00:1::fefe:fefe",
            "2606:4700::5efe:10.0.0.1",
            "2606:4700::200:5efe:127.0.0.1",
        ] {
            assert_eq!(class(hidden), Class::Embedded, "{hidden}");
        }
        for open in [
            "64:ff9b::1.1.1.1",
            "64:ff9b:1::1.1.1.1",
            "2002:101:101::",
            "2001:0:101:101::fefe:fefe",
        ] {
            assert_eq!(class(open), Class::Public, "{open}");
        }
        // Public in itself, but no part of the internet carries it.
        assert_eq!(class("::1.1.1.1"), Class::Reserved);
    }

    #[test]
    fn a_net_that_reaches_over_walls_lists_no_cellars() {
        let listed = |net: &str, address: &str| {
            let address = address.parse().unwrap();
            lists(&net.parse().unwrap(), address, classify(address))
        };
        assert!(listed("10.0.0.0/8", "10.1.2.3"));
        assert!(listed("10.1.0.0/16", "10.1.2.3"));
        assert!(listed("10.1.2.3/32", "10.1.2.3"));
        assert!(listed("127.0.0.0/8", "127.0.0.1"));
        assert!(listed("fc00::/7", "fd12::1"));
        assert!(listed("0.0.0.0/0", "1.1.1.1"));
        assert!(listed("169.254.169.254/32", "169.254.169.254"));
        assert!(!listed("0.0.0.0/0", "10.1.2.3"));
        assert!(!listed("0.0.0.0/0", "127.0.0.1"));
        assert!(!listed("0.0.0.0/0", "0.0.0.0"));
        assert!(!listed("0.0.0.0/32", "0.0.0.0"));
        assert!(!listed("8.0.0.0/5", "10.1.2.3"));
        assert!(!listed("::/0", "::1"));
        assert!(!listed("::/0", "fd12::1"));
        assert!(!listed("169.254.0.0/16", "169.254.169.254"));
        assert!(!listed("64:ff9b::/96", "64:ff9b::10.0.0.1"));
        assert!(!listed("10.0.0.0/8", "11.0.0.0"));
    }
}
