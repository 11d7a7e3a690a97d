//! What tests of this room share: one thread with everything that waits on it.

use std::future::Future;
use std::time::Duration;

use tokio::task::LocalSet;

/// Runs a test; one that hangs fails. With `is_fast` clocks jump ahead while nothing happens, which
/// is right only where nothing else than a clock is waited for.
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(super) fn run(is_fast: bool, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(is_fast)
        .build()
        .unwrap();
    let limit = Duration::from_secs(if is_fast { 24 * 60 * 60 } else { 60 });
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(limit, test).await.expect("too slow");
    });
}
