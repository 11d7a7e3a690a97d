//! Whether anything happens in a box: judged by the processor time it takes.

use std::time::{Duration, Instant};

/// Below this share of one processor nothing happens: programs that wait wake up now and then.
const NOTHING: f64 = 0.02;
const LONGEST: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Idle {
    /// Since when nothing happens.
    since: Instant,
    looked: Instant,
    cpu_time: Duration,
}

impl Idle {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            looked: now,
            cpu_time: Duration::ZERO,
        }
    }

    /// Something came in or went out.
    pub(super) fn touch(&mut self, now: Instant) {
        self.since = now;
    }

    pub(super) fn wake_at(&self, limit: Duration) -> Instant {
        let often = (limit / 8).clamp(SHORTEST, LONGEST);
        let end = self.since + limit;
        (self.looked + often).min(end.max(self.looked + SHORTEST))
    }

    /// For how long nothing has happened.
    pub(super) fn look(&mut self, now: Instant, cpu_time: Duration) -> Duration {
        let passed = now.saturating_duration_since(self.looked);
        let worked = cpu_time.saturating_sub(self.cpu_time);
        if worked.as_secs_f64() > passed.as_secs_f64() * NOTHING {
            self.since = now;
        }
        self.looked = now;
        self.cpu_time = cpu_time;
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_box_that_works_is_never_idle_and_one_that_waits_is() {
        let start = Instant::now();
        let mut idle = Idle::new(start);
        let busy = idle.look(start + SECOND, Duration::from_millis(900));
        assert_eq!(busy, Duration::ZERO);
        let now_and_then = idle.look(start + SECOND * 11, Duration::from_millis(950));
        assert_eq!(now_and_then, SECOND * 10);
        idle.touch(start + SECOND * 11);
        let touched = idle.look(start + SECOND * 12, Duration::from_millis(950));
        assert_eq!(touched, SECOND);
    }

    #[test]
    fn looks_are_seldom_but_the_end_is_not_missed() {
        let start = Instant::now();
        let mut idle = Idle::new(start);
        assert_eq!(idle.wake_at(SECOND * 80), start + SECOND * 10);
        assert_eq!(idle.wake_at(SECOND * 3600), start + LONGEST);
        idle.look(start + SECOND * 75, Duration::ZERO);
        assert_eq!(idle.wake_at(SECOND * 80), start + SECOND * 80);
    }
}
