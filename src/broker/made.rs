//! What the programs of this box have made, as far as it is remembered: the device, the number and
//! the time of birth of each file, folder and link. A number alone could be another's later.
//!
//! A filesystem that tells no time of birth has the number alone to go by.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::sys::at::Identity;

/// What is beyond this is forgotten, the oldest first: then it counts as the user's.
const MOST: usize = 1 << 16;
/// Files of the user's that were given another name.
const MOST_MOVED: usize = 1024;

/// One object, for as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Thing {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Thing {
    fn of(identity: &Identity) -> Self {
        Self {
            device: identity.device,
            inode: identity.inode,
            born: identity.born,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Made {
    /// With the number under which each was noted last.
    known: HashMap<Thing, u64>,
    /// In the order of noting; those that were forgotten since are still in it.
    order: VecDeque<(Thing, u64)>,
    noted: u64,
    /// Where the user's own were before a program gave them other names.
    moved: VecDeque<(Thing, PathBuf)>,
}

impl Made {
    pub(super) fn note(&mut self, made: &Identity) {
        let thing = Thing::of(made);
        self.noted += 1;
        self.known.insert(thing, self.noted);
        self.order.push_back((thing, self.noted));
        while self.known.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_if_last(oldest);
        }
        if self.order.len() > 2 * MOST {
            let known = &self.known;
            self.order
                .retain(|(thing, number)| known.get(thing) == Some(number));
        }
    }

    fn drop_if_last(&mut self, (thing, number): (Thing, u64)) {
        if self.known.get(&thing) == Some(&number) {
            self.known.remove(&thing);
        }
    }

    pub(super) fn has(&self, identity: &Identity) -> bool {
        self.known.contains_key(&Thing::of(identity))
    }

    /// It is gone, or counts as the user's from now on.
    pub(super) fn forget(&mut self, identity: &Identity) {
        self.known.remove(&Thing::of(identity));
    }

    /// Something of the user's goes from one name to another.
    pub(super) fn note_moved(&mut self, identity: &Identity, from: &Path, to: &Path) {
        let thing = Thing::of(identity);
        match self.moved.iter().position(|(other, _)| *other == thing) {
            // Back where it was.
            Some(at) if self.moved[at].1 == to => drop(self.moved.remove(at)),
            Some(_) => {}
            None => {
                if self.moved.len() == MOST_MOVED {
                    self.moved.pop_front();
                }
                self.moved.push_back((thing, from.to_owned()));
            }
        }
    }

    /// Where it was before it was given another name.
    pub(super) fn origin(&self, identity: &Identity) -> Option<&Path> {
        let thing = Thing::of(identity);
        let found = self.moved.iter().find(|(other, _)| *other == thing);
        found.map(|(_, from)| from.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(inode: u64, born: i64) -> Identity {
        Identity {
            device: (0, 1),
            inode,
            mount: 0,
            mode: libc::S_IFREG,
            links: 1,
            born: Some((born, 0)),
        }
    }

    #[test]
    fn a_number_that_is_anothers_now_is_not_ours() {
        let mut made = Made::default();
        made.note(&thing(5, 1));
        assert!(made.has(&thing(5, 1)));
        assert!(!made.has(&thing(5, 2)) && !made.has(&thing(6, 1)));
        made.forget(&thing(5, 1));
        assert!(!made.has(&thing(5, 1)));
    }

    #[test]
    fn the_oldest_are_forgotten_and_nothing_grows_for_ever() {
        let mut made = Made::default();
        for number in 0..MOST as u64 {
            made.note(&thing(number, 1));
        }
        assert!(made.has(&thing(0, 1)));
        // Noted again, it is not the oldest any more.
        made.note(&thing(0, 1));
        made.note(&thing(MOST as u64, 1));
        assert!(made.has(&thing(0, 1)) && !made.has(&thing(1, 1)));
        for number in 0..5 * MOST as u64 {
            made.note(&thing(number, 2));
            made.forget(&thing(number, 2));
        }
        assert!(made.order.len() <= 2 * MOST + 1);
        assert!(made.has(&thing(0, 1)));
    }

    #[test]
    fn the_first_name_counts_until_it_is_taken_back() {
        let mut made = Made::default();
        let mut go = |from: &str, to: &str| {
            made.note_moved(&thing(1, 1), Path::new(from), Path::new(to));
            made.origin(&thing(1, 1)).map(Path::to_owned)
        };
        assert_eq!(go("/a", "/b").as_deref(), Some(Path::new("/a")));
        assert_eq!(go("/b", "/c").as_deref(), Some(Path::new("/a")));
        assert_eq!(go("/c", "/a"), None);
    }
}
