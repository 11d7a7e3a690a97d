//! When to look at a box again: soon where it could pass a limit soon, seldom where nobody in it
//! does anything.

use std::time::{Duration, Instant};

/// Faster than this, no single processor fills memory with pages that are touched.
const BYTES_PER_SECOND: u64 = 2 << 30;
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST_ACTIVE: Duration = Duration::from_millis(500);
/// No more than a twentieth of the time is spent looking.
const SHARE: u32 = 20;

#[derive(Debug)]
pub(super) struct Pace {
    next: Instant,
    quiet: u32,
    processors: u64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        let processors = std::thread::available_parallelism();
        Self {
            next: now,
            quiet: 0,
            processors: processors.map_or(1, |count| count.get() as u64),
        }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        self.next = now;
        self.quiet = 0;
    }

    /// After a look: `room` is what memory is left, `cost` what the look took, `longest` how long
    /// a box may be left alone that does nothing.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        is_quiet: bool,
        room: Option<u64>,
        cost: Duration,
        longest: Duration,
    ) {
        self.quiet = if is_quiet { self.quiet + 1 } else { 0 };
        let fast = room.map_or(LONGEST_ACTIVE, |room| {
            let seconds = room as f64 / (BYTES_PER_SECOND * self.processors.min(4)) as f64;
            // Twice before it could be used up.
            Duration::from_secs_f64(seconds / 2.0).clamp(SHORTEST, LONGEST_ACTIVE)
        });
        let slower = fast * 4u32.saturating_pow(self.quiet.min(8));
        let wait = slower.min(longest.max(fast)).max(cost * SHARE);
        self.next = now + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_near_its_limit_is_looked_at_often_and_a_quiet_one_seldom() {
        let now = Instant::now();
        let longest = Duration::from_secs(2);
        let mut pace = Pace::new(now);
        pace.processors = 2;
        let mut wait = |is_quiet, room, cost| {
            pace.plan(now, is_quiet, room, cost, longest);
            pace.next() - now
        };
        let cheap = Duration::from_micros(50);
        assert_eq!(wait(false, Some(1 << 20), cheap), SHORTEST);
        assert_eq!(wait(false, Some(1 << 40), cheap), LONGEST_ACTIVE);
        assert_eq!(wait(false, None, cheap), LONGEST_ACTIVE);
        let dear = Duration::from_millis(10);
        assert_eq!(wait(false, Some(0), dear), dear * SHARE);
        for _ in 0..20 {
            wait(true, Some(1 << 20), cheap);
        }
        assert_eq!(wait(true, Some(1 << 20), cheap), longest);
        assert_eq!(wait(false, Some(1 << 20), cheap), SHORTEST);
    }
}
