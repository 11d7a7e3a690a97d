//! How much room sessions take, and giving it back. Never more than the sessions' own folder is
//! touched: what is mounted in a session is not there on the host.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use serde::Serialize;

use super::names::session_name;
use crate::policy::SessionId;
use crate::report;
use crate::session::{Disposable, Places, RemoveError, UpkeepError, remove};

/// How long all sessions together may be counted for one answer.
const COUNTING: Duration = Duration::from_secs(2);
/// For so long a count is good enough; on a disk that fills up for a shorter time.
const FRESH: Duration = Duration::from_secs(600);
const FRESH_WHEN_LOW: Duration = Duration::from_secs(30);
/// How long one call may go on removing; what is left is for the next one.
const PRUNING: Duration = Duration::from_secs(20);
/// What tools keep below a home and make anew when it is gone.
const CACHES: [&str; 9] = [
    ".cache",
    ".npm/_cacache",
    ".npm/_logs",
    ".yarn/cache",
    ".bun/install/cache",
    ".cargo/registry",
    ".gradle/caches",
    ".local/share/Trash",
    "go/pkg/mod/cache",
];

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    total_bytes: u64,
    free_bytes: u64,
    sessions: Vec<SessionSize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionSize {
    name: String,
    size_bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Deleted {
    pub(super) deleted: Vec<String>,
    errors: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pruned {
    pruned_sessions: Vec<String>,
    skipped_sessions: Vec<String>,
    freed_bytes: u64,
    errors: BTreeMap<String, String>,
}

/// What `pruneSessionCaches` is called with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pruning {
    /// 0 is always.
    pub(super) only_if_free_below: u64,
    pub(super) include_tmp: bool,
    /// 0 is whatever age.
    pub(super) tmp_older_than: Duration,
}

/// What was counted last, of one profile.
#[derive(Debug, Default)]
pub(super) struct Sizes(Mutex<BTreeMap<String, Counted>>);

#[derive(Debug, Clone, Copy)]
struct Counted {
    bytes: u64,
    at: Instant,
}

impl Sizes {
    /// `getSessionsDiskInfo`. Blocks for two seconds at most.
    pub(super) fn info(&self, places: &Places, low_water: u64) -> Info {
        let (total_bytes, free_bytes) = room(&places.state);
        let fresh = match free_bytes < low_water {
            true => FRESH_WHEN_LOW,
            false => FRESH,
        };
        let ids = places.ids();
        self.count(places, &ids, fresh, Instant::now() + COUNTING);
        let mut known = self.known();
        known.retain(|name, _| ids.iter().any(|id| id.as_str() == name));
        let sessions = ids.iter().map(|id| SessionSize {
            name: id.as_str().to_owned(),
            size_bytes: known.get(id.as_str()).map_or(0, |counted| counted.bytes),
        });
        Info {
            total_bytes,
            free_bytes,
            sessions: sessions.collect(),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Counted>> {
        // Numbers stay numbers, whoever panicked over them.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Those first that were not looked at for the longest time, so that each has its turn.
    fn count(&self, places: &Places, ids: &[SessionId], fresh: Duration, until: Instant) {
        let known = self.known().clone();
        let mut stale: Vec<&SessionId> = ids.iter().collect();
        stale.retain(|id| {
            known
                .get(id.as_str())
                .is_none_or(|counted| counted.at.elapsed() >= fresh)
        });
        stale.sort_by_key(|id| known.get(id.as_str()).map(|counted| counted.at));
        for id in stale {
            if Instant::now() >= until {
                return;
            }
            let Ok(size) = places.size(id, until) else {
                continue;
            };
            let last = known.get(id.as_str()).map_or(0, |counted| counted.bytes);
            let bytes = match size.is_whole {
                true => size.bytes,
                // At least what was seen now, and likely what was seen before.
                false => size.bytes.max(last),
            };
            let at = Instant::now();
            self.known()
                .insert(id.as_str().to_owned(), Counted { bytes, at });
        }
    }

    /// What is gone, or has become less, is counted again.
    fn forget(&self, name: &str) {
        self.known().remove(name);
    }

    /// `deleteSessionDirs`: sessions with everything they left in our folders. The caller stops a
    /// box that only waits before, and `is_running` is about the programs in it.
    pub(super) fn delete(
        &self,
        places: &Places,
        names: &[String],
        is_running: impl Fn(&SessionId) -> bool,
    ) -> Deleted {
        let mut done = Deleted::default();
        for name in names {
            match delete_one(places, name, &is_running) {
                Ok(()) => {
                    self.forget(name);
                    done.deleted.push(name.clone());
                }
                Err(why) => {
                    done.errors.insert(name.clone(), why);
                }
            }
        }
        done
    }

    /// `pruneSessionCaches`: sessions that do not run, and only what can be made anew.
    pub(super) fn prune(
        &self,
        places: &Places,
        how: Pruning,
        is_running: impl Fn(&SessionId) -> bool,
    ) -> Pruned {
        let mut done = Pruned::default();
        let (_, free) = room(&places.state);
        if how.only_if_free_below != 0 && free >= how.only_if_free_below {
            return done;
        }
        let what = Disposable {
            caches: &CACHES,
            temporary: how.include_tmp.then_some(how.tmp_older_than),
        };
        let until = Instant::now() + PRUNING;
        for id in places.ids() {
            let name = id.as_str().to_owned();
            if is_running(&id) || Instant::now() >= until {
                done.skipped_sessions.push(name);
                continue;
            }
            match places.prune(&id, what, until) {
                Ok(bytes) => {
                    self.forget(&name);
                    done.freed_bytes += bytes;
                    done.pruned_sessions.push(name);
                }
                Err(UpkeepError::Running(_)) => done.skipped_sessions.push(name),
                Err(UpkeepError::None(_)) => {}
                Err(error) => {
                    done.errors.insert(name, report::in_one_line(&error));
                }
            }
        }
        done
    }
}

fn delete_one(
    places: &Places,
    name: &str,
    is_running: &impl Fn(&SessionId) -> bool,
) -> Result<(), String> {
    let id = session_name(name)?;
    if is_running(&id) {
        return Err("session has a running process".to_owned());
    }
    remove(places, &id, true).map_err(|error| match error {
        RemoveError::Running(_) => "session has a running process".to_owned(),
        error => report::in_one_line(&error),
    })
}

/// All and free bytes of the disk that holds the sessions, or will hold them.
fn room(state: &Path) -> (u64, u64) {
    let disk = state.ancestors().find_map(|folder| statvfs(folder).ok());
    disk.map_or((0, 0), |disk| {
        let block = disk.fragment_size();
        (disk.blocks() * block, disk.blocks_available() * block)
    })
}
