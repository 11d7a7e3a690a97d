//! Lists of sessions.

use std::process::ExitCode;

use clap::ArgMatches;

use super::sessions::{Done, print, print_json, tell_troubles};
use super::table;
use crate::probe;
use crate::session::{Known, Outcome, Places, State, now};
use crate::terminal::printable;

pub(super) fn ls(places: &Places, matches: &ArgMatches) -> Done {
    tell_troubles(places);
    let mut list = places.list();
    if !matches.get_flag("all") {
        list.retain(|known| known.state == State::Running);
    }
    if matches.get_flag("json") {
        print_json(&list)?;
    } else if matches.get_flag("quiet") {
        let ids: String = list.iter().map(|known| format!("{}\n", known.id)).collect();
        print(&ids)?;
    } else {
        let head = [
            "ID",
            "STATE",
            "PROGRAM",
            "MOUNTS",
            "NETWORK",
            "PROCESSES",
            "MEMORY",
            "AGE",
        ];
        print(&table::lines(&head, list.iter().map(row)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(known: &Known) -> Vec<String> {
    let record = known.record.as_ref();
    let words = record.map_or(String::new(), |record| record.program.join(" "));
    let mounts = record.map_or(String::new(), |record| {
        let mounts = record
            .mounts
            .iter()
            .map(|mount| format!("{}:{}", mount.source, mount.mode));
        mounts.collect::<Vec<_>>().join(",")
    });
    let usage = known
        .seen
        .as_ref()
        .and_then(|seen| probe::usage_of(seen.pid));
    let state = match (
        &known.state,
        record.and_then(|record| record.outcome.as_ref()),
    ) {
        (State::Ended, Some(Outcome::Exited(code))) => format!("exited {code}"),
        (State::Ended, Some(outcome)) => format!("ended {}", outcome.exit_code()),
        (state, _) => state.name().to_owned(),
    };
    vec![
        known.id.to_string(),
        state,
        table::short(&printable(&words), 40),
        table::short(&printable(&mounts), 48),
        record.map_or(String::new(), |record| record.network.clone()),
        usage
            .as_ref()
            .map_or(String::new(), |usage| usage.processes.to_string()),
        usage
            .as_ref()
            .map_or(String::new(), |usage| table::size(usage.memory)),
        record.map_or(String::new(), |record| {
            table::age(now().saturating_sub(record.started))
        }),
    ]
}

pub(super) fn status(places: &Places, matches: &ArgMatches) -> Done {
    tell_troubles(places);
    let list = places.list();
    let count = |state: State| list.iter().filter(|known| known.state == state).count();
    let states = [
        State::Running,
        State::Ended,
        State::Crashed,
        State::Kept,
        State::Damaged,
    ];
    if matches.get_flag("json") {
        let counts: serde_json::Map<_, _> = states
            .iter()
            .map(|state| (state.name().to_owned(), count(*state).into()))
            .collect();
        print_json(&counts)?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = states
        .iter()
        .map(|state| format!("{:<8} {}\n", state.name(), count(*state)));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
