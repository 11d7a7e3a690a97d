//! What another program in a box that runs costs, beside a fresh launch of a real bwrap. `make bench` runs it.
//!
//! `BENCH_ROUNDS` is the number of launches per row (300), `COWORK_BIN` the binary to measure, and
//! `COWORK_BENCH_BWRAP` the bwrap to compare with (/usr/bin/bwrap).
#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

#[allow(dead_code, reason = "the other benches use the rest")]
mod measure;

use measure::{Answer, Contestant, rounds};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const STATIC: &[&str] = &["/bin/busybox", "true"];
const DYNAMIC: &[&str] = &["/usr/bin/true"];
/// What an exec may cost of a launch.
const GOAL: f64 = 0.4;

fn main() -> Answer<()> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/.build/cowork-linux");
    let binary = env::var("COWORK_BIN").unwrap_or_else(|_| built.to_owned());
    let binary = fs::canonicalize(&binary)
        .map_err(|error| format!("there is no {binary} to measure: {error}"))?;
    let bwrap = env::var("COWORK_BENCH_BWRAP").unwrap_or_else(|_| "/usr/bin/bwrap".into());
    let version = Command::new(&bwrap).arg("--version").output();
    let version = version.map_err(|error| format!("{bwrap} does not start: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout);
    let base = version.trim().replace("bubblewrap", "bwrap");
    let session = Running::start(binary)?;
    for payload in [STATIC, DYNAMIC] {
        let contestant = |name: &str, argv: Vec<String>| Contestant {
            name: name.to_owned(),
            argv,
            files: Vec::new(),
            state: session.scratch.path().to_owned(),
        };
        let words = |before: &[&str]| {
            let all = before.iter().chain(payload);
            all.map(ToString::to_string).collect::<Vec<_>>()
        };
        let binary = session.binary.to_string_lossy();
        let fresh = [
            &bwrap,
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--",
        ];
        let mut contestants = [
            contestant("none (bare exec)", words(&[])),
            contestant("exec into a box", words(&[&binary, "exec", NAME, "--"])),
            contestant(&base, words(&fresh)),
        ];
        let rounds = rounds(1);
        let payload = payload.join(" ");
        println!(
            "{payload}: from spawn to exit, {rounds} rounds in turn, microseconds (goal: {GOAL} of a launch)"
        );
        println!("{}", measure::spread(&mut contestants, rounds)?);
    }
    Ok(())
}

const NAME: &str = "bench";

/// A box that stays until this goes.
struct Running {
    binary: PathBuf,
    scratch: TempDir,
}

impl Running {
    fn start(binary: PathBuf) -> Answer<Self> {
        let scratch = TempDir::with_prefix("cowork-bench.")?;
        let running = Self { binary, scratch };
        running.say(&["run", "-d", "-q", "--keep", "--name", NAME])?;
        Ok(running)
    }

    fn say(&self, words: &[&str]) -> Answer<()> {
        let mut command = Command::new(&self.binary);
        command.args(words);
        command.env("XDG_STATE_HOME", self.scratch.path());
        command.env("XDG_RUNTIME_DIR", self.scratch.path());
        match command.output()? {
            done if done.status.success() => Ok(()),
            failed => Err(String::from_utf8_lossy(&failed.stderr).into_owned().into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.say(&["rm", "-f", NAME]) {
            println!("the box of the bench may still be there: {error}");
        }
    }
}
