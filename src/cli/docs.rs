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
    let Some(shell) = matches.get_one::<Shell>("shell") else {
        return ExitCode::SUCCESS;
    };
    match super::sessions::print(&script(*shell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What clap makes of the command line, and the question for the ids of sessions.
fn script(shell: Shell) -> String {
    let mut made = Vec::new();
    clap_complete::generate(shell, &mut super::command(), "cowork-linux", &mut made);
    let made = String::from_utf8_lossy(&made).into_owned();
    match shell {
        // clap spells a name with a hyphen in two ways, and finds no command by it.
        Shell::Bash => {
            made.replace("cowork__subcmd__linux", "cowork__linux") + include_str!("shells/ids.bash")
        }
        Shell::Fish => made + include_str!("shells/ids.fish"),
        // The file is the function, so what comes first has to stand in it.
        Shell::Zsh => made.replacen(
            ZSH_BEGINS,
            &format!("{ZSH_BEGINS}{}", include_str!("shells/ids.zsh")),
            1,
        ),
        _ => made,
    }
}

const ZSH_BEGINS: &str = "\n_cowork-linux() {\n";

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
