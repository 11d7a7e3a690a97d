//! How fast a box may be: bytes of all its connections, both ways, against the clock.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::policy::egress::Rate;

/// What may be sent at once after a pause.
const BURST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Pace {
    each_second: u64,
    /// When everything sent so far would have been sent at this rate.
    paid_until: Cell<Option<Instant>>,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            each_second: rate.0.max(1),
            paid_until: Cell::new(None),
        }
    }

    /// No more than this at a time, so that others get their turn.
    pub(super) fn piece(&self) -> usize {
        (self.each_second / 20).clamp(512, 64 << 10) as usize
    }

    /// Waits until these bytes may have been sent. Everybody who waits has a place of its own.
    pub(super) async fn pay(&self, bytes: usize) {
        let now = Instant::now();
        let cost = Duration::from_nanos(
            (bytes as u128 * 1_000_000_000 / u128::from(self.each_second)) as u64,
        );
        let from = self.paid_until.get().map_or(now, |until| until.max(now));
        let until = from + cost;
        self.paid_until.set(Some(until));
        if until > now + BURST {
            tokio::time::sleep_until(until - BURST).await;
        }
    }
}
