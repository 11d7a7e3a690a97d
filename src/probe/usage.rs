//! What a running box uses, read from /proc by whoever owns it.

use std::fs;

/// Sums over the processes of a box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub processes: u64,
    /// Bytes that are not shared with files.
    pub memory: u64,
    /// Clock ticks of processor time.
    pub ticks: u64,
}

impl Usage {
    pub fn seconds(&self) -> f64 {
        // The unit in which the kernel tells it, on every processor it is built for.
        self.ticks as f64 / 100.0
    }
}

/// What the process and all below it use; nothing when it is gone.
pub fn usage_of(first: i32) -> Option<Usage> {
    let mut usage = Usage::default();
    let mut waiting = vec![first];
    // More than any box may have.
    for _ in 0..100_000 {
        let Some(pid) = waiting.pop() else { break };
        let Some((memory, ticks)) = of_one(pid) else {
            continue;
        };
        usage.processes += 1;
        usage.memory += memory;
        usage.ticks += ticks;
        waiting.extend(children(pid));
    }
    (usage.processes > 0).then_some(usage)
}

fn of_one(pid: i32) -> Option<(u64, u64)> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = statm
        .split(' ')
        .skip(1)
        .map(|text| text.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next()?, pages.next()?);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after = &stat[stat.rfind(')')? + 2..];
    let mut fields = after
        .split(' ')
        .skip(11)
        .map(|text| text.parse::<u64>().unwrap_or(0));
    let ticks = fields.next()? + fields.next()?;
    Some((resident.saturating_sub(shared) * 4096, ticks))
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect()
}
