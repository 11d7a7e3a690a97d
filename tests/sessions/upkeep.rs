//! What a session's owner can see of it and take away, though its home is closed to everybody.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use cowork_linux::policy::SessionId;
use cowork_linux::session::{Disposable, Places, UpkeepError};
use nix::fcntl::{OFlag, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use serde_json::json;

use crate::ground::Ground;
use crate::hostile::{call, hear, say_with};

const CACHES: Disposable<'_> = Disposable {
    caches: &[".cache"],
    temporary: None,
};

fn places(ground: &Ground) -> Places {
    Places {
        state: ground.world.path("state/cowork-linux"),
        runtime: ground.runtime(),
    }
}

fn text(home: &OwnedFd, name: &str) -> String {
    let file = openat(home, name, OFlag::O_RDONLY, Mode::empty()).unwrap();
    let mut text = String::new();
    File::from(file).read_to_string(&mut text).unwrap();
    text
}

fn is_closed(ground: &Ground, id: &str) -> bool {
    let inner = fs::metadata(ground.folder(id).join("inner")).unwrap();
    inner.mode() & 0o7777 == 0
}

#[test]
fn a_home_is_seen_by_its_owner_while_programs_run_and_afterwards() {
    let ground = Ground::new();
    let id = ground.start(&["--name", "s", "--keep"], &["sleep", "1000"]);
    let session = SessionId::parse(&id).unwrap();
    let places = places(&ground);
    ground.exec("s", &["sh", "-c", "echo one > ~/note"]).ok();
    let home = places.open_home(&session).unwrap();
    assert_eq!(text(&home, "note"), "one\n");
    assert!(is_closed(&ground, "s"));
    // What is written later is seen as well, by the same descriptor.
    ground.exec("s", &["sh", "-c", "echo two > ~/later"]).ok();
    assert_eq!(text(&home, "later"), "two\n");
    ground.say(&["stop", "s"]).ok();
    let home = places.open_home(&session).unwrap();
    assert_eq!(text(&home, "note"), "one\n");
    assert!(is_closed(&ground, "s"));
}

#[test]
fn caches_of_a_session_go_when_it_does_not_run() {
    let ground = Ground::new();
    let id = ground.start(&["--name", "s", "--keep"], &["sleep", "1000"]);
    let session = SessionId::parse(&id).unwrap();
    let places = places(&ground);
    let fill = "mkdir -p ~/.cache/a && head -c 300000 /dev/zero > ~/.cache/a/b && echo w > ~/work";
    ground.exec("s", &["sh", "-c", fill]).ok();
    let soon = || Instant::now() + Duration::from_secs(30);
    let full = places.size(&session, soon()).unwrap();
    assert!(full.is_whole && full.bytes > 300_000, "{full:?}");
    let running = places.prune(&session, CACHES, soon());
    assert!(
        matches!(running, Err(UpkeepError::Running(_))),
        "{running:?}"
    );
    ground
        .exec("s", &["test", "-f", "/sessions/s/.cache/a/b"])
        .ok();
    ground.say(&["stop", "s"]).ok();
    assert!(places.prune(&session, CACHES, soon()).unwrap() >= 300_000);
    assert!(places.size(&session, soon()).unwrap().bytes < full.bytes - 250_000);
    assert!(is_closed(&ground, "s"));
    ground.start(&["--name", "s", "--keep"], &["sleep", "1000"]);
    let left = ground.exec("s", &["sh", "-c", "ls -A ~; cat ~/work"]).ok();
    assert!(
        !left.out.contains(".cache") && left.out.ends_with("w\n"),
        "{}",
        left.out
    );
}

#[test]
fn a_program_can_be_given_its_variables_alone() {
    let ground = Ground::new();
    ground.start(&["--name", "s"], &["sleep", "1000"]);
    let variables = |only: bool| {
        let ask = json!({"ask": "exec", "terminal": false, "streams": [false, true, false],
            "only_env": only});
        let mut words = 1u32.to_le_bytes().to_vec();
        words.extend(1u32.to_le_bytes());
        words.extend(b"/usr/bin/env\0A=1\0\0");
        let mut memory = File::from(memfd_create(c"words", MFdFlags::MFD_CLOEXEC).unwrap());
        memory.write_all(&words).unwrap();
        let (mut out, their_out) = std::io::pipe().unwrap();
        let line = call(&ground, "s");
        let fds = [memory.as_raw_fd(), their_out.as_raw_fd()];
        say_with(&line, ask.to_string().as_bytes(), &fds);
        drop(their_out);
        assert!(hear(&line).contains("started"));
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let names = text.lines().filter_map(|line| line.split_once('='));
        let mut names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
        names.retain(|name| name != "PWD");
        names
    };
    assert_eq!(variables(true), ["A"]);
    let all = variables(false);
    assert!(
        all.contains(&"A".into()) && all.contains(&"HOME".into()),
        "{all:?}"
    );
}
