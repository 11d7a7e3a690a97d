//! The ways in which Claude Desktop and its packages call their helper: by names, by arguments with
//! one dash, and as if this program were the interpreter of a script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::{NOT_STARTED, switch};
use crate::probe::doctor::{SOCKETS, full_vm_required_by};
use crate::report::{self, Help};
use crate::service::{self, Options};

/// What this program is called where it stands in for a helper.
const NAMES: [&str; 2] = ["cowork-linux-helper", "cowork-svc-linux"];
/// The script that an unofficial package means to run with an interpreter it lets the user choose.
const SCRIPT: &[u8] = b"cowork-vm-service.js";
/// What can be said about each session, in the words of `run`.
const LIMITS: [(&str, &str, &str); 5] = [
    (
        "memory",
        "SIZE",
        "Memory of everything in a session together, such as 4G",
    ),
    ("cpus", "NUMBER", "Processors for a session, such as 1.5"),
    ("pids", "NUMBER", "Processes and threads of a session"),
    ("disk", "SIZE", "What a session's own folders may hold"),
    ("tmp-size", "SIZE", "What a session's /tmp may hold (4G)"),
];

pub(super) fn command() -> Command {
    Command::new("helper")
        .about("Serve Claude Desktop's Cowork sessions, each in a box of its own")
        .long_about(
            "Serve Claude Desktop's Cowork sessions, each in a box of its own.\n\n\
             The app starts this itself (`doctor --desktop` says what is missing for that). It ends with the app. \
             Called `cowork-linux-helper` or `cowork-svc-linux`, or with `-socket` as its first word, this program is \
             the helper without being told.",
        )
        .arg(
            Arg::new("socket")
                .long("socket")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Where to listen, with one dash or two; else claude-cowork-vm.sock or, where that is served, \
                     cowork-vm-service.sock, in $XDG_RUNTIME_DIR",
                ),
        )
        .arg(switch(
            "lenient-unknown",
            "Answer calls of a newer app that this program does not know as if they were done",
        ))
        .arg(switch(
            "allow-delete",
            "Let programs delete in folders before the app has asked you for it",
        ))
        .arg(switch(
            "allow-home",
            "Let the whole home folder be shared with a session",
        ))
        .args(LIMITS.map(|(name, value, help)| {
            Arg::new(name).long(name).value_name(value).help(help)
        }))
        .arg(switch(
            "token-outside",
            "Keep the app's token out of sessions: it is added to Claude Code's requests on their way out",
        ))
        .after_help(
            "Exit codes:\n  \
             0    the app is gone, or asked to stop\n  \
             2    the command line makes no sense\n  \
             125  the socket cannot be served",
        )
}

/// What a command line of the app's asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// A question that an interpreter would be asked: can it run this? It is never run.
    Code,
    /// The helper; what follows is for `command`.
    Helper(Vec<OsString>),
}

/// Whether a command line, with the program's name, is one of the app's.
pub(super) fn called(argv: &[OsString]) -> Option<Called> {
    let (name, words) = argv.split_first()?;
    let by_name = Path::new(name)
        .file_name()
        .is_some_and(|last| NAMES.iter().any(|name| last == *name));
    let first = words.first().map(|word| word.as_bytes());
    let words = match first {
        Some(b"-e") if words.len() == 2 => return Some(Called::Code),
        Some(b"helper") if !by_name => &words[1..],
        Some(word) if word.ends_with(SCRIPT) => &words[1..],
        Some(word) if by_name || with_two_dashes(word).is_some() => words,
        None if by_name => words,
        _ => return None,
    };
    Some(Called::Helper(words.iter().map(spelled).collect()))
}

/// `-socket` and what follows it in the same word, spelled as everything else here is.
fn spelled(word: &OsString) -> OsString {
    match with_two_dashes(word.as_bytes()) {
        Some(bytes) => OsString::from_vec(bytes),
        None => word.clone(),
    }
}

fn with_two_dashes(word: &[u8]) -> Option<Vec<u8>> {
    let plain = word.strip_prefix(b"-")?;
    let plain = plain.strip_prefix(b"-").unwrap_or(plain);
    let rest = plain.strip_prefix(b"socket")?;
    (rest.is_empty() || rest.starts_with(b"=")).then(|| [b"--", plain].concat())
}

pub(super) fn helper(matches: &ArgMatches) -> ExitCode {
    let given = matches.get_one::<PathBuf>("socket").cloned();
    let env = |name: &str| std::env::var_os(name);
    let socket = given.map_or_else(|| usual_socket(&env), is_named);
    let allowed = match full_vm_required_by(Path::new("/")) {
        Some(path) => Err(NotServed::OnlyMachines(path.display().to_string())),
        None => socket,
    };
    let socket = match allowed {
        Ok(socket) => socket,
        Err(error) => {
            report::print(&error);
            return ExitCode::from(NOT_STARTED);
        }
    };
    service::serve(&Options {
        socket: Some(socket),
        lenient: matches.get_flag("lenient-unknown"),
        allow_delete: matches.get_flag("allow-delete"),
        allow_home: matches.get_flag("allow-home"),
        limits: limits(matches),
        token_outside: matches.get_flag("token-outside"),
    })
}

fn limits(matches: &ArgMatches) -> Vec<String> {
    let given = LIMITS.iter().filter_map(|(name, ..)| {
        let value: &String = matches.get_one(name)?;
        Some([format!("--{name}"), value.clone()])
    });
    given.flatten().collect()
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NotServed {
    #[error("cannot serve a socket, because XDG_RUNTIME_DIR does not say where apps look for one")]
    NoRuntimeDirectory,
    #[error("cannot serve a socket, because `--socket` names none")]
    Nameless,
    #[error(
        "cannot serve Claude Desktop, because {0} asks for a virtual machine (requireCoworkFullVmSandbox)"
    )]
    OnlyMachines(String),
}

impl Help for NotServed {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::OnlyMachines(_) => {
                "a box of this program is none: talk to whoever manages this computer".into()
            }
            _ => "name it: `cowork-linux helper --socket /run/user/NUMBER/claude-cowork-vm.sock`"
                .into(),
        })
    }
}

fn is_named(socket: PathBuf) -> Result<PathBuf, NotServed> {
    match socket.as_os_str() == OsStr::new("") {
        true => Err(NotServed::Nameless),
        false => Ok(socket),
    }
}

/// The newest of the usual places that nobody serves; if all are, the newest, to stand by there.
/// A folder that others can write to, as old apps fell back to, is none: whoever is first would be
/// the helper.
fn usual_socket(env: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, NotServed> {
    let runtime = env("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute());
    let runtime = runtime.ok_or(NotServed::NoRuntimeDirectory)?;
    let usual = SOCKETS.map(|name| runtime.join(name));
    let free = usual.iter().find(|path| UnixStream::connect(path).is_err());
    Ok(free.unwrap_or(&usual[0]).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &[&str]) -> Option<Called> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        called(&words)
    }

    #[track_caller]
    fn is_helper(line: &[&str], wanted: &[&str]) {
        let wanted = wanted.iter().map(OsString::from).collect();
        assert_eq!(of(line), Some(Called::Helper(wanted)), "{line:?}");
    }

    #[test]
    fn every_way_of_calling_the_helper_is_known() {
        let socket = ["--socket", "/run/x.sock"];
        let joined = ["--socket=/run/x.sock"];
        for dashes in ["-socket", "--socket"] {
            is_helper(&["cowork-linux", "helper", dashes, "/run/x.sock"], &socket);
            is_helper(&["/usr/bin/cowork-linux", dashes, "/run/x.sock"], &socket);
            is_helper(
                &["/opt/cowork-linux-helper", dashes, "/run/x.sock"],
                &socket,
            );
            is_helper(&["cowork-svc-linux", dashes, "/run/x.sock"], &socket);
            let script = "/opt/app/resources/cowork-vm-service.js";
            is_helper(&["cowork-linux", script, dashes, "/run/x.sock"], &socket);
            is_helper(
                &["cowork-svc-linux", script, dashes, "/run/x.sock"],
                &socket,
            );
            let word = format!("{dashes}=/run/x.sock");
            is_helper(&["cowork-linux", &word], &joined);
            is_helper(&["cowork-linux", "helper", &word], &joined);
        }
        is_helper(&["/opt/cowork-linux-helper"], &[]);
        is_helper(&["cowork-linux", "helper", "--help"], &["--help"]);
        is_helper(&["cowork-svc-linux", "--allow-home"], &["--allow-home"]);
        is_helper(&["cowork-svc-linux", "run"], &["run"]);
        assert_eq!(of(&["cowork-linux", "-e", "1"]), Some(Called::Code));
        assert_eq!(of(&["cowork-svc-linux", "-e", "1"]), Some(Called::Code));
    }

    #[test]
    fn nothing_else_is_taken_for_the_helper() {
        for line in [
            &["cowork-linux"][..],
            &["cowork-linux", "run", "-socket", "x"],
            &["cowork-linux", "-e"],
            &["cowork-linux", "-e", "1", "2"],
            &["cowork-linux", "-sockets", "x"],
            &["cowork-linux", "---socket", "x"],
            &["cowork-linux", "socket", "x"],
            &["cowork-linux", "cowork-vm-service.mjs", "-socket", "x"],
            &["cowork-linux-helpers"],
            &[],
        ] {
            assert_eq!(of(line), None, "{line:?}");
        }
    }

    #[test]
    fn flags_are_read_and_unknown_ones_are_named() {
        let read = |words: &[&str]| {
            let line = ["helper"].iter().chain(words);
            command().try_get_matches_from(line)
        };
        let matches = read(&["--socket", "/x", "--allow-home", "--lenient-unknown"]).unwrap();
        let on = |name| matches.get_flag(name);
        assert!(on("allow-home") && on("lenient-unknown") && !on("allow-delete"));
        for wrong in [
            &["--sockets", "/x"][..],
            &["-v"],
            &["--socket", "/x", "extra"],
            &["--socket", "/x", "--socket", "/y"],
            &["--socket"],
        ] {
            let error = read(wrong).unwrap_err().to_string();
            let named = wrong.iter().any(|word| error.contains(word));
            assert!(named, "{wrong:?}: {error}");
        }
    }

    #[test]
    fn without_a_name_the_newest_place_that_nobody_serves_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().as_os_str().to_owned();
        let env = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| runtime.clone());
        let newest = folder.path().join(SOCKETS[0]);
        let legacy = folder.path().join(SOCKETS[1]);
        assert_eq!(usual_socket(&env), Ok(newest.clone()));
        // What a server left behind when it was killed is nobody's.
        drop(std::os::unix::net::UnixListener::bind(&newest).unwrap());
        assert_eq!(usual_socket(&env), Ok(newest.clone()));
        std::fs::remove_file(&newest).unwrap();
        let _first = std::os::unix::net::UnixListener::bind(&newest).unwrap();
        assert_eq!(usual_socket(&env), Ok(legacy.clone()));
        let _second = std::os::unix::net::UnixListener::bind(&legacy).unwrap();
        assert_eq!(usual_socket(&env), Ok(newest));
        let none = |_: &str| None;
        assert_eq!(usual_socket(&none), Err(NotServed::NoRuntimeDirectory));
        let relative = |_: &str| Some(OsString::from("run"));
        assert_eq!(usual_socket(&relative), Err(NotServed::NoRuntimeDirectory));
    }
}
