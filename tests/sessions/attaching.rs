//! `attach` without a terminal: what is seen, and what a client that stalls costs.

use std::io::{BufRead, BufReader, Read, Write};

use nix::sys::signal::Signal;

use crate::ground::{Ground, eventually};
use crate::watch::send;

#[test]
fn one_sees_what_was_said_and_what_is_being_said() {
    let ground = Ground::new();
    let id = ground.start(
        &["-i"],
        &[
            "sh",
            "-c",
            "echo early; while read x; do echo late-$x; echo err >&2; done; exit 4",
        ],
    );
    eventually("it has spoken", || {
        ground.say(&["logs", &id]).out == "early\n"
    });
    let mut child = ground.spawn(&["attach", &id]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "early\n");
    child.stdin.as_mut().unwrap().write_all(b"1\n").unwrap();
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "late-1\n");
    let mut err = [0u8; 4];
    child.stderr.as_mut().unwrap().read_exact(&mut err).unwrap();
    assert_eq!(&err, b"err\n");
    ground.say(&["kill", "-s", "TERM", &id]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn whoever_only_looks_on_types_nothing() {
    let ground = Ground::new();
    let id = ground.start(&["-i"], &["sh", "-c", "echo up; read x; echo typed-$x"]);
    let mut child = ground.spawn(&["attach", "--no-stdin", &id]);
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"secret\n")
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0u8; 3]).unwrap();
    assert_eq!(ground.say(&["logs", &id]).ok().out, "up\n");
    // ^C of an onlooker is theirs alone.
    send(child.id() as i32, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(ground.state(&id), "running");
}

/// A burst of output is nothing special: whoever reads gets all of it.
#[test]
fn a_burst_reaches_whoever_reads() {
    let ground = Ground::new();
    let id = ground.start(
        &["-i"],
        &["sh", "-c", "echo up; read x; seq 1 300000; echo end"],
    );
    let mut child = ground.spawn(&["attach", &id]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut next = 1;
    for line in out.lines() {
        let line = line.unwrap();
        if line == "end" {
            break;
        }
        assert_eq!(line, next.to_string());
        next += 1;
    }
    assert_eq!(next, 300_001);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn one_that_stalls_holds_nobody_up_and_costs_little() {
    let ground = Ground::new();
    let script = "echo up; read x; head -c 100000000 /dev/zero; echo through >&2; exec sleep 1000";
    let id = ground.start(&["-i"], &["sh", "-c", script]);
    let mut stalled = ground.spawn(&["attach", &id]);
    stalled
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0u8; 3])
        .unwrap();
    let before = resident(ground.supervisor(&id));
    stalled.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    eventually("it got through", || {
        ground.say(&["logs", "--tail", "1", &id]).err == "through\n"
    });
    let after = resident(ground.supervisor(&id));
    assert!(
        after < before + 4096,
        "{before} KB before, {after} KB after"
    );
    ground.exec(&id, &["true"]).ok();
    // It was let go, and what it missed is in the log.
    let mut rest = Vec::new();
    stalled
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut rest)
        .unwrap();
    assert!(rest.len() < 4 << 20, "{}", rest.len());
    assert_ne!(stalled.wait().unwrap().code(), Some(0));
}

#[test]
fn a_reader_that_leaves_leaves_the_program_running() {
    let ground = Ground::new();
    let id = ground.start(
        &[],
        &["sh", "-c", "while :; do echo noise; sleep 0.01; done"],
    );
    for verb in [&["attach"][..], &["logs", "-f"]] {
        let mut child = ground.spawn(&[verb, &[&id]].concat());
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0u8; 6]).unwrap();
        drop(out);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{verb:?}");
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        assert!(!err.contains("error"), "{verb:?}: {err}");
    }
    assert_eq!(ground.state(&id), "running");
}

/// What is typed ahead of a program that does not read is bounded as well.
#[test]
fn typing_without_end_costs_little() {
    let ground = Ground::new();
    let id = ground.start(&["-i"], &["sleep", "1000"]);
    let before = resident(ground.supervisor(&id));
    let typed = vec![b'x'; 8 << 20];
    let mut command = ground.cowork();
    let ran = {
        let mut child = command
            .args(["attach", &id])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = child.stdin.take().unwrap();
        let _ = to.write_all(&typed);
        drop(to);
        let after = resident(ground.supervisor(&id));
        send(child.id() as i32, Signal::SIGTERM);
        child.wait().unwrap();
        after
    };
    assert!(ran < before + 4096, "{before} KB before, {ran} KB after");
    ground.exec(&id, &["true"]).ok();
}

/// Many who come and go leave nothing open.
#[test]
fn those_who_left_are_forgotten() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let supervisor = ground.supervisor(&id);
    let open = || {
        std::fs::read_dir(format!("/proc/{supervisor}/fd"))
            .unwrap()
            .count()
    };
    eventually("it is quiet", || {
        ground.json(&["inspect", &id])["id"] == "s"
    });
    let before = open();
    for _ in 0..10 {
        ground.exec(&id, &["true"]).ok();
        let mut child = ground.spawn(&["attach", &id]);
        send(child.id() as i32, Signal::SIGKILL);
        child.wait().unwrap();
    }
    eventually("all are forgotten", || open() <= before);
}

fn resident(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
