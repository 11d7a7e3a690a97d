//! What takes too much is ended or stopped and the limit is named, what keeps within bounds is left
//! alone.

use crate::support::{Ran, World};

const HUNGRY: &str = "
import sys, time
held = []
for _ in range(30):
    held.append(bytearray(10 << 20))
    time.sleep(0.02)
time.sleep(float(sys.argv[1]))
print('survived')
";

fn run(world: &World, flags: &[&str], program: &[&str]) -> Ran {
    let mut command = world.cowork();
    Ran::of(
        command
            .args(["run", "-q"])
            .args(flags)
            .arg("--")
            .args(program),
    )
}

#[test]
fn too_much_memory_ends_it_by_name_and_enough_does_not() {
    let world = World::new();
    let hungry = |limit: &str, seconds: &str| {
        run(
            &world,
            &["--memory", limit],
            &["python3", "-c", HUNGRY, seconds],
        )
    };
    // It is looked at from time to time, and there long enough to be seen.
    hungry("100M", "20")
        .failed_with(137)
        .complains("memory limit of 100 MiB reached");
    hungry("1G", "0").ok().says("survived");
}

#[test]
fn memory_is_that_of_all_processes_together() {
    let world = World::new();
    let many = "for i in 1 2 3 4 5 6; do \
                python3 -c 'import time; held = bytearray(40 << 20); time.sleep(8)' & done; wait";
    run(&world, &["--memory", "120M"], &["sh", "-c", many])
        .failed_with(137)
        .complains("memory limit of 120 MiB reached");
}

#[test]
fn processes_beyond_the_limit_are_refused() {
    let world = World::new();
    let bomb = "for i in $(seq 60); do sleep 5 & done 2>/dev/null; ls -d /proc/[0-9]* | wc -l";
    let limited = run(
        &world,
        &["--pids", "20", "--timeout", "8s"],
        &["bash", "-c", bomb],
    );
    let seen = limited.out.trim().parse::<u32>().unwrap_or(0);
    assert!(seen <= 24, "{limited:?}");
    let free = run(&world, &[], &["bash", "-c", bomb]).ok();
    assert!(free.out.trim().parse::<u32>().unwrap() > 60, "{free:?}");
}

#[test]
fn a_full_home_ends_it_by_name_and_leaves_the_shared_folder_alone() {
    let world = World::new();
    let mut command = world.cowork();
    let filler = "echo work > work.txt; dd if=/dev/zero of=$HOME/big bs=1M count=60 2>/dev/null; \
                  sleep 10; echo survived";
    command
        .args(["run", "-q", "--disk", "20M", "--mount"])
        .arg(world.work());
    Ran::of(command.args(["--", "sh", "-c", filler]))
        .failed_with(137)
        .complains("disk limit of 20 MiB reached");
    let work = std::fs::read_to_string(world.work().join("work.txt")).unwrap();
    assert_eq!(work, "work\n");
}

#[test]
fn an_idle_session_ends_by_name_and_a_busy_one_does_not() {
    let world = World::new();
    run(&world, &["--idle", "1s"], &["sleep", "30"])
        .failed_with(137)
        .complains("idle limit of 1s");
    let busy = "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done; echo done";
    run(&world, &["--idle", "1s"], &["sh", "-c", busy])
        .ok()
        .says("done");
}

#[test]
fn a_session_is_paused_resumed_and_given_other_limits() {
    let world = World::new();
    let does = |words: &[&str]| Ran::of(world.cowork().args(words));
    let count = "i=0; while :; do i=$((i+1)); echo $i > $HOME/count; done";
    does(&[
        "run", "-q", "-d", "--name", "it", "--memory", "400M", "--", "sh", "-c", count,
    ])
    .ok();
    let now = || {
        // Not there before its first round.
        let read = "cat /sessions/it/count 2>/dev/null || true";
        does(&["exec", "it", "--", "sh", "-c", read]).ok().out
    };
    while now().is_empty() {}
    does(&["pause", "it"]).ok();
    does(&["inspect", "it"]).ok().says("\"paused\": true");
    // Nothing runs, so nothing is counted: its processor time stands still.
    let used = || does(&["stats", "--json"]).ok().out;
    let before = used();
    assert_eq!(before, used());
    does(&["resume", "it"]).ok();
    let paused = now();
    while now() == paused {}
    does(&["limit", "it", "--memory", "500M"]).ok();
    does(&["limit", "it", "--memory", "1K"])
        .failed_with(1)
        .complains("is of no use");
    does(&["inspect", "it"]).ok().says("limits are held by");
    does(&["rm", "-f", "it"]).ok();
    does(&["run", "-q", "-d", "--name", "free", "--", "sleep", "60"]).ok();
    // One without limits can be paused as well, and get some.
    does(&["pause", "free"]).ok();
    does(&["inspect", "free"]).ok().says("\"paused\": true");
    does(&["resume", "free"]).ok();
    does(&["limit", "free", "--memory", "300M"]).ok();
    // What nobody can hold is not promised.
    does(&["limit", "free", "--io", "1M"])
        .failed_with(1)
        .complains("takes a cgroup");
    does(&["rm", "-f", "free"]).ok();
}

#[test]
fn what_cannot_be_held_is_refused_or_said() {
    let world = World::new();
    let ran = run(&world, &["--io", "1M"], &["true"]);
    if ran.code != 0 {
        ran.failed_with(125).complains("takes a cgroup");
    }
    run(&world, &["--memory", "3"], &["true"])
        .failed_with(125)
        .complains("at least 4 MiB");
    run(&world, &["--cpus", "none"], &["true"])
        .failed_with(125)
        .complains("not a number");
    let mut command = world.cowork();
    command.args(["run", "--memory", "100M", "--", "true"]);
    Ran::of(&mut command).ok().complains("limits are held by");
}
