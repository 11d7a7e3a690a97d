//! The verbs for sessions that are there: in docker's words, because people know them.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{NOT_STARTED, listing, switch};
use crate::logs::LogError;
use crate::plan::Stdio;
use crate::policy::{PathError, SessionId};
use crate::probe::{self, SourceError};
use crate::report::{self, Help};
use crate::session::{
    AskError, Call, FindError, NotOwn, Outcome, Places, RemoveError, State, Words, remove,
};
use crate::terminal::printable;

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Remove(#[from] RemoveError),
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
    #[error("cannot look for sessions, because neither XDG_STATE_HOME nor HOME is set")]
    NoState,
    #[error("cannot give the program a terminal, because standard output is none")]
    NoTerminal,
    #[error("cannot show a log of {0}, because its program was in front of whoever started it")]
    NoLog(SessionId),
    #[error("cannot read --{flag}, because {why}")]
    Flag { flag: &'static str, why: String },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("cannot read the mount {0}")]
    Mount(String, #[source] PathError),
    #[error("cannot read the host {0}, because {1}")]
    Host(String, String),
    #[error(transparent)]
    NotShared(#[from] super::paths::NotShared),
    #[error("cannot read the journals in {path}")]
    Journals { path: String, source: io::Error },
    #[error("cannot read or print it")]
    Print(#[from] io::Error),
}

impl Help for Refusal {
    fn help(&self) -> Option<String> {
        match self {
            Self::Find(error) => error.help(),
            Self::Ask(error) => error.help(),
            Self::Remove(error) => error.help(),
            Self::NotOwn(error) => error.help(),
            Self::NoState => Some("set HOME, or XDG_STATE_HOME to a folder of your own".into()),
            Self::NoTerminal => Some("leave out -t".into()),
            Self::NoLog(_) => Some("only sessions started with --detach have one".into()),
            Self::Flag { .. } => Some("`cowork-linux help` shows every flag".into()),
            Self::Log(error) => error.help(),
            Self::Source(error) => error.help(),
            Self::Mount(..) => Some("write SRC[:DST][:ro|keep|rw]".into()),
            Self::Host(..) => {
                Some("write HOST[:PORTS], such as example.com or *.example.com:443".into())
            }
            Self::NotShared(error) => error.help(),
            Self::Journals { .. } => Some("look at what is there; it should be yours".into()),
            Self::Print(_) => Some("let standard output lead somewhere that takes it".into()),
        }
    }
}

pub(super) type Done = Result<ExitCode, Refusal>;

pub(super) fn session_argument() -> Arg {
    Arg::new("session")
        .value_name("ID")
        .help("The session, or the beginning of its id")
        .required(true)
}

pub(super) fn exec_command() -> Command {
    Command::new("exec")
        .about("Run another command in a running session")
        .arg(switch("interactive", "Connect standard input").short('i'))
        .arg(switch("tty", "Give it a terminal").short('t'))
        .arg(
            value("env", "K[=V]", "Set a variable, or pass the caller's on")
                .short('e')
                .action(ArgAction::Append),
        )
        .arg(value("workdir", "DIR", "Start here").short('w'))
        .arg(session_argument())
        .arg(
            Arg::new("command")
                .value_name("CMD")
                .required(true)
                .num_args(1..)
                .value_parser(clap::value_parser!(OsString))
                .trailing_var_arg(true)
                .allow_hyphen_values(true),
        )
}

pub(super) fn commands() -> [Command; 8] {
    let json = || switch("json", "Print it as JSON");
    [
        Command::new("ls")
            .visible_alias("ps")
            .about("List sessions")
            .arg(switch("all", "Also those that do not run").short('a'))
            .arg(switch("quiet", "Print ids only").short('q'))
            .arg(json()),
        exec_command(),
        Command::new("inspect")
            .about("Everything about a session, as JSON")
            .arg(session_argument()),
        Command::new("stop")
            .about("Ask a session to end, and end it when it does not")
            .arg(value("time", "SECONDS", "How long it is given (10)").short('t'))
            .arg(session_argument().num_args(1..)),
        Command::new("kill")
            .about("Send a signal to a session's program")
            .arg(value("signal", "SIGNAL", "By name or number (KILL)").short('s'))
            .arg(session_argument().num_args(1..)),
        Command::new("rm")
            .about("Remove what a session left: its home, its log, its record")
            .arg(switch("outputs", "Also its outputs, if there are any"))
            .arg(switch("force", "End it first if it runs").short('f'))
            .arg(session_argument().num_args(1..)),
        Command::new("gc")
            .about("Clear up after sessions whose supervisor was killed")
            .arg(json()),
        Command::new("status")
            .about("How many sessions there are, and in what state")
            .arg(json()),
    ]
}

pub(super) fn value(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(of)
        .help(help)
        .value_parser(clap::value_parser!(OsString))
}

/// Runs one of the verbs; `None` when it is none of them.
pub(super) fn run(name: &str, matches: &ArgMatches) -> Option<ExitCode> {
    let verb: fn(&Places, &ArgMatches) -> Done = match name {
        "ls" => listing::ls,
        "exec" => exec,
        "inspect" => inspect,
        "stop" => stop,
        "kill" => kill,
        "rm" => rm,
        "gc" => gc,
        "status" => listing::status,
        other => super::watching::verb(other)
            .or_else(|| super::changing::verb(other))
            .or_else(|| super::network::verb(other))
            .or_else(|| super::paths::verb(other))?,
    };
    Some(match places().and_then(|places| verb(&places, matches)) {
        Ok(code) => code,
        Err(refusal) => {
            report::print(&refusal);
            ExitCode::from(if name == "exec" { NOT_STARTED } else { 1 })
        }
    })
}

pub(super) fn places() -> Result<Places, Refusal> {
    let env = |name: &str| std::env::var_os(name);
    Ok(Places {
        state: probe::state_directory(&env).ok_or(Refusal::NoState)?,
        runtime: probe::runtime_directory(&env).ok_or(Refusal::NoState)?,
    })
}

pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

pub(super) fn print_json<T: serde::Serialize>(value: &T) -> io::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Does it with each that was named. One that cannot be done does not keep the others waiting.
pub(super) fn with_each(
    places: &Places,
    matches: &ArgMatches,
    work: impl Fn(&SessionId) -> Result<(), Refusal>,
) -> Done {
    let mut code = ExitCode::SUCCESS;
    for name in matches.get_many::<String>("session").into_iter().flatten() {
        let done = places.find(name).map_err(Refusal::from).and_then(|id| {
            work(&id)?;
            Ok(print(&format!("{id}\n"))?)
        });
        if let Err(refusal) = done {
            report::print(&refusal);
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

pub(super) fn one(places: &Places, matches: &ArgMatches) -> Result<SessionId, Refusal> {
    let name = matches.get_one::<String>("session");
    Ok(places.find(name.map_or("", String::as_str))?)
}

fn exec(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let command = matches
        .get_many::<OsString>("command")
        .into_iter()
        .flatten();
    let streams = probe::streams();
    let interactive = matches.get_flag("interactive");
    if matches.get_flag("tty") && streams[1] != Stdio::Terminal {
        return Err(Refusal::NoTerminal);
    }
    let connects = interactive || (matches.get_flag("tty") && streams[0] == Stdio::Terminal);
    let stdio = [
        if connects { streams[0] } else { Stdio::Kept },
        streams[1],
        streams[2],
    ];
    let mut env = Vec::new();
    for text in matches.get_many::<OsString>("env").into_iter().flatten() {
        let given = super::variables::variable(text).map_err(|error| Refusal::Flag {
            flag: "env",
            why: error.to_string(),
        })?;
        env.push(given);
    }
    if let Some(term) = std::env::var_os("TERM").filter(|_| stdio.contains(&Stdio::Terminal)) {
        env.push(("TERM".into(), term));
    }
    let words = Words {
        argv: command.cloned().collect(),
        env,
        folder: matches
            .get_one::<OsString>("workdir")
            .map(PathBuf::from)
            .unwrap_or_default(),
    };
    let outcome = Call::to(&places.runtime, &id)?.exec(&words, stdio)?;
    if let Outcome::NotExecuted(errno) = outcome {
        let name = words
            .argv
            .first()
            .map(|word| word.to_string_lossy().into_owned());
        super::shown::not_executed(&name.unwrap_or_default(), errno);
    }
    Ok(ExitCode::from(outcome.exit_code()))
}

fn inspect(places: &Places, matches: &ArgMatches) -> Done {
    print_json(&places.look(&one(places, matches)?))?;
    Ok(ExitCode::SUCCESS)
}

fn stop(places: &Places, matches: &ArgMatches) -> Done {
    let text = matches
        .get_one::<OsString>("time")
        .map(|text| text.to_string_lossy().into_owned());
    let grace = match text.as_deref().map(str::parse::<u64>) {
        None => 10,
        Some(Ok(seconds)) if seconds <= 86_400 => seconds,
        Some(_) => {
            let why = "it is not a number of seconds, up to a day".to_owned();
            return Err(Refusal::Flag { flag: "time", why });
        }
    };
    with_each(places, matches, |id| {
        Ok(Call::to(&places.runtime, id)?.stop(Duration::from_secs(grace))?)
    })
}

fn kill(places: &Places, matches: &ArgMatches) -> Done {
    let name = matches
        .get_one::<OsString>("signal")
        .map(|text| text.to_string_lossy().into_owned());
    let signal = signal_called(name.as_deref().unwrap_or("KILL")).ok_or_else(|| {
        let why = format!("`{}` is not a signal", name.unwrap_or_default());
        Refusal::Flag {
            flag: "signal",
            why,
        }
    })?;
    with_each(places, matches, |id| {
        Ok(Call::to(&places.runtime, id)?.signal(signal)?)
    })
}

fn signal_called(name: &str) -> Option<i32> {
    use nix::sys::signal::Signal;
    if let Ok(number) = name.parse::<i32>() {
        return Signal::try_from(number).ok().map(|signal| signal as i32);
    }
    let name = name.to_uppercase();
    let name = match name.starts_with("SIG") {
        true => name,
        false => format!("SIG{name}"),
    };
    name.parse::<Signal>().ok().map(|signal| signal as i32)
}

fn rm(places: &Places, matches: &ArgMatches) -> Done {
    with_each(places, matches, |id| {
        if matches.get_flag("force")
            && let Ok(call) = Call::to(&places.runtime, id)
        {
            call.stop(Duration::ZERO)?;
        }
        Ok(remove(places, id, matches.get_flag("outputs"))?)
    })
}

/// Says what is wrong with the folders of all sessions.
pub(super) fn tell_troubles(places: &Places) {
    for trouble in places.troubles() {
        let what = trouble.to_string();
        report::say(&format!("note: {}", printable(&what)));
    }
}

fn gc(places: &Places, matches: &ArgMatches) -> Done {
    tell_troubles(places);
    let swept = places.sweep();
    crate::limits::remove_left_overs();
    if matches.get_flag("json") {
        print_json(&swept)?;
        return Ok(ExitCode::SUCCESS);
    }
    let crashed = swept.iter().map(|id| format!("cleared up after {id}\n"));
    print(&crashed.collect::<String>())?;
    for known in places.list() {
        match (&known.state, &known.trouble) {
            (State::Crashed, _) => report::say(&format!(
                "note: {} ended without a word; `cowork-linux rm {}` removes what it left",
                known.id, known.id
            )),
            (State::Damaged, Some(trouble)) => report::say(&format!(
                "note: the record of {} cannot be read: {}; `cowork-linux rm {}` removes what is yours of it",
                known.id,
                printable(trouble),
                known.id
            )),
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}
