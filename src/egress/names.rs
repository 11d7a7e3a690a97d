//! Addresses for names: what the box's DNS gives out, and what they stand for.
//!
//! Nothing outside knows these addresses. An address means its name for as long as the table has
//! it, and nothing at all afterwards: addresses are given out in order, so that one comes back only
//! when all the others had their turn, and whoever kept it that long has asked again.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use crate::policy::egress::Name;

/// 198.18.0.0/15 is set aside for measuring networks, so no host of the internet is behind it. Its
/// first 256 addresses are kept for ourselves.
const NET: [u8; 2] = [198, 18];
const NETS_OF_256: u32 = 512;
/// Without those that end in 0 or 255, which look like a net or like everybody in it.
const IN_EACH: u32 = 254;
const SLOTS: u32 = (NETS_OF_256 - 1) * IN_EACH;

/// A unique local prefix; the last 32 bits are those of the other address.
const PREFIX: [u16; 4] = [0xfd63, 0x6f77, 0x6f72, 0x6b00];

/// A bounded table; the name that was asked for longest ago makes room.
#[derive(Debug)]
pub(super) struct Names {
    capacity: usize,
    held: HashMap<Rc<Name>, Held>,
    names: HashMap<u32, Rc<Name>>,
    /// When each was last asked for or connected to, counted in such occasions.
    ages: BTreeMap<u64, Rc<Name>>,
    occasions: u64,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    slot: u32,
    asked: u64,
}

impl Names {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            // With half of the range in use at most there is always another address to give.
            capacity: capacity.clamp(1, SLOTS as usize / 2),
            held: HashMap::new(),
            names: HashMap::new(),
            ages: BTreeMap::new(),
            occasions: 0,
            next: 0,
        }
    }

    /// The pair of addresses that stands for this name from now on: one of 198.18.0.0/15, and one
    /// of a unique local prefix.
    pub(super) fn give(&mut self, name: &Name) -> (Ipv4Addr, Ipv6Addr) {
        let slot = match self.held.get(name).copied() {
            Some(held) => {
                self.asked_again(name);
                held.slot
            }
            None => self.add(name),
        };
        (v4(slot), v6(slot))
    }

    /// The name an address stands for.
    pub(super) fn name(&mut self, address: IpAddr) -> Option<&Name> {
        let slot = slot(address.to_canonical())?;
        let name = Rc::clone(self.names.get(&slot)?);
        self.asked_again(&name);
        self.names.get(&slot).map(Rc::as_ref)
    }

    /// Whether the address is one of those given out, known or not.
    pub(super) fn is_ours(address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, ..] = address.octets();
                a == NET[0] && b & !1 == NET[1]
            }
            IpAddr::V6(address) => address.segments()[..4] == PREFIX,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    fn asked_again(&mut self, name: &Name) {
        self.occasions += 1;
        if let Some(held) = self.held.get_mut(name)
            && let Some(shared) = self.ages.remove(&held.asked)
        {
            held.asked = self.occasions;
            self.ages.insert(self.occasions, shared);
        }
    }

    fn add(&mut self, name: &Name) -> u32 {
        while self.held.len() >= self.capacity {
            let Some((_, oldest)) = self.ages.pop_first() else {
                break;
            };
            if let Some(held) = self.held.remove(&oldest) {
                self.names.remove(&held.slot);
            }
        }
        while self.names.contains_key(&self.next) {
            self.next = (self.next + 1) % SLOTS;
        }
        let slot = self.next;
        self.next = (slot + 1) % SLOTS;
        self.occasions += 1;
        let asked = self.occasions;
        let name = Rc::new(name.clone());
        self.ages.insert(asked, Rc::clone(&name));
        self.names.insert(slot, Rc::clone(&name));
        self.held.insert(name, Held { slot, asked });
        slot
    }
}

fn v4(slot: u32) -> Ipv4Addr {
    let first = u32::from_be_bytes([NET[0], NET[1], 0, 0]);
    let net = slot / IN_EACH + 1;
    Ipv4Addr::from(first | net << 8 | (slot % IN_EACH + 1))
}

fn v6(slot: u32) -> Ipv6Addr {
    let [a, b, c, d] = PREFIX;
    let [high, low] = [
        (u32::from(v4(slot)) >> 16) as u16,
        u32::from(v4(slot)) as u16,
    ];
    Ipv6Addr::new(a, b, c, d, 0, 0, high, low)
}

fn slot(address: IpAddr) -> Option<u32> {
    let bits = match address {
        IpAddr::V4(address) => u32::from(address),
        IpAddr::V6(address) => match address.segments() {
            [a, b, c, d, 0, 0, high, low] if [a, b, c, d] == PREFIX => {
                u32::from(high) << 16 | u32::from(low)
            }
            _ => return None,
        },
    };
    let inside = bits.checked_sub(u32::from_be_bytes([NET[0], NET[1], 0, 0]))?;
    let (net, last) = (inside >> 8, inside & 0xff);
    let is_given = (1..NETS_OF_256).contains(&net) && (1..=IN_EACH).contains(&last);
    is_given.then(|| (net - 1) * IN_EACH + last - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn name(number: u32) -> Name {
        Name::parse(&format!("host-{number}.example")).unwrap()
    }

    #[test]
    fn an_address_leads_back_to_its_name_in_both_forms() {
        let mut names = Names::new(10);
        let (first, first6) = names.give(&name(1));
        let (second, second6) = names.give(&name(2));
        assert_eq!(first, Ipv4Addr::new(198, 18, 1, 1));
        assert_eq!(first6.to_string(), "fd63:6f77:6f72:6b00::c612:101");
        assert_eq!(names.name(first.into()), Some(&name(1)));
        assert_eq!(names.name(first6.into()), Some(&name(1)));
        assert_eq!(names.name(second.into()), Some(&name(2)));
        assert_eq!(names.name(second6.into()), Some(&name(2)));
        // Another spelling of the same address.
        assert_eq!(names.name(first.to_ipv6_mapped().into()), Some(&name(1)));
        assert_eq!(names.give(&name(1)), (first, first6));
    }

    #[test]
    fn ours_is_the_whole_range_and_nothing_beside_it() {
        let ours = |text: &str| Names::is_ours(text.parse().unwrap());
        for inside in [
            "198.18.0.0",
            "198.18.0.1",
            "198.19.255.255",
            "::ffff:198.18.1.1",
            "fd63:6f77:6f72:6b00::",
            "fd63:6f77:6f72:6b00:ffff:ffff:ffff:ffff",
        ] {
            assert!(ours(inside), "{inside}");
        }
        for outside in [
            "198.17.255.255",
            "198.20.0.0",
            "199.18.0.1",
            "fd63:6f77:6f72:6b01::",
            "fd63:6f77:6f72:6aff::c612:101",
            "::198.18.1.1",
        ] {
            assert!(!ours(outside), "{outside}");
        }
    }

    #[test]
    fn what_was_never_given_out_stands_for_nothing() {
        let mut names = Names::new(usize::MAX);
        for number in 0..600 {
            names.give(&name(number));
        }
        let nothing = [
            "198.18.0.1",
            "198.18.1.0",
            "198.18.1.255",
            "198.18.2.0",
            "198.19.255.254",
            "198.20.0.1",
            "127.0.0.1",
            "fd63:6f77:6f72:6b00::1",
            "fd63:6f77:6f72:6b00:0:1:c612:101",
            "fd63:6f77:6f72:6b00:1::c612:101",
        ];
        for address in nothing {
            assert_eq!(names.name(address.parse().unwrap()), None, "{address}");
        }
        assert!(names.name("198.18.1.254".parse().unwrap()).is_some());
        assert!(names.name("198.18.2.1".parse().unwrap()).is_some());
    }

    #[test]
    fn every_slot_has_an_address_of_its_own() {
        let mut seen = HashSet::new();
        for number in 0..SLOTS {
            let address = v4(number);
            let last = address.octets()[3];
            assert!(Names::is_ours(address.into()) && last != 0 && last != 255);
            assert!(u32::from(address) > u32::from(Ipv4Addr::new(198, 18, 0, 255)));
            assert_eq!(slot(address.into()), Some(number));
            assert_eq!(slot(v6(number).into()), Some(number));
            assert!(seen.insert(address));
        }
    }

    #[test]
    fn whoever_was_asked_for_longest_ago_makes_room() {
        let mut names = Names::new(3);
        let given: Vec<_> = (0..3).map(|number| names.give(&name(number)).0).collect();
        // One is asked for again, another is connected to.
        names.give(&name(0));
        assert!(names.name(given[1].into()).is_some());
        names.give(&name(3));
        assert_eq!(names.name(given[2].into()), None);
        assert_eq!(names.name(given[0].into()), Some(&name(0)));
        assert_eq!(names.name(given[1].into()), Some(&name(1)));
    }

    #[test]
    fn an_address_comes_back_only_after_all_the_others() {
        let mut names = Names::new(4);
        let kept = name(u32::MAX);
        let (mine, _) = names.give(&kept);
        let mut seen = HashSet::from([mine]);
        for number in 1..SLOTS {
            assert!(seen.insert(names.give(&name(number)).0), "after {number}");
            names.give(&kept);
        }
        // Around once, and the one that is still in use is passed over.
        assert_eq!(names.give(&name(0)).0, v4(1));
        assert_eq!(names.name(mine.into()), Some(&kept));
        assert_eq!(names.held.len(), 4);
    }

    proptest! {
        /// Whatever is asked for in whatever order: the table keeps to its size, both ways agree,
        /// and an address that is known leads to whom it was given for last.
        #[test]
        fn both_ways_agree(
            capacity in 1usize..12,
            asked in prop::collection::vec((0u32..20, any::<bool>()), 1..200),
        ) {
            let mut names = Names::new(capacity);
            let mut given: HashMap<Ipv4Addr, Name> = HashMap::new();
            for (number, only_look) in asked {
                let asked = name(number);
                if only_look {
                    names.name(v4(number).into());
                } else {
                    let (address, second) = names.give(&asked);
                    prop_assert_eq!(names.name(address.into()), Some(&asked));
                    prop_assert_eq!(names.name(second.into()), Some(&asked));
                    given.insert(address, asked);
                }
                prop_assert!(names.held.len() <= capacity);
                prop_assert_eq!(names.held.len(), names.names.len());
                prop_assert_eq!(names.held.len(), names.ages.len());
                for (address, to) in &given {
                    let known = names.names.get(&slot((*address).into()).unwrap());
                    prop_assert!(known.is_none_or(|known| **known == *to));
                }
            }
        }
    }
}
