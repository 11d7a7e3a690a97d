//! Takes the entries of a journal together to runs: from a start to a stop.

use std::collections::BTreeMap;

use super::entry::{Entry, Exit, RunNote, What};

/// More rules than anybody has; those of a hostile file are counted together.
const RULES: usize = 256;

#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) note: RunNote,
    /// When it stopped, its outcome, and by whom.
    pub(super) stop: Option<(u64, String, String)>,
    /// When it last gave a sign of life.
    pub(super) last: u64,
}

/// The runs of one journal, oldest first.
#[derive(Debug, Default)]
pub(super) struct Runs(pub(super) Vec<Run>);

impl Runs {
    pub(super) fn add(&mut self, entry: &Entry) {
        match &entry.what {
            What::Start { program, .. } => {
                let run = self.open(entry.at);
                run.note.program.clone_from(program);
            }
            What::Cut {
                run: Some(note), ..
            } => {
                let run = self.open(note.started);
                run.note = note.clone();
            }
            What::Cut { run: None, .. } | What::Mended { .. } | What::Aside { .. } => return,
            What::Exec { .. } => self.current(entry.at).note.execs += 1,
            What::Refusal { rule, count, .. } => {
                add_up(&mut self.current(entry.at).note.refusals, rule, *count);
            }
            What::Exit {
                exec: 0,
                code,
                signal,
                not_executed,
            } => {
                self.current(entry.at).note.exit = Some(Exit {
                    code: *code,
                    signal: *signal,
                    not_executed: *not_executed,
                });
            }
            What::Stop { outcome, by } => {
                self.current(entry.at).stop = Some((entry.at, outcome.clone(), by.clone()));
            }
            _ => {}
        }
        if let Some(run) = self.0.last_mut() {
            run.last = entry.at;
        }
    }

    /// The run that has not stopped, if there is one.
    pub(super) fn unfinished(&self) -> Option<&Run> {
        self.0.last().filter(|run| run.stop.is_none())
    }

    fn open(&mut self, at: u64) -> &mut Run {
        self.0.push(Run::default());
        let last = self.0.len() - 1;
        self.0[last].note.started = at;
        &mut self.0[last]
    }

    /// The run that goes on; one whose start cannot be read begins here.
    fn current(&mut self, at: u64) -> &mut Run {
        match self.unfinished().is_some() {
            true => {
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
            false => self.open(at),
        }
    }
}

/// Adds to the count of a rule.
pub(super) fn add_up(refusals: &mut BTreeMap<String, u64>, rule: &str, count: u64) {
    let known = refusals.len() < RULES || refusals.contains_key(rule);
    let name = if known { rule } else { "others" };
    let sum = refusals.entry(name.to_owned()).or_insert(0);
    *sum = sum.saturating_add(count);
}
