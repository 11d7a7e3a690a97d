//! What journals tell: which sessions there were, how they ended, whether it is all still there.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use super::entry::Exit;
use super::folder::{Found, list};
use super::read::{Scan, Verdict, scan};
use super::runs::{Run, Runs, add_up};
use super::when::{stamp, time};
use crate::policy::SessionId;

/// Who stopped a session, where the user did: that is not a failure, whatever the program made
/// of the signal.
pub const BY_USER: &str = "user";

/// Which runs to tell of; the default is all of them.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub failed: bool,
    pub success: bool,
    /// Those that gave a sign of life at this time or later.
    pub since: Option<SystemTime>,
    pub session: Option<SessionId>,
}

/// A run of a session: from its start to its stop. A session that was started again has several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Past {
    pub id: SessionId,
    #[serde(serialize_with = "as_text")]
    pub started: SystemTime,
    /// None while it runs, and when nobody was left to write it down.
    #[serde(serialize_with = "as_optional_text")]
    pub ended: Option<SystemTime>,
    pub running: bool,
    pub program: Vec<String>,
    /// How the session's own program ended.
    pub exit: Option<Exit>,
    /// How the session ended, in the supervisor's words, and who ended it.
    pub outcome: Option<String>,
    pub by: Option<String>,
    pub execs: u64,
    /// How often each rule refused something.
    pub refusals: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub verdict: Verdict,
}

fn as_text<S: Serializer>(time: &SystemTime, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&stamp(*time))
}

fn as_optional_text<S: Serializer>(time: &Option<SystemTime>, out: S) -> Result<S::Ok, S::Error> {
    time.map(stamp).serialize(out)
}

impl Past {
    fn of(id: &SessionId, run: Run, running: bool, verdict: &Verdict) -> Self {
        let (ended, outcome, by) = match run.stop {
            Some((at, outcome, by)) => (Some(time(at)), Some(outcome), Some(by)),
            None => (None, None, None),
        };
        Self {
            id: id.clone(),
            started: time(run.note.started),
            ended,
            running,
            program: run.note.program,
            exit: run.note.exit,
            outcome,
            by,
            execs: run.note.execs,
            refusals: run.note.refusals,
            verdict: verdict.clone(),
        }
    }

    pub fn duration(&self) -> Option<Duration> {
        self.ended?.duration_since(self.started).ok()
    }

    /// Whether it is over and did not end with code 0 or by the user's own word. One that
    /// nobody saw the end of was killed.
    pub fn has_failed(&self) -> bool {
        !self.running && !self.has_succeeded()
    }

    pub fn has_succeeded(&self) -> bool {
        let asked_for = self.by.as_deref() == Some(BY_USER);
        self.ended.is_some() && (asked_for || self.exit.is_some_and(Exit::is_success))
    }

    pub fn refused(&self) -> u64 {
        let all = self.refusals.values();
        all.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// The runs of all sessions with a journal in `folder`, newest first. What only has the name of a
/// journal is told of as well, with its verdict.
pub fn history(folder: &Path, filter: &Filter) -> io::Result<Vec<Past>> {
    let wanted = |found: &Found| {
        let named = filter.session.as_ref().is_none_or(|id| *id == found.id);
        named && !found.is_aside
    };
    let mut all = Vec::new();
    for found in list(folder)?.into_iter().filter(wanted) {
        let mut runs = Runs::default();
        let Some(seen) = look(&found.path, &mut |entry| runs.add(&entry)) else {
            continue;
        };
        if runs.0.is_empty() {
            let at = in_milliseconds(changed(&found.path));
            let mut unknown = Run::default();
            (unknown.note.started, unknown.last) = (at, at);
            runs.0.push(unknown);
        }
        let newest = runs.0.len() - 1;
        for (number, run) in runs.0.into_iter().enumerate() {
            let running = seen.running && number == newest && run.stop.is_none();
            let last = time(run.last);
            let past = Past::of(&found.id, run, running, &seen.verdict);
            let late_enough = filter.since.is_none_or(|since| running || last >= since);
            let any_end = filter.failed == filter.success;
            let end_fits = any_end
                || filter.failed && past.has_failed()
                || filter.success && past.has_succeeded();
            if late_enough && end_fits {
                all.push(past);
            }
        }
    }
    // Runs of one session that started in the same millisecond stay in their order.
    all.reverse();
    all.sort_by_key(|past| std::cmp::Reverse(past.started));
    Ok(all)
}

/// Goes through a journal; none if it is gone. One that cannot be read is told of, too.
pub(super) fn look(path: &Path, each: &mut dyn FnMut(super::Entry)) -> Option<Scan> {
    match scan(path, each) {
        Ok(scan) => Some(scan),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Scan::unreadable(&error)),
    }
}

/// When the file was last changed; not of what a link leads to.
pub(super) fn changed(path: &Path) -> SystemTime {
    path.symlink_metadata()
        .and_then(|about| about.modified())
        .unwrap_or(UNIX_EPOCH)
}

fn in_milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether each journal is what was written, those set aside included.
pub fn verify(folder: &Path) -> io::Result<Vec<(SessionId, Verdict)>> {
    let all = list(folder)?.into_iter();
    Ok(all
        .filter_map(|found| Some((found.id, look(&found.path, &mut drop)?.verdict)))
        .collect())
}

/// Many runs in a few numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Statistics {
    pub number: usize,
    pub running: usize,
    pub failed: usize,
    /// Of those whose end is known.
    #[serde(serialize_with = "in_seconds")]
    pub mean: Option<Duration>,
    #[serde(serialize_with = "in_seconds")]
    pub median: Option<Duration>,
    /// How often each rule refused something.
    pub refusals: BTreeMap<String, u64>,
}

fn in_seconds<S: Serializer>(time: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(out)
}

/// What is no journal of ours is not counted.
pub fn statistics(history: &[Past]) -> Statistics {
    let mut all = Statistics::default();
    let mut durations = Vec::new();
    let ours = |past: &&Past| !matches!(past.verdict, Verdict::Foreign { .. });
    for past in history.iter().filter(ours) {
        all.number += 1;
        all.running += usize::from(past.running);
        all.failed += usize::from(past.has_failed());
        durations.extend(past.duration());
        for (rule, count) in &past.refusals {
            add_up(&mut all.refusals, rule, *count);
        }
    }
    durations.sort();
    let number = u32::try_from(durations.len()).unwrap_or(u32::MAX);
    let sum = durations
        .iter()
        .fold(Duration::ZERO, |sum, one| sum.saturating_add(*one));
    all.mean = sum.checked_div(number);
    let upper = durations.get(durations.len() / 2);
    let lower = durations.get(durations.len().saturating_sub(1) / 2);
    all.median = lower
        .zip(upper)
        .map(|(lower, upper)| lower.saturating_add(*upper) / 2);
    all
}
