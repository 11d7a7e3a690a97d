//! `exec`: another program in a running box, in front of whoever asks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::ground::{Ground, eventually, fed};
use crate::support::Ran;
use crate::watch::{Watch, children, descendants, send};

#[test]
fn the_exit_code_is_the_programs_own() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    for code in [0, 1, 7, 125, 255] {
        let ran = ground.exec_sh(&id, &format!("exit {code}"));
        ran.failed_with(code);
    }
    ground.exec_sh(&id, "kill -9 $$").failed_with(128 + 9);
    ground.exec_sh(&id, "kill -15 $$").failed_with(128 + 15);
    ground
        .exec(&id, &["/nonexistent"])
        .failed_with(127)
        .complains("cannot run /nonexistent");
    ground.world.write("w/plain", "no program");
    ground
        .exec(&id, &["./plain"])
        .failed_with(126)
        .complains("not executable");
    ground
        .say(&["exec", "-w", "/nope", &id, "--", "true"])
        .failed_with(125)
        .complains("/nope");
    assert_eq!(ground.state(&id), "running");
}

#[test]
fn output_and_errors_are_kept_apart() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let ran = ground.exec_sh(&id, "echo out; echo err >&2").ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("out\n", "err\n"));
    // Into files, which a box gets no descriptor of.
    let (out, err) = (ground.world.path("out"), ground.world.path("err"));
    let mut command = ground.cowork();
    command.args([
        "exec",
        &id,
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; readlink /proc/$$/fd/1",
    ]);
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    assert!(command.status().unwrap().success());
    let out = std::fs::read_to_string(out).unwrap();
    assert!(out.starts_with("out\npipe:"), "{out}");
    assert_eq!(std::fs::read_to_string(err).unwrap(), "err\n");
}

#[test]
fn input_is_connected_only_when_asked_for() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let with = fed(
        ground.cowork().args(["exec", "-i", &id, "--", "cat"]),
        b"typed\0\xff",
    );
    assert_eq!(with.stdout, b"typed\0\xff");
    let without = fed(ground.cowork().args(["exec", &id, "--", "cat"]), b"typed");
    assert!(without.status.success());
    assert_eq!(without.stdout, b"");
}

#[test]
fn words_and_variables_arrive_whole() {
    let ground = Ground::new();
    let id = ground.start(
        &["--env", "OF_SESSION=old", "--env", "BOTH=session"],
        &["sleep", "1000"],
    );
    let big = "a".repeat(100_000);
    let ran = ground.exec(
        &id,
        &[
            "sh",
            "-c",
            "printf %s \"$1\" | wc -c; echo $#",
            "sh",
            &big,
            "",
            "x",
        ],
    );
    assert_eq!(ran.ok().out, "100000\n3\n");
    let mut many = vec!["sh", "-c", "echo $#", "sh"];
    many.resize(20_004, "w");
    assert_eq!(ground.exec(&id, &many).ok().out, "20000\n");
    let mut command = ground.cowork();
    command.args([
        "exec",
        "-e",
        &format!("BIG={big}"),
        "-e",
        "BOTH=exec",
        "-e",
        "PASSED",
    ]);
    command
        .env("PASSED", "from outside")
        .env("NOT_PASSED", "no");
    command.args([&id, "--", "sh", "-c"]);
    command.arg("echo ${#BIG} $BOTH $OF_SESSION $PASSED $NOT_PASSED.");
    assert_eq!(
        Ran::of(&mut command).ok().out,
        "100000 exec old from outside .\n"
    );
    let odd = OsStr::from_bytes(b"\xff\xfe\n\x80");
    let mut command = ground.cowork();
    command.args(["exec", &id, "--", "printf", "%s"]).arg(odd);
    assert_eq!(command.output().unwrap().stdout, odd.as_bytes());
    let mut command = ground.cowork();
    let pair = OsStr::from_bytes(b"ODD=\xff\xfe");
    command
        .args(["exec", "-e"])
        .arg(pair)
        .args([&id, "--", "sh", "-c", "printf %s \"$ODD\""]);
    assert_eq!(command.output().unwrap().stdout, b"\xff\xfe");
    ground
        .say(&["exec", "-e", "UNSET_HERE", &id, "--", "true"])
        .failed_with(125);
    ground
        .say(&["exec", "-e", "=x", &id, "--", "true"])
        .failed_with(125);
}

/// More than the kernel takes is refused with a word, and the session goes on.
#[test]
fn words_beyond_all_bounds_are_refused() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let big = "a".repeat(120_000);
    let mut words = vec!["true"];
    words.resize(16, big.as_str());
    let ran = ground.exec(&id, &words);
    assert!([0, 126].contains(&ran.code), "{ran:?}");
    ground.exec(&id, &["true"]).ok();
}

#[test]
fn it_starts_where_the_session_did_or_where_it_is_told() {
    let ground = Ground::new();
    let id = ground.start(&["--workdir", "/usr"], &["sleep", "1000"]);
    assert_eq!(ground.exec(&id, &["pwd"]).ok().out, "/usr\n");
    assert_eq!(
        ground
            .say(&["exec", "-w", "/etc", &id, "--", "pwd"])
            .ok()
            .out,
        "/etc\n"
    );
}

#[test]
fn fifty_megabytes_pass_both_ways_unchanged() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut state = 1u64;
    // Of a length that no buffer has, so that a piece lost or doubled shows.
    let block: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) as u8
    })
    .take(999_983)
    .collect();
    let mut bytes = Vec::new();
    for number in 0..53u32 {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    assert!(bytes.len() > 50 << 20);
    let back = fed(
        ground.cowork().args(["exec", "-i", &id, "--", "cat"]),
        &bytes,
    );
    assert_eq!(back.stdout.len(), bytes.len());
    assert!(back.stdout == bytes, "changed on the way through pipes");
    // From and to files, which are copied.
    let (from, to) = (ground.world.path("from"), ground.world.path("to"));
    std::fs::write(&from, &bytes).unwrap();
    let mut command = ground.cowork();
    command.args(["exec", "-i", &id, "--", "cat"]);
    command.stdin(std::fs::File::open(&from).unwrap());
    command.stdout(std::fs::File::create(&to).unwrap());
    assert!(command.status().unwrap().success());
    let copied = std::fs::read(&to).unwrap();
    assert!(copied == bytes, "changed on the way through files");
}

/// A reader that leaves early, as `head` does, ends the program and nothing else.
#[test]
fn a_reader_that_leaves_early_ends_the_program() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut child = ground.spawn(&["exec", &id, "--", "yes"]);
    let mut bytes = [0u8; 100];
    std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut bytes).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    ground.exec(&id, &["true"]).ok();
}

#[test]
fn a_box_that_stays_takes_programs_after_its_own_has_ended() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &["sh", "-c", "echo first > /tmp/left"]);
    eventually("the program's file", || {
        ground.exec(&id, &["cat", "/tmp/left"]).out == "first\n"
    });
    assert_eq!(ground.state(&id), "running");
    let none = ground.start(&["--keep", "--name", "empty"], &[]);
    assert_eq!(
        ground
            .exec_sh(&none, "echo $$ > /tmp/x; cat /tmp/x | wc -l")
            .ok()
            .out,
        "1\n"
    );
}

#[test]
fn background_jobs_outlive_their_exec_and_not_the_session() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let script =
        "setsid sh -c 'echo up > /tmp/up; exec sleep 77' </dev/null >/dev/null 2>&1 & true";
    ground.exec_sh(&id, script).ok();
    eventually("the job", || {
        ground.exec(&id, &["cat", "/tmp/up"]).out == "up\n"
    });
    let first = ground.first(&id);
    let watch = Watch::over(&descendants(first));
    assert!(watch.len() >= 2);
    ground
        .exec_sh(&id, "grep -l 77 /proc/[0-9]*/cmdline | grep -v self")
        .ok();
    ground.say(&["stop", &id]).ok();
    watch.all_gone();
}

#[test]
fn fifty_at_once_are_all_served() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..50)
            .map(|number: i32| {
                let (ground, id) = (&ground, &id);
                scope.spawn(move || {
                    let script = format!("echo {number}; exit {number}");
                    (number, ground.exec_sh(id, &script))
                })
            })
            .collect();
        for run in runs {
            let (number, ran) = run.join().unwrap();
            assert_eq!(
                (ran.code, ran.out),
                (number, format!("{number}\n")),
                "{}",
                ran.err
            );
        }
    });
    let seen = ground.json(&["inspect", &id]);
    assert_eq!(seen["seen"]["execs"], serde_json::json!([]));
}

#[test]
fn a_session_in_front_of_somebody_can_be_entered() {
    let ground = Ground::new();
    let work = ground.world.work();
    let mut child = ground.spawn(&[
        "run",
        "-q",
        "--name",
        "front",
        "--mount",
        work.to_str().unwrap(),
        "--",
        "cat",
    ]);
    eventually("it listens", || ground.exec("front", &["true"]).code == 0);
    assert_eq!(ground.exec("front", &["echo", "in"]).ok().out, "in\n");
    ground
        .say(&["attach", "front"])
        .failed_with(1)
        .complains("in front of whoever started it");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    ground
        .exec("front", &["true"])
        .failed_with(125)
        .complains("it is not running");
}

#[test]
fn a_program_whose_caller_is_killed_ends_and_the_session_lives() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let mut caller = ground.spawn(&[
        "exec",
        &id,
        "--",
        "sh",
        "-c",
        "trap '' HUP TERM; sleep 1000; true",
    ]);
    let first = ground.first(&id);
    eventually("the program runs", || children(first).len() == 2);
    let watch = Watch::over(
        // Its own child is called the same until it becomes another program.
        &children(first)
            .into_iter()
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.starts_with(b"sh")
            })
            .collect::<Vec<_>>(),
    );
    assert_eq!(watch.len(), 1);
    send(caller.id() as i32, Signal::SIGKILL);
    caller.wait().unwrap();
    watch.all_gone();
    ground.exec(&id, &["true"]).ok();
    let seen = ground.json(&["inspect", &id]);
    assert_eq!(seen["seen"]["execs"], serde_json::json!([]));
}

#[test]
fn signals_of_the_caller_reach_the_program() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    for (signal, code) in [(Signal::SIGTERM, 43), (Signal::SIGINT, 42)] {
        let script =
            "trap 'exit 43' TERM; trap 'exit 42' INT; echo up; while :; do sleep 0.05; done";
        let mut caller = ground.spawn(&["exec", &id, "--", "sh", "-c", script]);
        let mut out = caller.stdout.take().unwrap();
        std::io::Read::read_exact(&mut out, &mut [0u8; 3]).unwrap();
        send(caller.id() as i32, signal);
        assert_eq!(caller.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn the_end_of_the_session_ends_what_runs_in_it() {
    let ground = Ground::new();
    let id = ground.start(&["-i"], &["cat"]);
    let mut command = ground.cowork();
    command.args(["exec", &id, "--", "sh", "-c", "echo up; exec sleep 1000"]);
    let mut caller = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = caller.stdout.take().unwrap();
    std::io::Read::read_exact(&mut out, &mut [0u8; 3]).unwrap();
    ground.say(&["kill", &id]).ok();
    let code = caller.wait().unwrap().code();
    assert_eq!(code, Some(128 + 9));
}
