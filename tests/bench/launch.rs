//! What a box costs, beside bwrap with the same mounts. `make bench` runs it; it asserts nothing.
//!
//! `BENCH_ROUNDS` is the number of launches per row (300), `BENCH_BWRAP` a second bwrap to compare with,
//! which then is the base of the ratios, and `COWORK_BIN` the binary to measure.
#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

mod boxes;
mod host_mounts;
mod measure;
mod resident;
mod translate;

use boxes::{Boxes, Payload};
use measure::{Answer, Table, rounds};

fn main() -> Answer<()> {
    let boxes = Boxes::find()?;
    if let Some(total) = host_mounts::asked_to_measure() {
        return host_mounts::measure(&boxes, total);
    }
    println!("base of the ratios: {}\n", boxes.base_name());

    for payload in [Payload::STATIC, Payload::DYNAMIC] {
        launch(&boxes, payload)?;
    }
    cost(&boxes)?;
    growth(&boxes)?;
    host_mounts::run(&boxes)
}

/// From spawn to exit, all contestants taking turns.
fn launch(boxes: &Boxes, payload: Payload) -> Answer<()> {
    let mut contestants = vec![boxes.bare(payload)];
    contestants.extend(boxes.all(payload, 1)?);
    let rounds = rounds(1);
    println!("Launch to exit of {payload}, {rounds} rounds in turn, microseconds");
    println!("{}", measure::spread(&mut contestants, rounds)?);
    Ok(())
}

/// What one box holds and asks for: mounts, memory beside the payload, system calls.
fn cost(boxes: &Boxes) -> Answer<()> {
    println!(
        "One box: its mounts, the memory (PSS) that stays beside the program, system calls of a launch"
    );
    let mut table = Table::new(&["", "mounts", "memory KB", "processes", "system calls"]);
    let mounts = boxes.all(Payload::COUNT_MOUNTS, 1)?;
    let echoes = boxes.all(Payload::ECHO, 1)?;
    let trues = boxes.all(Payload::STATIC, 1)?;
    for ((mut mounts, mut echo), mut launch) in mounts.into_iter().zip(echoes).zip(trues) {
        let memory = resident::beside_payload(&mut echo)?;
        table.row([
            launch.name.clone(),
            mounts
                .output()?
                .split_whitespace()
                .next()
                .unwrap_or("?")
                .to_owned(),
            memory.map_or("not readable".to_owned(), |memory| {
                memory.kilobytes.to_string()
            }),
            memory.map_or("?".to_owned(), |memory| memory.processes.to_string()),
            resident::system_calls(&mut launch)?
                .map_or("no strace".to_owned(), |calls| calls.to_string()),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// The same launch with more and more folders mounted.
fn growth(boxes: &Boxes) -> Answer<()> {
    println!("Launch to exit by number of mounted folders, median, microseconds");
    let mut table = Table::new(&["folders", "rounds", "cowork-linux", "base", "/ base"]);
    for (folders, part) in [(1, 5), (10, 5), (100, 10), (500, 30)] {
        let mut contestants = boxes.ours_and_base(Payload::STATIC, folders)?;
        let rounds = rounds(part);
        let [ours, base] = measure::medians(&mut contestants, rounds)?;
        table.row([
            folders.to_string(),
            rounds.to_string(),
            format!("{ours:.0}"),
            format!("{base:.0}"),
            format!("{:.3}", ours / base),
        ]);
    }
    println!("{table}");
    Ok(())
}
