//! Many sessions beside each other; afterwards everything is as it was before.
//!
//! `COWORK_TEST_SESSIONS` says how many (40); `make sessions-test` takes 500.

use std::collections::BTreeSet;
use std::path::Path;

use crate::ground::Ground;

/// What a supervisor and the first process of a box may weigh together, in KB.
const GOAL: u64 = 2048;

/// What could be left behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    processes: Vec<i32>,
    mounts: usize,
    files: BTreeSet<String>,
    descriptors: usize,
}

impl Traces {
    fn of(ground: &Ground) -> Self {
        let here = ground.world.path("").display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut files = BTreeSet::new();
        below(
            &ground.world.path("state/cowork-linux/sessions"),
            &mut files,
        );
        below(&ground.world.path("run"), &mut files);
        below(&ground.world.path("w"), &mut files);
        Self {
            processes: ground.processes(),
            mounts: mounts.lines().filter(|line| line.contains(&here)).count(),
            files,
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }
}

fn below(folder: &Path, out: &mut BTreeSet<String>) {
    let Ok(list) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in list.flatten() {
        out.insert(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            below(&entry.path(), out);
        }
    }
}

/// Kilobytes that are a process's own, with its share of what it shares.
fn weight(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("Pss:"))?
        .to_owned();
    line.split_whitespace().nth(1)?.parse().ok()
}

fn in_parallel(names: &[String], work: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for part in names.chunks(names.len().div_ceil(4)) {
            let work = &work;
            scope.spawn(move || part.iter().for_each(|name| work(name)));
        }
    });
}

#[test]
#[allow(clippy::print_stdout)]
fn many_sessions_come_and_go_and_leave_nothing() {
    let count = std::env::var("COWORK_TEST_SESSIONS");
    let count: usize = count.map_or(40, |text| text.parse().unwrap());
    let ground = Ground::new();
    // Makes the folders that stay.
    ground.sleeper("first");
    ground.say(&["rm", "-f", "first"]).ok();
    let before = Traces::of(&ground);
    let names: Vec<_> = (0..count).map(|number| format!("s{number:04}")).collect();
    in_parallel(&names, |name| drop(ground.sleeper(name)));
    let list = ground.json(&["ls", "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), count);
    assert_eq!(ground.say(&["ls", "-q"]).ok().out.lines().count(), count);
    in_parallel(&names, |name| {
        assert_eq!(
            ground.exec_sh(name, "echo $COWORK_SESSION").ok().out,
            format!("{name}\n")
        );
    });
    let mut sum = 0;
    for known in list {
        for pid in [&known["record"]["supervisor"]["pid"], &known["seen"]["pid"]] {
            sum += weight(pid.as_i64().unwrap() as i32).unwrap_or(0);
        }
    }
    let each = sum / count as u64;
    println!(
        "{count} sessions: {each} KB each for the supervisor and the first process (goal: below {GOAL})"
    );
    // The goal is for the program that is shipped; one made for tests carries more, and few
    // sessions share less of it.
    let most = if count < 500 { 2 * GOAL } else { GOAL };
    assert!(each > 0 && each < most, "{each} KB each");
    in_parallel(&names, |name| drop(ground.say(&["stop", name]).ok()));
    assert_eq!(ground.say(&["ls", "-q"]).ok().out, "");
    in_parallel(&names, |name| drop(ground.say(&["rm", name]).ok()));
    crate::ground::eventually("the last one is gone", || ground.processes().is_empty());
    assert_eq!(Traces::of(&ground).files, before.files);
    assert_eq!(Traces::of(&ground).mounts, before.mounts);
    crate::ground::eventually("descriptors", || {
        Traces::of(&ground).descriptors <= before.descriptors + 8
    });
    assert_eq!(ground.say(&["ls", "-a", "-q"]).ok().out, "");
    assert_eq!(
        ground
            .json(&["history", "--json"])
            .as_array()
            .unwrap()
            .len(),
        count + 1
    );
}
