//! Counts refusals that are the same. The first is written at once, the others when there are as
//! many of them as were written before: a program that tries a million times leaves twenty lines.

use super::entry::What;

/// How many different refusals are counted at a time; the one not seen for longest makes room.
const KINDS: usize = 32;

#[derive(Debug)]
struct Repeated {
    /// As it is written, but for the count.
    refusal: What,
    written: u64,
    waiting: u64,
}

impl Repeated {
    /// What is to be written about it now.
    fn due(&mut self) -> Option<What> {
        let count = std::mem::take(&mut self.waiting);
        self.written = self.written.saturating_add(count);
        (count > 0).then(|| with_count(&self.refusal, count))
    }
}

/// The last seen comes last.
#[derive(Debug, Default)]
pub(super) struct Repeats(Vec<Repeated>);

impl Repeats {
    /// Notes a refusal. What comes out is to be written now.
    pub(super) fn add(&mut self, what: &What) -> Vec<What> {
        let What::Refusal { count, .. } = what else {
            return vec![what.clone()];
        };
        let mut due = Vec::new();
        let refusal = with_count(what, 0);
        let mut seen = match self.0.iter().position(|known| known.refusal == refusal) {
            Some(at) => self.0.remove(at),
            None => {
                if self.0.len() == KINDS {
                    due.extend(self.0.remove(0).due());
                }
                Repeated {
                    refusal,
                    written: 0,
                    waiting: 0,
                }
            }
        };
        seen.waiting = seen.waiting.saturating_add(*count);
        if seen.waiting >= seen.written {
            due.extend(seen.due());
        }
        self.0.push(seen);
        due
    }

    /// All that is still to be written. What was said counts as new when it happens again.
    pub(super) fn drain(&mut self) -> Vec<What> {
        let due = self.0.drain(..).filter_map(|mut seen| seen.due());
        due.collect()
    }
}

fn with_count(refusal: &What, number: u64) -> What {
    let mut same = refusal.clone();
    if let What::Refusal { count, .. } = &mut same {
        *count = number;
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::RefusalKind;

    fn refusal(object: &str) -> What {
        What::Refusal {
            kind: RefusalKind::File,
            object: object.to_owned(),
            rule: "guard".to_owned(),
            allow: "--guard off".to_owned(),
            program: None,
            count: 1,
        }
    }

    fn counts(list: &[What]) -> Vec<u64> {
        list.iter()
            .map(|what| match what {
                What::Refusal { count, .. } => *count,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn many_of_the_same_are_few_lines_that_add_up() {
        let mut repeats = Repeats::default();
        let mut lines = Vec::new();
        for _ in 0..1000 {
            lines.extend(repeats.add(&refusal("/a")));
        }
        assert_eq!(counts(&lines), [1, 1, 2, 4, 8, 16, 32, 64, 128, 256]);
        lines.extend(repeats.drain());
        assert_eq!(counts(&lines).iter().sum::<u64>(), 1000);
        assert!(repeats.drain().is_empty());
    }

    #[test]
    fn different_ones_are_told_apart_and_none_is_lost_when_there_are_too_many() {
        let mut repeats = Repeats::default();
        let mut lines = Vec::new();
        for _ in 0..3 {
            for number in 0..KINDS {
                lines.extend(repeats.add(&refusal(&number.to_string())));
            }
        }
        assert_eq!(lines.len(), 2 * KINDS);
        lines.extend(repeats.add(&refusal("one more")));
        assert_eq!(repeats.0.len(), KINDS);
        lines.extend(repeats.drain());
        assert_eq!(counts(&lines).iter().sum::<u64>(), 3 * KINDS as u64 + 1);
    }
}
