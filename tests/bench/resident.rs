//! What stays beside the payload while a box is up, and how often a launch asks the kernel.

use crate::measure::{Answer, Contestant};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

/// Memory and number of the tool's own processes next to the payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    pub(crate) kilobytes: u64,
    pub(crate) processes: usize,
}

/// Starts a box around an echoing payload and looks at it while it waits. Nothing when the kernel does not
/// let us read.
pub(crate) fn beside_payload(echo: &mut Contestant) -> Answer<Option<Beside>> {
    let mut launcher = echo
        .command()?
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut to = launcher.stdin.take().ok_or("no pipe to the payload")?;
    let from = launcher.stdout.take().ok_or("no pipe from the payload")?;

    // The line comes back only when the box is up.
    to.write_all(b"up\n")?;
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line)?;
    let tree = descendants(launcher.id())?;
    let ours = tree
        .iter()
        .filter(|process| process.name != "busybox" && process.name != "cat");
    let sizes: Option<Vec<u64>> = ours.map(|process| proportional_size(process.id)).collect();

    drop(to); // ends the payload, and with it the box
    launcher.wait()?;
    Ok(sizes.map(|sizes| Beside {
        kilobytes: sizes.iter().sum(),
        processes: sizes.len(),
    }))
}

struct Process {
    id: u32,
    name: String,
}

/// A process and all below it.
fn descendants(root: u32) -> Answer<Vec<Process>> {
    let mut names = HashMap::new();
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // "id (name) state parent ...", where the name may hold anything.
        let Some((start, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let Some((_, name)) = start.split_once(" (") else {
            continue;
        };
        let parent = rest
            .split(' ')
            .nth(1)
            .and_then(|parent| parent.parse().ok())
            .unwrap_or(0);
        names.insert(id, name.to_owned());
        children.entry(parent).or_default().push(id);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        open.extend(children.remove(&id).unwrap_or_default());
        found.push(Process {
            id,
            name: names.remove(&id).unwrap_or_default(),
        });
    }
    Ok(found)
}

/// Kilobytes, pages that are shared counted in part. A process that hides itself shows only what
/// `statm` tells everybody; there the pages of its own are counted, which is less by its part of
/// the shared ones.
fn proportional_size(id: u32) -> Option<u64> {
    let Ok(text) = fs::read_to_string(format!("/proc/{id}/smaps_rollup")) else {
        let text = fs::read_to_string(format!("/proc/{id}/statm")).ok()?;
        let mut pages = text
            .split_whitespace()
            .skip(1)
            .map_while(|word| word.parse::<u64>().ok());
        let (resident, shared) = (pages.next()?, pages.next()?);
        return Some(resident.saturating_sub(shared) * 4);
    };
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// System calls of a launch, payload included. Nothing without strace.
pub(crate) fn system_calls(launch: &mut Contestant) -> Answer<Option<u64>> {
    let plain = launch.command()?;
    let report = tempfile::NamedTempFile::new()?;
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-qq", "-o"]).arg(report.path());
    strace.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        strace.env(name, value.unwrap_or_default());
    }
    let Ok(output) = strace.stdin(Stdio::null()).output() else {
        return Ok(None);
    };
    if !output.status.success() {
        return Ok(None);
    }
    // The last line: "100.00 0.001 5 222 12 total".
    let text = fs::read_to_string(report.path())?;
    let total = text.lines().rfind(|line| line.ends_with("total"));
    Ok(total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()))
}
