//! The flags of `run`: one table, from which the quick parser works and from which clap makes
//! help, completions, the manual and the message for a line the quick parser does not take.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction, Command};

#[derive(Debug)]
pub(super) struct Flag {
    pub(super) id: Id,
    long: &'static str,
    short: Option<char>,
    /// What its value is called; a switch has none.
    value: Option<&'static str>,
    group: &'static str,
    help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Id {
    Mount,
    Name,
    Detach,
    Keep,
    Tty,
    Interactive,
    WhileOpen,
    Profile,
    Network,
    AllowHost,
    DenyHost,
    Bundle,
    UpstreamProxy,
    Secret,
    TlsAudit,
    Publish,
    HostPort,
    NetRate,
    NetConnections,
    Env,
    Workdir,
    Hostname,
    TmpSize,
    Timeout,
    Memory,
    Cpus,
    Pids,
    Disk,
    Io,
    Files,
    Idle,
    ReadOnlyWorkspace,
    Isolation,
    Seccomp,
    Nesting,
    AllowMissing,
    DryRun,
    Json,
    Quiet,
    Verbose,
}

impl Id {
    /// Whether it may be given more than once, each time with another value.
    fn repeats(self) -> bool {
        matches!(
            self,
            Self::Mount
                | Self::Env
                | Self::AllowMissing
                | Self::AllowHost
                | Self::DenyHost
                | Self::Bundle
                | Self::Secret
                | Self::TlsAudit
                | Self::Publish
                | Self::HostPort
        )
    }

    /// The flag's name, without its dashes.
    pub(super) fn long(self) -> &'static str {
        let own = RUN.iter().find(|flag| flag.id == self);
        own.map_or("", |flag| flag.long)
    }
}

const BOX: &str = "What is in the box";
const WALLS: &str = "Its walls";
const NETWORK: &str = "Its network";
const LIMITS: &str = "Its limits";
const SHOWN: &str = "What is shown";

#[rustfmt::skip]
const RUN: [Flag; 40] = [
    Flag { id: Id::Mount, long: "mount", short: Some('m'), value: Some("SRC[:DST][:MODE]"), group: BOX,
        help: "Share a folder; MODE is rw (default), ro, or keep: as rw, but programs delete only what they have made. Repeat for more" },
    Flag { id: Id::Name, long: "name", short: Some('n'), value: Some("ID"), group: BOX,
        help: "Name the session; its home is kept for the next run of that name" },
    Flag { id: Id::Detach, long: "detach", short: Some('d'), value: None, group: BOX,
        help: "Start it in the background, print its id and return" },
    Flag { id: Id::Keep, long: "keep", short: None, value: None, group: BOX,
        help: "With -d: the box stays when its program has ended, for `exec`; no command is needed" },
    Flag { id: Id::Tty, long: "tty", short: None, value: None, group: BOX,
        help: "With -d: give the program a terminal, for `attach`" },
    Flag { id: Id::Interactive, long: "interactive", short: Some('i'), value: None, group: BOX,
        help: "With -d: keep its standard input open, for `attach`" },
    Flag { id: Id::WhileOpen, long: "while-open", short: None, value: Some("FD"), group: BOX,
        help: "End it at once when the other end of this pipe or socket is closed, so that it never outlives whoever has it" },
    Flag { id: Id::Env, long: "env", short: Some('e'), value: Some("K[=V]"), group: BOX,
        help: "Set a variable, or pass the caller's on" },
    Flag { id: Id::Workdir, long: "workdir", short: Some('w'), value: Some("DIR"), group: BOX,
        help: "Start here instead of in the first mount" },
    Flag { id: Id::Hostname, long: "hostname", short: None, value: Some("NAME"), group: BOX,
        help: "What the box calls itself (cowork)" },
    Flag { id: Id::TmpSize, long: "tmp-size", short: None, value: Some("SIZE"), group: BOX,
        help: "How much /tmp may hold, such as 512M" },
    Flag { id: Id::ReadOnlyWorkspace, long: "read-only-workspace", short: None, value: None, group: BOX,
        help: "Make every mount read-only" },
    Flag { id: Id::Profile, long: "profile", short: Some('P'), value: Some("NAME|FILE"), group: WALLS,
        help: "The policy: default, claude, online, offline, strict, or a file" },
    Flag { id: Id::Network, long: "network", short: None, value: Some("MODE"), group: NETWORK,
        help: "none (default), allow: only the listed hosts, or host: all of this computer's network" },
    Flag { id: Id::AllowHost, long: "allow-host", short: None, value: Some("HOST[:PORTS]"), group: NETWORK,
        help: "Let it reach example.com, *.example.com:443 or 10.0.0.0/8:5432; ports are 80 and 443 if none are said" },
    Flag { id: Id::DenyHost, long: "deny-host", short: None, value: Some("HOST[:PORTS]"), group: NETWORK,
        help: "Never let it reach this, whatever else allows it" },
    Flag { id: Id::Bundle, long: "bundle", short: None, value: Some("NAME"), group: NETWORK,
        help: "Let it reach a list of hosts: claude, github, or registries (this computer's package registries)" },
    Flag { id: Id::Secret, long: "secret", short: None, value: Some("NAME[=SOURCE]@HOST[:HEADER]"), group: NETWORK,
        help: "Add a value to requests to one host, outside: it never enters the box. SOURCE is env:VARIABLE, file:PATH or the value itself" },
    Flag { id: Id::TlsAudit, long: "tls-audit", short: None, value: Some("HOST"), group: NETWORK,
        help: "End TLS to this host at the gateway, so that requests are logged and secrets can be added" },
    Flag { id: Id::Publish, long: "publish", short: Some('p'), value: Some("[IP:]HOSTPORT:BOXPORT"), group: NETWORK,
        help: "Let this computer reach a port of the box, at its loopback if no IP is said" },
    Flag { id: Id::HostPort, long: "host-port", short: None, value: Some("PORT"), group: NETWORK,
        help: "Let the box reach one port of this computer's loopback, at its own" },
    Flag { id: Id::UpstreamProxy, long: "upstream-proxy", short: None, value: Some("URL|env"), group: NETWORK,
        help: "Reach hosts through a proxy: http:// or socks5://, or env for the one in HTTPS_PROXY, with its password" },
    Flag { id: Id::NetRate, long: "net-rate", short: None, value: Some("RATE"), group: NETWORK,
        help: "Bytes in a second to and from the network, such as 10M; or none" },
    Flag { id: Id::NetConnections, long: "net-connections", short: None, value: Some("NUMBER"), group: NETWORK,
        help: "Connections at a time (2048)" },
    Flag { id: Id::Timeout, long: "timeout", short: Some('t'), value: Some("TIME"), group: WALLS,
        help: "End it after this long, such as 30m" },
    Flag { id: Id::Memory, long: "memory", short: None, value: Some("SIZE"), group: LIMITS,
        help: "Memory of everything in the box together, such as 2G" },
    Flag { id: Id::Cpus, long: "cpus", short: None, value: Some("NUMBER"), group: LIMITS,
        help: "Processors, such as 1.5" },
    Flag { id: Id::Pids, long: "pids", short: None, value: Some("NUMBER"), group: LIMITS,
        help: "Processes and threads" },
    Flag { id: Id::Disk, long: "disk", short: None, value: Some("SIZE"), group: LIMITS,
        help: "What the session's own folders may hold" },
    Flag { id: Id::Io, long: "io", short: None, value: Some("RATE"), group: LIMITS,
        help: "Bytes per second to and from the disk, such as 50M; takes a cgroup" },
    Flag { id: Id::Files, long: "files", short: None, value: Some("NUMBER"), group: LIMITS,
        help: "Open files of each program" },
    Flag { id: Id::Idle, long: "idle", short: None, value: Some("TIME"), group: LIMITS,
        help: "End it when nothing has happened for this long" },
    Flag { id: Id::Isolation, long: "isolation", short: None, value: Some("KIND"), group: WALLS,
        help: "namespaces (default), or landlock: weaker, for hosts that forbid user namespaces" },
    Flag { id: Id::Seccomp, long: "seccomp", short: None, value: Some("NAME|FILE"), group: WALLS,
        help: "The system call filter: default, debug (for strace and gdb), or an OCI profile" },
    Flag { id: Id::Nesting, long: "nesting", short: None, value: None, group: WALLS,
        help: "Let programs bring their own sandbox (Chromium, bwrap)" },
    Flag { id: Id::AllowMissing, long: "allow-missing", short: None, value: Some("LAYER"), group: WALLS,
        help: "Start although this host lacks a layer: landlock, seccomp, guard, keyring" },
    Flag { id: Id::DryRun, long: "dry-run", short: None, value: None, group: SHOWN,
        help: "Print the plan and do nothing" },
    Flag { id: Id::Json, long: "json", short: None, value: None, group: SHOWN,
        help: "Print the plan, or how it ended, as JSON" },
    Flag { id: Id::Quiet, long: "quiet", short: Some('q'), value: None, group: SHOWN,
        help: "Print nothing of our own but errors" },
    Flag { id: Id::Verbose, long: "verbose", short: Some('v'), value: None, group: SHOWN,
        help: "Print the plan before starting; twice for what happens besides" },
];

/// A command line taken apart: flags in the order given, and the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) flags: Vec<(Id, OsString)>,
    pub(super) command: Vec<OsString>,
}

/// Takes a well-formed line apart; `None` for any other, which clap then explains.
pub(super) fn parse(args: &[OsString]) -> Option<Parsed> {
    let mut parsed = Parsed::default();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            parsed.command = rest.cloned().collect();
            break;
        }
        let (flag, inline) = find(word.as_bytes())?;
        let value = match (flag.value, inline) {
            (None, None) => OsString::new(),
            (None, Some(_)) => return None,
            (Some(_), Some(value)) => OsStr::from_bytes(value).to_owned(),
            (Some(_), None) => rest.next().filter(|next| !is_flag(next))?.clone(),
        };
        let once = !flag.id.repeats() && flag.id != Id::Verbose;
        if once && parsed.flags.iter().any(|(id, _)| *id == flag.id) {
            return None;
        }
        parsed.flags.push((flag.id, value));
    }
    Some(parsed)
}

fn is_flag(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"-") && word.len() > 1
}

fn find(word: &[u8]) -> Option<(&'static Flag, Option<&[u8]>)> {
    if let Some(long) = word.strip_prefix(b"--") {
        let at = long.iter().position(|byte| *byte == b'=');
        let (name, value) = match at {
            Some(at) => (&long[..at], Some(&long[at + 1..])),
            None => (long, None),
        };
        return RUN
            .iter()
            .find(|flag| flag.long.as_bytes() == name)
            .map(|flag| (flag, value));
    }
    match word {
        [b'-', letter] => {
            let flag = RUN
                .iter()
                .find(|flag| flag.short == Some(char::from(*letter)))?;
            Some((flag, None))
        }
        _ => None,
    }
}

/// The same table for clap.
pub(super) fn command() -> Command {
    let args = RUN.iter().map(|flag| {
        let action = match flag.value {
            Some(_) if flag.id.repeats() => ArgAction::Append,
            Some(_) => ArgAction::Set,
            None if flag.id == Id::Verbose => ArgAction::Count,
            None => ArgAction::SetTrue,
        };
        let mut arg = Arg::new(flag.long)
            .long(flag.long)
            .help(flag.help)
            .help_heading(flag.group)
            .action(action);
        if let Some(short) = flag.short {
            arg = arg.short(short);
        }
        if let Some(name) = flag.value {
            arg = arg
                .value_name(name)
                .value_parser(clap::value_parser!(OsString));
        }
        arg
    });
    Command::new("run")
        .about("Run a command in a box; the caller's shell when none is given")
        .override_usage("cowork-linux run [OPTIONS] [-- COMMAND [ARGS]...]")
        .args(args)
        .arg(
            Arg::new("command")
                .last(true)
                .num_args(0..)
                .value_name("COMMAND")
                .value_parser(clap::value_parser!(OsString))
                .help("Everything after -- is the command"),
        )
}

/// What clap made of a line, as the quick parser would have said it.
pub(super) fn from_matches(matches: &clap::ArgMatches) -> Parsed {
    let mut parsed = Parsed::default();
    for flag in &RUN {
        match flag.value {
            Some(_) => {
                let values = matches
                    .get_many::<OsString>(flag.long)
                    .into_iter()
                    .flatten();
                parsed
                    .flags
                    .extend(values.map(|value| (flag.id, value.clone())));
            }
            None if flag.id == Id::Verbose => {
                let times = matches.get_count(flag.long);
                parsed
                    .flags
                    .extend((0..times).map(|_| (flag.id, OsString::new())));
            }
            None if matches.get_flag(flag.long) => parsed.flags.push((flag.id, OsString::new())),
            None => {}
        }
    }
    parsed.command = matches
        .get_many::<OsString>("command")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_quick_parser_and_clap_agree() {
        for line in [
            &[
                "--mount",
                "a",
                "--mount=b:ro",
                "-q",
                "--",
                "ls",
                "-l",
                "--mount",
            ][..],
            &["-m", "a", "-n", "x", "-v", "-v", "--timeout", "5s", "--"],
            &["--json", "--dry-run", "--env", "A=b=c", "--", "x"],
            &[
                "--allow-host",
                "a.example",
                "--allow-host=*.b.example:22",
                "-p",
                "8080:80",
                "-p",
                "1:2",
            ],
            &[
                "--secret",
                "A@a.example",
                "--bundle",
                "claude",
                "-P",
                "strict",
                "--host-port",
                "1",
            ],
            &[],
        ] {
            let quick = parse(&words(line)).unwrap();
            let all = ["run"].into_iter().chain(line.iter().copied());
            let slow = from_matches(&command().try_get_matches_from(all).unwrap());
            assert_eq!(quick.command, slow.command);
            assert_eq!(quick.flags.len(), slow.flags.len());
            assert!(
                quick.flags.iter().all(|flag| slow.flags.contains(flag)),
                "{line:?}"
            );
        }
    }

    #[test]
    fn odd_lines_are_left_to_clap() {
        for line in [
            &["--no-such"][..],
            &["--mount"],
            &["--quiet=yes"],
            &["ls"],
            &["--name", "a", "--name", "b"],
            &["--mount", "--json"],
            &["--help"],
            &["--network", "allow", "--network", "none"],
            &["--publish"],
        ] {
            assert_eq!(parse(&words(line)), None, "{line:?}");
            let all = ["run"].into_iter().chain(line.iter().copied());
            assert!(command().try_get_matches_from(all).is_err(), "{line:?}");
        }
    }

    #[test]
    fn the_table_is_a_valid_command() {
        command().debug_assert();
    }
}
