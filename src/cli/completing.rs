//! Which session could be meant at the end of a command line that is being typed. The shells'
//! completions ask for it (`cowork-linux __ids WORD...`), because a script cannot know.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, Command};

use super::sessions::places;
use crate::journal;
use crate::policy::SessionId;
use crate::session::Places;

/// What the scripts say; none of the commands that people see.
pub(super) const VERB: &str = "__ids";

/// Prints the ids that could stand where the last word is. Fails where none belongs, and the shell
/// goes on by itself.
pub(super) fn ids(words: &[OsString]) -> ExitCode {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    let command = super::command();
    let Some(typed) = Typed::read(&command, &words) else {
        return ExitCode::FAILURE;
    };
    let Ok(places) = places() else {
        return ExitCode::SUCCESS;
    };
    let lines: String = typed
        .fitting(&places)
        .iter()
        .map(|id| format!("{}{id}\n", typed.before))
        .collect();
    let _ = std::io::stdout().write_all(lines.as_bytes());
    ExitCode::SUCCESS
}

/// A line that ends in the beginning of an id.
#[derive(Debug, PartialEq, Eq)]
struct Typed<'a> {
    verb: &'a str,
    /// What stands before the id in the same word.
    before: &'a str,
    beginning: &'a str,
    /// What was given before it.
    given: Vec<&'a str>,
    is_forced: bool,
}

impl<'a> Typed<'a> {
    fn read(command: &'a Command, words: &[&'a str]) -> Option<Self> {
        let (last, words) = words.split_last()?;
        let (verb, mut words) = words.split_first()?;
        let mut command = command.find_subcommand(verb)?;
        if command.has_subcommands() {
            let (verb, rest) = words.split_first()?;
            (command, words) = (command.find_subcommand(verb)?, rest);
        }
        let takes_id = |arg: &Arg| arg.get_id() == "session";
        let mut typed = Self {
            verb: command.get_name(),
            before: "",
            beginning: last,
            given: Vec::new(),
            is_forced: false,
        };
        let mut value_of: Option<&Arg> = None;
        let mut only_names = false;
        for word in words {
            match value_of {
                // Some shells take `--flag=value` apart.
                Some(_) if *word == "=" => continue,
                Some(_) => value_of = None,
                None if only_names || !word.starts_with('-') || *word == "-" => {
                    typed.given.push(word);
                }
                None if *word == "--" => only_names = true,
                None => {
                    typed.is_forced |= matches!(*word, "-f" | "--force");
                    value_of = waits_for_value(command, word);
                }
            }
        }
        if let Some(flag) = value_of {
            typed.beginning = typed.beginning.trim_start_matches('=');
            return takes_id(flag).then_some(typed);
        }
        if last.starts_with('-') && !only_names {
            let (before, beginning) = last.split_at(last.find('=')? + 1);
            let flag = flag(command, before.strip_suffix('=')?)?;
            (typed.before, typed.beginning) = (before, beginning);
            return takes_id(flag).then_some(typed);
        }
        let many = |arg: &&Arg| {
            arg.get_num_args()
                .is_some_and(|count| count.max_values() > 1)
        };
        let place = command.get_positionals().nth(typed.given.len());
        let place = place.or_else(|| command.get_positionals().last().filter(many));
        place.is_some_and(takes_id).then_some(typed)
    }

    /// The sessions that the command is for, in order.
    fn fitting(&self, places: &Places) -> Vec<SessionId> {
        let mut ids = places.ids();
        if matches!(self.verb, "history" | "why") {
            // What was removed has left its journal.
            ids.extend(journal::sessions(&places.state.join("journals")));
            ids.sort_by(|one, other| one.as_str().cmp(other.as_str()));
            ids.dedup();
        }
        ids.retain(|id| {
            id.as_str().starts_with(self.beginning) && !self.given.contains(&id.as_str())
        });
        let is_running = |id: &SessionId| places.is_running(id);
        match self.verb {
            "exec" | "attach" | "stop" | "kill" | "mount" | "unmount" | "limit" | "pause"
            | "resume" => ids.retain(is_running),
            "rm" if !self.is_forced => ids.retain(|id| !is_running(id)),
            _ => {}
        }
        ids
    }
}

fn flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--")?;
    command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(long))
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

/// The flag whose value comes with the next word.
fn waits_for_value<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    if word.starts_with("--") {
        return flag(command, word).filter(|arg| takes_value(arg));
    }
    let letters: Vec<char> = word.chars().skip(1).collect();
    let known = letters.iter().map(|letter| {
        let mut all = command.get_arguments();
        all.find(|arg| arg.get_short() == Some(*letter))
    });
    // What follows the first that takes a value is its value.
    let first = known
        .enumerate()
        .find_map(|(at, arg)| Some((at, arg.filter(|arg| takes_value(arg))?)));
    first
        .filter(|(at, _)| at + 1 == letters.len())
        .map(|(_, arg)| arg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<(String, String)> {
        let command = super::super::command();
        let words: Vec<&str> = line.split(' ').collect();
        let typed = Typed::read(&command, &words)?;
        Some((
            format!("{}{}", typed.before, typed.beginning),
            typed.given.join(","),
        ))
    }

    #[track_caller]
    fn is_id(line: &str, last: &str, given: &str) {
        assert_eq!(
            read(line),
            Some((last.to_owned(), given.to_owned())),
            "{line}"
        );
    }

    #[test]
    fn the_place_of_an_id_is_known() {
        is_id("exec a", "a", "");
        is_id("exec ", "", "");
        is_id("exec -it -e A=b a", "a", "");
        is_id("exec --env A=b --workdir /x -- a", "a", "");
        is_id("stop -t 5 one tw", "tw", "one");
        is_id("stop -t5 one two ", "", "one,two");
        is_id("why --session a", "a", "");
        is_id("why --session = a", "a", "");
        is_id("why --session =", "", "");
        is_id("why --session=a", "--session=a", "");
        is_id("history --since 2h a", "a", "");
        is_id("unmount -f a", "a", "");
        is_id("path to-host --json a", "a", "");
    }

    #[test]
    fn nothing_else_is_taken_for_one() {
        for line in [
            "exec",
            "",
            "ex a",
            "run a",
            "ls a",
            "exec -",
            "exec -e a",
            "exec --workdir a",
            "exec a tr",
            "exec a -- tr",
            "why a",
            "mount a b",
            "unmount a b",
            "inspect a b",
            "stop -t a",
            "kill -s ",
            "exec --env=a",
            "policy show a",
            "path a",
            "path to-host a b",
            "exec a sh -c ",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
