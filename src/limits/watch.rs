//! Looks at a box's processes where the kernel does not hold its limits as a whole.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use super::census::Census;
use super::family::{Family, is_spread, ticks};
use super::ground::Ground;
use super::memory::Memory;
use super::pace::Pace;
use super::pulse::Pulse;
use super::words::{count, size};
use super::{Action, Limit, Verdict, Wanted};

/// A box that does nothing is left alone for this long. It can fill memory for this long, too,
/// before anybody looks, unless the host feels it first.
const SELDOM: Duration = Duration::from_secs(2);
/// The same where each process's own limits are wall enough.
const RARELY: Duration = Duration::from_secs(10);
/// How long after a sign of life the box is looked at.
const SOON: Duration = Duration::from_millis(200);
/// Between two looks when one is asked for before its time: a supervisor may ask whenever it wakes
/// up, and on a busy terminal that is all the time.
const BREATH: Duration = Duration::from_millis(100);
/// Users may ask the kernel to be told when tasks wait for memory, in steps of two seconds.
const PRESSURE: &[u8] = b"some 150000 2000000\0";

#[derive(Debug)]
pub(super) struct Watch {
    memory: Memory,
    last: Census,
    /// Of a box that was quiet at the last look.
    pulse: Option<Pulse>,
    looked: Instant,
    pace: Pace,
    is_quiet: bool,
    /// It was quiet before, and has been looked at since.
    is_settled: bool,
    /// That the limit of processes is reached has been said.
    is_at_wall: bool,
    pressure: Option<File>,
    /// Since when, and from how many ticks on, processor time is compared with its limit.
    measured: (Instant, u64),
}

impl Watch {
    pub(super) fn new(now: Instant, wanted: &Wanted) -> Self {
        Self {
            memory: Memory::new(),
            last: Census::default(),
            pulse: None,
            looked: now,
            pace: Pace::new(now),
            is_quiet: false,
            is_settled: false,
            is_at_wall: false,
            pressure: wanted.memory.and_then(|_| pressure()),
            measured: (now, 0),
        }
    }

    /// The box has other limits now.
    pub(super) fn listen(&mut self, wanted: &Wanted) {
        self.pressure = match (wanted.memory, self.pressure.take()) {
            (None, _) => None,
            (Some(_), Some(file)) => Some(file),
            (Some(_), None) => pressure(),
        };
    }

    pub(super) fn wake_at(&self) -> Instant {
        self.pace.next()
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        self.pace.hurry(now);
    }

    /// The box may wake up now.
    pub(super) fn expect_work(&mut self, now: Instant) {
        if self.pace.next() > now + SOON {
            self.pace.hurry(now + SOON);
        }
    }

    pub(super) fn pressure(&self) -> Option<BorrowedFd<'_>> {
        self.pressure.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    pub(super) fn census(&self) -> &Census {
        &self.last
    }

    pub(super) fn cpu_time(&self) -> Duration {
        ticks(self.last.ticks())
    }

    pub(super) fn memory(&self, census: &Census, ground: &Ground) -> u64 {
        self.memory.exactly(census, ground)
    }

    pub(super) fn look(
        &mut self,
        now: Instant,
        family: &Family,
        ground: &mut Ground,
        wanted: &Wanted,
    ) -> Verdict {
        if now < self.pace.next() && now < self.looked + BREATH {
            return Verdict::Fine;
        }
        self.looked = now;
        let longest = match (wanted.memory, wanted.disk) {
            (None, None) => RARELY,
            _ => SELDOM,
        };
        if self.pulse.as_mut().is_some_and(Pulse::is_still) {
            self.pace.plan(now, true, None, Duration::ZERO, longest);
            return Verdict::Fine;
        }
        let Ok(census) = family.census() else {
            // The box has ended, and its supervisor is about to hear of it.
            self.pace.plan(now, true, None, Duration::ZERO, longest);
            return Verdict::Fine;
        };
        self.is_quiet = census.is_as_quiet_as(&self.last);
        self.last = census;
        match (self.is_quiet, &self.pulse) {
            (true, None) => self.pulse = Pulse::of(&self.last, any_number()),
            (true, Some(_)) => {}
            (false, _) => self.pulse = None,
        }
        let mut room = None;
        let mut verdict = Verdict::Fine;
        if let Some(limit) = wanted.memory {
            if !ground.has_memory()
                && let Some(pid) = family.somebody(&self.last)
            {
                let _ = ground.find_memory(pid);
            }
            // Nobody fills memory without running, so a box that rests needs one more look.
            if !(self.is_quiet && self.is_settled) {
                let used = self.memory.look(&self.last, ground, limit, self.is_quiet);
                room = Some(limit.saturating_sub(used));
                if used > limit {
                    verdict = self.too_much_memory(used, limit);
                }
            }
        }
        self.is_settled = self.is_quiet;
        if verdict == Verdict::Fine
            && let Some(limit) = wanted.pids
        {
            verdict = self.too_many(limit);
        }
        self.hold_processors(now, family, wanted);
        self.pace
            .plan(now, self.is_quiet, room, now.elapsed(), longest);
        verdict
    }

    fn too_much_memory(&self, used: u64, limit: u64) -> Verdict {
        let processes = count(self.last.living().count(), "process", "processes");
        let (limit, used) = (size(limit), size(used));
        Verdict::Over {
            limit: Limit::Memory,
            what: format!("memory limit of {limit} reached: {used} in {processes}"),
            action: Action::Kill,
        }
    }

    /// At the limit each process's own wall holds, and only a box that went around it is ended.
    fn too_many(&mut self, limit: u64) -> Verdict {
        let there = self.last.threads();
        if there < limit - limit / 10 {
            self.is_at_wall = false;
        }
        let what = format!("process limit of {limit} reached: {there} processes and threads");
        let limit = match (there > limit, there == limit && !self.is_at_wall) {
            (true, _) => {
                return Verdict::Over {
                    limit: Limit::Pids,
                    what,
                    action: Action::Kill,
                };
            }
            (false, true) => Limit::Pids,
            (false, false) => return Verdict::Fine,
        };
        self.is_at_wall = true;
        Verdict::Held { limit, what }
    }

    /// A program can bind itself to other processors; then it is bound again. That of a process
    /// is seen, that of its other threads only when they use them.
    fn hold_processors(&mut self, now: Instant, family: &Family, wanted: &Wanted) {
        let Some(milli) = wanted.milli_cpus else {
            return;
        };
        if !self.is_quiet && is_spread(&self.last, milli.div_ceil(1000) as usize) {
            let _ = family.bind_to(Some(milli));
        }
        let (since, before) = self.measured;
        let passed = now.saturating_duration_since(since);
        if passed < Duration::from_millis(500) {
            return;
        }
        let worked = ticks(self.last.ticks().saturating_sub(before)).as_secs_f64();
        let allowed = passed.as_secs_f64() * milli.div_ceil(1000) as f64;
        self.measured = (now, self.last.ticks());
        if worked > allowed * 1.1 {
            let _ = family.bind_to(Some(milli));
        }
    }
}

fn any_number() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.subsec_micros())
}

fn pressure() -> Option<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/proc/pressure/memory")
        .ok()?;
    file.write_all(PRESSURE).ok()?;
    Some(file)
}
