//! What is known of a box while it runs, and what is judged the same way whoever holds its
//! memory: what it has on disk, and whether anything happens in it.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::census::{Census, read_small};
use super::family::Family;
use super::folders::{Folders, Signs, Total};
use super::ground::Ground;
use super::idle::Idle;
use super::memory::open_without_name;
use super::pace::Pace;
use super::watch::Watch;
use super::words::{count, size};
use super::{Action, Limit, Verdict, Wanted};

/// A box that fills a disk slowly is not looked at more often than this.
const SELDOM: Duration = Duration::from_secs(5);
/// Between two steps of a count that goes on.
const NEXT_STEP: Duration = Duration::from_millis(20);
/// A file costs something however small it is; so do this many for sure.
const BYTES_PER_FILE: u64 = 4096;
const FEW_FILES: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Running {
    pub(super) family: Family,
    pub(super) ground: Ground,
    pub(super) watch: Watch,
    pub(super) folders: Folders,
    folders_pace: Pace,
    idle: Idle,
    /// As of the last look.
    pub(super) cpu_time: Duration,
    /// What its processes had written to disks, as of the last look.
    written: u64,
}

impl Running {
    pub(super) fn new(now: Instant, wanted: &Wanted, family: Family, ground: Ground) -> Self {
        Self {
            watch: Watch::new(now, wanted),
            folders: Folders::new(ground.folders()),
            folders_pace: Pace::new(now),
            idle: Idle::new(now),
            cpu_time: Duration::ZERO,
            written: 0,
            family,
            ground,
        }
    }

    /// The box may wake up now.
    pub(super) fn expect_work(&mut self) {
        let now = Instant::now();
        self.idle.touch(now);
        self.watch.expect_work(now);
    }

    /// What was known about it counts no more: it has other limits, or was stopped for a while.
    pub(super) fn start_anew(&mut self) {
        let now = Instant::now();
        self.idle.touch(now);
        self.watch.hurry(now);
        self.folders_pace.hurry(now);
    }

    /// When the disk or the clock is to be looked at.
    pub(super) fn wake_at(&self, wanted: &Wanted, is_watched: bool) -> Option<Instant> {
        // Where nobody does anything no folder fills; that somebody does, the watch sees.
        let can_fill = self.folders.is_at_work() || !is_watched || !self.watch.is_quiet();
        let disk = wanted.disk.filter(|_| can_fill);
        let disk = disk.map(|_| self.folders_pace.next());
        let idle = wanted.idle.map(|limit| self.idle.wake_at(limit));
        [disk, idle].into_iter().flatten().min()
    }

    /// Whether this is a time for the folders and not for the processes.
    pub(super) fn is_disks_turn(&self, now: Instant, wanted: &Wanted) -> bool {
        let is_due = wanted.disk.is_some() && now >= self.folders_pace.next();
        is_due && now < self.watch.wake_at()
    }

    pub(super) fn look_besides(
        &mut self,
        now: Instant,
        wanted: &Wanted,
        is_quiet: bool,
        cpu_time: Duration,
    ) -> Verdict {
        if let Some(limit) = wanted.disk
            && now >= self.folders_pace.next()
            && let Some(found) = self.look_at_folders(now, limit, is_quiet)
        {
            return found;
        }
        if let Some(limit) = wanted.idle
            && now >= self.idle.wake_at(limit)
            && self.idle.look(now, cpu_time) >= limit
        {
            let limit = humantime::format_duration(limit);
            return Verdict::Over {
                limit: Limit::Idle,
                what: format!("idle limit of {limit} reached: nothing has happened since"),
                action: Action::Kill,
            };
        }
        Verdict::Fine
    }

    /// Counts on, and judges when the count is complete.
    fn look_at_folders(&mut self, now: Instant, limit: u64, is_quiet: bool) -> Option<Verdict> {
        let enough = Total {
            bytes: limit,
            files: (limit / BYTES_PER_FILE).max(FEW_FILES),
            hidden: 0,
        };
        let roots = self.ground.folders();
        let signs = Signs {
            is_quiet,
            written: match is_quiet {
                true => self.written,
                false => self.written(),
            },
        };
        self.written = signs.written;
        let counted = self.folders.step(roots, enough, signs);
        let known = self.folders.last().unwrap_or_default();
        let room = limit.saturating_sub(known.bytes);
        self.folders_pace
            .plan(now, is_quiet, Some(room), now.elapsed(), SELDOM);
        if self.folders.is_walking() {
            self.folders_pace.hurry(now + NEXT_STEP);
        }
        let total = counted?;
        let over = |limit, what| {
            let action = Action::Freeze;
            Some(Verdict::Over {
                limit,
                what,
                action,
            })
        };
        if total.files > enough.files {
            let most = enough.files;
            return over(
                Limit::DiskFiles,
                format!("limit of {most} files on disk reached"),
            );
        }
        let at = size(limit);
        if total.bytes > limit {
            let used = size(total.bytes);
            let what = format!("disk limit of {at} reached: {used} and more");
            return over(Limit::Disk, what);
        }
        // The disk has lost more than the box was seen to take, to others or to what is hidden; or
        // the box has written more.
        let taken = self.folders.taken(roots).max(self.written);
        if taken <= room {
            return None;
        }
        let nameless = self.nameless();
        if total.bytes + nameless > limit {
            let (used, nameless) = (size(total.bytes), size(nameless));
            let what = format!(
                "disk limit of {at} reached: {used}, and {nameless} in files without a name"
            );
            return over(Limit::Disk, what);
        }
        if total.hidden > 0 {
            let hidden = count(total.hidden as usize, "folder", "folders");
            let (used, taken) = (size(total.bytes), size(taken));
            let what = format!(
                "disk limit of {at} cannot be held: {used} were seen, {hidden} cannot be looked \
                 into, and {taken} were written"
            );
            return over(Limit::Disk, what);
        }
        None
    }

    /// What the box's processes have written to disks, as far as they still live.
    fn written(&self) -> u64 {
        self.census().living().filter_map(|p| written(p.pid)).sum()
    }

    /// As of now, or as last seen when the box is gone.
    fn census(&self) -> Census {
        let census = self.family.census();
        census.unwrap_or_else(|_| self.watch.census().clone())
    }

    /// Bytes on the disks of the session in files that were removed while they are open.
    fn nameless(&self) -> u64 {
        let devices: Vec<u64> = self
            .ground
            .folders()
            .iter()
            .filter_map(|folder| nix::sys::stat::fstat(folder.as_fd()).ok())
            .map(|seen| seen.st_dev)
            .collect();
        let open = open_without_name(&self.census());
        open.iter()
            .filter(|((device, _), _)| devices.contains(device))
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

fn written(pid: i32) -> Option<u64> {
    let mut room = [0u8; 512];
    let text = read_small(&format!("/proc/{pid}/io"), &mut room).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?;
    line.parse().ok()
}
