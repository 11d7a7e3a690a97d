//! `logs`: what was said, as it was said, within bounds.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;

use crate::ground::{Ground, eventually};

#[test]
fn the_bytes_are_the_programs_own() {
    let ground = Ground::new();
    let mut odd: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    odd.extend_from_slice(b"\x1b[31mred\x1b[0m\r\nno newline");
    std::fs::write(ground.world.path("w/odd"), &odd).unwrap();
    let id = ground.start(&[], &["sh", "-c", "cat odd; printf 'to err' >&2"]);
    ground.becomes(&id, "ended");
    let output = ground.cowork().args(["logs", &id]).output().unwrap();
    assert!(output.stdout == odd, "{} bytes", output.stdout.len());
    assert_eq!(output.stderr, b"to err");
}

#[test]
fn following_shows_what_comes_and_ends_with_the_session() {
    let ground = Ground::new();
    let id = ground.start(&["-i"], &["sh", "-c", "echo one; read x; echo two; exit 3"]);
    let mut child = ground.spawn(&["logs", "-f", &id]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    let typed = crate::ground::fed(ground.cowork().args(["attach", &id]), b"x\n");
    assert_eq!(typed.status.code(), Some(3));
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "two\n");
    assert!(child.wait().unwrap().success());
    // Of one that has ended there is nothing to wait for.
    ground.say(&["logs", "-f", &id]).ok().says("one\ntwo\n");
}

/// A supervisor that is killed cannot say that it is over.
#[test]
fn following_ends_when_the_supervisor_is_killed() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "echo one; exec sleep 1000"]);
    let mut child = ground.spawn(&["logs", "-f", &id]);
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0u8; 4])
        .unwrap();
    crate::watch::send(ground.supervisor(&id), nix::sys::signal::Signal::SIGKILL);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_part_can_be_asked_for() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "seq 1 100; echo e >&2"]);
    ground.becomes(&id, "ended");
    assert_eq!(
        ground.say(&["logs", "--tail", "3", &id]).ok().out,
        "99\n100\n"
    );
    assert_eq!(ground.say(&["logs", "-n", "0", &id]).ok().out, "");
    assert_eq!(
        ground
            .say(&["logs", "--since", "2000-01-01", &id])
            .ok()
            .out
            .lines()
            .count(),
        100
    );
    assert_eq!(
        ground
            .say(&["logs", "--since", "1h", &id])
            .ok()
            .out
            .lines()
            .count(),
        100
    );
    let later = ground.say(&["logs", "--since", "2999-01-01", &id]);
    assert_eq!(later.out, "");
    ground
        .say(&["logs", "--since", "soon", &id])
        .failed_with(1)
        .complains("--since");
    ground
        .say(&["logs", "--tail=-1", &id])
        .failed_with(1)
        .complains("--tail");
    let stamped = ground.say(&["logs", "-t", "--tail", "2", &id]).ok();
    let line = stamped.out.lines().next().unwrap().to_owned();
    let (time, text) = line.split_once(' ').unwrap();
    assert_eq!(text, "100");
    assert!(
        time.starts_with("20") && time.ends_with('Z') && time.contains('T'),
        "{time}"
    );
    ground
        .say(&["logs", "--timestamps", &id])
        .ok()
        .says("Z 1\n");
}

#[test]
fn one_that_was_in_front_has_no_log_and_that_is_said() {
    let ground = Ground::new();
    let work = ground.world.work();
    ground
        .say(&[
            "run",
            "-q",
            "--name",
            "front",
            "--mount",
            work.to_str().unwrap(),
            "--",
            "echo",
            "x",
        ])
        .ok();
    let ran = ground.say(&["logs", "front"]);
    assert!(ran.code == 1 && !ran.err.is_empty(), "{ran:?}");
}

#[test]
fn a_flood_stays_bounded_on_the_disk_and_in_memory() {
    let ground = Ground::new();
    let id = ground.start(
        &[],
        &[
            "sh",
            "-c",
            "yes 0123456789abcdef0123456789abcdef | head -c 200000000; echo; echo end",
        ],
    );
    let supervisor = ground.supervisor(&id);
    let mut most = 0;
    eventually("the flood is over", || {
        let status = std::fs::read_to_string(format!("/proc/{supervisor}/status"));
        let peak = status.ok().and_then(|text| {
            let line = text
                .lines()
                .find(|line| line.starts_with("VmHWM:"))?
                .to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        most = most.max(peak.unwrap_or(0));
        ground.state(&id) == "ended"
    });
    let used: u64 = std::fs::read_dir(ground.folder(&id))
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("log"))
        .map(|entry| entry.metadata().unwrap().blocks() * 512)
        .sum();
    assert!(used < 24 << 20, "{used} bytes");
    assert!(used > 4 << 20, "{used} bytes: next to nothing was kept");
    assert!(most < 32 << 10, "{most} KB");
    assert_eq!(ground.say(&["logs", "--tail", "1", &id]).ok().out, "end\n");
}

#[test]
fn what_is_kept_is_closed_to_others() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "echo x"]);
    ground.becomes(&id, "ended");
    let folder = std::fs::metadata(ground.folder(&id)).unwrap();
    assert_eq!(folder.mode() & 0o077, 0, "{:o}", folder.mode());
    for entry in std::fs::read_dir(ground.folder(&id)).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("log") || name == "record.json" {
            let mode = entry.metadata().unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{name} {mode:o}");
        }
    }
    let journal = std::fs::metadata(ground.journal(&id)).unwrap();
    assert_eq!(journal.mode() & 0o077, 0, "{:o}", journal.mode());
}
