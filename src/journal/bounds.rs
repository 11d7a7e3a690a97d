//! Keeps an entry small, whatever a program puts into it: every text, every list and the line as
//! a whole have a limit, and what was left out is said in its place.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::entry::{MountNote, RunNote, What};

/// The longest text, in bytes. A path of the kernel's is shorter.
const TEXT: usize = 4096;
/// The most words of a program, mounts or layers that are noted.
const LIST: usize = 64;
/// How many bytes all texts of an entry may take on the line.
const ENTRY: usize = 32 * 1024;
/// The longest line there is: the texts, and names, numbers, quotes and commas around them.
pub(super) const LONGEST_LINE: usize = 2 * ENTRY;
/// Room for the words that say what was left out.
const MARK: usize = 40;

/// A program's words as text. What is not UTF-8 is replaced; bounds are the journal's own.
pub fn words<W: AsRef<OsStr>>(program: impl IntoIterator<Item = W>) -> Vec<String> {
    program
        .into_iter()
        .map(|word| word.as_ref().to_string_lossy().into_owned())
        .collect()
}

/// What is left of an entry's room.
struct Room(usize);

impl Room {
    /// The text, or as much of its beginning as there is room for.
    fn text(&mut self, text: &str) -> String {
        let mut used = 0;
        let mut fits = 0;
        for (at, c) in text.char_indices() {
            used += cost(c);
            let end = at + c.len_utf8();
            if end > TEXT || used > self.0 {
                return self.shortened(text, fits);
            }
            // How far it may go if the mark has to fit as well.
            if end <= TEXT - MARK && used + MARK <= self.0 {
                fits = end;
            }
        }
        self.0 -= used;
        text.to_owned()
    }

    fn shortened(&mut self, text: &str, fits: usize) -> String {
        let kept = &text[..fits];
        let used: usize = kept.chars().map(cost).sum();
        self.0 = self.0.saturating_sub(used + MARK);
        format!("{kept}…[{} bytes more]", text.len() - fits)
    }

    fn optional(&mut self, text: Option<&String>) -> Option<String> {
        text.map(|text| self.text(text))
    }

    /// The first of a list; `rest` says how many more there were.
    fn list<T>(
        &mut self,
        list: &[T],
        mut each: impl FnMut(&mut Self, &T) -> T,
        rest: impl FnOnce(String) -> T,
    ) -> Vec<T> {
        let mut kept = Vec::new();
        for one in list {
            // Each takes room for its mark at least, so that the line stays a line.
            if kept.len() == LIST || self.0 < 4 * MARK {
                kept.push(rest(format!("…[{} more]", list.len() - kept.len())));
                break;
            }
            kept.push(each(self, one));
        }
        kept
    }

    fn texts(&mut self, list: &[String]) -> Vec<String> {
        self.list(list, |room, text| room.text(text), |more| more)
    }

    fn program(&mut self, words: &[String]) -> Vec<String> {
        self.list(
            words,
            |room, word| room.text(&without_value(word)),
            |more| more,
        )
    }

    fn mounts(&mut self, list: &[MountNote]) -> Vec<MountNote> {
        let each = |room: &mut Self, mount: &MountNote| MountNote {
            source: room.text(&mount.source),
            place: room.text(&mount.place),
            mode: room.text(&mount.mode),
        };
        self.list(list, each, |more| MountNote {
            source: more,
            place: String::new(),
            mode: String::new(),
        })
    }

    fn run(&mut self, run: &RunNote) -> RunNote {
        let mut refusals = BTreeMap::new();
        let program = self.program(&run.program);
        for (rule, count) in &run.refusals {
            let known = refusals.len() < LIST && self.0 >= 4 * MARK;
            let name = if known {
                self.text(rule)
            } else {
                "others".to_owned()
            };
            let sum = refusals.entry(name).or_insert(0u64);
            *sum = sum.saturating_add(*count);
        }
        RunNote {
            started: run.started,
            program,
            execs: run.execs,
            refusals,
            exit: run.exit,
        }
    }
}

/// How many bytes a character takes in JSON.
fn cost(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// A word such as `API_KEY=…`, with or without a flag before it, sets a variable: its value is
/// nobody's business.
fn without_value(word: &str) -> String {
    let (flag, assignment) = match word.split_once('=') {
        Some((flag, rest)) if flag.starts_with('-') => (&word[..flag.len() + 1], rest),
        _ => ("", word),
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    match assignment.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => format!("{flag}{name}=…"),
        _ => word.to_owned(),
    }
}

impl What {
    /// The same, small enough for a line and without values of variables.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut room = Room(ENTRY);
        match self {
            Self::Start {
                program,
                mounts,
                network,
                profile,
                supervisor,
                layers,
            } => Self::Start {
                program: room.program(program),
                network: room.text(network),
                profile: room.optional(profile.as_ref()),
                supervisor: *supervisor,
                layers: room.texts(layers),
                mounts: room.mounts(mounts),
            },
            Self::Exec { exec, program, cwd } => Self::Exec {
                exec: *exec,
                cwd: room.optional(cwd.as_ref()),
                program: room.program(program),
            },
            Self::Signal { signal, by } => Self::Signal {
                signal: *signal,
                by: room.text(by),
            },
            Self::Limit {
                limit,
                value,
                happened,
            } => Self::Limit {
                limit: room.text(limit),
                value: room.text(value),
                happened: room.text(happened),
            },
            Self::Change { of, from, to } => Self::Change {
                of: room.text(of),
                from: room.optional(from.as_ref()),
                to: room.text(to),
            },
            Self::Mount {
                source,
                place,
                mode,
                overlaps,
                replaces,
            } => Self::Mount {
                source: room.text(source),
                place: room.text(place),
                mode: room.text(mode),
                overlaps: room.optional(overlaps.as_ref()),
                replaces: room.optional(replaces.as_ref()),
            },
            Self::Unmount { place } => Self::Unmount {
                place: room.text(place),
            },
            Self::Refusal {
                kind,
                object,
                rule,
                allow,
                program,
                count,
            } => Self::Refusal {
                kind: *kind,
                rule: room.text(rule),
                object: room.text(object),
                allow: room.text(allow),
                program: room.optional(program.as_ref()),
                count: *count,
            },
            Self::Connection {
                began,
                milliseconds,
                door,
                program,
                host,
                port,
                address,
                sent,
                received,
                rule,
                error,
            } => Self::Connection {
                began: *began,
                milliseconds: *milliseconds,
                door: room.text(door),
                program: room.optional(program.as_ref()),
                host: room.text(host),
                port: *port,
                address: room.optional(address.as_ref()),
                sent: *sent,
                received: *received,
                rule: room.optional(rule.as_ref()),
                error: room.optional(error.as_ref()),
            },
            Self::Request {
                began,
                milliseconds,
                method,
                url,
                status,
                size,
                error,
            } => Self::Request {
                began: *began,
                milliseconds: *milliseconds,
                method: room.text(method),
                url: room.text(url),
                status: *status,
                size: *size,
                error: room.optional(error.as_ref()),
            },
            Self::Stop { outcome, by } => Self::Stop {
                outcome: room.text(outcome),
                by: room.text(by),
            },
            Self::Cut { dropped, last, run } => Self::Cut {
                dropped: *dropped,
                last: last.clone(),
                run: run.as_ref().map(|run| room.run(run)),
            },
            Self::Aside { file, why } => Self::Aside {
                file: room.text(file),
                why: room.text(why),
            },
            Self::Exit { .. } | Self::Mended { .. } | Self::Lost { .. } | Self::Other(_) => {
                self.clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_is_cut_between_letters_and_says_so() {
        let long = "ä".repeat(3000);
        let short = Room(ENTRY).text(&long);
        assert!(short.len() <= TEXT, "{}", short.len());
        let (kept, mark) = short.split_once('…').unwrap();
        assert!(long.starts_with(kept) && kept.len() > TEXT - 2 * MARK);
        assert_eq!(mark, format!("[{} bytes more]", 6000 - kept.len()));
        assert_eq!(Room(ENTRY).text(&"x".repeat(TEXT)), "x".repeat(TEXT));
    }

    #[test]
    fn a_long_list_says_how_much_is_missing() {
        let many = vec!["x".to_owned(); 1000];
        let kept = Room(ENTRY).texts(&many);
        assert_eq!(kept.len(), LIST + 1);
        assert_eq!(kept[LIST], "…[936 more]");
    }

    #[test]
    fn values_of_variables_are_left_out_of_programs() {
        let shown = |word| without_value(word);
        assert_eq!(shown("API_KEY=hunter2"), "API_KEY=…");
        assert_eq!(shown("--env=API_KEY=hunter2"), "--env=API_KEY=…");
        assert_eq!(shown("--color=auto"), "--color=auto");
        assert_eq!(shown("a=b"), "a=b");
        assert_eq!(shown("EMPTY="), "EMPTY=");
        let exec = What::Exec {
            exec: 1,
            program: vec!["env".into(), "TOKEN=hunter2".into()],
            cwd: None,
        };
        assert!(!format!("{:?}", exec.bounded()).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_entry_is_longer_than_a_line(
            letter in prop_oneof![Just('\u{1}'), Just('"'), Just('ä'), any::<char>()],
            length in 0usize..6000,
            number in 0usize..100,
        ) {
            let text: String = std::iter::repeat_n(letter, length).collect();
            let mount = MountNote { source: text.clone(), place: text.clone(), mode: text.clone() };
            let start = What::Start {
                program: vec![text.clone(); number],
                mounts: vec![mount; number],
                network: text.clone(),
                profile: Some(text.clone()),
                supervisor: i32::MIN,
                layers: vec![text.clone(); number],
            };
            let refusals = (0..number).map(|n| (format!("{n}{text}"), u64::MAX)).collect();
            let run = RunNote { program: vec![text.clone(); number], refusals, ..RunNote::default() };
            let cut = What::Cut { dropped: u64::MAX, last: "0".repeat(32), run: Some(run) };
            let change = What::Change { of: text.clone(), from: Some(text.clone()), to: text };
            for what in [start, cut, change] {
                let line = serde_json::to_string(&what.bounded()).unwrap();
                prop_assert!(line.len() + 200 < LONGEST_LINE, "{}", line.len());
            }
        }
    }
}
