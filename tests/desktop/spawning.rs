//! Programs: how they start, how they end, and how they are ended (S1 to S11, S17 to S23).

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::json;

use crate::ground::{Ground, eventually, mount, with, within};

/// The processes of a session whose command line has this in it, as the session sees them.
#[track_caller]
fn counted(ground: &Ground, text: &str) -> u32 {
    let mut app = ground.app();
    // Not itself: what it looks for is not written there.
    let script = "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p 2>/dev/null; echo; done";
    let id = format!("count-{}", crate::ground::fresh());
    let all = app.run(ground.sh(&id, script)).ok();
    all.lines().filter(|line| line.contains(text)).count() as u32
}

#[test]
fn s1_streams_and_the_end() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let done = app.run(ground.sh("a", "echo out; echo err >&2; exit 3"));
    assert_eq!((done.out.as_str(), done.err.as_str()), ("out\n", "err\n"));
    let exit = done.exit.clone().unwrap();
    let expected = json!({
        "type": "exit", "id": "a", "exitCode": 3, "signal": null, "oomKillCount": 0,
    });
    assert_eq!(exit, expected);
}

#[test]
fn s2_s3_what_cannot_be_started_is_an_error_and_no_event() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let put = |name: &str, content: &[u8], mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    put("closed", b"#!/bin/sh\necho ran\n", 0o644);
    put(
        "apple",
        b"\xcf\xfa\xed\xfe\x07\x00\x00\x01\x03\x00\x00\x00",
        0o755,
    );
    put("orphan", b"#!/no/such/interpreter\n", 0o755);
    put("fine", b"#!/bin/sh\necho fine $1\n", 0o755);
    let mounts = json!({"w": mount(&folder, "ro")});
    let of = |name: &str| {
        let command = match name {
            "no-such-program" => name.to_owned(),
            name => ground.inside(&format!("mnt/w/{name}")),
        };
        let more = json!({"command": command, "args": ["x"], "additionalMounts": mounts});
        with(ground.sh(name, ""), more)
    };
    let mut said = Vec::new();
    for name in ["no-such-program", "closed", "apple", "orphan"] {
        let why = app.line.refused("spawn", of(name));
        assert!(why.contains(name), "{why}");
        let running = app.line.ok("isProcessRunning", json!({"id": name}));
        assert_eq!(running, json!({"running": false}));
        said.push(why.replace(name, ""));
    }
    assert!(said[0].contains("not found"), "{said:?}");
    said.sort();
    said.dedup();
    assert_eq!(said.len(), 4, "each is another trouble: {said:?}");
    app.events.listen(Duration::from_millis(300));
    for name in ["no-such-program", "closed", "apple", "orphan"] {
        assert!(!app.events.knows(name), "{name}");
    }
    assert_eq!(app.run(of("fine")).ok(), "fine x\n");
}

#[test]
fn s4_s5_s6_ids() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let mut nameless = ground.sh("", "echo nameless");
    nameless.as_object_mut().unwrap().remove("id");
    let result = app.line.ok("spawn", nameless);
    let id = result["id"].as_str().expect("an id").to_owned();
    assert!(!id.is_empty());
    assert_eq!(app.events.finished(&id).ok(), "nameless\n");

    app.line
        .spawn(ground.sh("x", "read word; echo $word; sleep 1000"));
    let why = app.line.refused("spawn", ground.sh("x", "echo second"));
    assert!(why.contains("already running"), "{why}");
    app.line
        .ok("writeStdin", json!({"id": "x", "data": "unharmed\n"}));
    app.events.says("x", "unharmed\n");
    app.line.ok("kill", json!({"id": "x", "signal": "SIGTERM"}));
    app.events.finished("x").ended(143, Some("SIGTERM"));
    assert_eq!(app.run(ground.sh("x", "echo third")).ok(), "third\n");
}

#[test]
fn s7_s8_a_kill_reaches_all_that_was_started() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line
        .ok("kill", json!({"id": "nobody", "signal": "SIGTERM"}));
    app.line
        .spawn(ground.sh("k", "echo up; sleep 300 & sleep 300; true"));
    app.line.spawn(ground.sh("other", "echo up; sleep 301"));
    app.events.says("k", "up");
    app.events.says("other", "up");
    eventually("both sleep", || counted(&ground, "sleep 300") == 3);
    within(3, "a reply", || {
        app.line.ok("kill", json!({"id": "k", "signal": "SIGTERM"}));
    });
    within(8, "the end", || app.events.finished("k")).ended(143, Some("SIGTERM"));
    eventually("none sleeps", || counted(&ground, "sleep 300") == 0);
    // Nobody else's.
    assert!(counted(&ground, "sleep 301") > 0);
    app.line.ok("kill", json!({"id": "k", "signal": "SIGTERM"}));
}

#[test]
fn s8_nobody_escapes_a_kill_by_a_session_of_its_own() {
    let ground = Ground::booted();
    let mut app = ground.app();
    // Whoever has left its session and lost its parent too cannot be told from a job that is to survive.
    let script = "setsid sleep 302 & setsid sh -c 'sleep 303 & sleep 303; true' & \
                  nohup sh -c 'trap \"\" TERM; sleep 304' & echo up; wait; sleep 305";
    app.line.spawn(ground.sh("k", script));
    app.events.says("k", "up");
    eventually("all sleep", || counted(&ground, "sleep 303") >= 2);
    app.line.ok("kill", json!({"id": "k", "signal": "SIGKILL"}));
    app.events.finished("k").ended(137, Some("SIGKILL"));
    for number in 302..=305 {
        eventually("none sleeps", || {
            counted(&ground, &format!("sleep {number}")) == 0
        });
    }
}

#[test]
fn s8_nobody_is_born_unseen_while_it_is_killed() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for round in 0..15 {
        let id = format!("oneshot-{round}");
        // It is killed while it starts others.
        app.line.spawn(ground.sh(
            &id,
            "echo up; for i in $(seq 40); do sleep 306 & done; wait",
        ));
        app.events.says(&id, "up");
        app.line.ok("kill", json!({"id": id, "signal": "SIGTERM"}));
        app.events.finished(&id).ended(143, Some("SIGTERM"));
    }
    eventually("none sleeps", || counted(&ground, "sleep 306") == 0);
}

#[test]
fn s9_who_does_not_listen_is_ended() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let stubborn = "trap '' TERM INT; echo up; while :; do sleep 1; done";
    app.line.spawn(ground.sh("oneshot-1", stubborn));
    app.events.says("oneshot-1", "up");
    app.line
        .ok("kill", json!({"id": "oneshot-1", "signal": "SIGTERM"}));
    let done = within(15, "the end", || app.events.finished("oneshot-1"));
    done.ended(137, Some("SIGKILL"));
}

#[test]
fn s10_s11_signals_by_any_name_and_twice() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for (at, signal) in [
        json!("TERM"),
        json!("sigterm"),
        json!("15"),
        json!(15),
        json!(null),
        json!("SIGFOO"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("p{at}");
        app.line.spawn(ground.sh(&id, "echo up; sleep 300"));
        app.events.says(&id, "up");
        let mut params = json!({"id": id, "signal": signal});
        if signal.is_null() {
            params.as_object_mut().unwrap().remove("signal");
        }
        app.line.ok("kill", params);
        app.events.finished(&id).ended(143, Some("SIGTERM"));
    }
    for (signal, code, name) in [
        ("SIGINT", 130, "SIGINT"),
        ("usr1", 138, "SIGUSR1"),
        ("HUP", 129, "SIGHUP"),
    ] {
        let program = json!({"command": "sleep", "args": ["300"]});
        app.line.spawn(with(ground.sh(signal, ""), program));
        app.line.ok("kill", json!({"id": signal, "signal": signal}));
        app.events.finished(signal).ended(code, Some(name));
    }
    app.line.spawn(ground.sh("twice", "sleep 300"));
    for _ in 0..2 {
        app.line
            .ok("kill", json!({"id": "twice", "signal": "SIGKILL"}));
    }
    app.events.finished("twice").ended(137, Some("SIGKILL"));
    // A second end would be one of an unknown process.
    app.events.listen(Duration::from_millis(300));
    assert!(!app.events.knows("twice"));
}

#[test]
fn s17_background_children_hold_up_no_end() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for (id, script) in [
        ("quiet", "sleep 60 >/dev/null 2>&1 & echo hi"),
        ("keeps", "sleep 60 & echo hi"),
    ] {
        let done = within(5, "an end", || app.run(ground.sh(id, script)));
        assert_eq!(done.ok(), "hi\n");
    }
    assert_eq!(counted(&ground, "sleep 60"), 2);
}

#[test]
fn s18_background_jobs_go_on_and_tmp_is_shared() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let job = "mkfifo /tmp/go; setsid nohup sh -c 'read x < /tmp/go; echo x > /tmp/late; echo > /tmp/done' \
               >/dev/null 2>&1 &";
    app.run(ground.sh("oneshot-3", job)).ok();
    let later = "echo go > /tmp/go; while ! [ -e /tmp/done ]; do sleep 0.05; done; cat /tmp/late";
    assert_eq!(app.run(ground.sh("oneshot-4", later)).ok(), "x\n");
    // A later command may end what an earlier one left running, and talk to it.
    let server = "import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind('\\0' + 'left-running'); s.listen()
open('/tmp/pid', 'w').write(str(os.getpid())); open('/tmp/up', 'w').close()
while True: s.accept()[0].send(b'hello')";
    let left = json!({"args": ["-c", "setsid python3 -c \"$1\" >/dev/null 2>&1 & while ! [ -e /tmp/up ]; do sleep 0.05; done", "sh", server]});
    app.run(with(ground.sh("oneshot-5", ""), left)).ok();
    let reach = "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0left-running\"); print(s.recv(5).decode())'; \
                 kill $(cat /tmp/pid) && while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.05; done; echo ended";
    assert_eq!(
        app.run(ground.sh("oneshot-6", reach)).ok(),
        "hello\nended\n"
    );
}

#[test]
fn s19_s22_how_it_ended_and_whether_it_runs() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.run(ground.sh("segv", "kill -SEGV $$"))
        .ended(139, Some("SIGSEGV"));
    app.run(ground.sh("three", "exit 3")).ended(3, None);
    app.line.spawn(ground.sh("runs", "sleep 1000"));
    for (id, expected) in [
        ("runs", json!({"running": true})),
        ("three", json!({"running": false, "exitCode": 3})),
        ("segv", json!({"running": false, "exitCode": 139})),
        ("nobody", json!({"running": false})),
        ("__heartbeat_ping__", json!({"running": false})),
        ("__keepalive__", json!({"running": false})),
    ] {
        assert_eq!(
            app.line.ok("isProcessRunning", json!({"id": id})),
            expected,
            "{id}"
        );
    }
}

#[test]
fn s21_a_session_is_made_or_found_whatever_the_app_thinks() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for (id, resume) in [("a", true), ("b", false), ("c", true), ("d", false)] {
        let params = with(
            ground.sh(id, "echo $$ >> ~/seen; wc -l < ~/seen"),
            json!({"isResume": resume}),
        );
        app.run(params).ended(0, None);
    }
    assert_eq!(app.run(ground.sh("e", "wc -l < ~/seen")).ok(), "4\n");
}

#[test]
fn s23_many_at_once_in_one_session() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.run(ground.sh("first", "true"));
    within(30, "64 of them", || {
        let numbers: Vec<u64> = (0..64)
            .map(|at| {
                app.line
                    .request("spawn", ground.sh(&format!("p{at}"), "true"))
            })
            .collect();
        for number in numbers {
            assert_eq!(app.line.reply(number)["success"], true);
        }
        for at in 0..64 {
            app.events.finished(&format!("p{at}")).ended(0, None);
        }
    });
    let script = "cat /proc/[0-9]*/stat | grep -c ') Z ' || true";
    assert_eq!(app.run(ground.sh("zombies", script)).ok(), "0\n");
}

#[test]
fn s23_many_at_once_in_a_session_that_is_not_there_yet() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let numbers: Vec<u64> = (0..16)
        .map(|at| {
            app.line.request(
                "spawn",
                ground.sh(
                    &format!("p{at}"),
                    "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/pid",
                ),
            )
        })
        .collect();
    for number in numbers {
        let reply = app.line.reply(number);
        assert_eq!(reply["success"], true, "{reply}");
    }
    let mut seen: Vec<String> = (0..16)
        .map(|at| app.events.finished(&format!("p{at}")).ok())
        .collect();
    seen.dedup();
    assert_eq!(seen.len(), 1, "one box: {seen:?}");
}

#[test]
fn a_kill_is_not_lost_among_many_signals() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line
        .spawn(ground.sh("storm", "echo up; exec sleep 1000"));
    app.events.says("storm", "up");
    let mut asked = Vec::new();
    for signal in std::iter::repeat_n("SIGCONT", 2000).chain(["SIGKILL"]) {
        let wish = json!({"id": "storm", "signal": signal});
        asked.push(app.line.request("kill", wish));
    }
    // Less than what is waited for those who were only asked to end.
    let done = within(4, "the end", || app.events.finished("storm"));
    done.ended(137, Some("SIGKILL"));
    for number in asked {
        assert_eq!(app.line.reply(number)["success"], true);
    }
}
