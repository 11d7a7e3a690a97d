//! From a profile to a program: a balanced tree over ranges of call numbers, whose leaves
//! are verdicts or tests of arguments.
//!
//! The kernel replays a new filter once for every call number to learn which it always
//! allows, so the depth of the tree is what loading costs. libseccomp only resolves names
//! here: it cannot say "allowed, except these" about one call.

use std::collections::BTreeMap;

use super::assemble::{Assembler, Decision, Target};
use super::names::{Number, number};
use super::profile::{Profile, Verdict};
use super::{Arch, Filter, FilterError, Instruction, MAX_INSTRUCTIONS};

/// For calls by another door: `ENOSYS`, as from a kernel built without it.
const NO_SUCH_CALL: Verdict = Verdict::Errno(38);

/// x32 calls carry this bit and the architecture of x86-64. Where the default is to allow
/// they would pass every rule, so they are a range of their own.
const X32: u32 = 0x4000_0000;

/// Compiles a profile for one architecture; calls of any other get `ENOSYS`.
pub fn compile(profile: &Profile, arch: Arch) -> Result<Filter, FilterError> {
    compile_leaving(profile, arch, NO_SUCH_CALL)
}

/// As `compile`, with another answer to calls by another door.
pub(super) fn compile_leaving(
    profile: &Profile,
    arch: Arch,
    others: Verdict,
) -> Result<Filter, FilterError> {
    if !profile.is_for(arch) {
        return Err(FilterError::WrongArch { arch });
    }
    let mut assembler = Assembler::default();
    let body = tree(&mut assembler, &ranges(profile, arch, others));
    let program = assembler.finish(arch.audit(), body, others);
    let count = program.len() / Instruction::SIZE;
    if count > MAX_INSTRUCTIONS {
        return Err(FilterError::TooLong { count });
    }
    Filter::from_bytes(arch, program)
}

/// Numbers from `first` up to the next range, all decided alike.
#[derive(Debug)]
struct Range<'a> {
    first: u32,
    decision: Decision<'a>,
}

fn decisions(profile: &Profile, arch: Arch) -> BTreeMap<u32, Decision<'_>> {
    let mut calls = BTreeMap::new();
    for rule in profile.rules() {
        for name in &rule.names {
            let Number::Is(number) = number(name, arch) else {
                continue; // a call of another architecture; unknown names were refused
            };
            let decision = calls.entry(number).or_insert_with(|| Decision {
                tests: Vec::new(),
                otherwise: profile.default_verdict(),
            });
            if rule.conditions.is_empty() {
                decision.otherwise = rule.verdict;
            } else {
                decision
                    .tests
                    .push((rule.conditions.as_slice(), rule.verdict));
            }
        }
    }
    for decision in calls.values_mut() {
        while decision
            .tests
            .pop_if(|(_, verdict)| *verdict == decision.otherwise)
            .is_some()
        {}
    }
    calls
}

fn ranges(profile: &Profile, arch: Arch, others: Verdict) -> Vec<Range<'_>> {
    let plain = |otherwise| Decision {
        tests: Vec::new(),
        otherwise,
    };
    let mut ranges = vec![Range {
        first: 0,
        decision: plain(profile.default_verdict()),
    }];
    let mut add = |first, decision| match ranges.last_mut() {
        Some(last) if last.decision == decision => {}
        Some(last) if last.first == first => last.decision = decision,
        _ => ranges.push(Range { first, decision }),
    };
    for (number, decision) in decisions(profile, arch) {
        add(number, decision);
        add(number + 1, plain(profile.default_verdict()));
    }
    if arch == Arch::X86_64 {
        add(X32, plain(others));
    }
    ranges.dedup_by(|later, earlier| later.decision == earlier.decision);
    ranges
}

fn tree<'a>(assembler: &mut Assembler<'a>, ranges: &[Range<'a>]) -> Target {
    match ranges {
        [] => Target::Return(NO_SUCH_CALL),
        [only] => assembler.decide(&only.decision),
        // One number that differs from both its sides takes one comparison, not two.
        [left, one, right] if left.decision == right.decision && one.first + 1 == right.first => {
            let no = assembler.decide(&left.decision);
            let yes = assembler.decide(&one.decision);
            assembler.at_number(one.first, yes, no)
        }
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let no = tree(assembler, low);
            let yes = tree(assembler, high);
            assembler.at_or_above(high[0].first, yes, no)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(json: &str, arch: Arch) -> Vec<(u32, Verdict)> {
        let profile = Profile::from_json(json).unwrap();
        let ranges = ranges(&profile, arch, NO_SUCH_CALL);
        let plain = |range: &Range<'_>| (range.first, range.decision.otherwise);
        ranges.iter().map(plain).collect()
    }

    #[test]
    fn neighbours_with_the_same_verdict_share_a_range() {
        let json = r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "syscalls": [
            {"names": ["read", "write", "open", "stat"], "action": "SCMP_ACT_ALLOW"}]}"#;
        let (yes, no) = (Verdict::Allow, NO_SUCH_CALL);
        let expected = [(0, yes), (3, no), (4, yes), (5, no)];
        assert_eq!(firsts(json, Arch::X86_64), expected);
    }

    #[test]
    fn x32_is_shut_even_where_all_else_is_allowed() {
        let json = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#;
        let expected = [(0, Verdict::Allow), (X32, NO_SUCH_CALL)];
        assert_eq!(firsts(json, Arch::X86_64), expected);
        assert_eq!(firsts(json, Arch::Aarch64), expected[..1]);
    }

    #[test]
    fn a_last_test_that_changes_nothing_is_dropped() {
        let json = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW",
             "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}]}"#;
        assert_eq!(firsts(json, Arch::Aarch64), [(0, Verdict::Allow)]);
    }
}
