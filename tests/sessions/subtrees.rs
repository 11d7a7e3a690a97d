//! Programs started over the socket: whether they run, and their end with everything that came of
//! them.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::{Value, json};

use crate::ground::{Ground, eventually};
use crate::hostile::{call, hear, say, say_with};
use crate::watch::{Watch, descendants};

/// A program on a connection of its own.
struct Exec {
    line: OwnedFd,
    out: BufReader<File>,
}

impl Exec {
    fn start(ground: &Ground, id: &str, ask: Value, folder: &str, words: &[&str]) -> Self {
        let mut bytes = (words.len() as u32).to_le_bytes().to_vec();
        bytes.extend(0u32.to_le_bytes());
        for word in words.iter().chain([&folder]) {
            bytes.extend(word.as_bytes());
            bytes.push(0);
        }
        let memory = memfd_create(c"words", MFdFlags::MFD_CLOEXEC).unwrap();
        let mut memory = File::from(memory);
        memory.write_all(&bytes).unwrap();
        let (out, their_out) = std::io::pipe().unwrap();
        let line = call(ground, id);
        let fds: [RawFd; 2] = [memory.as_raw_fd(), their_out.as_raw_fd()];
        say_with(&line, ask.to_string().as_bytes(), &fds);
        let exec = Self {
            line,
            out: BufReader::new(OwnedFd::from(out).into()),
        };
        // Those who want to hear that it runs hear that alone.
        if ask["confirm"] != true {
            assert_eq!(exec.next()["say"], "started");
        }
        exec
    }

    /// A script, and the first line that it says.
    #[track_caller]
    fn script(ground: &Ground, id: &str, script: &str) -> Self {
        let ask = json!({"ask": "exec", "terminal": false, "streams": [false, true, false]});
        let mut exec = Self::start(ground, id, ask, "", &["sh", "-c", script]);
        assert_eq!(exec.line(), "up");
        exec
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn next(&self) -> Value {
        serde_json::from_str(&hear(&self.line)).unwrap_or(Value::Null)
    }

    /// What is said until the end of the program, without the end.
    fn until_ended(&self) -> Vec<Value> {
        let mut said = Vec::new();
        loop {
            let next = self.next();
            match next["say"].as_str() {
                Some("ended") => return said,
                Some(_) => said.push(next),
                None => panic!("it never ended, but said {said:?}"),
            }
        }
    }

    fn signal(&self, signal: i32, subtree: bool) {
        let ask = json!({"ask": "signal", "signal": signal, "subtree": subtree});
        assert!(say(&self.line, ask.to_string().as_bytes()));
    }
}

fn ask(confirm: bool) -> Value {
    json!({"ask": "exec", "terminal": false, "streams": [false, true, false], "confirm": confirm})
}

/// Who has this text among its words, and lives.
fn marked(ground: &Ground, id: &str, mark: &str) -> Vec<i32> {
    let is = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(mark)
    };
    let mut found = descendants(ground.first(id));
    found.retain(is);
    found
}

#[test]
fn that_a_program_runs_is_said_to_those_who_want_to_hear_it() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let words = |said: &[Value]| -> Vec<String> {
        let words = said.iter().map(|said| said["say"].as_str().unwrap());
        words.map(str::to_owned).collect()
    };
    let exec = Exec::start(&ground, &id, ask(true), "", &["true"]);
    assert_eq!(words(&exec.until_ended()), ["executed"]);
    let exec = Exec::start(&ground, &id, ask(false), "", &["true"]);
    assert!(exec.until_ended().is_empty());
    // It is said while the program still runs.
    let exec = Exec::start(&ground, &id, ask(true), "", &["sleep", "1000"]);
    assert_eq!(exec.next()["say"], "executed");
    exec.signal(libc::SIGKILL, false);
    assert!(exec.until_ended().is_empty());
    for (program, folder, errno, in_folder) in [
        ("/no/such/program", "", libc::ENOENT, false),
        ("/etc/passwd", "", libc::EACCES, false),
        ("true", "/no/such/folder", libc::ENOENT, true),
    ] {
        let exec = Exec::start(&ground, &id, ask(true), folder, &[program]);
        let said = exec.until_ended();
        assert_eq!(words(&said), ["not-executed"], "{program}");
        assert_eq!(said[0]["errno"], errno, "{program}");
        assert_eq!(said[0]["in_folder"], in_folder, "{program}");
    }
}

#[test]
fn every_program_leads_a_session_of_its_own() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    // The name in parentheses is `sh`: number, name, state, parent, group, session.
    let script = "read pid name state parent group session rest </proc/$$/stat; \
                  test $pid = $session && echo up; exec sleep 1000";
    let exec = Exec::script(&ground, &id, script);
    let with_terminal = json!({"ask": "exec", "terminal": true, "streams": [false, true, false]});
    let words = ["sh", "-c", script];
    let mut other = Exec::start(&ground, &id, with_terminal, "", &words);
    assert_eq!(other.line(), "up");
    exec.signal(libc::SIGKILL, true);
    exec.until_ended();
    // One is not the other's.
    assert_eq!(marked(&ground, &id, "sleep").len(), 1);
    other.signal(libc::SIGKILL, true);
    other.until_ended();
    assert!(marked(&ground, &id, "sleep").is_empty());
}

/// Programs with company, each of which has said `up` when all are there.
const COMPANY: [&str; 4] = [
    "sleep 7331 & echo up; sleep 7331; true",
    "sh -c 'sh -c \"echo up; sleep 7331 & wait\" & sleep 7331; wait' & wait",
    // In sessions of their own, and one whose parent is gone.
    "trap '' TERM HUP INT; (sleep 7331 &); \
     setsid sh -c 'trap \"\" TERM; sleep 7331 & setsid sleep 7331 & echo up; wait; wait' & wait; sleep 7331",
    // Stopped ones.
    "sh -c 'kill -STOP $$; sleep 7331' & sleep 7331 & \
     until grep -q ') T ' /proc/[0-9]*/stat 2>/dev/null; do :; done; echo up; wait",
];

#[test]
fn a_program_ends_with_everything_that_came_of_it() {
    for isolation in ["namespaces", "landlock"] {
        let ground = Ground::new();
        let id = ground.start(&["--keep", "--isolation", isolation], &[]);
        let bystander = Exec::script(&ground, &id, "echo up; exec sleep 1337");
        for script in COMPANY {
            let exec = Exec::script(&ground, &id, script);
            let all = marked(&ground, &id, "7331");
            let all = Watch::over(&all);
            assert!(all.len() >= 2, "{script}");
            exec.signal(libc::SIGKILL, true);
            exec.until_ended();
            assert_eq!(
                marked(&ground, &id, "7331"),
                [0; 0],
                "{isolation}: {script}"
            );
            all.all_gone();
            assert_eq!(marked(&ground, &id, "1337").len(), 1);
        }
        drop(bystander);
    }
}

#[test]
fn a_signal_to_the_program_alone_leaves_the_rest() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let exec = Exec::script(&ground, &id, COMPANY[0]);
    eventually("both are there", || {
        marked(&ground, &id, "sleep\u{0}7331").len() == 2
    });
    exec.signal(libc::SIGKILL, false);
    exec.until_ended();
    assert_eq!(marked(&ground, &id, "sleep\u{0}7331").len(), 2);
}

#[test]
fn asking_to_end_reaches_all_and_may_be_ignored_by_some() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let script = "sh -c 'trap \"exit 3\" TERM; echo up; while :; do sleep 0.05; done' 7331 & \
                  trap '' TERM; while :; do sleep 1000; done";
    let exec = Exec::script(&ground, &id, script);
    assert_eq!(marked(&ground, &id, "\u{0}7331").len(), 1);
    exec.signal(libc::SIGTERM, true);
    eventually("the one that listens has ended", || {
        marked(&ground, &id, "\u{0}7331").is_empty()
    });
    assert_eq!(
        marked(&ground, &id, "trap '' TERM").len(),
        1,
        "it does not listen"
    );
    exec.signal(libc::SIGKILL, true);
    exec.until_ended();
    eventually("nobody is left", || {
        descendants(ground.first(&id)).is_empty()
    });
}

#[test]
fn a_storm_of_births_ends_too() {
    let ground = Ground::new();
    let id = ground.start(&["--keep", "--pids", "200"], &[]);
    let script = "i=0; while [ $i -lt 6 ]; do \
                    sh -c 'while :; do sh -c \"sleep 0.01 & (sleep 0.02 &)\"; done' & \
                    setsid sh -c 'while :; do sh -c \"sleep 0.01 & (sleep 0.02 &)\"; done' & \
                    i=$((i + 1)); done; echo up; wait";
    let exec = Exec::script(&ground, &id, script);
    let loops = || marked(&ground, &id, "while :");
    assert!(loops().len() >= 12);
    exec.signal(libc::SIGKILL, true);
    exec.until_ended();
    assert_eq!(loops(), [0; 0]);
    eventually("nobody is left", || {
        descendants(ground.first(&id)).is_empty()
    });
}

#[test]
fn what_a_program_leaves_behind_is_left_alone_when_nobody_asks() {
    let ground = Ground::new();
    let id = ground.start(&["--keep"], &[]);
    let exec = Exec::script(
        &ground,
        &id,
        "setsid nohup sleep 7331 >/dev/null 2>&1 & echo up",
    );
    exec.until_ended();
    assert_eq!(marked(&ground, &id, "sleep\u{0}7331").len(), 1);
    // Its program is gone: there is nobody to find the others by.
    exec.signal(libc::SIGKILL, true);
    let said = exec.next();
    assert_eq!(said["say"], "refused", "{said}");
    assert_eq!(marked(&ground, &id, "sleep\u{0}7331").len(), 1);
}
