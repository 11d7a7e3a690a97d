//! The words of our own command line: one match, one call per command.

mod changing;
mod completing;
mod desktop;
mod docs;
mod doctor;
mod doctor_desktop;
mod filters;
mod flags;
mod gateway;
mod limits;
mod listing;
mod network;
mod paths;
pub mod policy;
mod policy_command;
mod reach;
mod run;
mod sessions;
mod shown;
mod table;
mod variables;
mod watching;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

#[cfg(target_os = "linux")]
use crate::bwrap;
use crate::report::{self, Help};

/// The box did not start.
pub(crate) const NOT_STARTED: u8 = 125;
const USAGE: u8 = 2;

/// Runs the command line; the exit code of the process.
pub fn main(mut args: Vec<OsString>) -> ExitCode {
    #[cfg(target_os = "linux")]
    if bwrap::is_meant(&args) {
        return bwrap::main(&args[0], &args[1..]);
    }
    #[cfg(target_os = "linux")]
    if args.get(1).is_some_and(|word| word == "bwrap") {
        return bwrap::main(&args[1], &args[2..]);
    }
    let asked = desktop::called(&args);
    if asked == Some(desktop::Called::Code) {
        return ExitCode::SUCCESS;
    }
    args.drain(..args.len().min(1));
    if let Some(desktop::Called::Helper(words)) = asked {
        args = [OsString::from("helper")]
            .into_iter()
            .chain(words)
            .collect();
    }
    if crate::session::open_standard_streams().is_err() {
        return ExitCode::from(NOT_STARTED);
    }
    // The one command that must start fast goes past clap when its line is well-formed.
    if args.first().is_some_and(|word| word == "run")
        && let Some(parsed) = flags::parse(&args[1..])
    {
        return run::run(parsed);
    }
    if args.first().is_some_and(|word| word == completing::VERB) {
        return completing::ids(&args[1..]);
    }
    // So does every command in a running box; without the other commands clap is quick as well.
    if args.first().is_some_and(|word| word == "exec")
        && let Ok(matches) = sessions::exec_command().try_get_matches_from(&args)
        && let Some(code) = sessions::run("exec", &matches)
    {
        return code;
    }
    let verb = args
        .first()
        .filter(|word| *word == "run" || *word == "helper")
        .cloned();
    let is_run = verb.as_ref().is_some_and(|word| word == "run");
    let line = [OsString::from("cowork-linux")].into_iter().chain(args);
    match command().try_get_matches_from(line) {
        Ok(matches) => dispatch(&matches),
        Err(error) if error.use_stderr() => {
            report::print(&Unread::of(&error, verb.as_deref()));
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
        Some(("doctor", matches)) => doctor::doctor(matches),
        Some(("helper", matches)) => desktop::helper(matches),
        Some(("completions", matches)) => docs::completions(matches),
        Some(("man", matches)) => docs::man(matches),
        other => {
            let verb = other.and_then(|(name, matches)| sessions::run(name, matches));
            verb.unwrap_or_else(|| {
                let mut out = std::io::stderr();
                let _ = write!(out, "{}", command().render_help());
                ExitCode::from(USAGE)
            })
        }
    }
}

/// A command line that makes no sense, said the way every other error is.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the command line, because {why}")]
struct Unread {
    why: String,
    help: String,
}

impl Unread {
    fn of(error: &clap::Error, verb: Option<&OsStr>) -> Self {
        let text = error.render().to_string();
        let why = text.lines().next().unwrap_or_default();
        let tip = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("tip: "));
        let more = match verb {
            Some(verb) => format!("`cowork-linux {} --help` shows every flag", verb.display()),
            None => "`cowork-linux --help` shows every command".to_owned(),
        };
        Self {
            why: why.strip_prefix("error: ").unwrap_or(why).to_owned(),
            help: tip.map_or(more.clone(), |tip| format!("{tip}; {more}")),
        }
    }
}

impl Help for Unread {
    fn help(&self) -> Option<String> {
        Some(self.help.clone())
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
        .subcommand(doctor::command())
        .subcommands(sessions::commands())
        .subcommands(watching::commands())
        .subcommands(changing::commands())
        .subcommands(network::commands())
        .subcommands(paths::commands())
        .subcommand(desktop::command())
        .subcommand(docs::completions_command())
        .subcommand(bwrap_command())
        .subcommand(docs::man_command())
}

/// Only for the list of commands: its own words are not ours, and are read by `bwrap`.
fn bwrap_command() -> Command {
    Command::new("bwrap")
        .about("Takes bubblewrap's command line, as when this program is called bwrap")
        .disable_help_flag(true)
        .arg(
            Arg::new("words")
                .help("bubblewrap's options and the command; `bwrap --help` lists them")
                .value_name("OPTION... [--] COMMAND [ARG...]")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true),
        )
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
