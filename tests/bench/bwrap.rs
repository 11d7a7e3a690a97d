//! What our binary costs when it is called as bwrap, beside a real bwrap with the same arguments. `make bench`
//! runs it. It fails only if the time of ours does not grow in step with the number of binds.
//!
//! `BENCH_ROUNDS` is the number of launches per row (300), `COWORK_BIN` the binary to measure, and
//! `COWORK_BENCH_BWRAP` the bwrap to compare with (/usr/bin/bwrap).
#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

mod callers;
mod measure;
mod resident;

use callers::{Arguments, Callers};
use measure::{Answer, Contestant, Table, rounds};
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const STATIC: &[&str] = &["/bin/busybox", "true"];
const DYNAMIC: &[&str] = &["/usr/bin/true"];
const SHELL: &[&str] = &["/bin/sh", "-c", "true"];
/// Gives back what it reads, and so ends with its input.
const ECHO: &[&str] = &["/bin/busybox", "cat"];
const COUNT_MOUNTS: &[&str] = &["/bin/busybox", "wc", "-l", "/proc/self/mountinfo"];

fn main() -> Answer<()> {
    let pair = Pair::find()?;
    println!("base of the ratios: {}\n", pair.peer.name);
    let callers = Callers::new(pair.scratch.path(), pair.peer.knows("--argv0")?)?;

    launch(&pair, "--unshare-all", STATIC, Callers::everything)?;
    launch(&pair, "--unshare-all", DYNAMIC, Callers::everything)?;
    launch(&pair, "sandbox-runtime", SHELL, || {
        callers.sandbox_runtime()
    })?;
    launch(&pair, "Codex", STATIC, || callers.codex())?;

    println!(
        "One sandbox: its mounts, the memory (PSS) that stays beside the program, system calls of a launch"
    );
    let mut table = Table::new(&["", "mounts", "memory KB", "processes", "system calls"]);
    cost(&pair, &mut table, "--unshare-all", Callers::everything)?;
    cost(&pair, &mut table, "sandbox-runtime", || {
        callers.sandbox_runtime()
    })?;
    cost(&pair, &mut table, "Codex", || callers.codex())?;
    println!("{table}");

    growth(&pair)
}

/// One of the two binaries.
struct Launcher {
    name: String,
    path: PathBuf,
}

impl Launcher {
    fn with(&self, arguments: Arguments, payload: &[&str], state: &Path) -> Contestant {
        let mut argv = vec![self.path.to_string_lossy().into_owned()];
        argv.extend(arguments.words);
        argv.push("--".into());
        argv.extend(payload.iter().map(ToString::to_string));
        Contestant {
            name: self.name.clone(),
            argv,
            files: arguments.files,
            state: state.to_owned(),
        }
    }

    fn knows(&self, option: &str) -> Answer<bool> {
        let help = Command::new(&self.path).arg("--help").output()?;
        Ok(String::from_utf8_lossy(&help.stdout).contains(option))
    }
}

/// Ours and the one it is compared with.
struct Pair {
    ours: Launcher,
    peer: Launcher,
    scratch: TempDir,
}

impl Pair {
    fn find() -> Answer<Self> {
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/.build/cowork-linux");
        let binary = env::var("COWORK_BIN").unwrap_or_else(|_| built.to_owned());
        let binary = fs::canonicalize(&binary)
            .map_err(|error| format!("there is no {binary} to measure: {error}"))?;
        let scratch = TempDir::with_prefix("cowork-bench.")?;
        // The name makes it behave as bwrap.
        let path = scratch.path().join("bwrap");
        symlink(binary, &path)?;
        let ours = Launcher {
            name: "ours".into(),
            path,
        };

        let path = env::var("COWORK_BENCH_BWRAP").unwrap_or_else(|_| "/usr/bin/bwrap".into());
        let version = Command::new(&path).arg("--version").output();
        let version = version.map_err(|error| format!("{path} does not start: {error}"))?;
        let version = String::from_utf8_lossy(&version.stdout);
        let peer = Launcher {
            name: version.trim().replace("bubblewrap", "bwrap"),
            path: path.into(),
        };
        Ok(Self {
            ours,
            peer,
            scratch,
        })
    }

    /// Ours first, the base last. Each gets arguments of its own: some name files by descriptor.
    fn both(
        &self,
        arguments: impl Fn() -> Answer<Arguments>,
        payload: &[&str],
    ) -> Answer<[Contestant; 2]> {
        let state = self.scratch.path();
        Ok([
            self.ours.with(arguments()?, payload, state),
            self.peer.with(arguments()?, payload, state),
        ])
    }
}

/// From spawn to exit, all contestants taking turns.
fn launch(
    pair: &Pair,
    name: &str,
    payload: &[&str],
    arguments: impl Fn() -> Answer<Arguments>,
) -> Answer<()> {
    let mut contestants = vec![Contestant {
        name: "none (bare exec)".into(),
        argv: payload.iter().map(ToString::to_string).collect(),
        files: Vec::new(),
        state: pair.scratch.path().to_owned(),
    }];
    contestants.extend(pair.both(arguments, payload)?);
    let rounds = rounds(1);
    let payload = payload.join(" ");
    println!("{name}: launch to exit of {payload}, {rounds} rounds in turn, microseconds");
    println!("{}", measure::spread(&mut contestants, rounds)?);
    Ok(())
}

/// What one sandbox holds and asks for. The mounts also show that both built the same one.
fn cost(
    pair: &Pair,
    table: &mut Table,
    name: &str,
    arguments: impl Fn() -> Answer<Arguments>,
) -> Answer<()> {
    let mounts = pair.both(&arguments, COUNT_MOUNTS)?;
    let echoes = pair.both(&arguments, ECHO)?;
    let trues = pair.both(&arguments, STATIC)?;
    for ((mut mounts, mut echo), mut launch) in mounts.into_iter().zip(echoes).zip(trues) {
        let mounts = mounts.output()?;
        let memory = resident::beside_payload(&mut echo)?;
        let calls = resident::system_calls(&mut launch)?;
        table.row([
            format!("{name}: {}", launch.name),
            mounts.split_whitespace().next().unwrap_or("?").to_owned(),
            memory.map_or("not readable".to_owned(), |memory| {
                memory.kilobytes.to_string()
            }),
            memory.map_or("?".to_owned(), |memory| memory.processes.to_string()),
            calls.map_or("no strace".to_owned(), |calls| calls.to_string()),
        ]);
    }
    Ok(())
}

/// The same launch with more and more binds, and whether the last bind costs as much as the first.
fn growth(pair: &Pair) -> Answer<()> {
    const SIZES: [(usize, usize); 6] =
        [(1, 3), (10, 3), (100, 6), (200, 12), (500, 30), (1000, 60)];
    println!("Launch to exit by number of binds on a tmpfs, median, microseconds");
    let mut table = Table::new(&[
        "binds",
        "rounds",
        "ours",
        "base",
        "/ base",
        "ours, ns per bind",
        "base, ns per bind",
    ]);
    let mut first = [f64::NAN; 2];
    let mut per_bind = Vec::new();
    for (binds, part) in SIZES {
        let mut contestants = pair.both(
            || Callers::binds(pair.scratch.path(), binds),
            &["/busybox", "true"],
        )?;
        let rounds = rounds(part);
        let [ours, base] = measure::medians(&mut contestants, rounds)?;
        if binds == 1 {
            first = [ours, base];
        }
        let each = |now: f64, first: f64| (now - first) * 1000.0 / (binds as f64 - 1.0);
        let [ours_each, base_each] = [each(ours, first[0]), each(base, first[1])];
        let shown = |each: f64| match binds {
            1 => "-".to_owned(),
            _ => format!("{each:.0}"),
        };
        table.row([
            binds.to_string(),
            rounds.to_string(),
            format!("{ours:.0}"),
            format!("{base:.0}"),
            format!("{:.3}", ours / base),
            shown(ours_each),
            shown(base_each),
        ]);
        per_bind.push((binds, ours_each));
    }
    println!("{table}");
    linear(&per_bind)
}

/// Were it the square, a bind among 1000 would cost five times as much as one among 200. Below 200 the binds
/// are lost in what the machine does besides.
fn linear(per_bind: &[(usize, f64)]) -> Answer<()> {
    let at = |wanted| {
        let found = per_bind.iter().find(|(binds, _)| *binds == wanted);
        found.map_or(f64::NAN, |(_, each)| *each)
    };
    let growth = at(1000) / at(200);
    println!("ours: one of 1000 binds costs {growth:.2} times what one of 200 costs");
    if growth < 2.0 {
        return Ok(());
    }
    Err("the time of ours does not grow in step with the number of binds".into())
}
