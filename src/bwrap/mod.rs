//! bubblewrap's command line: callers that know `bwrap` find its options, its checks and its
//! messages here. An argument list becomes a plan, and the plan is carried out like any other.

pub mod args;
mod asked_words;
mod errors;
mod extras;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod messages;
mod monitor;
mod numbers;
mod options;
mod plan;
#[cfg(test)]
mod reading;
mod steps;
mod surroundings;
pub mod usage;
mod values;
mod words;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use args::{Asked, Descriptors, Stop, Warning};

use crate::plan::Sentences;
use crate::sandbox::{self, Filters};
use crate::sys;

/// Whether a command line is for this module: called `bwrap`, or by the name that a program in a
/// box has for whoever started it.
pub fn is_meant(argv: &[OsString]) -> bool {
    let name = argv.first().map(|word| word.as_bytes()).unwrap_or_default();
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match last {
        b"bwrap" => true,
        b"exe" => argv.get(1).is_some_and(|word| args::is_option(word)),
        _ => false,
    }
}

/// How a message is to be taken.
#[derive(Debug, Clone, Copy)]
enum Level {
    Error = 3,
    Warning = 4,
}

/// One line in bubblewrap's form.
fn say(level: Level, prefix: bool, text: &str) {
    let level = match prefix {
        true => format!("<{}>", level as u8),
        false => String::new(),
    };
    let _ = io::stderr().write_all(format!("{level}bwrap: {text}\n").as_bytes());
}

/// The caller's descriptors, for options whose content is needed at once.
struct Given;

impl Descriptors for Given {
    fn read(&mut self, fd: RawFd) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut sys::fds::take(fd)?, &mut bytes)?;
        Ok(bytes)
    }
}

/// Runs a command line; `called` is what the caller called this program.
pub fn main(called: &OsStr, args: &[OsString]) -> ExitCode {
    if args.len() == 1 && args[0] == "--version" {
        return print(format!("{}\n", usage::VERSION).as_bytes());
    }
    sys::process::hear_of_children();
    match run(called, args) {
        Ok(code) => ExitCode::from(code),
        Err((prefix, text)) => {
            say(Level::Error, prefix, &text);
            ExitCode::FAILURE
        }
    }
}

fn print(text: &[u8]) -> ExitCode {
    let mut out = io::stdout();
    let _ = out.write_all(text).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

/// From the words to the exit code; the error is whether messages have a prefix, and the message.
fn run(called: &OsStr, args: &[OsString]) -> Result<u8, (bool, String)> {
    let start = surroundings::keep_streams_closed().and_then(|()| surroundings::start());
    let start = start.map_err(|text| (false, text))?;
    let mut warnings = Vec::new();
    let asked = args::parse(args, &start, &mut Given, &mut warnings);
    for Warning { text, prefix } in &warnings {
        say(Level::Warning, *prefix, text);
    }
    let asked = match asked {
        Ok(asked) => asked,
        Err(Stop::Usage(is_wrong)) => return Ok(help(called, is_wrong)),
        Err(Stop::Version) => {
            print(format!("{}\n", usage::VERSION).as_bytes());
            return Ok(0);
        }
        Err(Stop::Die { text, prefix }) => return Err((prefix, text)),
    };
    carry_out(&asked).map_err(|text| (asked.level_prefix, text))
}

fn help(called: &OsStr, is_wrong: bool) -> u8 {
    let text = usage::usage(called);
    match is_wrong {
        true => {
            let _ = io::stderr().write_all(&text);
            1
        }
        false => {
            print(&text);
            0
        }
    }
}

fn carry_out(asked: &Asked) -> Result<u8, String> {
    surroundings::keep_places_of(&plan::used(asked), asked)?;
    let here = surroundings::look(asked)?;
    let (walls, mut filters) = extras::walls(asked, &here)?;
    let plan = plan::plan(asked, &here, &walls);
    if asked.extras.dry_run {
        print(Sentences(&plan).to_string().as_bytes());
        return Ok(0);
    }
    // Ours come last: they are the narrower ones, and may not allow what loads another.
    filters.splice(..0, asked.seccomp.iter().cloned());
    if asked.die_with_parent {
        surroundings::die_with_caller()?;
    }
    sys::process::no_new_privileges()
        .map_err(|error| format!("prctl(PR_SET_NO_NEW_PRIVS) failed: {error}"))?;
    let filters = Filters {
        every: filters,
        program: None,
    };
    let running = sandbox::launch(&plan, &filters, None)
        .map_err(|error| words::not_launched(&error, plan.namespaces.user))?;
    Ok(monitor::watch(asked, &plan, running))
}
