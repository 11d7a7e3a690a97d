//! Timing programs in turns, and tables.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Seek as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) type Answer<T> = Result<T, Box<dyn Error>>;

/// How many launches make a row; a part of `BENCH_ROUNDS` where each launch is slow.
pub(crate) fn rounds(part: usize) -> usize {
    let all = env::var("BENCH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(300);
    (all / part).max(3)
}

/// A command that is measured.
#[derive(Debug)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) argv: Vec<String>,
    /// Files it reads from inherited descriptors; rewound before each launch.
    pub(crate) files: Vec<File>,
    /// Where sessions leave their traces, instead of in the caller's home.
    pub(crate) state: PathBuf,
}

impl Contestant {
    /// The command, ready to be spawned. Nothing is set on it that would keep the standard library from
    /// using `posix_spawn`.
    pub(crate) fn command(&mut self) -> Answer<Command> {
        for file in &mut self.files {
            file.rewind()?;
        }
        let mut command = Command::new(&self.argv[0]);
        command
            .args(&self.argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
            .env("XDG_STATE_HOME", &self.state)
            .env("XDG_RUNTIME_DIR", &self.state);
        Ok(command)
    }

    /// What it prints, or an error that carries what it complained about.
    pub(crate) fn output(&mut self) -> Answer<String> {
        let output = self.command()?.stdout(Stdio::piped()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("{} failed ({}): {complaint}", self.name, output.status).into())
    }

    /// Microseconds from spawn to exit.
    fn launch(&mut self) -> Answer<f64> {
        let mut command = self.command()?;
        let start = Instant::now();
        let status = command.status()?;
        let taken = start.elapsed();
        if !status.success() {
            return Err(format!("{} failed: {status}", self.name).into());
        }
        Ok(taken.as_secs_f64() * 1e6)
    }
}

/// Times of one contestant, sorted.
#[derive(Debug)]
struct Times(Vec<f64>);

impl Times {
    /// The time below which this part of all launches stayed.
    fn at(&self, part: f64) -> f64 {
        let last = self.0.len() - 1;
        self.0[(last as f64 * part).round() as usize]
    }

    fn median(&self) -> f64 {
        self.at(0.5)
    }
}

/// One launch of each per round, so that whatever else the machine does meets all of them. Who begins
/// changes from round to round.
fn in_turns(contestants: &mut [Contestant], rounds: usize) -> Answer<Vec<Times>> {
    let count = contestants.len();
    let mut times = vec![Vec::with_capacity(rounds); count];
    for contestant in contestants.iter_mut() {
        contestant.launch()?; // fills the caches
    }
    for round in 0..rounds {
        for turn in 0..count {
            let who = (round + turn) % count;
            times[who].push(contestants[who].launch()?);
        }
    }
    let sorted = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        Times(times)
    };
    Ok(times.into_iter().map(sorted).collect())
}

pub(crate) fn medians<const N: usize>(
    contestants: &mut [Contestant; N],
    rounds: usize,
) -> Answer<[f64; N]> {
    let times = in_turns(contestants, rounds)?;
    Ok(std::array::from_fn(|who| times[who].median()))
}

/// How the times of each lie, and its median beside that of the last.
pub(crate) fn spread(contestants: &mut [Contestant], rounds: usize) -> Answer<Table> {
    let results = in_turns(contestants, rounds)?;
    let base = results.last().map_or(f64::NAN, Times::median);
    let mut table = Table::new(&["", "min", "p25", "median", "p99", "/ base"]);
    for (contestant, times) in contestants.iter().zip(&results) {
        table.row([
            contestant.name.clone(),
            format!("{:.0}", times.at(0.0)),
            format!("{:.0}", times.at(0.25)),
            format!("{:.0}", times.median()),
            format!("{:.0}", times.at(0.99)),
            format!("{:.3}", times.median() / base),
        ]);
    }
    Ok(table)
}

/// Columns as wide as they need to be: the first to the left, the rest to the right.
#[derive(Debug)]
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(ToString::to_string).collect()])
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.to_vec());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.0
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        for row in &self.0 {
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                if column == 0 {
                    write!(out, "  {cell:<width$}")?;
                } else {
                    write!(out, "  {cell:>width$}")?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}
