//! Other limits for a box that runs.

use super::choose::without;
use super::ground::Ground;
use super::holder::Holder;
use super::rlimits::{Rlimit, rlimits};
use super::running::Running;
use super::{Limit, LimitError, Wanted, Way};
use crate::plan;

impl Holder {
    /// Other limits from now on. One that is below what the box uses already is refused.
    /// Returns what a reader must know, if anything. That programs which are started later are
    /// given as many open files is up to the caller.
    pub fn change(&mut self, wanted: &Wanted) -> Result<Option<String>, LimitError> {
        wanted.check()?;
        self.way.serves(wanted)?;
        self.fits(wanted)?;
        let none = Ground::default();
        let ground = self.running.as_ref().map_or(&none, |r| &r.ground);
        self.set_group(wanted, ground)?;
        let did_bind = self.binds_to_processors();
        let before = std::mem::replace(&mut self.wanted, *wanted);
        if let Way::Cgroup { path, without: now } = &mut self.way {
            *now = without(path, wanted);
        }
        let binds = did_bind || self.binds_to_processors();
        let Some(running) = &mut self.running else {
            return Ok(None);
        };
        running.start_anew();
        running.watch.listen(wanted);
        if binds {
            let _ = running.family.bind_to(wanted.milli_cpus);
        }
        let has_group = matches!(self.way, Way::Cgroup { .. });
        let notes = carry(running, &before, wanted, has_group)?;
        Ok((!notes.is_empty()).then(|| notes.join("; ")))
    }

    fn fits(&self, wanted: &Wanted) -> Result<(), LimitError> {
        let used = self.usage();
        for (limit, value, used) in [
            (Limit::Memory, wanted.memory, used.memory),
            (Limit::Pids, wanted.pids, used.pids),
            (Limit::Disk, wanted.disk, used.disk.unwrap_or(0)),
        ] {
            if let Some(value) = value.filter(|value| *value < used) {
                return Err(LimitError::InUse {
                    limit,
                    wanted: limit.say(value),
                    used: limit.say(used),
                });
            }
        }
        let running = self.running.as_ref();
        let most = running.and_then(|running| running.family.open_files_at_most());
        match (wanted.files, most) {
            (Some(wanted), Some(most)) if wanted > most => {
                Err(LimitError::BeyondStart { wanted, most })
            }
            _ => Ok(()),
        }
    }
}

/// Gives each process what it is to carry, and tells where that is less than what was asked for.
fn carry(
    running: &Running,
    before: &Wanted,
    wanted: &Wanted,
    has_group: bool,
) -> Result<Vec<String>, LimitError> {
    let mut notes = Vec::new();
    let mut is_short = false;
    for mut limit in changed_rlimits(before, wanted, running.family.ends_together()) {
        if has_group && limit.what == plan::Limit::Processes {
            // As at the start: the group's own limit is to be met first.
            limit.soft = limit.soft.saturating_add(1);
        }
        let falls_short = running.family.set_limit(&limit).map_err(LimitError::Lost)?;
        match limit.what {
            plan::Limit::OpenFiles => {
                notes.extend(wanted.files.map(|count| told_of_files(count, falls_short)));
            }
            _ => is_short |= falls_short,
        }
    }
    if is_short {
        let note = "processes that run already cannot be given that much each; new sessions can";
        notes.push(note.to_owned());
    }
    Ok(notes)
}

fn told_of_files(count: u64, falls_short: bool) -> String {
    match falls_short {
        true => format!(
            "programs started with `exec` from now on may have {count} open files; what runs \
             already keeps its lower limit, and so does what it starts"
        ),
        false => format!(
            "every program in the box may have {count} open files from now on; what is open \
             already stays open"
        ),
    }
}

/// What each process is to carry instead; nothing that neither was limited nor is to be.
fn changed_rlimits(before: &Wanted, wanted: &Wanted, has_namespaces: bool) -> Vec<Rlimit> {
    let mut changed = rlimits(wanted, has_namespaces);
    for old in rlimits(before, has_namespaces) {
        match changed.iter().position(|limit| limit.what == old.what) {
            // What a process lowered for itself stays as it is.
            Some(at) if changed[at] == old => drop(changed.remove(at)),
            Some(_) => {}
            None => changed.push(old.lifted()),
        }
    }
    changed
}
