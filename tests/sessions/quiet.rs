//! Callers that say nothing: those who want nothing make room, those who wait may wait for hours.
//! And a box that does not listen.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};

use crate::ground::{Ground, eventually};
use crate::hostile::{call, crowd, goes_on, hear, open_files, say};
use crate::support::{Ran, binary};
use crate::watch::{children, send};

const INSPECT: &[u8] = b"{\"ask\":\"inspect\"}";

#[test]
fn who_wants_nothing_is_let_go_and_who_waits_is_not() {
    let ground = Ground::new();
    let id = ground.start(
        &["--name", "s", "-i"],
        &["sh", "-c", "read line; echo $line"],
    );
    let supervisor = ground.supervisor(&id);
    let before = open_files(supervisor);
    // Those who are rightly quiet.
    let mut program = ground.spawn(&["exec", "-i", &id, "--", "cat"]);
    let mut following = ground.spawn(&["logs", "-f", &id]);
    let attached = call(&ground, &id);
    assert!(say(&attached, b"{\"ask\":\"attach\",\"input\":true}"));
    assert!(hear(&attached).contains("attached"));
    let script = "trap '' TERM; echo up; read line; true";
    ground.start(&["--name", "stubborn", "-i"], &["sh", "-c", script]);
    eventually("it does not listen to anybody", || {
        ground.say(&["logs", "stubborn"]).out == "up\n"
    });
    let stopping = call(&ground, "stubborn");
    assert!(say(&stopping, b"{\"ask\":\"stop\",\"grace_ms\":80000000}"));

    let silent = call(&ground, &id);
    let half = call(&ground, &id);
    assert!(say(&half, &INSPECT[..9]));
    let deaf = call(&ground, &id);
    assert!(say(&deaf, INSPECT));
    for (line, said) in [(silent, ""), (half, "refused"), (deaf, "seen")] {
        // What was answered is there; then the line is closed, without anybody asking for it.
        if !said.is_empty() {
            assert!(hear(&line).contains(said));
        }
        let mut byte = [0u8; 1];
        let end = recv(line.as_raw_fd(), &mut byte, MsgFlags::empty());
        assert_eq!(
            end,
            Ok(0),
            "it was let go, and not because the test was tired"
        );
    }
    // The others are there as on the first day.
    let mut to = program.stdin.take().unwrap();
    to.write_all(b"still here\n").unwrap();
    let mut from = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "still here\n");
    drop(to);
    assert_eq!(program.wait().unwrap().code(), Some(0));
    eventually("nothing of them is left", || {
        open_files(supervisor) <= before + 2
    });
    assert!(say(&attached, b"o\x00typed\n"));
    assert_eq!(hear(&attached), "o\x01typed\n");
    let typing = call(&ground, "stubborn");
    assert!(say(&typing, b"{\"ask\":\"attach\",\"input\":true}"));
    assert!(say(&typing, b"o\x00enough\n"));
    assert!(hear(&stopping).contains("done"), "told of the end at last");
    let mut line = String::new();
    let mut from = BufReader::new(following.stdout.take().unwrap());
    from.read_line(&mut line).unwrap();
    assert_eq!(line, "typed\n");
    assert_eq!(following.wait().unwrap().code(), Some(0));
}

/// A session that may have few files open takes fewer calls, and never so many that nobody could
/// end it.
#[test]
fn those_who_stay_leave_room_for_those_who_ask() {
    let ground = Ground::new();
    let mut command = Command::new("sh");
    ground.surround(&mut command);
    command
        .args(["-c", "ulimit -n 64; exec \"$@\"", "sh"])
        .arg(binary());
    command.args(["run", "-d", "-q", "--name", "s", "--", "sleep", "1000"]);
    Ran::of(&mut command).ok();
    let silent = crowd(&ground, "s", 40);
    eventually("somebody made room", || {
        ground.exec("s", &["true"]).code == 0
    });
    drop(silent);
    let attach = || {
        let line = call(&ground, "s");
        say(&line, b"{\"ask\":\"attach\",\"input\":false}");
        let said = hear(&line);
        (line, said)
    };
    let mut staying = Vec::new();
    eventually("it is full", || {
        let (line, said) = attach();
        let is_full = said.contains("too many are at work");
        assert!(
            is_full || said.contains("\"attached\"") || said.contains("too many"),
            "{said}"
        );
        staying.push(line);
        is_full
    });
    assert!(staying.len() >= 4);
    eventually("it can still be asked", || {
        ground.say(&["inspect", "s"]).out.contains("\"seen\"")
    });
    ground.say(&["stop", "-t", "0", "s"]).ok();
}

/// Its first process is stopped, as when it is paused or waits for a disk.
#[test]
fn a_box_that_does_not_listen_does_not_hold_its_supervisor_up() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let first = ground.first(&id);
    let mut program = ground.spawn(&["exec", "-i", &id, "--", "cat"]);
    eventually("it runs", || children(first).len() == 2);
    send(first, Signal::SIGSTOP);
    let line = call(&ground, &id);
    let mut refused = 0;
    for _ in 0..2000 {
        assert!(say(&line, b"{\"ask\":\"signal\",\"signal\":28}"));
        let said = hear(&line);
        assert!(!said.is_empty(), "the supervisor hangs");
        refused += usize::from(said.contains("does not answer"));
    }
    assert!(refused > 100, "its line was never full");
    ground
        .say(&["kill", "-s", "USR1", &id])
        .failed_with(1)
        .complains("is it paused?");
    ground
        .say(&["exec", &id, "--", "true"])
        .failed_with(125)
        .complains("is it paused?");
    let seen = ground.json(&["inspect", &id]);
    assert!(seen["seen"].is_object(), "{seen}");
    // Nobody can tell the program that its caller is gone, until the box listens again.
    program.kill().unwrap();
    program.wait().unwrap();
    ground.say(&["ls"]).ok().says("running");
    assert_eq!(children(first).len(), 2);
    send(first, Signal::SIGCONT);
    eventually("the program is ended", || children(first).len() == 1);
    goes_on(&ground, &id);
    send(first, Signal::SIGSTOP);
    ground.say(&["stop", "-t", "0", &id]).ok();
    assert_eq!(ground.state(&id), "ended");
}
