//! Hosts of a running session, and what it said to them.

use std::ffi::OsString;
use std::fs::File;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Arg, ArgMatches, Command};

use super::sessions::{Done, Refusal, one, print, session_argument};
use super::table;
use crate::journal::{self, Entry, RefusalKind, What, stamp};
use crate::logs::Watch;
use crate::policy::SessionId;
use crate::policy::egress::HostPattern;
use crate::session::{Call, Places, State};
use crate::terminal::printable;

/// Before looking again whether a session has ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(super) fn commands() -> [Command; 2] {
    let host = || {
        Arg::new("host")
            .value_name("HOST[:PORTS]")
            .help("As with `run --allow-host`")
            .required(true)
            .num_args(1..)
            .value_parser(clap::value_parser!(OsString))
    };
    [
        Command::new("allow")
            .about("Let a running session reach another host")
            .arg(session_argument())
            .arg(host()),
        Command::new("deny")
            .about("Keep a running session from a host, and end its connections there")
            .arg(session_argument())
            .arg(host()),
    ]
}

pub(super) fn verb(name: &str) -> Option<fn(&Places, &ArgMatches) -> Done> {
    match name {
        "allow" => Some(|places, matches| change(places, matches, true)),
        "deny" => Some(|places, matches| change(places, matches, false)),
        _ => None,
    }
}

fn change(places: &Places, matches: &ArgMatches, allow: bool) -> Done {
    let id = one(places, matches)?;
    let texts = matches.get_many::<OsString>("host").into_iter().flatten();
    let mut patterns = Vec::new();
    for text in texts {
        let text = text.to_string_lossy();
        let pattern = match allow {
            true => HostPattern::parse(&text),
            false => HostPattern::parse_denied(&text),
        };
        patterns.push(pattern.map_err(|why| Refusal::Host(text.into_owned(), why))?);
    }
    for pattern in &patterns {
        Call::to(&places.runtime, &id)?.host(pattern, allow)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a session said to the network, from its journal.
pub(super) fn log(
    places: &Places,
    id: &SessionId,
    since: Option<SystemTime>,
    follow: bool,
    json: bool,
) -> Done {
    let folder = places.state.join("journals");
    let path = journal::path_of(&folder, id);
    let from = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let from = from.map_or(0, |since| since.as_millis() as u64);
    let watch = match follow {
        true => Some(Watch::new(&File::open(&folder)?)),
        false => None,
    };
    let mut seen = 0;
    loop {
        // Asked before the journal is read, so that nothing said at the end is missed.
        let is_over = places.look(id).state != State::Running;
        for entry in journal::read(&path)?.entries {
            if entry.seq > seen && entry.at >= from {
                seen = entry.seq;
                if let Some(line) = line(&entry, json)? {
                    print(&line)?;
                }
            }
        }
        match &watch {
            Some(watch) if !is_over => watch.wait(LOOK_AGAIN)?,
            _ => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn line(entry: &Entry, json: bool) -> std::io::Result<Option<String>> {
    let words = match &entry.what {
        What::Connection {
            began,
            milliseconds,
            program,
            host,
            port,
            address,
            sent,
            received,
            rule,
            error,
            ..
        } => {
            let program = program.as_deref().unwrap_or("-");
            let address = address.as_deref().unwrap_or("-");
            let verdict = if error.is_some() {
                "failed "
            } else {
                "allowed"
            };
            let by = error.as_deref().or(rule.as_deref()).unwrap_or_default();
            format!(
                "{} {verdict} {program} {host}:{port} {address} sent {} received {} in {milliseconds} ms: {by}",
                time(*began),
                table::size(*sent),
                table::size(*received),
            )
        }
        What::Request {
            began,
            milliseconds,
            method,
            url,
            status,
            size,
            error,
        } => {
            let status = status.map_or("-".to_owned(), |status| status.to_string());
            let size = size.map_or("-".to_owned(), table::size);
            let error = error.as_deref().unwrap_or_default();
            format!(
                "{} request {method} {url} {status} {size} in {milliseconds} ms {error}",
                time(*began)
            )
        }
        What::Refusal {
            kind: RefusalKind::Network,
            object,
            rule,
            allow,
            count,
            program,
        } => {
            let times = if *count == 1 {
                String::new()
            } else {
                format!(" {count} times")
            };
            let help = match allow.is_empty() {
                true => String::new(),
                false => format!("; {allow} would allow it"),
            };
            let program = program.as_deref().unwrap_or("-");
            format!(
                "{} refused {program} {object}{times}: {rule}{help}",
                time(entry.at)
            )
        }
        _ => return Ok(None),
    };
    Ok(Some(match json {
        true => format!("{}\n", serde_json::to_string(entry)?),
        false => format!("{}\n", printable(words.trim_end())),
    }))
}

fn time(milliseconds: u64) -> String {
    stamp(UNIX_EPOCH + Duration::from_millis(milliseconds))
}
