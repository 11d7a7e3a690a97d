//! Filters whose refusals somebody hears of.
//!
//! An error number is the program's alone. So a call that is refused with `EPERM` is handed to the
//! box's first process instead, which answers with that number and can tell others. It takes two
//! filters, because there is one listener at most and the first process cannot wait for itself:
//!
//! - `every` is loaded first, by the first process. What it hands over has no listener there: to
//!   that process such a call does not exist (`ENOSYS`).
//! - `program` is loaded by each program on top, with the listener. Of filters that agree the
//!   newest counts, so the questions go there.
//!
//! A third one with a listener would count before both, and whoever holds it could let the call go
//! on. The kernel takes none while ours is open; that `program` takes none at all is for the moment
//! in which the first process is gone and the others are not. **`every` without `program` is a hole.**
//!
//! What programs try in passing is answered as before: `ENOSYS` and the like, and calls that are
//! handed over anyway, as changes to guarded mounts.

use std::collections::BTreeSet;

use super::compile::compile_leaving;
use super::profile::{Comparison, Condition, Profile, Rule, Verdict};
use super::{Arch, Filter, FilterError, builtin_bytes, compile};

/// The one answer to a call that is handed over because it is refused.
pub const REFUSAL: u16 = 1;
/// What the kernel says to whoever wants a listener where there is one.
const BUSY: u16 = 16;
/// The flag of `seccomp` that asks for a listener.
const NEW_LISTENER: u64 = 1 << 3;

const GUARD: &str = include_str!("../../seccomp/guard.json");

/// Two filters that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// For all processes of the box.
    pub every: Filter,
    /// For each program, with a listener; also asks about changes to guarded mounts.
    pub program: Filter,
}

impl Heard {
    /// A built-in filter for this machine with its refusals handed over.
    pub fn builtin(name: &str) -> Option<Self> {
        Some(Self {
            every: builtin_bytes(&format!("{name}.every"))?,
            program: builtin_bytes(&format!("{name}.program"))?,
        })
    }

    pub fn compile(profile: &Profile, arch: Arch) -> Result<Self, FilterError> {
        let profiles = Profiles::of(profile)?;
        Ok(Self {
            every: compile(&profiles.every, arch)?,
            program: compile_leaving(&profiles.program, arch, Verdict::Allow)?,
        })
    }
}

/// The filter that only asks about changes to guarded mounts.
pub fn guard() -> Option<Filter> {
    builtin_bytes("guard")
}

/// The same, made anew. Other architectures are left to the box's own filter.
pub fn compile_guard(arch: Arch) -> Result<Filter, FilterError> {
    compile_leaving(&Profile::from_json(GUARD)?, arch, Verdict::Allow)
}

/// Whether refusals of this call with [`REFUSAL`] are handed over.
pub fn is_heard(profile: &Profile, name: &str) -> bool {
    heard_of(profile).is_ok_and(|names| names.contains(name))
}

#[derive(Debug)]
struct Profiles {
    every: Profile,
    program: Profile,
}

impl Profiles {
    fn of(profile: &Profile) -> Result<Self, FilterError> {
        let names = heard_of(profile)?;
        let mut every = Vec::new();
        let mut program = Profile::from_json(GUARD)?;
        program.rules.push(no_listener());
        for rule in &profile.rules {
            let (heard, others): (Vec<_>, Vec<_>) = rule
                .names
                .iter()
                .cloned()
                .partition(|name| names.contains(name));
            let verdict = match rule.verdict {
                Verdict::Errno(REFUSAL) => Verdict::Notify,
                other => other,
            };
            let part = |names: Vec<String>, verdict| Rule {
                names,
                verdict,
                conditions: rule.conditions.clone(),
                comment: rule.comment.clone(),
            };
            if !others.is_empty() {
                every.push(part(others, rule.verdict));
            }
            if !heard.is_empty() {
                every.push(part(heard.clone(), verdict));
                let verdict = match verdict {
                    Verdict::Notify => Verdict::Notify,
                    _ => Verdict::Allow, // the other filter decides
                };
                program.rules.push(part(heard, verdict));
            }
        }
        let every = Profile {
            default: profile.default,
            architectures: profile.architectures.clone(),
            rules: every,
        };
        Ok(Self { every, program })
    }
}

/// The calls of a profile whose refusals are handed over.
fn heard_of(profile: &Profile) -> Result<BTreeSet<String>, FilterError> {
    let mut names = names_with(profile, Verdict::Errno(REFUSAL));
    let hearable = hearable()?;
    names.retain(|name| hearable.contains(name));
    // A profile that hands a call to somebody itself does not mean us.
    for name in names_with(profile, Verdict::Notify) {
        names.remove(&name);
    }
    Ok(names)
}

/// What may be handed over at all. Between its filter and its exec a program's process makes calls
/// while the first process waits for it; so these are no more than what our own profile refuses.
fn hearable() -> Result<BTreeSet<String>, FilterError> {
    let mut names = names_with(&Profile::builtin("default")?, Verdict::Errno(REFUSAL));
    for name in names_with(&Profile::from_json(GUARD)?, Verdict::Notify) {
        names.remove(&name);
    }
    names.remove("seccomp");
    Ok(names)
}

fn names_with(profile: &Profile, verdict: Verdict) -> BTreeSet<String> {
    let rules = profile.rules.iter().filter(|rule| rule.verdict == verdict);
    rules.flat_map(|rule| rule.names.clone()).collect()
}

fn no_listener() -> Rule {
    Rule {
        names: vec!["seccomp".to_owned()],
        conditions: vec![Condition {
            index: 1,
            value: NEW_LISTENER,
            value_two: NEW_LISTENER,
            op: Comparison::MaskedEqual,
        }],
        verdict: Verdict::Errno(BUSY),
        comment: Some("A listener of the program's own would count before ours.".to_owned()),
    }
}
