//! What may wait for a disk that never answers: done by other threads, so many at a time and no more,
//! and waited for so long and no longer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Threads that may be stuck at the same time. Others are kept for what does not get stuck.
const MOST: usize = 32;

/// The threads that touch the user's folders.
#[derive(Debug, Clone)]
pub(super) struct Blocking(Arc<Semaphore>);

impl Default for Blocking {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Blocking {
    /// What came of it; nothing when it takes too long. It goes on then, and keeps its place.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let done = async {
            let place = Arc::clone(&self.0).acquire_owned().await.ok()?;
            let work = spawn_blocking(move || {
                let done = work();
                drop(place);
                done
            });
            work.await.ok()
        };
        timeout(patience, done).await.ok().flatten()
    }
}
