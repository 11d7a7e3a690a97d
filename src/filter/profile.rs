//! A seccomp profile and the checks it passes. Rules that contradict each other or can never
//! apply are refused: whoever wrote them meant something else.

use std::collections::HashMap;

use serde::Deserialize;

use super::document::Document;
use super::names::{Number, number};
use super::{Arch, FilterError, text};

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    KillProcess,
    KillThread,
    Trap,
    Errno(u16),
    Notify,
    Trace(u16),
    Log,
    Allow,
}

impl Verdict {
    /// The value a filter returns (`SECCOMP_RET_*`).
    pub const fn raw(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0,
            Self::Trap => 0x0003_0000,
            Self::Errno(errno) => 0x0005_0000 | errno as u32,
            Self::Notify => 0x7fc0_0000,
            Self::Trace(data) => 0x7ff0_0000 | data as u32,
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }
}

/// How an argument is compared, always as 64 bits without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum Comparison {
    #[serde(rename = "SCMP_CMP_NE")]
    NotEqual,
    #[serde(rename = "SCMP_CMP_LT")]
    Less,
    #[serde(rename = "SCMP_CMP_LE")]
    LessOrEqual,
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    #[serde(rename = "SCMP_CMP_GE")]
    GreaterOrEqual,
    #[serde(rename = "SCMP_CMP_GT")]
    Greater,
    /// `value` is the mask, `value_two` what must remain.
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

/// One comparison of one argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Condition {
    pub index: u32,
    pub value: u64,
    #[serde(default)]
    pub value_two: u64,
    pub op: Comparison,
}

impl Condition {
    pub fn holds(&self, args: &[u64; 6]) -> bool {
        let Some(&arg) = args.get(self.index as usize) else {
            return false;
        };
        match self.op {
            Comparison::NotEqual => arg != self.value,
            Comparison::Less => arg < self.value,
            Comparison::LessOrEqual => arg <= self.value,
            Comparison::Equal => arg == self.value,
            Comparison::GreaterOrEqual => arg >= self.value,
            Comparison::Greater => arg > self.value,
            Comparison::MaskedEqual => arg & self.value == self.value_two,
        }
    }
}

/// What happens to some calls when all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub names: Vec<String>,
    pub conditions: Vec<Condition>,
    pub verdict: Verdict,
    pub comment: Option<String>,
}

/// A profile that has been checked. Of the rules for one call the first that holds decides;
/// where none holds, `default` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub(super) default: Verdict,
    pub(super) architectures: Vec<String>,
    pub(super) rules: Vec<Rule>,
}

impl Profile {
    /// Reads a profile, and what it extends.
    pub fn from_json(json: &str) -> Result<Self, FilterError> {
        let document: Document = serde_json::from_str(json).map_err(FilterError::Json)?;
        let profile = document.resolve()?;
        profile.check()?;
        Ok(profile)
    }

    /// Reads a built-in profile.
    pub fn builtin(name: &str) -> Result<Self, FilterError> {
        let json = text(name).ok_or_else(|| FilterError::UnknownBase { name: name.into() })?;
        Self::from_json(json)
    }

    pub fn default_verdict(&self) -> Verdict {
        self.default
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules about one call, in their order.
    pub fn rules_about<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Rule> {
        let about = move |rule: &&Rule| rule.names.iter().any(|known| known == name);
        self.rules.iter().filter(about)
    }

    /// The rule that decides about a call; none where the default does.
    pub fn deciding<'a>(&'a self, name: &'a str, args: &[u64; 6]) -> Option<&'a Rule> {
        let holds = |rule: &&Rule| rule.conditions.iter().all(|one| one.holds(args));
        self.rules_about(name).find(holds)
    }

    /// Whether the profile names this architecture, or none and so means all.
    pub fn is_for(&self, arch: Arch) -> bool {
        let name = match arch {
            Arch::X86_64 => "SCMP_ARCH_X86_64",
            Arch::Aarch64 => "SCMP_ARCH_AARCH64",
        };
        self.architectures.is_empty() || self.architectures.iter().any(|known| known == name)
    }

    fn check(&self) -> Result<(), FilterError> {
        for name in &self.architectures {
            if !ARCHITECTURES.contains(&name.as_str()) {
                return Err(FilterError::UnknownArch { name: name.clone() });
            }
        }
        let mut seen: HashMap<&str, Vec<&Rule>> = HashMap::new();
        for rule in &self.rules {
            if rule.names.is_empty() {
                return Err(FilterError::NoNames);
            }
            for name in &rule.names {
                if number(name, Arch::X86_64) == Number::Unknown {
                    return Err(FilterError::UnknownCall { name: name.clone() });
                }
                check_conditions(name, &rule.conditions)?;
                let earlier = seen.entry(name).or_default();
                check_against(name, rule, earlier)?;
                earlier.push(rule);
            }
        }
        Ok(())
    }
}

fn check_conditions(name: &str, conditions: &[Condition]) -> Result<(), FilterError> {
    let wrong = |why| {
        let name = name.to_owned();
        Err(FilterError::Condition { name, why })
    };
    for (at, condition) in conditions.iter().enumerate() {
        let masked = condition.op == Comparison::MaskedEqual;
        if condition.index > 5 {
            return wrong("counts arguments past 5, the last one");
        }
        if conditions[..at].iter().any(|c| c.index == condition.index) {
            // runc reads such a rule as "any of them", the standard as "all of them".
            return wrong("compares one argument twice, which tools read in two ways");
        }
        if !masked && condition.value_two != 0 {
            return wrong("has a valueTwo, which only SCMP_CMP_MASKED_EQ uses");
        }
        if masked && condition.value == 0 {
            return wrong("has a mask of 0 and so always holds");
        }
        if masked && condition.value_two & !condition.value != 0 {
            return wrong("expects bits outside its mask and so never holds");
        }
    }
    Ok(())
}

fn check_against(name: &str, rule: &Rule, earlier: &[&Rule]) -> Result<(), FilterError> {
    let name = name.to_owned();
    for other in earlier {
        if other.conditions == rule.conditions {
            return Err(if other.verdict == rule.verdict {
                FilterError::Duplicate { name }
            } else {
                FilterError::Contradiction { name }
            });
        }
        if other.conditions.is_empty() {
            return Err(FilterError::Unreachable { name });
        }
    }
    Ok(())
}

const ARCHITECTURES: &[&str] = &[
    "SCMP_ARCH_X86",
    "SCMP_ARCH_X86_64",
    "SCMP_ARCH_X32",
    "SCMP_ARCH_ARM",
    "SCMP_ARCH_AARCH64",
    "SCMP_ARCH_LOONGARCH64",
    "SCMP_ARCH_M68K",
    "SCMP_ARCH_MIPS",
    "SCMP_ARCH_MIPS64",
    "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",
    "SCMP_ARCH_MIPSEL64",
    "SCMP_ARCH_MIPSEL64N32",
    "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",
    "SCMP_ARCH_PPC64LE",
    "SCMP_ARCH_S390",
    "SCMP_ARCH_S390X",
    "SCMP_ARCH_PARISC",
    "SCMP_ARCH_PARISC64",
    "SCMP_ARCH_RISCV64",
    "SCMP_ARCH_SH",
    "SCMP_ARCH_SHEB",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rules: &str) -> String {
        let json = format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rules}]}}"#);
        Profile::from_json(&json).unwrap_err().to_string()
    }

    fn refused_condition(condition: &str) -> String {
        let rule = r#"{"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": "#;
        refused(&format!("{rule} [{condition}]}}"))
    }

    #[test]
    fn the_same_rule_twice_is_refused() {
        let message = refused(r#"{"names": ["read", "read"], "action": "SCMP_ACT_ERRNO"}"#);
        assert_eq!(message, "`read` has the same rule twice");
    }

    #[test]
    fn rules_that_contradict_each_other_are_refused() {
        let message = refused(
            r#"{"names": ["read", "write"], "action": "SCMP_ACT_ERRNO"},
               {"names": ["write"], "action": "SCMP_ACT_ALLOW"}"#,
        );
        assert!(message.contains("`write` has two rules"), "{message}");
    }

    #[test]
    fn a_rule_that_is_never_reached_is_refused() {
        let message = refused(
            r#"{"names": ["read"], "action": "SCMP_ACT_ALLOW"},
               {"names": ["read"], "action": "SCMP_ACT_ERRNO",
                "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]}"#,
        );
        assert!(message.contains("`read` is never reached"), "{message}");
    }

    #[test]
    fn conditions_that_mean_nothing_are_refused() {
        let cases = [
            (r#"{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}"#, "past 5"),
            (
                r#"{"index": 0, "value": 1, "valueTwo": 2, "op": "SCMP_CMP_EQ"}"#,
                "valueTwo",
            ),
            (
                r#"{"index": 0, "value": 0, "op": "SCMP_CMP_MASKED_EQ"}"#,
                "always",
            ),
            (
                r#"{"index": 0, "value": 1, "valueTwo": 2, "op": "SCMP_CMP_MASKED_EQ"}"#,
                "never",
            ),
            (
                r#"{"index": 0, "value": 1, "op": "SCMP_CMP_GE"}, {"index": 0, "value": 9, "op": "SCMP_CMP_LE"}"#,
                "twice",
            ),
        ];
        for (condition, word) in cases {
            let message = refused_condition(condition);
            assert!(
                message.contains("`ioctl`") && message.contains(word),
                "{message}"
            );
        }
    }

    #[test]
    fn a_rule_for_nothing_is_refused() {
        let message = refused(r#"{"names": [], "action": "SCMP_ACT_ERRNO"}"#);
        assert_eq!(message, "a rule names no system call");
    }
}
