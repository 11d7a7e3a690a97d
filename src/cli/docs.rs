//! Completions and manual pages, made from the command line itself.

use std::io;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

pub(super) fn completions_command() -> Command {
    Command::new("completions")
        .about("Print completions for a shell")
        .arg(
            Arg::new("shell")
                .required(true)
                .value_parser(value_parser!(Shell)),
        )
}

pub(super) fn completions(matches: &ArgMatches) -> ExitCode {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(
            *shell,
            &mut super::command(),
            "cowork-linux",
            &mut io::stdout(),
        );
    }
    ExitCode::SUCCESS
}

pub(super) fn man_command() -> Command {
    Command::new("man").about("Print a manual page").arg(
        Arg::new("command")
            .value_name("COMMAND")
            .help("A command; the program itself if none"),
    )
}

pub(super) fn man(matches: &ArgMatches) -> ExitCode {
    let all = super::command();
    let page = match matches.get_one::<String>("command") {
        None => all,
        Some(name) => match all.find_subcommand(name) {
            Some(found) => found.clone().name(format!("cowork-linux-{name}")),
            None => {
                crate::report::say(&format!("error: there is no command `{name}`"));
                return ExitCode::from(2);
            }
        },
    };
    match clap_mangen::Man::new(page).render(&mut io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
