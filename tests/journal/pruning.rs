//! What is removed, and above all what is not.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cowork_linux::journal::{DEFAULT_KEEP, prune};

use crate::ground::{Ground, start, whole_life};

/// Makes it look that many hours old.
fn age(path: &Path, hours: u64) {
    let then = SystemTime::now() - Duration::from_secs(3600 * hours);
    File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(then)
        .unwrap();
}

fn names(ground: &Ground) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(ground.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_oldest_go_and_the_newest_stay() {
    let ground = Ground::new();
    for number in 1..=6 {
        age(&ground.write(&format!("s{number}"), &whole_life()), number);
    }
    assert_eq!(prune(&ground.folder(), DEFAULT_KEEP).unwrap(), 0);
    assert_eq!(prune(&ground.folder(), 2).unwrap(), 4);
    assert_eq!(names(&ground), ["s1.jsonl", "s2.jsonl"]);
}

#[test]
fn what_runs_or_is_evidence_or_not_ours_stays() {
    let ground = Ground::new();
    let mut running = ground.open("running");
    running.append(&start("claude")).unwrap();
    age(&ground.path("running"), 9);
    // Killed: nobody will ever write its stop.
    age(&ground.write("killed", &[start("claude")]), 8);
    let tampered = ground.write("tampered", &whole_life());
    let text = fs::read_to_string(&tampered).unwrap();
    fs::write(&tampered, text.replace("claude", "cloude")).unwrap();
    age(&tampered, 7);
    age(&ground.put("notes.txt", b"mine"), 9);
    age(&ground.put("text.jsonl", b"not a journal\n"), 9);
    age(&ground.put("a.5.aside", b"evidence"), 9);
    let target = ground.put("target", b"mine");
    symlink(&target, ground.path("link")).unwrap();
    fs::create_dir(ground.path("folder")).unwrap();
    let twice = ground.write("twice", &whole_life());
    fs::hard_link(&twice, ground.folder().join("second-name")).unwrap();

    let mut expected = names(&ground);
    assert_eq!(prune(&ground.folder(), 0).unwrap(), 1);
    expected.retain(|name| name != "killed.jsonl");
    assert_eq!(names(&ground), expected);
    running.append(&start("again")).unwrap();
    assert_eq!(ground.read("running").entries.len(), 2);
}

#[test]
fn a_file_left_by_a_writer_that_was_killed_goes_unless_its_session_runs() {
    let ground = Ground::new();
    ground.put("gone.new", b"half");
    ground.write("ended", &whole_life());
    ground.put("ended.new", b"half");
    let running = ground.open("running");
    ground.put("running.new", b"half");
    assert_eq!(prune(&ground.folder(), DEFAULT_KEEP).unwrap(), 2);
    assert_eq!(
        names(&ground),
        ["ended.jsonl", "running.jsonl", "running.new"]
    );
    drop(running);
}

#[test]
fn a_folder_that_is_not_there_has_nothing_to_prune() {
    assert_eq!(prune(&Ground::new().folder(), 0).unwrap(), 0);
}
