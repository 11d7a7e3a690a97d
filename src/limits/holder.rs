//! Holds a box to its limits, by whichever way was found.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::unistd::Pid;

use super::base::Base;
use super::choose::{find, without};
use super::family::{Family, ticks};
use super::ground::Ground;
use super::group::Group;
use super::running::Running;
use super::words::{count, size};
use super::{Limit, LimitError, Usage, VIEW, Verdict, View, Wanted, Way};
use crate::policy::SessionId;

/// To be dropped after the box has ended and has been waited for: only then can its group go.
#[derive(Debug)]
pub struct Holder {
    pub(super) wanted: Wanted,
    pub(super) way: Way,
    group: Option<(Base, Group)>,
    pub(super) running: Option<Running>,
    is_frozen: bool,
    owner: Pid,
}

/// Finds the best way to hold these limits and prepares it. Where that is a control group, this
/// process may have been moved to another one.
pub fn choose(wanted: &Wanted, id: &SessionId) -> Result<Holder, LimitError> {
    wanted.check()?;
    let (way, group) = match find(wanted, id) {
        Ok((base, group)) => {
            let way = Way::Cgroup {
                path: group.path().to_owned(),
                without: without(group.path(), wanted),
            };
            (way, Some((base, group)))
        }
        Err(because) => (Way::Supervision { because }, None),
    };
    way.serves(wanted)?;
    let holder = Holder::new(wanted, way, group);
    holder.set_group(wanted, &Ground::default())?;
    Ok(holder)
}

/// Holds these limits without a control group, even where one is to be had.
pub fn supervise(wanted: &Wanted, because: &str) -> Result<Holder, LimitError> {
    wanted.check()?;
    let because = because.to_owned();
    Ok(Holder::new(wanted, Way::Supervision { because }, None))
}

impl Holder {
    fn new(wanted: &Wanted, way: Way, group: Option<(Base, Group)>) -> Self {
        Self {
            wanted: *wanted,
            way,
            group,
            running: None,
            is_frozen: false,
            owner: nix::unistd::getpid(),
        }
    }

    pub fn way(&self) -> &Way {
        &self.way
    }

    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// In which group the box is to be born.
    pub fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref().map(|(_, group)| group.descriptor())
    }

    /// What to show in the box, if anything.
    pub fn view(&self) -> Option<View> {
        self.group.as_ref().map(|_| VIEW)
    }

    /// What a reader of the limits must know: where they are weaker than they sound.
    pub fn weaker(&self) -> Vec<String> {
        let mut said = Vec::new();
        let is_missing = |limit| match &self.way {
            Way::Cgroup { without, .. } => without.contains(&limit),
            Way::Supervision { .. } => true,
        };
        let wanted = &self.wanted;
        if matches!(self.way, Way::Supervision { .. }) && wanted.memory.is_some() {
            said.push(
                "without a cgroup the box is looked at from time to time: it can pass its memory \
                 limit for up to two seconds before it is ended"
                    .to_owned(),
            );
        }
        if wanted.milli_cpus.is_some() && is_missing(Limit::Cpus) {
            said.push("processor time is limited to whole processors".to_owned());
        }
        if wanted.io.is_some() && is_missing(Limit::Io) {
            said.push("disk traffic is not limited: that takes a cgroup".to_owned());
        }
        if wanted.disk.is_some() {
            said.push(
                "disk use is counted, not refused: the box is stopped once it is over".to_owned(),
            );
        }
        said
    }

    pub(super) fn set_group(&self, wanted: &Wanted, ground: &Ground) -> Result<(), LimitError> {
        match &self.group {
            Some((_, group)) => group.set(wanted, ground).map_err(LimitError::Set),
            None => Ok(()),
        }
    }

    /// The box runs. `first` is this process's child and has not been waited for; with a pid
    /// namespace of its own everybody else in the box ends with it.
    pub fn begin(
        &mut self,
        first: Pid,
        has_pid_namespace: bool,
        ground: Ground,
    ) -> Result<(), LimitError> {
        let now = Instant::now();
        let family = Family::of(first.as_raw(), has_pid_namespace);
        let family = family.map_err(LimitError::Lost)?;
        // Which disks carry the session was not known before.
        self.set_group(&self.wanted, &ground)?;
        if self.binds_to_processors() {
            let _ = family.bind_to(self.wanted.milli_cpus);
        }
        self.running = Some(Running::new(now, &self.wanted, family, ground));
        Ok(())
    }

    /// The kernel's tables of what the box shares in memory, opened by one of its processes: what
    /// is in there counts from now on.
    pub fn count_shared(&mut self, tables: Vec<OwnedFd>) {
        if let Some(running) = &mut self.running {
            running.ground.set_shared(tables);
        }
    }

    /// The limits that the kernel does not hold, for which somebody has to look at the processes.
    fn left_to_us(&self) -> Wanted {
        let Way::Cgroup { without, .. } = &self.way else {
            return Wanted {
                io: None,
                files: None,
                ..self.wanted
            };
        };
        let unheld = |limit, value: Option<u64>| value.filter(|_| without.contains(&limit));
        Wanted {
            memory: unheld(Limit::Memory, self.wanted.memory),
            milli_cpus: unheld(Limit::Cpus, self.wanted.milli_cpus),
            pids: unheld(Limit::Pids, self.wanted.pids),
            ..Wanted::default()
        }
    }

    fn is_watched(&self) -> bool {
        self.left_to_us() != Wanted::default()
    }

    pub(super) fn binds_to_processors(&self) -> bool {
        self.left_to_us().milli_cpus.is_some()
    }

    /// When `check` is to be called next, if nothing of `events` comes first.
    pub fn wake_at(&self) -> Option<Instant> {
        let running = self.running.as_ref()?;
        let watch = self.is_watched().then(|| running.watch.wake_at());
        let others = match self.is_frozen {
            true => None,
            false => running.wake_at(&self.wanted, watch.is_some()),
        };
        let group = self.group.as_ref().and_then(|(_, group)| group.wake_at());
        [watch, others, group].into_iter().flatten().min()
    }

    /// What to wait for besides, and how.
    pub fn events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let group = self.group.iter().flat_map(|(_, group)| group.events());
        let watched = self.running.as_ref().filter(|_| self.is_watched());
        let pressure = watched.and_then(|running| running.watch.pressure());
        group.chain(pressure.map(|fd| (fd, PollFlags::POLLPRI)))
    }

    /// Something came in or went out, or a program was started: the box is not idle, and worth a
    /// look soon.
    pub fn touch(&mut self) {
        if let Some(running) = &mut self.running {
            running.expect_work();
        }
    }

    /// How the box is doing. To be called when `wake_at` has come, when one of `events` is ready,
    /// and once after the box has ended, to learn whether a limit was the reason.
    pub fn check(&mut self) -> Verdict {
        if let Some((_, group)) = &mut self.group
            && let Some((limit, times)) = group.news()
        {
            return self.held(limit, times);
        }
        let now = Instant::now();
        let ours = self.left_to_us();
        let is_watched = self.is_watched();
        let Some(running) = &mut self.running else {
            return Verdict::Fine;
        };
        let is_disks_turn = running.is_disks_turn(now, &self.wanted);
        let cpu_time = match &self.group {
            _ if is_watched => {
                let Running {
                    watch,
                    family,
                    ground,
                    ..
                } = running;
                if !is_disks_turn {
                    match watch.look(now, family, ground, &ours) {
                        Verdict::Fine => {}
                        found => return found,
                    }
                }
                watch.cpu_time()
            }
            Some((_, group)) => group.cpu_time(),
            None => Duration::ZERO,
        };
        let is_quiet = match is_watched {
            true => running.watch.is_quiet(),
            false => cpu_time == running.cpu_time,
        };
        running.cpu_time = cpu_time;
        if self.is_frozen {
            return Verdict::Fine;
        }
        running.look_besides(now, &self.wanted, is_quiet, cpu_time)
    }

    fn held(&self, limit: Limit, times: u64) -> Verdict {
        let times = usize::try_from(times).unwrap_or(usize::MAX);
        let what = match limit {
            Limit::Memory => {
                let ended = count(times, "process", "processes");
                let at = self
                    .wanted
                    .memory
                    .map(|at| format!("limit of {} reached", size(at)));
                let at = at.unwrap_or_else(|| "of the host used up".to_owned());
                format!("memory {at}: the kernel ended {ended}")
            }
            _ => {
                let at = self.wanted.pids.unwrap_or(0);
                let refused = count(times, "new one was", "new ones were");
                format!("process limit of {at} reached: {refused} refused")
            }
        };
        Verdict::Held { limit, what }
    }

    /// What the box uses now.
    pub fn usage(&self) -> Usage {
        let Some(running) = &self.running else {
            return Usage::default();
        };
        let disk = running.folders.last();
        let mut usage = match (&self.group, running.family.census()) {
            (Some((_, group)), _) => group.usage(),
            (None, Ok(census)) => Usage {
                memory: running.watch.memory(&census, &running.ground),
                cpu_time: ticks(census.ticks()),
                pids: census.threads(),
                ..Usage::default()
            },
            (None, Err(_)) => Usage::default(),
        };
        usage.disk = disk.map(|total| total.bytes);
        usage.files = disk.map(|total| total.files);
        usage
    }

    /// Stops everything in the box, or lets it go on.
    pub fn freeze(&mut self) -> Result<(), LimitError> {
        self.set_frozen(true)
    }

    pub fn thaw(&mut self) -> Result<(), LimitError> {
        self.set_frozen(false)
    }

    fn set_frozen(&mut self, frozen: bool) -> Result<(), LimitError> {
        let done = match (&mut self.group, &mut self.running) {
            (Some((_, group)), _) => group.freeze(frozen),
            (None, Some(running)) if frozen => running.family.stop(),
            (None, Some(running)) => running.family.resume(),
            (None, None) => Ok(()),
        };
        done.map_err(LimitError::Set)?;
        self.is_frozen = frozen;
        if let Some(running) = &mut self.running {
            running.start_anew();
        }
        Ok(())
    }

    /// Ends everything in the box at once.
    pub fn kill_all(&mut self) -> Result<(), LimitError> {
        if let Some((_, group)) = &self.group
            && group.kill().is_ok()
        {
            return Ok(());
        }
        match &mut self.running {
            Some(running) => running.family.kill().map_err(LimitError::Lost),
            None => Ok(()),
        }
    }

    /// The box has ended: nothing of its limits stays.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // A copy of this in a forked child is not the one that has to clean up.
        if self.owner == nix::unistd::getpid()
            && let Some((base, group)) = self.group.take()
        {
            let _ = group.remove();
            base.leave();
        }
    }
}
