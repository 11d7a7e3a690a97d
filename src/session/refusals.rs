//! What a box refused, in words: by which rule, and what would allow it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::changes::noted;
use super::record::Record;
use super::supervise::Life;
use crate::filter::{self, Arch, Profile, Verdict};
use crate::journal::RefusalKind;
use crate::plan::{Plan, Seccomp};
use crate::policy::guard::KEEP;
use crate::sandbox::RefusedCall;

/// Pid 1 tells fewer apart.
const KINDS: usize = 256;

/// Something that a program was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refused {
    pub kind: RefusalKind,
    /// A path in the box, or the name of a system call.
    pub object: String,
    pub rule: String,
    /// What to type to allow it.
    pub allow: String,
    /// Who tried, as far as that was to be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl Refused {
    /// A guard's word: the rule, a tab, the path. And the source of the mount that it lies in.
    fn by_guard(what: &str, source: Option<&str>) -> Self {
        let (rule, object) = what.split_once('\t').unwrap_or(("guard", what));
        let allow = match rule {
            KEEP => format!("--mount {}:rw", source.unwrap_or("SRC")),
            _ if rule.starts_with("git ") => "[guard] git = false".to_owned(),
            _ => format!("[guard] lift = [\"{rule}\"]"),
        };
        Self {
            kind: RefusalKind::File,
            object: object.to_owned(),
            rule: rule.to_owned(),
            allow,
            program: None,
        }
    }

    fn by_filter(plan: &Plan, refused: &RefusedCall) -> Self {
        let name = Arch::native().and_then(|arch| filter::name_of(refused.call, arch));
        let object = name.unwrap_or_else(|| format!("number {}", refused.call));
        let (rule, allow) = match &plan.lock.seccomp {
            // Read again, a file could be another than the one that was loaded.
            Seccomp::Profile { path, .. } => (
                format!("seccomp {}", path.display()),
                format!("a rule for {object} in {}", path.display()),
            ),
            Seccomp::BuiltIn { name, .. } => (
                rule(name, &object, &refused.args),
                allow(name, &object, &refused.args),
            ),
            Seccomp::Given(_) | Seccomp::Excused(_) => ("seccomp".to_owned(), String::new()),
        };
        let program = String::from_utf8_lossy(&refused.program);
        Self {
            kind: RefusalKind::Syscall,
            object,
            rule,
            allow,
            program: match program.is_empty() {
                true => None,
                false => Some(format!("{program} (pid {})", refused.thread)),
            },
        }
    }
}

/// The filter and the reason that its profile gives.
fn rule(profile: &str, call: &str, args: &[u64; 6]) -> String {
    let read = Profile::builtin(profile).ok();
    let why = read.and_then(|read| read.deciding(call, args)?.comment.clone());
    match why {
        Some(why) => format!("seccomp {profile} ({})", why.trim_end_matches('.')),
        None => format!("seccomp {profile}"),
    }
}

/// The flag that chooses a filter that allows it.
fn allow(profile: &str, call: &str, args: &[u64; 6]) -> String {
    let allowed_by = |profile: &str| {
        let read = Profile::builtin(profile).ok();
        read.is_some_and(|read| {
            let rule = read.deciding(call, args);
            rule.is_some_and(|rule| rule.verdict == Verdict::Allow)
        })
    };
    if allowed_by("debug") {
        "--seccomp debug".to_owned()
    } else if allowed_by("nested") && profile == "debug" {
        "--nesting in place of --seccomp debug".to_owned()
    } else if allowed_by("nested") {
        "--nesting".to_owned()
    } else {
        format!("--seccomp FILE, a profile that extends \"default\" and allows {call}")
    }
}

impl Life<'_> {
    /// Writes down what pid 1 left as it is: the rule, a tab, the path.
    pub(super) fn refused_by_guard(&mut self, what: &str) {
        let path = what.split_once('\t').map_or("", |(_, path)| path);
        let shown = Record::of(self.plan, false).mounts.into_iter();
        let mounts = shown.chain(self.mounted.iter().map(noted));
        // The innermost one is what the program saw.
        let holding = mounts.filter(|mount| Path::new(path).starts_with(&mount.place));
        let holding = holding.max_by_key(|mount| mount.place.len());
        let source = holding.map(|mount| mount.source);
        self.diary.refused(what, source.as_deref());
    }
}

/// What was refused in a run, each once.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: Vec<Refused>,
    /// Calls in the words that were found for them. Pid 1 tells again of the same when it has
    /// happened again.
    calls: Vec<(RefusedCall, Refused)>,
}

impl Refusals {
    pub(super) fn by_guard(&mut self, what: &str, source: Option<&str>) -> Refused {
        let refused = Refused::by_guard(what, source);
        self.all.push(refused.clone());
        refused
    }

    pub(super) fn by_filter(&mut self, plan: &Plan, told: &RefusedCall) -> Refused {
        let same = RefusedCall {
            times: 0,
            ..told.clone()
        };
        if let Some((_, known)) = self.calls.iter().find(|(known, _)| *known == same) {
            return known.clone();
        }
        let refused = Refused::by_filter(plan, told);
        if self.calls.len() < KINDS {
            self.calls.push((same, refused.clone()));
        }
        // Once for each name: the reasons are in the journal.
        let is_named =
            |known: &Refused| (known.kind, &known.object) == (refused.kind, &refused.object);
        if !self.all.iter().any(is_named) {
            self.all.push(refused.clone());
        }
        refused
    }

    pub(super) fn all(&self) -> &[Refused] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ARGS: [u64; 6] = [0; 6];

    #[test]
    fn the_flag_is_the_one_that_would_allow_it() {
        let new_user = [0x1000_0000, 0, 0, 0, 0, 0];
        assert_eq!(allow("default", "ptrace", &NO_ARGS), "--seccomp debug");
        assert_eq!(allow("default", "unshare", &new_user), "--nesting");
        assert_eq!(allow("default", "mount", &NO_ARGS), "--nesting");
        let other = allow("debug", "mount", &NO_ARGS);
        assert_eq!(other, "--nesting in place of --seccomp debug");
        let own = allow("default", "keyctl", &NO_ARGS);
        assert!(
            own.starts_with("--seccomp FILE") && own.ends_with("keyctl"),
            "{own}"
        );
    }

    #[test]
    fn the_reason_is_that_of_the_rule_that_held() {
        let typing = rule("default", "ioctl", &[0, 0x5412, 0, 0, 0, 0]);
        assert!(
            typing.starts_with("seccomp default (TIOCSTI types"),
            "{typing}"
        );
        let flags = rule("default", "ioctl", &[0, 1_074_292_226, 0, 0, 0, 0]);
        assert!(flags.contains("FS_IOC_SETFLAGS"), "{flags}");
        assert!(!flags.ends_with(".)"), "{flags}");
    }
}
