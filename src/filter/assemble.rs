//! Writes a filter program from its end to its beginning. Jumps in such programs only lead
//! forward, so backwards every target already has its place when a jump to it is written.

use std::collections::HashMap;

use super::Instruction;
use super::profile::{Comparison, Condition, Verdict};

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Offsets in the kernel's `seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

/// A conditional jump skips at most 255 instructions. The last few are kept for what
/// bringing the second target near may put in between.
const REACH: usize = 250;

/// Where a jump leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Return(Verdict),
    /// The instruction with this many, itself included, to the end of the program.
    At(usize),
}

/// What decides about a call: tests in order, then a verdict for all others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decision<'a> {
    pub(super) tests: Vec<(&'a [Condition], Verdict)>,
    pub(super) otherwise: Verdict,
}

/// The program so far, last instruction first.
#[derive(Debug, Default)]
pub(super) struct Assembler<'a> {
    code: Vec<Instruction>,
    returns: HashMap<Verdict, usize>,
    decisions: HashMap<Decision<'a>, usize>,
}

impl<'a> Assembler<'a> {
    /// Puts the head on: another architecture gets `foreign`, all others go to `native`.
    pub(super) fn finish(mut self, arch: u32, native: Target, foreign: Verdict) -> Vec<u8> {
        let body = self.near(native);
        if body != self.code.len() {
            self.jump(body);
        }
        let native = Target::At(self.push(LOAD, NUMBER));
        self.branch(JUMP_EQUAL, arch, native, Target::Return(foreign));
        self.push(LOAD, ARCH);
        self.code.iter().rev().flat_map(|i| i.encode()).collect()
    }

    /// Goes on at `yes` for numbers from `first` up, else at `no`.
    pub(super) fn at_or_above(&mut self, first: u32, yes: Target, no: Target) -> Target {
        self.branch(JUMP_GREATER_OR_EQUAL, first, yes, no)
    }

    /// Goes on at `yes` for one number, else at `no`.
    pub(super) fn at_number(&mut self, number: u32, yes: Target, no: Target) -> Target {
        self.branch(JUMP_EQUAL, number, yes, no)
    }

    /// Writes a decision, or finds the same one written before.
    pub(super) fn decide(&mut self, decision: &Decision<'a>) -> Target {
        if let Some(at) = self.decisions.get(decision) {
            return Target::At(*at);
        }
        let mut next = Target::Return(decision.otherwise);
        for (at, (conditions, verdict)) in decision.tests.iter().enumerate().rev() {
            let no = next;
            next = Target::Return(*verdict);
            for condition in conditions.iter().rev() {
                next = self.condition(condition, next, no);
            }
            // All ways out of the test before may leave the right word loaded.
            let loaded = match at.checked_sub(1) {
                Some(before) => only_word(decision.tests[before].0),
                None => None,
            };
            next = self.without_load(next, loaded);
        }
        if let Target::At(at) = next {
            self.decisions.insert(decision.clone(), at);
        }
        next
    }

    fn condition(&mut self, condition: &Condition, yes: Target, no: Target) -> Target {
        let Condition {
            index,
            value,
            value_two,
            op,
        } = *condition;
        match op {
            Comparison::Equal => self.masked(index, u64::MAX, value, yes, no),
            Comparison::NotEqual => self.masked(index, u64::MAX, value, no, yes),
            Comparison::MaskedEqual => self.masked(index, value, value_two, yes, no),
            Comparison::Greater => self.ordered(JUMP_GREATER, index, value, yes, no),
            Comparison::GreaterOrEqual => {
                self.ordered(JUMP_GREATER_OR_EQUAL, index, value, yes, no)
            }
            Comparison::Less => self.ordered(JUMP_GREATER_OR_EQUAL, index, value, no, yes),
            Comparison::LessOrEqual => self.ordered(JUMP_GREATER, index, value, no, yes),
        }
    }

    fn masked(&mut self, index: u32, mask: u64, value: u64, yes: Target, no: Target) -> Target {
        let (mask_low, mask_high) = halves(mask);
        let (low, high) = halves(value);
        let rest = self.masked_word(low_word(index), mask_low, low, yes, no);
        self.masked_word(high_word(index), mask_high, high, rest, no)
    }

    fn masked_word(&mut self, word: u32, mask: u32, value: u32, yes: Target, no: Target) -> Target {
        match (mask, value) {
            (0, _) => return yes,
            (u32::MAX, _) => self.branch(JUMP_EQUAL, value, yes, no),
            (_, 0) => self.branch(JUMP_ANY_BIT, mask, no, yes),
            _ if mask.is_power_of_two() => self.branch(JUMP_ANY_BIT, mask, yes, no),
            _ => {
                self.branch(JUMP_EQUAL, value, yes, no);
                Target::At(self.push(AND, mask))
            }
        };
        Target::At(self.push(LOAD, word))
    }

    /// `jump` says how the low halves are compared where the high ones are equal.
    fn ordered(&mut self, jump: u16, index: u32, value: u64, yes: Target, no: Target) -> Target {
        let (low, high) = halves(value);
        self.branch(jump, low, yes, no);
        let equal = Target::At(self.push(LOAD, low_word(index)));
        if high == 0 {
            self.branch(JUMP_EQUAL, 0, equal, yes);
        } else {
            let not_greater = self.branch(JUMP_EQUAL, high, equal, no);
            self.branch(JUMP_GREATER, high, yes, not_greater);
        }
        Target::At(self.push(LOAD, high_word(index)))
    }

    /// Takes back the load just written if the word is there anyway.
    fn without_load(&mut self, target: Target, loaded: Option<u32>) -> Target {
        match (self.code.last(), loaded) {
            (Some(last), Some(word)) if last.code == LOAD && last.k == word => {
                self.code.pop();
                Target::At(self.code.len())
            }
            _ => target,
        }
    }

    fn branch(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Target {
        let yes = self.near(yes);
        let no = self.near(no);
        let skip = |target: usize| u8::try_from(self.code.len() - target).unwrap_or(u8::MAX);
        let (jt, jf) = (skip(yes), skip(no));
        self.code.push(Instruction { code, jt, jf, k });
        Target::At(self.code.len())
    }

    /// A place within reach that leads to the target.
    fn near(&mut self, target: Target) -> usize {
        match target {
            Target::At(at) if self.code.len() - at <= REACH => at,
            Target::At(at) => self.jump(at),
            Target::Return(verdict) => match self.returns.get(&verdict) {
                Some(at) if self.code.len() - at <= REACH => *at,
                _ => {
                    let at = self.push(RETURN, verdict.raw());
                    self.returns.insert(verdict, at);
                    at
                }
            },
        }
    }

    fn jump(&mut self, to: usize) -> usize {
        let skip = u32::try_from(self.code.len() - to).unwrap_or(u32::MAX);
        self.push(JUMP, skip)
    }

    fn push(&mut self, code: u16, k: u32) -> usize {
        self.code.push(Instruction {
            code,
            jt: 0,
            jf: 0,
            k,
        });
        self.code.len()
    }
}

/// The one word a test loads and leaves as it was, if it is that simple.
fn only_word(conditions: &[Condition]) -> Option<u32> {
    let [
        Condition {
            index,
            value: mask,
            value_two,
            op: Comparison::MaskedEqual,
        },
    ] = conditions
    else {
        return None;
    };
    let keeps = |mask: u32, value: u32| mask == u32::MAX || value == 0 || mask.is_power_of_two();
    match (halves(*mask), halves(*value_two)) {
        ((mask, 0), (value, _)) if keeps(mask, value) => Some(low_word(*index)),
        ((0, mask), (_, value)) if keeps(mask, value) => Some(high_word(*index)),
        _ => None,
    }
}

fn low_word(index: u32) -> u32 {
    ARGUMENTS + 8 * index
}

fn high_word(index: u32) -> u32 {
    low_word(index) + 4
}

#[allow(clippy::cast_possible_truncation)] // taking the halves is the point
fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(index: u32, mask: u64, value: u64) -> [Condition; 1] {
        [Condition {
            index,
            value: mask,
            value_two: value,
            op: Comparison::MaskedEqual,
        }]
    }

    #[test]
    fn a_word_in_place_is_not_loaded_again() {
        let tests = [1, 2, 3].map(|value| masked(1, 0xffff_ffff, value));
        let tests = tests.iter().map(|test| (&test[..], Verdict::Errno(1)));
        let decision = Decision {
            tests: tests.collect(),
            otherwise: Verdict::Allow,
        };
        let mut assembler = Assembler::default();
        assembler.decide(&decision);
        let loads = assembler.code.iter().filter(|i| i.code == LOAD).count();
        assert_eq!(loads, 1);
    }

    #[test]
    fn a_word_that_was_masked_is_loaded_again() {
        assert_eq!(only_word(&masked(1, 0xf000, 0x1000)), None);
        assert_eq!(only_word(&masked(1, 0xf000, 0)), Some(24));
        assert_eq!(only_word(&masked(1, 0xffff_ffff, 5)), Some(24));
        assert_eq!(only_word(&masked(1, u64::MAX, 5)), None);
    }

    #[test]
    fn a_far_target_is_reached_by_a_long_jump() {
        let mut assembler = Assembler::default();
        let far = Target::At(assembler.push(RETURN, 1));
        (0..300).for_each(|_| {
            assembler.push(LOAD, NUMBER);
        });
        let near = assembler.near(far);
        assert_eq!(near, assembler.code.len());
        let last = assembler.code.last().map(|i| (i.code, i.k));
        assert_eq!(last, Some((JUMP, 300)));
    }
}
