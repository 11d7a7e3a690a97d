//! The words of our own command line: one match, one call per command.

mod docs;
mod flags;
pub mod policy;
mod policy_command;
mod run;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

/// The box did not start.
pub(crate) const NOT_STARTED: u8 = 125;
const USAGE: u8 = 2;

/// Runs the command line without its first word; the exit code of the process.
pub fn main(args: Vec<OsString>) -> ExitCode {
    if crate::sys::fds::open_standard_descriptors().is_err() {
        return ExitCode::from(NOT_STARTED);
    }
    // The one command that must start fast goes past clap when its line is well-formed.
    if args.first().is_some_and(|word| word == "run")
        && let Some(parsed) = flags::parse(&args[1..])
    {
        return run::run(parsed);
    }
    let is_run = args.first().is_some_and(|word| word == "run");
    let line = [OsString::from("cowork-linux")].into_iter().chain(args);
    match command().try_get_matches_from(line) {
        Ok(matches) => dispatch(&matches),
        Err(error) if error.use_stderr() => {
            // It repeats words of the line, which may come from a script that was handed a name.
            for line in error.render().to_string().lines() {
                crate::report::say(&crate::terminal::printable(line));
            }
            ExitCode::from(if is_run { NOT_STARTED } else { USAGE })
        }
        Err(error) => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
    }
}

fn dispatch(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("run", matches)) => run::run(flags::from_matches(matches)),
        Some(("policy", matches)) => policy_command::policy(matches),
        Some(("completions", matches)) => docs::completions(matches),
        Some(("man", matches)) => docs::man(matches),
        _ => {
            let mut out = std::io::stderr();
            let _ = write!(out, "{}", command().render_help());
            ExitCode::from(USAGE)
        }
    }
}

/// The whole command line, for parsing, help, completions and the manual.
fn command() -> Command {
    Command::new("cowork-linux")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Puts an AI coding agent in a box: your folder, and nothing else of this computer")
        .after_help(
            "Start here:\n  cowork-linux run --mount . -- claude\n  cowork-linux run --mount . --dry-run\n  cowork-linux doctor",
        )
        .subcommand_required(false)
        .subcommand(flags::command())
        .subcommand(policy_command::command())
        .subcommand(docs::completions_command())
        .subcommand(docs::man_command())
}

/// A switch, spelled the same way everywhere.
fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .help(help)
        .action(ArgAction::SetTrue)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
