//! Umasks that were read a moment ago: `/proc/<tid>/status` is the dearest file of all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;

/// Shorter than any way around all thread numbers, so that no number can have a new owner.
const KEPT: Duration = Duration::from_millis(200);
/// How long after a change nothing is kept: the kernel carries it out after we were told, and
/// threads may share it.
const UNSETTLED: Duration = Duration::from_secs(1);
const ROOM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Umasks(RefCell<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<u32, (Mode, Instant)>,
    changed: Option<Instant>,
}

impl Umasks {
    pub(super) fn known(&self, thread: u32) -> Option<Mode> {
        let inner = self.0.try_borrow().ok()?;
        let (mode, since) = inner.known.get(&thread)?;
        (since.elapsed() < KEPT).then_some(*mode)
    }

    pub(super) fn note(&self, thread: u32, mode: Mode) {
        let Ok(mut inner) = self.0.try_borrow_mut() else {
            return;
        };
        if inner.changed.is_some_and(|at| at.elapsed() < UNSETTLED) {
            return;
        }
        if inner.known.len() >= ROOM {
            inner.known.clear();
        }
        inner.known.insert(thread, (mode, Instant::now()));
    }

    /// Somebody is about to change a umask; it may be shared with any other thread.
    pub(super) fn forget(&self) {
        if let Ok(mut inner) = self.0.try_borrow_mut() {
            inner.known.clear();
            inner.changed = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_makes_all_be_read_again_and_kept_by_nobody_for_a_while() {
        let umasks = Umasks::default();
        let mode = Mode::from_bits_truncate(0o22);
        umasks.note(7, mode);
        assert_eq!(umasks.known(7), Some(mode));
        assert_eq!(umasks.known(8), None);
        umasks.forget();
        umasks.note(7, mode);
        assert_eq!(umasks.known(7), None);
    }
}
