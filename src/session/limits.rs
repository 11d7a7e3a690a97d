//! A session's limits, as its supervisor holds them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::poll::PollFd;
use nix::sys::signal::Signal;

use super::error::RunError;
use super::supervise::{GRACE, Life};
use crate::limits::{self, Action, Ground, Holder, LimitError, Verdict, Wanted};
use crate::plan::{OwnFolder, Plan};
use crate::sandbox::Running;

#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Nobody watches a box that has no limits.
    holder: Option<Holder>,
    over: Option<String>,
    /// What the kernel did about a limit last; the box went on, unless it was the end of it.
    held: Option<String>,
    pub(super) is_paused: bool,
    /// What somebody has to know who begins to watch later.
    later: Later,
}

#[derive(Debug, Default)]
struct Later {
    wanted: Wanted,
    ground: Ground,
    shared: Vec<OwnedFd>,
}

impl Limits {
    pub(super) fn choose(plan: &Plan, wanted: &Wanted) -> Result<Self, RunError> {
        let session = plan.session.as_ref().filter(|_| !wanted.is_carried());
        let holder = session.map(|session| limits::choose(wanted, &session.id));
        let holder = holder.transpose()?;
        Ok(Self {
            holder,
            later: Later {
                wanted: *wanted,
                ..Later::default()
            },
            ..Self::default()
        })
    }

    pub(super) fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        self.holder.as_ref().and_then(Holder::cgroup)
    }

    /// What of the session lies on a disk; opened before the home is closed to everybody.
    pub(super) fn ground(&self, plan: &Plan, directory: &Path) -> Ground {
        if self.holder.is_none() && !plan.terms.changeable {
            return Ground::default();
        }
        let folders = [OwnFolder::Home, OwnFolder::Outputs];
        let open = |folder: OwnFolder| File::open(directory.join(folder.path()));
        let folders = folders.into_iter().filter_map(|folder| open(folder).ok());
        Ground::new(folders.map(OwnedFd::from).collect(), Vec::new())
    }

    pub(super) fn begin(
        &mut self,
        plan: &Plan,
        running: &Running,
        ground: Ground,
    ) -> Result<(), LimitError> {
        match &mut self.holder {
            Some(holder) => holder.begin(running.pid(), plan.namespaces.pid, ground),
            None => {
                self.later.ground = ground;
                Ok(())
            }
        }
    }

    /// The box's own tables of what it shares in memory have come.
    pub(super) fn count_shared(&mut self, tables: Vec<OwnedFd>) {
        match &mut self.holder {
            Some(holder) => holder.count_shared(tables),
            None => self.later.shared = tables,
        }
    }

    pub(super) fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        let events = self.holder.iter().flat_map(Holder::events);
        out.extend(events.map(|(fd, flags)| PollFd::new(fd, flags)));
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.holder.as_ref().and_then(Holder::wake_at)
    }

    /// The limit that ended the session, in a sentence.
    pub(super) fn over(&self) -> Option<String> {
        self.over.clone()
    }

    /// The limit that the kernel held last, asked for once more after the end.
    pub(super) fn held_last(&mut self) -> Option<String> {
        match self.holder.as_mut().map(Holder::check) {
            Some(Verdict::Held { what, .. }) => Some(what),
            _ => self.held.take(),
        }
    }

    /// Somebody did something: the box is not idle.
    pub(super) fn touch(&mut self) {
        self.holder.iter_mut().for_each(Holder::touch);
    }

    /// How the limits are held and where they are weaker than they sound.
    pub(super) fn told(&self) -> Vec<String> {
        let Some(holder) = &self.holder else {
            return Vec::new();
        };
        let way = format!("limits are held {}", holder.way());
        let held = self.held.iter().map(|what| format!("last met: {what}"));
        let told = std::iter::once(way).chain(holder.weaker());
        told.chain(held).collect()
    }

    /// What the box is limited to now, by the names of the flags.
    pub(super) fn in_words(&self, plan: &Plan) -> BTreeMap<String, String> {
        let wanted = self
            .holder
            .as_ref()
            .map_or(&self.later.wanted, Holder::wanted);
        let by_policy = Wanted {
            files: plan.open_files(),
            ..Wanted::default()
        };
        let all = wanted.or(&by_policy).in_words().into_iter();
        all.map(|(limit, value)| (limit.to_string(), value))
            .collect()
    }
}

impl Life<'_> {
    /// Asks a program to end whose time is up, and ends one that was asked.
    pub(super) fn keep_time(&mut self, running: &Running) {
        let now = Instant::now();
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            self.timed_out = true;
            self.diary.timed_out(self.plan.timeout);
            self.end_at = Some(now + GRACE);
            let _ = running.signal(Signal::SIGTERM as i32);
        }
        if self.end_at.is_some_and(|at| at <= now) {
            self.end_at = None;
            let _ = running.kill();
        }
    }

    /// Looks at the box when it is time, and ends or stops one that takes too much.
    pub(super) fn keep_limits(&mut self, running: &Running) {
        let Some(holder) = &mut self.limits.holder else {
            return;
        };
        if holder.wake_at().is_some_and(|at| at > Instant::now()) && holder.events().count() == 0 {
            return;
        }
        match holder.check() {
            Verdict::Fine => {}
            Verdict::Held { limit, what } => {
                self.diary.limited(&limit.to_string(), &what, "held");
                self.limits.held = Some(what);
            }
            // In front of a caller a box that only stood still would look as if it hung.
            Verdict::Over {
                limit,
                what,
                action,
            } if action == Action::Kill || self.outputs.is_none() => {
                self.diary
                    .limited(&limit.to_string(), &what, "ended the session");
                self.limits.over = Some(what);
                if let Some(holder) = &mut self.limits.holder {
                    let _ = holder.kill_all();
                }
                let _ = running.kill();
            }
            Verdict::Over { limit, what, .. } => {
                self.diary
                    .limited(&limit.to_string(), &what, "paused the session");
                self.pause(true, running).unwrap_or_default();
            }
        }
    }

    /// Somebody to watch over a box that nothing was limited for; who costs nothing until asked.
    fn watcher(&mut self, running: &Running) -> Result<&mut Holder, String> {
        if self.limits.holder.is_none() {
            let later = std::mem::take(&mut self.limits.later);
            let mut holder = limits::supervise(&later.wanted, "nothing was limited at the start")
                .map_err(|error| error.to_string())?;
            let has_pids = self.plan.namespaces.pid;
            holder
                .begin(running.pid(), has_pids, later.ground)
                .map_err(|error| error.to_string())?;
            holder.count_shared(later.shared);
            self.limits.holder = Some(holder);
        }
        let lost = || "nobody watches over it".to_owned();
        self.limits.holder.as_mut().ok_or_else(lost)
    }

    /// Stops everything in the box, or lets it go on.
    pub(super) fn pause(&mut self, paused: bool, running: &Running) -> Result<(), String> {
        // Said before it is so: pid 1 tells of every program that is stopped.
        self.limits.is_paused |= paused;
        let holder = self.watcher(running)?;
        let done = match paused {
            true => holder.freeze(),
            false => holder.thaw(),
        };
        done.map_err(|error| error.to_string())?;
        self.limits.is_paused = paused;
        Ok(())
    }

    /// Other limits from now on; what must be known about them.
    pub(super) fn limit(
        &mut self,
        wanted: &Wanted,
        running: &Running,
    ) -> Result<Option<String>, String> {
        let before = self.limits.in_words(self.plan);
        let holder = self.watcher(running)?;
        let all = wanted.or(holder.wanted());
        let note = holder.change(&all).map_err(|error| error.to_string())?;
        if let Some(most) = wanted.files {
            // A box that is gone by now says so itself.
            let _ = running.limit_open_files(most);
        }
        for (limit, to) in wanted.in_words() {
            let limit = limit.to_string();
            let from = before.get(&limit).filter(|from| **from != to);
            if from.is_some() || !before.contains_key(&limit) {
                self.diary.changed(&limit, from.cloned(), to);
            }
        }
        Ok(note)
    }
}
