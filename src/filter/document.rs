//! The strict reading of OCI's JSON. Whatever it does not understand it refuses, since a rule
//! dropped in silence is a hole or a broken program.

use oci_spec::runtime::LinuxSeccompAction as Action;
use serde::Deserialize;

use super::FilterError;
use super::profile::{Condition, Profile, Rule, Verdict};

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Document {
    extends: Option<String>,
    default_action: Option<Action>,
    default_errno_ret: Option<u32>,
    architectures: Option<Vec<String>>,
    #[serde(default)]
    syscalls: Vec<WrittenRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenRule {
    names: Vec<String>,
    action: Action,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<Condition>,
    comment: Option<String>,
}

/// Where no errno is given OCI says `EPERM`.
const EPERM: u16 = 1;

/// What an action of the specification means to the kernel.
fn verdict(action: Action, errno: Option<u32>, place: &str) -> Result<Verdict, FilterError> {
    let place = || place.to_owned();
    let value = match errno {
        None => EPERM,
        // The kernel lowers anything above 4095 to 4095; 0 would claim success.
        Some(errno) => match u16::try_from(errno) {
            Ok(errno @ 1..=4095) => errno,
            _ => {
                return Err(FilterError::ErrnoRange {
                    place: place(),
                    errno,
                });
            }
        },
    };
    let verdict = match action {
        Action::ScmpActErrno => return Ok(Verdict::Errno(value)),
        Action::ScmpActTrace => return Ok(Verdict::Trace(value)),
        Action::ScmpActKillProcess => Verdict::KillProcess,
        Action::ScmpActKillThread | Action::ScmpActKill => Verdict::KillThread,
        Action::ScmpActTrap => Verdict::Trap,
        Action::ScmpActNotify => Verdict::Notify,
        Action::ScmpActLog => Verdict::Log,
        Action::ScmpActAllow => Verdict::Allow,
    };
    match errno {
        None => Ok(verdict),
        Some(_) => Err(FilterError::ErrnoUnused { place: place() }),
    }
}

impl WrittenRule {
    fn read(self) -> Result<Rule, FilterError> {
        let place = format!("the rule for `{}`", self.names.join(", "));
        Ok(Rule {
            verdict: verdict(self.action, self.errno_ret, &place)?,
            names: self.names,
            conditions: self.args,
            comment: self.comment,
        })
    }
}

impl Document {
    /// Puts the base under it. What it says about a call replaces all the base says about it.
    pub(super) fn resolve(self) -> Result<Profile, FilterError> {
        let own: Vec<Rule> = self
            .syscalls
            .into_iter()
            .map(WrittenRule::read)
            .collect::<Result<_, _>>()?;
        let base = self.extends.as_deref().map(Profile::builtin).transpose()?;
        let default = match (self.default_action, self.default_errno_ret, &base) {
            (Some(action), errno, _) => verdict(action, errno, "defaultAction")?,
            (None, None, Some(base)) => base.default,
            (None, _, _) => return Err(FilterError::NoDefault),
        };
        let (inherited, mut rules) = match base {
            Some(base) => (base.architectures, base.rules),
            None => (Vec::new(), Vec::new()),
        };
        for rule in &mut rules {
            rule.names
                .retain(|name| !own.iter().any(|rule| rule.names.contains(name)));
        }
        rules.retain(|rule| !rule.names.is_empty());
        rules.extend(own);
        Ok(Profile {
            default,
            architectures: self.architectures.unwrap_or(inherited),
            rules,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extending_profile_replaces_rules_by_call() {
        let json = r#"{"extends": "default", "syscalls": [
            {"names": ["ioctl", "ptrace"], "action": "SCMP_ACT_KILL_PROCESS"}]}"#;
        let base = Profile::builtin("default").unwrap();
        let profile = Profile::from_json(json).unwrap();
        let about = |name: &str| {
            let rules = profile.rules().iter();
            let found = rules.filter(|rule| rule.names.iter().any(|n| n == name));
            found.map(|rule| rule.verdict).collect::<Vec<_>>()
        };
        assert_eq!(about("ioctl"), [Verdict::KillProcess]);
        assert_eq!(about("ptrace"), [Verdict::KillProcess]);
        assert_eq!(about("kcmp"), [Verdict::Errno(1)]);
        assert_eq!(profile.default_verdict(), base.default_verdict());
        assert_eq!(profile.architectures, base.architectures);
    }

    #[test]
    fn an_errno_belongs_to_an_action_that_returns_one() {
        let error = verdict(Action::ScmpActAllow, Some(1), "the rule for `read`").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the rule for `read` has an errno")
        );
        for errno in [0, 4096, 65537] {
            assert!(
                verdict(Action::ScmpActErrno, Some(errno), "defaultAction").is_err(),
                "{errno}"
            );
        }
        assert_eq!(
            verdict(Action::ScmpActErrno, None, "").unwrap(),
            Verdict::Errno(1)
        );
        assert_eq!(
            verdict(Action::ScmpActTrace, Some(7), "").unwrap(),
            Verdict::Trace(7)
        );
    }

    #[test]
    fn a_profile_without_a_base_needs_a_default() {
        let error = Profile::from_json(r#"{"syscalls": []}"#).unwrap_err();
        assert!(matches!(error, FilterError::NoDefault));
        let error = Profile::from_json(r#"{"extends": "default", "defaultErrnoRet": 1}"#);
        assert!(matches!(error, Err(FilterError::NoDefault)));
    }
}
