//! The last question is put to a real box: started by this program, looked at by this program
//! from within, and compared with what is promised.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landlock::{AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus};
use serde::{Deserialize, Serialize};

use super::child::{Tried, attempt, readable};
use super::evidence::{Evidence, field, word};
use super::namespaces::in_words;
use super::remedy::Remedy;
use super::{Row, State, Wanted};
use crate::sys::process::SingleThreaded;

const NAME: &str = "the box";
/// The box's own limit ends it cleanly; ours is for a launcher that hangs.
const BOX_LIMIT: &str = "15s";
const LIMIT: Duration = Duration::from_secs(20);
/// The kernel stacks this many Landlock layers and no more.
const MOST_LAYERS: i32 = 16;

/// What a process can find out about the walls around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    filters: u32,
    seccomp: u32,
    no_new_privileges: u32,
    /// Bounding, effective, permitted, inheritable and ambient, as the kernel writes them.
    capabilities: Vec<String>,
    namespaces: BTreeMap<String, String>,
    /// How many Landlock layers would still fit: the only trace those around us leave.
    landlock_room: i32,
}

/// Measures this process. Afterwards it carries Landlock layers, so it should end soon.
pub fn measure() -> io::Result<Measured> {
    let mut measured = without_landlock()?;
    measured.landlock_room = landlock_room();
    Ok(measured)
}

fn without_landlock() -> io::Result<Measured> {
    let status = fs::read_to_string("/proc/self/status")?;
    let sets = ["CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb"];
    let mut namespaces = BTreeMap::new();
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        if let Ok(link) = fs::read_link(format!("/proc/self/ns/{kind}")) {
            namespaces.insert(kind.to_owned(), link.display().to_string());
        }
    }
    Ok(Measured {
        seccomp: field(&status, "Seccomp").unwrap_or(0),
        // Older kernels do not count them.
        filters: field(&status, "Seccomp_filters").unwrap_or(0),
        no_new_privileges: field(&status, "NoNewPrivs").unwrap_or(0),
        capabilities: sets
            .iter()
            .filter_map(|name| word(&status, name))
            .map(str::to_owned)
            .collect(),
        namespaces,
        landlock_room: 0,
    })
}

fn landlock_room() -> i32 {
    let one_more = || -> Result<RulesetStatus, landlock::RulesetError> {
        let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        Ok(strict
            .handle_access(AccessFs::MakeSym)?
            .create()?
            .restrict_self()?
            .ruleset)
    };
    let fits = |_: &i32| matches!(one_more(), Ok(RulesetStatus::FullyEnforced));
    (0..MOST_LAYERS).take_while(fits).count() as i32
}

/// The same outside the box, in a child, because layers cannot be taken off again.
pub(super) fn landlock_room_here(proof: &SingleThreaded) -> i32 {
    match attempt(proof, 0, &|| Ok(landlock_room())) {
        Tried::Worked(room) => room,
        Tried::Failed { .. } => 0,
    }
}

/// What is promised and was not found.
fn missing(outside: &Measured, inside: &Measured, wanted: &Wanted) -> Vec<String> {
    let mut missing = Vec::new();
    let mut demand = |holds: bool, what: &str| {
        if !holds {
            missing.push(what.to_owned());
        }
    };
    let counted = outside.filters > 0 || inside.filters > 0;
    let filtered = inside.seccomp == 2 && (!counted || inside.filters > outside.filters);
    demand(filtered || !wanted.seccomp, "a system call filter");
    demand(inside.no_new_privileges == 1, "no_new_privs");
    let is_empty = |set: &String| !set.is_empty() && set.chars().all(|digit| digit == '0');
    // Without a namespace of its own an ordinary user's process cannot empty the bounding set,
    // which is the first; with no_new_privs and the others empty it gives nothing.
    let sets = inside
        .capabilities
        .iter()
        .skip(usize::from(!wanted.namespaces));
    let none = inside.capabilities.len() == 5 && sets.clone().all(is_empty);
    demand(none, "empty capability sets");
    let landlock = outside.landlock_room > 0 && !wanted.nesting;
    let stacked = inside.landlock_room < outside.landlock_room;
    demand(stacked || !landlock, "Landlock");
    for (kind, there) in &outside.namespaces {
        let own = inside
            .namespaces
            .get(kind)
            .is_some_and(|here| here != there);
        let asked = wanted.namespaces && (wanted.network || kind != "net");
        demand(own || !asked, &format!("a {kind} namespace of its own"));
    }
    missing
}

/// Starts the real box once.
pub(super) fn row(wanted: &Wanted, landlock_room: i32, evidence: &Evidence) -> Row {
    let outside = match without_landlock() {
        Ok(measured) => Measured {
            landlock_room,
            ..measured
        },
        Err(error) => {
            let found = format!("cannot read /proc/self/status: {}", in_words(&error));
            return Row::new(NAME, State::Missing, found, "/proc is needed");
        }
    };
    let look = [
        evidence.program.as_os_str(),
        "doctor".as_ref(),
        "--inside".as_ref(),
    ];
    match run(&look) {
        Err(error) => Row::new(
            NAME,
            State::Missing,
            format!("cannot be started: {}", in_words(&error)),
            "nothing could be tried",
        ),
        // This program may be unable to run in there, say because its file was replaced.
        Ok(Ended {
            code: Some(126 | 127),
            ..
        }) => judge_blindly(),
        Ok(ended) => judge(&ended, &outside, wanted),
    }
}

/// How the box ended, and what it said.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn judge(ended: &Ended, outside: &Measured, wanted: &Wanted) -> Row {
    let inside = serde_json::from_str::<Measured>(&ended.out);
    match (ended.code, inside) {
        (Some(0), Ok(inside)) => {
            let missing = missing(outside, &inside, wanted);
            if missing.is_empty() {
                let found = "started, and measured from inside: every promised wall stands";
                return Row::new(NAME, State::Good, found, &walls(outside, &inside));
            }
            let found = format!("started without {}", missing.join(", "));
            let means = "a promise is broken: do not rely on it";
            Row::new(NAME, State::Missing, found, means).fix(Remedy::say(
                "this is a bug in cowork-linux; report it with `cowork-linux doctor --json`",
            ))
        }
        (Some(125), _) => Row::new(
            NAME,
            State::Missing,
            format!("did not start: {}", in_short(&ended.err)),
            "`run` ends like this",
        ),
        (Some(124) | None, _) => Row::new(
            NAME,
            State::Missing,
            format!("did not end within {BOX_LIMIT}"),
            "`run` hangs",
        ),
        (Some(code), _) => Row::new(
            NAME,
            State::Weaker,
            format!("started, but could not be measured from inside (exit {code})"),
            "`run` works; its walls were not checked",
        ),
    }
}

/// Whether at least a shell runs in there.
fn judge_blindly() -> Row {
    match run(&["/bin/sh", "-c", ":"].map(OsStr::new)) {
        Ok(Ended { code: Some(0), .. }) => Row::new(
            NAME,
            State::Weaker,
            "started, but cowork-linux itself could not be run inside to measure it",
            "`run` works; its walls were not checked",
        )
        .fix(Remedy::say(
            "if the program was replaced while it ran, ask again; else install it below /usr/local",
        )),
        Ok(ended) => Row::new(
            NAME,
            State::Missing,
            format!("cannot run any program: {}", in_short(&ended.err)),
            "`run` ends like this",
        ),
        Err(error) => Row::new(
            NAME,
            State::Missing,
            format!("cannot be started: {}", in_words(&error)),
            "nothing could be tried",
        ),
    }
}

fn walls(outside: &Measured, inside: &Measured) -> String {
    let own = |(kind, there): &(&String, &String)| inside.namespaces.get(*kind) != Some(*there);
    let namespaces = outside.namespaces.iter().filter(own).count();
    let mut walls = vec![format!("{namespaces} namespaces of its own")];
    let mut tell = |there: bool, what: &str| walls.extend(there.then(|| what.to_owned()));
    tell(inside.landlock_room < outside.landlock_room, "Landlock");
    tell(inside.seccomp == 2, "seccomp");
    tell(true, "no capabilities");
    tell(true, "no new privileges");
    walls.join(", ")
}

/// "error: cannot x / because: y" on one line.
fn in_short(err: &str) -> String {
    let part = |name: &str| err.lines().find_map(|line| line.trim().strip_prefix(name));
    match (part("error: "), part("because: ")) {
        (Some(error), Some(because)) => format!("{error}: {because}"),
        (Some(error), None) => error.to_owned(),
        _ => err.lines().next().unwrap_or("no word").to_owned(),
    }
}

fn run(program: &[&OsStr]) -> io::Result<Ended> {
    let mut child = Command::new("/proc/self/exe")
        .arg0("cowork-linux")
        .args(["run", "-q", "--timeout", BOX_LIMIT, "--"])
        .args(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let heard = listen(&mut child);
    let code = match heard {
        Ok(_) => child.wait()?.code(),
        Err(_) => {
            let _ = child.kill();
            child.wait()?;
            None
        }
    };
    let (out, err) = heard.unwrap_or_default();
    Ok(Ended { code, out, err })
}

/// Both streams to their ends; what is said on either is far less than a pipe holds.
fn listen(child: &mut Child) -> io::Result<(String, String)> {
    let deadline = Instant::now() + LIMIT;
    let out = match child.stdout.take() {
        Some(stream) => whole(stream, deadline)?,
        None => String::new(),
    };
    let err = match child.stderr.take() {
        Some(stream) => whole(stream, deadline)?,
        None => String::new(),
    };
    Ok((out, err))
}

fn whole(mut stream: impl Read + std::os::fd::AsFd, deadline: Instant) -> io::Result<String> {
    const MOST: usize = 64 << 10;
    let (mut all, mut part) = (Vec::new(), [0u8; 4096]);
    while all.len() < MOST {
        if !readable(&stream, deadline)? {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        match stream.read(&mut part)? {
            0 => break,
            length => all.extend_from_slice(&part[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(filters: u32, capability: &str, namespace: &str, landlock_room: i32) -> Measured {
        let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
        let name = |kind: &str| (kind.to_owned(), format!("{kind}:[{namespace}]"));
        Measured {
            filters,
            seccomp: if filters > 0 { 2 } else { 0 },
            no_new_privileges: u32::from(filters > 0),
            capabilities: vec![capability.to_owned(); 5],
            namespaces: kinds.into_iter().map(name).collect(),
            landlock_room,
        }
    }

    #[test]
    fn a_whole_box_keeps_every_promise() {
        let (outside, inside) = (measured(0, "1ff", "1", 16), measured(1, "000", "2", 15));
        assert!(missing(&outside, &inside, &Wanted::EVERYTHING).is_empty());
    }

    #[test]
    fn every_wall_that_is_not_there_is_named() {
        let outside = measured(1, "1ff", "1", 15);
        let missing = missing(&outside, &outside, &Wanted::EVERYTHING);
        assert_eq!(missing.len(), 3 + 7, "{missing:?}");
        assert_eq!(missing[0], "a system call filter");
        assert!(missing.contains(&"a net namespace of its own".to_owned()));
    }

    #[test]
    fn the_hosts_network_is_no_broken_promise_when_it_was_asked_for() {
        let outside = measured(0, "1ff", "1", 16);
        let mut inside = measured(1, "000", "2", 15);
        inside.namespaces.insert("net".into(), "net:[1]".into());
        let wanted = Wanted {
            network: false,
            ..Wanted::EVERYTHING
        };
        assert!(missing(&outside, &inside, &wanted).is_empty());
        assert_eq!(missing(&outside, &inside, &Wanted::EVERYTHING).len(), 1);
    }

    #[test]
    fn a_failure_is_told_on_one_line() {
        let err = "error: cannot create namespaces\n  because: No space left\n  help: x\n";
        assert_eq!(in_short(err), "cannot create namespaces: No space left");
    }
}
