//! A box's processes taken together, from its first one: counted, stopped, continued, ended, and
//! given other limits. What the fall-back does where there is no control group to do it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::census::{Census, Process};
use super::rlimits::Rlimit;
use crate::{plan, sys};

/// More than this is not counted one by one.
pub(super) const MOST: usize = 20_000;
/// New processes can appear while the others are being stopped, but only from those not stopped.
const ROUNDS: usize = 200;

#[derive(Debug)]
pub(super) struct Family {
    first: i32,
    started: u64,
    pidfd: OwnedFd,
    /// Whether all others end with the first.
    ends_together: bool,
    /// Those who had been stopped before we did: not ours to wake.
    asleep: Vec<(i32, u64)>,
}

impl Family {
    /// `first` must be a child that has not been waited for, or the number may be another's.
    pub(super) fn of(first: i32, ends_together: bool) -> io::Result<Self> {
        Ok(Self {
            first,
            started: Process::look(first)?.started,
            pidfd: sys::limits::open_process(first)?,
            ends_together,
            asleep: Vec::new(),
        })
    }

    pub(super) fn ends_together(&self) -> bool {
        self.ends_together
    }

    pub(super) fn census(&self) -> io::Result<Census> {
        Census::take(self.first, self.started, MOST)
    }

    /// Any process but the first one, which hides.
    pub(super) fn somebody(&self, census: &Census) -> Option<i32> {
        census
            .living()
            .map(|p| p.pid)
            .find(|pid| *pid != self.first)
    }

    fn others(&self) -> io::Result<Vec<Process>> {
        let census = self.census()?;
        let others = census.living().filter(|process| process.pid != self.first);
        Ok(others.copied().collect())
    }

    /// Stops all but the first, which answers the supervisor and runs nothing of the program's.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        let stopped = self.others()?.into_iter().filter(Process::is_stopped);
        self.asleep = stopped
            .map(|process| (process.pid, process.started))
            .collect();
        for _ in 0..ROUNDS {
            let awake: Vec<Process> = self
                .others()?
                .into_iter()
                .filter(|process| !process.is_stopped())
                .collect();
            if awake.is_empty() {
                return Ok(());
            }
            for process in &awake {
                signal(process, libc::SIGSTOP);
            }
            // They stop when they next run; nobody tells who is not their parent.
            let _ = poll(&mut [], PollTimeout::from(2u8));
        }
        Err(io::Error::other("some processes of the box do not stop"))
    }

    pub(super) fn resume(&mut self) -> io::Result<()> {
        let asleep = std::mem::take(&mut self.asleep);
        for process in self.others()? {
            if !asleep.contains(&(process.pid, process.started)) {
                signal(&process, libc::SIGCONT);
            }
        }
        Ok(())
    }

    /// Ends everybody.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if !self.ends_together {
            // Once the first is gone the others are no longer found by it.
            self.stop()?;
            for process in self.others()? {
                signal(&process, libc::SIGKILL);
            }
        }
        sys::process::signal(self.pidfd.as_fd(), libc::SIGKILL)
    }

    /// Gives processes another limit; those they start later inherit it. Returns whether some of
    /// them cannot go as high as asked for.
    pub(super) fn set_limit(&self, limit: &Rlimit) -> io::Result<bool> {
        let mut is_short = false;
        let resource = limit.resource();
        // The first one opens files for all others.
        let is_spared = |pid| limit.what == plan::Limit::OpenFiles && pid == self.first;
        // A second time for those who were born during the first.
        for _ in 0..2 {
            for process in self.census()?.living().filter(|it| !is_spared(it.pid)) {
                let Ok((_, hard)) = sys::limits::limit_of(process.pid, resource) else {
                    continue;
                };
                let (soft, hard, less) = limit.within(hard);
                match sys::limits::set_limit_of(process.pid, resource, soft, hard) {
                    // It has ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    set => is_short |= less || set.is_err(),
                }
            }
        }
        Ok(is_short)
    }

    /// How many open files a program that is started now could be allowed.
    pub(super) fn open_files_at_most(&self) -> Option<u64> {
        let resource = libc::RLIMIT_NOFILE as libc::c_int;
        let limit = sys::limits::limit_of(self.first, resource);
        limit.ok().map(|(_, hard)| hard)
    }

    /// Binds all threads to as many processors as come closest from above.
    pub(super) fn bind_to(&self, milli_cpus: Option<u64>) -> io::Result<()> {
        let mine = sched_getaffinity(Pid::from_raw(0))?;
        let all: Vec<usize> = (0..CpuSet::count())
            .filter(|cpu| mine.is_set(*cpu) == Ok(true))
            .collect();
        let wanted = milli_cpus.map_or(all.len(), |milli| milli.div_ceil(1000) as usize);
        let wanted = wanted.clamp(1, all.len().max(1));
        let mut set = CpuSet::new();
        // Boxes start at different processors, or the first one would carry them all.
        for cpu in all
            .iter()
            .cycle()
            .skip(self.first as usize % all.len().max(1))
            .take(wanted)
        {
            set.set(*cpu)?;
        }
        for process in self.census()?.living() {
            for thread in threads(process.pid) {
                let _ = sched_setaffinity(Pid::from_raw(thread), &set);
            }
        }
        Ok(())
    }
}

/// Whether some process may run on more processors than these.
pub(super) fn is_spread(census: &Census, processors: usize) -> bool {
    let may_run_on = |process: &Process| {
        let set = sched_getaffinity(Pid::from_raw(process.pid)).ok()?;
        let all = 0..CpuSet::count();
        Some(all.filter(|cpu| set.is_set(*cpu) == Ok(true)).count())
    };
    let mut counts = census.living().filter_map(may_run_on);
    counts.any(|count| count > processors)
}

fn threads(pid: i32) -> Vec<i32> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task"));
    let listed = listed.into_iter().flatten().flatten();
    listed
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .collect()
}

/// Signals exactly the process that was seen: if its number still is the same process after the
/// descriptor was opened, then so is the descriptor.
fn signal(seen: &Process, number: i32) {
    if let Ok(pidfd) = sys::limits::open_process(seen.pid)
        && Process::look(seen.pid).is_ok_and(|now| now.started == seen.started)
    {
        let _ = sys::process::signal(pidfd.as_fd(), number);
    }
}

/// Ticks of the kernel's clock as time.
pub(super) fn ticks(count: u64) -> Duration {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let per_second = per_second.ok().flatten().unwrap_or(100).max(1) as u64;
    Duration::from_millis(count * 1000 / per_second)
}
