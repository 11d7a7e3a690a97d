//! What a command of Claude Desktop's costs through this helper, beside a helper in Node that starts a bubblewrap for
//! each, and what many bytes cost both. `make bench` runs it.
//!
//! `BENCH_ROUNDS` is the number of commands per row (300), `COWORK_BIN` the binary to measure, and
//! `COWORK_BENCH_BWRAP` the bwrap to compare with (/usr/bin/bwrap).
#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

#[allow(dead_code, reason = "the other benches use the rest")]
mod measure;

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowork_linux::service::client::{Client, ClientError, Events};
use measure::{Answer, Table, rounds};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a command may cost of one in a fresh bubblewrap.
const GOAL: f64 = 0.5;
const SESSION: &str = "bench-bench-bench";
const MEGABYTES: usize = 100;
/// Longer than anything takes; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Answer<()> {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/.build/cowork-linux");
    let binary = env::var("COWORK_BIN").unwrap_or_else(|_| built.to_owned());
    let binary = fs::canonicalize(&binary)
        .map_err(|error| format!("there is no {binary} to measure: {error}"))?;
    let daemon = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/desktop/daemon.js");
    let kinds = [
        Kind {
            name: "this helper",
            argv: vec![
                binary
                    .into_os_string()
                    .into_string()
                    .map_err(|_| "the binary's name is no text")?,
                "helper".into(),
            ],
        },
        Kind {
            name: "Node, bwrap for each",
            argv: vec!["node".into(), daemon.into()],
        },
    ];
    for script in ["true", "ls -la && wc -c file"] {
        round_trips(&kinds, script)?;
    }
    println!(
        "{MEGABYTES} MB of output: one that reads, and with another that never does beside it"
    );
    let mut table = Table::new(&["", "MB/s", "most memory, MB", "with one stalled, MB"]);
    for kind in &kinds {
        let (speed, most) = Helper::start(kind)?.much(false)?;
        let (_, stalled) = Helper::start(kind)?.much(true)?;
        table.row([
            kind.name.to_owned(),
            format!("{speed:.0}"),
            format!("{:.1}", most as f64 / 1024.0),
            format!("{:.1}", stalled as f64 / 1024.0),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// From the call to the event of its end, one command of each in turn.
fn round_trips(kinds: &[Kind], script: &str) -> Answer<()> {
    let mut helpers = Vec::new();
    for kind in kinds {
        let mut helper = Helper::start(kind)?;
        helper.one_shot(script)?; // the first makes the session
        helpers.push(helper);
    }
    let rounds = rounds(1);
    let mut times = vec![Vec::with_capacity(rounds); helpers.len()];
    let mut alone = Vec::with_capacity(rounds);
    for round in 0..rounds {
        alone.push(helpers[0].alone(script)?.as_secs_f64() * 1e6);
        for turn in 0..helpers.len() {
            let who = (round + turn) % helpers.len();
            times[who].push(helpers[who].one_shot(script)?.as_secs_f64() * 1e6);
        }
    }
    alone.sort_by(f64::total_cmp);
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let at = |times: &[f64], part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    let base = times.last().map_or(f64::NAN, |times| at(times, 0.5));
    println!(
        "bash -c '{script}': from spawn to its exit event, {rounds} rounds in turn, microseconds (goal: {GOAL})"
    );
    let mut table = Table::new(&["", "min", "p25", "median", "p99", "/ base"]);
    // What nobody can be faster than.
    let alone = std::iter::once(("the command alone", &alone));
    let helped = kinds.iter().map(|kind| kind.name).zip(&times);
    for (name, times) in helped.chain(alone) {
        table.row([
            name.to_owned(),
            format!("{:.0}", at(times, 0.0)),
            format!("{:.0}", at(times, 0.25)),
            format!("{:.0}", at(times, 0.5)),
            format!("{:.0}", at(times, 0.99)),
            format!("{:.3}", at(times, 0.5) / base),
        ]);
    }
    println!("{table}");
    Ok(())
}

struct Kind {
    name: &'static str,
    argv: Vec<String>,
}

/// A helper as the app has it: a child, a line for calls, and one for events.
struct Helper {
    child: Child,
    calls: Client,
    /// Until somebody else listens in its place.
    events: Option<Events>,
    asked: u64,
    scratch: TempDir,
}

impl Helper {
    fn start(kind: &Kind) -> Answer<Self> {
        let scratch = TempDir::with_prefix("cowork-bench.")?;
        for folder in ["run", "home", "proj"] {
            fs::create_dir(scratch.path().join(folder))?;
        }
        fs::set_permissions(
            scratch.path().join("run"),
            fs::Permissions::from_mode(0o700),
        )?;
        fs::write(scratch.path().join("proj/file"), "x")?;
        let socket = scratch.path().join("run/helper.sock");
        let mut command = Command::new(&kind.argv[0]);
        command.args(&kind.argv[1..]).arg("-socket").arg(&socket);
        command
            .env("HOME", scratch.path().join("home"))
            .env("XDG_RUNTIME_DIR", scratch.path().join("run"))
            .env("XDG_STATE_HOME", scratch.path().join("home/state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(fs::File::create(scratch.path().join("log"))?);
        let mut child = command
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", kind.argv[0]))?;
        let connected = connect(&socket, &mut child).and_then(|mut calls| {
            let events = Client::connect(&socket)?.subscribe(json!({}), PATIENCE)?;
            calls.ask("configure", json!({}), PATIENCE)?;
            calls.ask("startVM", json!({}), PATIENCE)?;
            Ok((calls, events))
        });
        match connected {
            Ok((calls, events)) => Ok(Self {
                child,
                calls,
                events: Some(events),
                asked: 0,
                scratch,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                let log = fs::read_to_string(scratch.path().join("log"))?;
                Err(format!("{error}; it said: {log}").into())
            }
        }
    }

    /// Starts a command; its number.
    fn spawn(&mut self, script: &str) -> Answer<String> {
        self.asked += 1;
        let id = format!("oneshot-{}", self.asked);
        spawn(&mut self.calls, &self.scratch, &id, script, self.asked > 1)?;
        Ok(id)
    }

    /// The same without a helper and without a box.
    fn alone(&self, script: &str) -> Answer<Duration> {
        let start = Instant::now();
        let ended = Command::new("bash")
            .args(["-c", script])
            .current_dir(self.scratch.path().join("proj"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        match ended.success() {
            true => Ok(start.elapsed()),
            false => Err("the command fails by itself".into()),
        }
    }

    fn one_shot(&mut self, script: &str) -> Answer<Duration> {
        let start = Instant::now();
        let id = self.spawn(script)?;
        self.until_exit(&id)?;
        Ok(start.elapsed())
    }

    fn until_exit(&mut self, id: &str) -> Answer<()> {
        loop {
            let events = self.events.as_mut().ok_or("nobody listens")?;
            let event = events.next(PATIENCE)?.ok_or("no event for a minute")?;
            if event["id"] != id {
                continue;
            }
            match event["type"].as_str() {
                Some("exit") if event["exitCode"] == 0 => return Ok(()),
                Some("exit" | "error") => return Err(format!("the command failed: {event}").into()),
                Some("stderr") => return Err(complaint(&event)),
                _ => {}
            }
        }
    }

    /// Megabytes in a second, and the kilobytes that the helper had at most meanwhile.
    fn much(&mut self, with_one_stalled: bool) -> Answer<(f64, u64)> {
        let socket = self.scratch.path().join("run/helper.sock");
        // Subscribes, and reads nothing from then on.
        let stalled = match with_one_stalled {
            true => Some(Client::connect(&socket)?.subscribe(json!({}), PATIENCE)?),
            false => None,
        };
        self.one_shot("true")?;
        // It reads as the others do, but what it reads is counted and not looked into: this side is compiled
        // without optimisation, and would be what is measured.
        let mut counted = Counted::subscribe(&socket)?;
        self.events = None;
        let start = Instant::now();
        let bytes = MEGABYTES * 1_000_000;
        let script = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        self.asked += 1;
        let id = format!("oneshot-{}", self.asked);
        spawn(&mut self.calls, &self.scratch, &id, &script, true)?;
        let came = counted.until_exit()?;
        let taken = start.elapsed().as_secs_f64();
        drop(stalled);
        // What surrounds the bytes in each event comes on top.
        if came < bytes || came > bytes + bytes / 10 {
            return Err(format!("{came} bytes came instead of {bytes}").into());
        }
        let most = most_memory(self.child.id()).ok_or("the helper's memory cannot be read")?;
        Ok((MEGABYTES as f64 / taken, most))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.calls.ask("stopVM", json!({}), PATIENCE);
        // The end of its standard input is the end of the app.
        drop(self.child.stdin.take());
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("a helper did not end with its app");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command.
fn spawn(
    calls: &mut Client,
    scratch: &TempDir,
    id: &str,
    script: &str,
    is_resume: bool,
) -> Answer<()> {
    let folder = scratch.path().join("proj");
    let folder = folder
        .to_str()
        .ok_or("the scratch folder's name is no text")?;
    let spawn = json!({
        "id": id,
        "name": SESSION,
        "command": "bash",
        "args": ["-c", script],
        "cwd": format!("/sessions/{SESSION}/mnt/proj"),
        "isResume": is_resume,
        "additionalMounts": { "proj": { "path": folder.trim_start_matches('/'), "mode": "rw" } },
        "allowedDomains": [],
        "oneShot": false,
    });
    let answer = calls.ask("spawn", spawn, PATIENCE)?;
    match answer["failedMounts"].as_array() {
        Some(failed) if !failed.is_empty() => Err(format!("not mounted: {failed:?}").into()),
        _ => Ok(()),
    }
}

/// A subscriber that counts.
struct Counted {
    stream: UnixStream,
    buffer: Vec<u8>,
    held: usize,
}

impl Counted {
    fn subscribe(socket: &Path) -> Answer<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let ask = json!({ "method": "subscribeEvents", "params": {}, "id": 1 }).to_string();
        stream.write_all(&u32::try_from(ask.len())?.to_be_bytes())?;
        stream.write_all(ask.as_bytes())?;
        let mut counted = Self {
            stream,
            buffer: vec![0; 4 << 20],
            held: 0,
        };
        // Its answer.
        while counted.next()?.is_none() {}
        Ok(counted)
    }

    /// The next frame's place in the buffer, which is read on when there is none whole.
    fn next(&mut self) -> Answer<Option<Vec<u8>>> {
        let length = match self.buffer[..self.held].first_chunk::<4>() {
            Some(length) => 4 + u32::from_be_bytes(*length) as usize,
            None => usize::MAX,
        };
        if length <= self.held {
            let frame = self.buffer[4..length].to_vec();
            self.buffer.copy_within(length..self.held, 0);
            self.held -= length;
            return Ok(Some(frame));
        }
        match self.stream.read(&mut self.buffer[self.held..])? {
            0 => Err("the helper is gone".into()),
            more => {
                self.held += more;
                Ok(None)
            }
        }
    }

    /// The bytes of everything that came until a command ended.
    fn until_exit(&mut self) -> Answer<usize> {
        let mut bytes = 0;
        loop {
            if let Some(frame) = self.next()? {
                // Only an end is that short.
                if frame.len() < 200 && frame.starts_with(br#"{"type":"exit""#) {
                    return Ok(bytes);
                }
                bytes += frame.len();
            }
        }
    }
}

fn complaint(event: &Value) -> Box<dyn std::error::Error> {
    format!("the command complained: {}", event["data"]).into()
}

/// Waits for the socket as the app does, and not longer than for a helper that is alive.
fn connect(socket: &Path, child: &mut Child) -> Answer<Client> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Client::connect(socket) {
            Err(ClientError::Nobody(_, error)) if Instant::now() < until => {
                if let Some(status) = child.try_wait()? {
                    return Err(format!("the helper ended: {status}").into());
                }
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return Ok(other?),
        }
    }
}

/// Kilobytes.
fn most_memory(pid: u32) -> Option<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
