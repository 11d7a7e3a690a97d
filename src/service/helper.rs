//! The helper as a whole: the profiles of the apps that it serves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;

use super::Options;
use super::blocking::Blocking;
use super::outside::Outside;
use super::profile::{Key, Profile};
use super::telling;
use super::written::Written;

/// Where everything of all profiles is kept.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    pub(super) state: PathBuf,
    pub(super) runtime: PathBuf,
    /// Where the app's socket is.
    pub(super) socket: PathBuf,
    pub(super) home: PathBuf,
}

#[derive(Debug)]
pub(super) struct Helper {
    pub(super) options: Options,
    pub(super) ground: Ground,
    profiles: RefCell<BTreeMap<Key, Rc<Profile>>>,
    /// The one that is meant by those who do not say which.
    current: RefCell<Option<Rc<Profile>>>,
    unknown: RefCell<BTreeSet<String>>,
    /// The app holds our standard input, and is gone when it lets go.
    pub(super) is_held_by_app: bool,
    pub(super) blocking: Blocking,
    pub(super) written: Written,
    /// Where the token goes that stays outside.
    pub(super) outside: Option<Outside>,
}

/// Names of unknown methods that are told once each.
const MOST_UNKNOWN: usize = 64;

impl Helper {
    pub(super) fn new(options: Options, ground: Ground, is_held_by_app: bool) -> Self {
        let base = || std::env::var("ANTHROPIC_BASE_URL").ok();
        let outside = options.token_outside.then(|| Outside::new(base()));
        Self {
            outside,
            written: Written::kept_in(ground.state.join("desktop/written")),
            options,
            ground,
            profiles: RefCell::default(),
            current: RefCell::default(),
            unknown: RefCell::default(),
            is_held_by_app,
            blocking: Blocking::default(),
        }
    }

    /// The profile of that name; the first name that is said is that of whoever came before it.
    pub(super) fn named(self: &Rc<Self>, key: Key) -> Rc<Profile> {
        let known = self.profiles.borrow().get(&key).cloned();
        let profile = known.unwrap_or_else(|| {
            let nobodys = self.profiles.borrow_mut().remove(&Key::default());
            let profile = match nobodys {
                Some(profile) if profile.can_be_renamed() => {
                    profile.rename(key.clone());
                    profile
                }
                other => {
                    let mut profiles = self.profiles.borrow_mut();
                    profiles.extend(other.map(|it| (Key::default(), it)));
                    Profile::new(key.clone(), Rc::clone(self))
                }
            };
            self.profiles.borrow_mut().insert(key, Rc::clone(&profile));
            profile
        });
        *self.current.borrow_mut() = Some(Rc::clone(&profile));
        profile
    }

    pub(super) fn current(self: &Rc<Self>) -> Rc<Profile> {
        let current = self.current.borrow().clone();
        current.unwrap_or_else(|| self.named(Key::default()))
    }

    pub(super) fn profiles(&self) -> Vec<Rc<Profile>> {
        self.profiles.borrow().values().cloned().collect()
    }

    /// A call that nobody here knows: the app is newer than this program.
    pub(super) fn tell_unknown(&self, method: &str, names: &str) {
        let mut unknown = self.unknown.borrow_mut();
        if unknown.len() < MOST_UNKNOWN && unknown.insert(method.to_owned()) {
            telling::warn(&format!(
                "the app calls `{method}`, which is not known here (with: {names})"
            ));
        }
    }
}
