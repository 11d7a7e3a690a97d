//! Limits that each process carries itself: the first wall, at which a call fails with an error
//! that programs understand, before anything has to be ended.

use nix::sys::resource::{Resource, getrlimit};

use super::Wanted;
use crate::plan;

/// Runtimes of JavaScript reserve up to this much writable memory that they never touch; a
/// smaller limit would keep them from starting at all.
const RESERVED: u64 = 1 << 30;
/// How far a limit can be raised while the box runs. The kernel lets nobody but root go beyond
/// the hard limit, and what a program raises by itself meets the second wall.
const MORE_MEMORY: u64 = 4;
const MORE_PROCESSES: u64 = 2;
const LIFTED: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rlimit {
    pub what: plan::Limit,
    pub soft: u64,
    pub hard: u64,
}

impl Rlimit {
    fn raisable(what: plan::Limit, soft: u64, times: u64) -> Self {
        let hard = soft.saturating_mul(times);
        Self { what, soft, hard }
    }

    /// No limit any more, or as high as the kernel lets a running process go.
    pub(super) fn lifted(self) -> Self {
        Self {
            soft: LIFTED,
            ..self
        }
    }

    /// What a process with this hard limit gets, soft and hard, and whether that is less than
    /// asked for. One that cannot be raised is not to be raised by the process either.
    pub(super) fn within(&self, hard: u64) -> (u64, u64, bool) {
        let most = match self.soft == self.hard {
            true => hard.min(self.hard),
            false => hard,
        };
        match self.soft {
            LIFTED => (hard, hard, false),
            soft => (soft.min(most), most, most < soft),
        }
    }

    pub(super) fn resource(&self) -> libc::c_int {
        let resource = match self.what {
            plan::Limit::CoreSize => libc::RLIMIT_CORE,
            plan::Limit::OpenFiles => libc::RLIMIT_NOFILE,
            plan::Limit::Processes => libc::RLIMIT_NPROC,
            plan::Limit::Data => libc::RLIMIT_DATA,
            plan::Limit::FileSize => libc::RLIMIT_FSIZE,
            plan::Limit::CpuSeconds => libc::RLIMIT_CPU,
        };
        resource as libc::c_int
    }
}

/// What each process of the box gets.
///
/// Processes are counted per user namespace, so that without one of the box's own its limit
/// would count everything the user runs. File sizes are not limited: the limit would hold in
/// shared folders too, which no limit of a session's is about.
pub fn rlimits(wanted: &Wanted, has_user_namespace: bool) -> Vec<Rlimit> {
    let memory = wanted
        .memory
        .map(|bytes| Rlimit::raisable(plan::Limit::Data, bytes.max(RESERVED), MORE_MEMORY));
    let pids = wanted
        .pids
        .filter(|_| has_user_namespace)
        .map(|count| Rlimit::raisable(plan::Limit::Processes, count, MORE_PROCESSES));
    let files = wanted
        .files
        .map(|count| Rlimit::raisable(plan::Limit::OpenFiles, count, 1));
    memory.into_iter().chain(pids).chain(files).collect()
}

/// How many open files this process can allow others: no more than it may have itself.
pub(super) fn open_files_at_most() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, hard)| hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_data_and_never_too_little_to_start_in() {
        let wanted = Wanted {
            memory: Some(8 << 30),
            ..Wanted::default()
        };
        let all = rlimits(&wanted, true);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].what, all[0].soft), (plan::Limit::Data, 8 << 30));
        assert!(all[0].hard > all[0].soft);
        let little = Wanted {
            memory: Some(64 << 20),
            ..Wanted::default()
        };
        assert_eq!(rlimits(&little, true)[0].soft, RESERVED);
    }

    #[test]
    fn processes_are_limited_only_where_they_are_counted_for_the_box_alone() {
        let wanted = Wanted {
            pids: Some(100),
            ..Wanted::default()
        };
        assert_eq!(rlimits(&wanted, true)[0].soft, 100);
        assert_eq!(rlimits(&wanted, false), []);
        assert_eq!(rlimits(&Wanted::default(), true), []);
    }

    #[test]
    fn open_files_are_lowered_for_good_and_others_can_be_raised_again() {
        let wanted = Wanted {
            files: Some(100),
            ..Wanted::default()
        };
        let [files] = rlimits(&wanted, false)[..] else {
            panic!()
        };
        assert_eq!(files.within(4096), (100, 100, false));
        assert_eq!(files.within(50), (50, 50, true));
        let pids = Rlimit::raisable(plan::Limit::Processes, 100, MORE_PROCESSES);
        assert_eq!(pids.within(200), (100, 200, false));
        assert_eq!(pids.within(50), (50, 50, true));
        assert_eq!(pids.lifted().within(200), (200, 200, false));
    }
}
