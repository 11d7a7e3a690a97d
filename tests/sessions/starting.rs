//! `run -d`: back at once, with the id, and nothing of the caller's held.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::ground::{Ground, timed};
use crate::support::Ran;
use crate::watch::until_closed;

#[test]
fn a_detached_session_gives_its_id_and_lets_the_callers_streams_go() {
    let ground = Ground::new();
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let (err_read, err_write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let (in_read, in_write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut command = ground.cowork();
    command
        .args(["run", "-d", "--mount"])
        .arg(ground.world.work());
    command.args(["--", "sleep", "1000"]);
    command.stdin(in_read).stdout(write).stderr(err_write);
    let (status, taken) = timed(|| command.status().unwrap());
    drop(command);
    assert!(status.success());
    assert!(taken < Duration::from_secs(5), "{taken:?}");
    // Each comes to its end only when nobody else has it.
    let id = until_closed(read, Duration::from_secs(3));
    until_closed(err_read, Duration::from_secs(3));
    let mut pipe = std::fs::File::from(in_write);
    let wrote = std::io::Write::write(&mut pipe, b"x");
    assert!(wrote.is_err(), "somebody still reads the caller's input");
    assert_eq!(ground.state(id.trim_end()), "running");
}

#[test]
fn a_command_substitution_returns_while_the_session_runs() {
    let ground = Ground::new();
    let mut shell = std::process::Command::new("timeout");
    shell.args(["10", "sh", "-c"]);
    shell.arg("id=$(\"$0\" run -d --mount \"$1\" -- sleep 1000 2>&1 | tail -1); echo \"<$id>\"");
    shell.arg(crate::support::binary()).arg(ground.world.work());
    ground.surround(&mut shell);
    let ran = Ran::of(&mut shell).ok();
    let id = ran.out.trim_matches(['<', '>', '\n']);
    assert_eq!(ground.state(id), "running", "{ran:?}");
}

#[test]
fn the_id_can_be_had_as_json() {
    let ground = Ground::new();
    let ran = ground
        .try_start(&["--json", "--name", "told"], &["sleep", "1000"])
        .ok();
    let said: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(said["session"], "told");
}

#[test]
fn the_exit_code_says_why_a_session_did_not_start() {
    let ground = Ground::new();
    let missing = ground.try_start(&[], &["/nonexistent"]).failed_with(127);
    let missing = missing.complains("cannot run /nonexistent");
    assert_eq!(missing.out, "");
    ground.world.write("w/plain", "no program");
    let plain = ground.try_start(&[], &["./plain"]).failed_with(126);
    plain.complains("not executable");
    let ran = ground.say(&["run", "-d", "-q", "--mount", "/nonexistent", "--", "true"]);
    ran.failed_with(125).complains("cannot mount /nonexistent");
    let long = "x".repeat(3 << 20);
    let ran = ground.try_start(&[], &["true", &long[..100_000]]).ok();
    assert!(!ran.out.is_empty());
}

/// Whoever reads the code must have been told by then: nothing comes after the prompt.
#[test]
fn what_went_wrong_is_said_before_the_caller_returns() {
    let ground = Ground::new();
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    for _ in 0..5 {
        let mut command = ground.bare();
        command
            .args(["run", "-d", "-q", "--mount"])
            .arg(ground.world.work());
        command.args(["--", "/nonexistent"]);
        command
            .stderr(write.try_clone().unwrap())
            .stdout(Stdio::null());
        assert_eq!(command.status().unwrap().code(), Some(127));
        let mut bytes = [0u8; 4096];
        let mut pipe = std::fs::File::from(read.try_clone().unwrap());
        let count = pipe.read(&mut bytes).unwrap_or(0);
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        assert!(text.contains("cannot run /nonexistent"), "only: {text:?}");
    }
}

#[test]
fn a_name_that_runs_is_not_started_again() {
    let ground = Ground::new();
    ground.sleeper("only");
    let again = ground.try_start(&["--name", "only"], &["true"]);
    again.failed_with(125).complains("only");
    assert_eq!(ground.state("only"), "running");
}

#[test]
fn of_several_that_want_one_name_at_once_one_gets_it() {
    let ground = Ground::new();
    let codes: Vec<_> = std::thread::scope(|scope| {
        let start = || {
            ground
                .try_start(&["--name", "one"], &["sleep", "1000"])
                .code
        };
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(
        codes.iter().filter(|code| **code == 0).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| **code == 125).count(),
        3,
        "{codes:?}"
    );
    ground.exec("one", &["true"]).ok();
}

#[test]
fn the_flags_of_the_background_ask_for_it() {
    let ground = Ground::new();
    for flag in ["--keep", "--tty", "-i"] {
        let ran = ground.say(&["run", "-q", flag, "--", "true"]);
        ran.failed_with(125).complains("--detach");
    }
}

#[test]
fn input_stays_open_only_when_asked_for() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "cat; echo over"]);
    ground.becomes(&id, "ended");
    assert_eq!(ground.say(&["logs", &id]).ok().out, "over\n");
    let id = ground.start(&["-i"], &["cat"]);
    assert_eq!(ground.state(&id), "running");
}

#[test]
fn every_name_that_can_be_given_can_be_used() {
    let ground = Ground::new();
    let long = format!("X{}", "y".repeat(127));
    let names = ["a", "a.sock", "a.5", "A", "Swift_keen.turing-2", &long];
    for name in names {
        ground.start(&["--keep", "--name", name], &[]);
    }
    for name in names {
        let said = ground
            .exec_sh(name, "echo $COWORK_SESSION; cd; pwd")
            .ok()
            .out;
        assert_eq!(said, format!("{name}\n/sessions/{name}\n"));
        let journal = std::fs::read_to_string(ground.journal(name)).unwrap();
        assert!(journal.contains("COWORK_SESSION"), "{name}: {journal}");
    }
    // A second one of that name is not started, however long it is.
    let again = ground.try_start(&["--keep", "--name", &long], &[]);
    again.failed_with(125).complains("running");
    let known = ground.say(&["ls", "-q"]).ok().out;
    assert_eq!(known.lines().count(), names.len(), "{known}");
    let sockets = std::fs::read_dir(ground.runtime()).unwrap().count();
    assert_eq!(sockets, names.len(), "nothing but their sockets");
    let supervisor = ground.supervisor(&long);
    let watch = crate::watch::Watch::over(&[supervisor]);
    crate::watch::send(supervisor, nix::sys::signal::Signal::SIGKILL);
    watch.all_gone();
    assert_eq!(ground.state(&long), "crashed");
    // What the killed one left is in nobody's way.
    ground.start(&["--keep", "--name", &long], &[]);
    for name in names {
        ground.say(&["stop", name]).ok();
        assert_eq!(ground.state(name), "ended");
    }
}
