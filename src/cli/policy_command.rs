//! The words of `policy`; what they do is next door.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{policy, switch};
use crate::policy::{PolicyError, PolicyFile, Sources};
use crate::report;

pub(super) fn command() -> Command {
    let file = || {
        Arg::new("file")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
    };
    let json = || switch("json", "Print JSON");
    Command::new("policy")
        .about("List, show, check and trust policies")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("list")
                .about("The built-in policies")
                .arg(json()),
        )
        .subcommand(
            Command::new("show")
                .about("What a policy adds up to, here and now")
                .arg(
                    Arg::new("name")
                        .value_name("NAME|FILE")
                        .help("The policy; default if none"),
                )
                .arg(switch("explain", "Say which layer set each value"))
                .arg(json()),
        )
        .subcommand(
            Command::new("check")
                .about("Whether a file is a sound policy")
                .arg(file().required(true)),
        )
        .subcommand(
            Command::new("trust")
                .about("Let a project's .cowork.toml widen the box, until it changes")
                .arg(file()),
        )
        .subcommand(Command::new("untrust").about("Take that back").arg(file()))
        .subcommand(Command::new("schema").about("The JSON schema of a policy file"))
}

pub(super) fn policy(matches: &ArgMatches) -> ExitCode {
    match act(matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::print(&error);
            ExitCode::FAILURE
        }
    }
}

fn act(matches: &ArgMatches) -> Result<(), PolicyError> {
    let env = |name: &str| std::env::var_os(name);
    let mut out = io::stdout().lock();
    match matches.subcommand() {
        Some(("list", matches)) => policy::list(&mut out, matches.get_flag("json")),
        Some(("show", matches)) => {
            let here = std::env::current_dir().ok();
            let sources = Sources {
                profile: matches.get_one::<String>("name").map(String::as_str),
                project_dir: here.as_deref(),
                flags: PolicyFile::default(),
                env: &env,
            };
            policy::show(
                &mut out,
                &sources,
                matches.get_flag("explain"),
                matches.get_flag("json"),
            )
        }
        Some(("check", matches)) => policy::check(&mut out, path(matches), &env),
        Some(("trust", matches)) => policy::trust(&mut out, given(matches), &env),
        Some(("untrust", matches)) => policy::untrust(&mut out, given(matches), &env),
        _ => policy::schema(&mut out),
    }
}

fn given(matches: &ArgMatches) -> Option<&Path> {
    matches.get_one::<PathBuf>("file").map(PathBuf::as_path)
}

fn path(matches: &ArgMatches) -> &Path {
    given(matches).unwrap_or(Path::new(""))
}
