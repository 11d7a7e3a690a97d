//! Where the gateway runs while very much is passed on.
//!
//! It is between two others that wake each other up all the time, and a kernel that finds an idle processor for
//! everyone who wakes up moves all three about, away from the caches that the bytes are in. When the gateway stays beside
//! the one who takes them, that one gets half as many again a second where there are two processors. That is
//! for what comes faster than any network: a server on the same computer.

use std::cell::Cell;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tokio::time::Instant;

/// After so long it is looked anew where to be.
const STAY: Duration = Duration::from_millis(500);
const THIS_THREAD: Pid = Pid::from_raw(0);

thread_local! {
    /// Connections that pass much on.
    static MUCH: Cell<u32> = const { Cell::new(0) };
    /// Where it may be, and since when it stays; nothing while it goes where it is put.
    static STAYS: Cell<Option<(CpuSet, Instant)>> = const { Cell::new(None) };
}

/// Held by a connection while it passes much on.
#[derive(Debug)]
pub(super) struct Place(());

impl Place {
    pub(super) fn take() -> Self {
        MUCH.set(MUCH.get() + 1);
        Self(())
    }

    /// Stays at this processor for a while, if no other connection wants something else.
    pub(super) fn stay(&self, processor: Option<usize>) {
        if MUCH.get() > 1 {
            return self.leave();
        }
        let is_settled = |since: Instant| since.elapsed() < STAY;
        let known = STAYS.get();
        if known.is_some_and(|(_, since)| is_settled(since)) {
            return;
        }
        let settled = || -> nix::Result<(CpuSet, Instant)> {
            let allowed = match known {
                Some((allowed, _)) => allowed,
                None => sched_getaffinity(THIS_THREAD)?,
            };
            let mut here = CpuSet::new();
            if let Some(processor) = processor
                && allowed.is_set(processor)?
            {
                here.set(processor)?;
                sched_setaffinity(THIS_THREAD, &here)?;
            }
            Ok((allowed, Instant::now()))
        };
        // Where that cannot be done, it is slower.
        if let Ok(settled) = settled() {
            STAYS.set(Some(settled));
        }
    }

    /// Goes wherever it is put again.
    pub(super) fn leave(&self) {
        if let Some((allowed, _)) = STAYS.take() {
            let _ = sched_setaffinity(THIS_THREAD, &allowed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        MUCH.set(MUCH.get() - 1);
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, because that is what moves.
    fn apart(test: impl FnOnce(CpuSet) + Send + 'static) {
        let allowed = sched_getaffinity(THIS_THREAD).unwrap();
        std::thread::spawn(move || test(allowed)).join().unwrap();
    }

    fn is_now(expected: &CpuSet) -> bool {
        sched_getaffinity(THIS_THREAD).unwrap() == *expected
    }

    fn first(allowed: &CpuSet) -> usize {
        let mut all = 0..CpuSet::count();
        all.find(|number| allowed.is_set(*number) == Ok(true))
            .unwrap()
    }

    #[test]
    fn it_stays_where_it_is_told_and_leaves_when_it_is_over() {
        apart(|allowed| {
            let processor = first(&allowed);
            let mut here = CpuSet::new();
            here.set(processor).unwrap();
            let place = Place::take();
            assert!(is_now(&allowed));
            place.stay(Some(processor));
            assert!(is_now(&here));
            place.leave();
            assert!(is_now(&allowed));
            place.stay(Some(processor));
            drop(place);
            assert!(is_now(&allowed));
        });
    }

    #[test]
    fn two_connections_do_not_hold_it_each_beside_its_own() {
        apart(|allowed| {
            let one = Place::take();
            one.stay(Some(first(&allowed)));
            let two = Place::take();
            two.stay(Some(first(&allowed)));
            assert!(is_now(&allowed));
            drop(two);
            one.stay(Some(first(&allowed)));
            drop(one);
            assert!(is_now(&allowed));
        });
    }

    #[test]
    fn it_goes_nowhere_that_it_may_not_be() {
        apart(|allowed| {
            let place = Place::take();
            let taken = |number: &usize| allowed.is_set(*number) != Ok(true);
            for processor in (0..CpuSet::count()).filter(taken).take(2) {
                place.stay(Some(processor));
                place.leave();
            }
            place.stay(None);
            place.stay(Some(usize::MAX));
            assert!(is_now(&allowed));
        });
    }
}
