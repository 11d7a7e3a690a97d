//! Writers that are killed in the middle, and disks that are full.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cowork_linux::journal::{Journal, Verdict, What, read};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::ground::{Ground, exec, id, said, start, stop};

const FOLDER: &str = "JOURNAL_FOLDER";

/// This very program, to run one of the tests below that only make sense as a child.
fn child(name: &str, ground: &Ground) -> Command {
    // A write past the limit on a file's size would kill it, where a full disk does not.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(FOLDER, ground.folder())
        .stdin(Stdio::null());
    command
}

fn folder() -> PathBuf {
    std::env::var_os(FOLDER)
        .expect("a test starts this one as its child")
        .into()
}

/// Several pages, so that it can be killed in the middle of a line.
fn long(number: u32) -> What {
    What::Exec {
        exec: number,
        program: vec!["x".repeat(4000); 7],
        cwd: None,
    }
}

#[test]
#[ignore = "the child of the test below"]
fn writes_until_it_is_killed() {
    let mut journal = Journal::create_within(&folder(), &id("a"), 0).unwrap();
    journal.append(&start("claude")).unwrap();
    let mut out = std::io::stdout();
    for number in 0..1_000_000 {
        journal.append(&long(number)).unwrap();
        writeln!(out, "written").unwrap();
    }
}

#[test]
fn whoever_is_killed_leaves_at_most_a_torn_line() {
    let ground = Ground::new();
    for round in 0..12 {
        let mut writer = child("crash::writes_until_it_is_killed", &ground)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(writer.stdout.take().unwrap());
        let mut written = out
            .lines()
            .map(Result::unwrap)
            .filter(|line| line.ends_with("written"));
        // Between one line and several cuts.
        for _ in 0..=round * 3 {
            written.next().expect("the writer goes on");
            let reading = ground.read("a");
            assert_eq!(reading.verdict, Verdict::Whole, "while it runs");
            assert!(reading.running);
        }
        writer.kill().unwrap();
        assert_eq!(writer.wait().unwrap().signal(), Some(9));
        let reading = ground.read("a");
        assert_eq!(reading.verdict, Verdict::Torn, "round {round}");
        assert!(!reading.running && reading.entries.len() > 1);
        let mut journal = Journal::create(&ground.folder(), &id("a")).unwrap();
        let mended = said(&ground.read("a")).pop();
        assert!(matches!(mended, Some(What::Mended { .. })), "{mended:?}");
        journal.append(&stop()).unwrap();
        drop(journal);
        assert_eq!(ground.read("a").verdict, Verdict::Whole, "round {round}");
    }
}

/// No file may grow beyond this, as on a disk without room; `None` ends that.
fn set_room(bytes: Option<u64>) {
    let (_, most) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, bytes.unwrap_or(most), most).unwrap();
}

#[test]
#[ignore = "the child of the test below"]
fn meets_a_full_disk() {
    let mut journal = Journal::create_within(&folder(), &id("a"), 0).unwrap();
    let path = folder().join("a.jsonl");
    journal.append(&start("claude")).unwrap();
    let size = path.metadata().unwrap().len();

    // In the middle of a line: what was written of it is taken back.
    set_room(Some(size + 20));
    journal.append(&exec(1)).unwrap_err();
    journal.append(&exec(2)).unwrap_err();
    assert_eq!(path.metadata().unwrap().len(), size);
    set_room(None);
    journal.append(&exec(3)).unwrap();
    let expected = [start("claude"), What::Lost { entries: 2 }, exec(3)];
    assert_eq!(said(&read(&path).unwrap()), expected);

    // In the middle of a cut: the journal stays what it was.
    let mut cuts = 0;
    for number in 0..2 * 256 * 1024 / 28_000 {
        let before = std::fs::read(&path).unwrap();
        if before.len() + 29_000 > 256 * 1024 {
            set_room(Some(60_000));
            journal.append(&long(number)).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), before);
            assert!(!folder().join("a.new").exists());
            set_room(None);
            cuts += 1;
        }
        journal.append(&long(number)).unwrap();
    }
    assert!(cuts > 0);
    journal.append(&stop()).unwrap();
    drop(journal);
    let reading = read(&path).unwrap();
    assert_eq!(reading.verdict, Verdict::Whole);
    assert!(matches!(reading.entries[0].what, What::Cut { .. }));
}

#[test]
fn a_full_disk_costs_entries_and_says_how_many() {
    let ground = Ground::new();
    let ran = child("crash::meets_a_full_disk", &ground).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
}
