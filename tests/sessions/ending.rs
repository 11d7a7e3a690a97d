//! `stop` and `kill`.

use std::time::Duration;

use crate::ground::{Ground, eventually, timed};
use crate::watch::{Watch, descendants};

#[test]
fn stop_asks_first() {
    let ground = Ground::new();
    let script = "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.05; done";
    let id = ground.start(&[], &["sh", "-c", script]);
    eventually("it is up", || ground.say(&["logs", &id]).out == "up\n");
    let ran = ground.say(&["stop", &id]).ok();
    assert_eq!(ran.out, format!("{id}\n"));
    assert_eq!(ground.state(&id), "ended");
    assert_eq!(ground.say(&["logs", &id]).ok().out, "up\nasked\n");
    let json = ground.json(&["inspect", &id]);
    assert_eq!(json["record"]["outcome"]["exited"], 5, "{json}");
}

#[test]
fn stop_insists_after_the_time_it_was_given() {
    let ground = Ground::new();
    let script = "trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done";
    let id = ground.start(&[], &["sh", "-c", script]);
    eventually("it is up", || ground.say(&["logs", &id]).out == "up\n");
    let watch = Watch::over(&descendants(ground.supervisor(&id)));
    let (ran, taken) = timed(|| ground.say(&["stop", "-t", "1", &id]));
    ran.ok();
    assert!(
        taken >= Duration::from_millis(950) && taken < Duration::from_secs(8),
        "{taken:?}"
    );
    watch.all_gone();
    ground.say(&["ls", "-a"]).ok().says("ended 137");
}

#[test]
fn a_supervisor_that_is_told_to_end_takes_an_empty_box_along() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let supervisor = ground.supervisor(&id);
    let watch = Watch::over(&descendants(supervisor));
    let pid = nix::unistd::Pid::from_raw(supervisor);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    watch.all_gone();
    eventually("it has ended", || ground.state(&id) == "ended");
}

#[test]
fn a_box_that_stays_is_stopped_with_all_that_runs_in_it() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &["true"]);
    let mut caller = ground.spawn(&["exec", &id, "--", "sh", "-c", "echo up; exec sleep 1000"]);
    std::io::Read::read_exact(&mut caller.stdout.take().unwrap(), &mut [0u8; 3]).unwrap();
    let watch = Watch::over(&descendants(ground.supervisor(&id)));
    let (ran, taken) = timed(|| ground.say(&["stop", &id]));
    ran.ok();
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    watch.all_gone();
    assert_ne!(caller.wait().unwrap().code(), Some(0));
    assert_eq!(ground.state(&id), "ended");
}

#[test]
fn stop_of_one_that_does_not_run_says_so() {
    let ground = Ground::new();
    let id = ground.start(&[], &["true"]);
    ground.becomes(&id, "ended");
    ground
        .say(&["stop", &id])
        .failed_with(1)
        .complains("it is not running");
    ground
        .say(&["kill", &id])
        .failed_with(1)
        .complains("it is not running");
}

#[test]
fn several_who_stop_the_same_one_all_hear_of_the_end() {
    let ground = Ground::new();
    ground.sleeper("a");
    std::thread::scope(|scope| {
        let stop = || ground.say(&["stop", "a"]);
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(stop)).collect();
        for run in runs {
            let ran = run.join().unwrap();
            assert!(
                ran.code == 0 || ran.err.contains("it is not running"),
                "{ran:?}"
            );
        }
    });
    assert_eq!(ground.state("a"), "ended");
}

#[test]
fn several_are_stopped_in_one_go() {
    let ground = Ground::new();
    ground.sleeper("a");
    ground.sleeper("b");
    assert_eq!(ground.say(&["stop", "a", "b"]).ok().out, "a\nb\n");
    assert_eq!(ground.say(&["ls", "-q"]).ok().out, "");
}

#[test]
fn kill_sends_the_signal_it_is_told() {
    let ground = Ground::new();
    let script = "trap 'echo usr1' USR1; trap 'exit 9' HUP; echo up; while :; do sleep 0.05; done";
    let id = ground.start(&[], &["sh", "-c", script]);
    eventually("it is up", || ground.say(&["logs", &id]).out == "up\n");
    ground.say(&["kill", "-s", "USR1", &id]).ok();
    eventually("it was told", || {
        ground.say(&["logs", &id]).out == "up\nusr1\n"
    });
    ground.say(&["kill", "-s", "sigusr1", &id]).ok();
    ground
        .say(&["kill", "-s", "NOPE", &id])
        .failed_with(1)
        .complains("`NOPE` is not a signal");
    for odd in ["0", "-1", "99", "65", ""] {
        ground
            .say(&["kill", &format!("--signal={odd}"), &id])
            .failed_with(1);
    }
    assert_eq!(ground.state(&id), "running");
    ground.say(&["kill", "-s", "1", &id]).ok();
    ground.becomes(&id, "ended");
    ground.say(&["ls", "-a"]).ok().says("exited 9");
    let id = ground.sleeper("plain");
    ground.say(&["kill", &id]).ok();
    ground.becomes(&id, "ended");
    ground.say(&["ls", "-a"]).ok().says("ended 137");
}

/// They are asked as the session's own program is, and have as long.
#[test]
fn programs_in_a_box_that_stays_are_asked_before_they_are_ended() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let script = "trap 'sleep 0.3; exit 5' TERM; echo up; while :; do sleep 0.05; done";
    let mut caller = ground.spawn(&["exec", &id, "--", "sh", "-c", script]);
    std::io::Read::read_exact(&mut caller.stdout.take().unwrap(), &mut [0u8; 3]).unwrap();
    ground.say(&["stop", &id]).ok();
    assert_eq!(caller.wait().unwrap().code(), Some(5));
    assert_eq!(ground.state(&id), "ended");
}

/// A program that came later is ended with the first one; its caller does not hear of success.
#[test]
fn an_exec_that_the_end_of_the_session_cut_short_did_not_succeed() {
    let ground = Ground::new();
    let id = ground.start(&["-i"], &["sh", "-c", "read x; exit 0"]);
    let mut caller = ground.spawn(&["exec", &id, "--", "sh", "-c", "echo up; exec sleep 1000"]);
    std::io::Read::read_exact(&mut caller.stdout.take().unwrap(), &mut [0u8; 3]).unwrap();
    let typed = crate::ground::fed(ground.cowork().args(["attach", &id]), b"x\n");
    assert_eq!(typed.status.code(), Some(0));
    assert_eq!(caller.wait().unwrap().code(), Some(128 + 9));
}

/// Nothing is there that a signal could go to; whoever sends one has to hear of it.
#[test]
fn kill_of_an_empty_box_is_not_silently_nothing() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let ran = ground.say(&["kill", &id]);
    assert!(ran.code != 0 || ground.state(&id) != "running", "{ran:?}");
}

#[test]
fn a_time_limit_ends_a_session_in_the_background() {
    let ground = Ground::new();
    let id = ground.start(&["--timeout", "1s"], &["sleep", "1000"]);
    ground.becomes(&id, "ended");
    ground.say(&["ls", "-a"]).ok().says("ended 124");
}

/// What was said last is in the log, however quickly the program ends after it.
#[test]
fn the_last_words_of_a_program_are_kept() {
    let ground = Ground::new();
    for _ in 0..3 {
        let id = ground.start(
            &[],
            &[
                "sh",
                "-c",
                "head -c 200000 /dev/zero | tr '\\0' x; echo end",
            ],
        );
        ground.becomes(&id, "ended");
        let out = ground.say(&["logs", &id]).ok().out;
        assert_eq!(out.len(), 200_004);
        assert!(out.ends_with("xend\n"));
    }
}
