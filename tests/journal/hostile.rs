//! Files that somebody else put where a journal should be.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use cowork_linux::journal::{Filter, Journal, Unfit, Verdict, history, read, verify, why};
use nix::sys::stat::Mode;
use proptest::prelude::*;

use crate::ground::{Ground, id, is_foreign, is_tampered, stop, verdict_of, whole_life};

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, Mode::S_IRWXU).unwrap();
}

/// Everything but a plain file of ours; the names are ids.
fn odd_files(ground: &Ground) -> Vec<&'static str> {
    let elsewhere = ground.write("real", &whole_life());
    let at = |name| ground.path(name);
    symlink(&elsewhere, at("link")).unwrap();
    symlink("/nowhere", at("dangling")).unwrap();
    fifo(&at("fifo"));
    fs::create_dir(at("folder")).unwrap();
    fs::copy(&elsewhere, at("twice")).unwrap();
    fs::hard_link(at("twice"), ground.folder().join("second-name")).unwrap();
    fs::copy(&elsewhere, at("open")).unwrap();
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o666)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    drop(socket);
    let mut names = vec![
        "link", "dangling", "fifo", "folder", "twice", "open", "socket",
    ];
    if nix::unistd::geteuid().is_root() {
        fs::copy(&elsewhere, at("theirs")).unwrap();
        chown(at("theirs"), Some(12345), None).unwrap();
        names.push("theirs");
    }
    names
}

#[test]
fn what_is_no_file_of_ours_is_foreign_to_readers() {
    let ground = Ground::new();
    for name in odd_files(&ground) {
        let reading = ground.read(name);
        assert!(is_foreign(&reading.verdict), "{name}: {reading:?}");
        assert!(reading.entries.is_empty(), "{name}");
    }
    // A file of root's whose name could be a session's.
    if !nix::unistd::geteuid().is_root() {
        assert!(is_foreign(&verdict_of(Path::new("/etc/ld.so.conf"))));
    }
    assert!(is_foreign(&verdict_of(Path::new("/"))));
    let missing = read(&ground.path("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn what_is_no_file_of_ours_is_refused_by_writers_and_left_as_it_was() {
    let ground = Ground::new();
    let names = odd_files(&ground);
    let before = fs::read(ground.path("real")).unwrap();
    for name in names {
        let kind = ground.path(name).symlink_metadata().unwrap().file_type();
        let refused = Journal::create(&ground.folder(), &id(name));
        let error = refused.unwrap_err();
        let why = error.get_ref().and_then(|why| why.downcast_ref());
        let expected = match name {
            "link" | "dangling" => Unfit::Link,
            "twice" => Unfit::Names(2),
            "open" => Unfit::Writable(0o666),
            "theirs" => Unfit::Owner(12345),
            _ => Unfit::NotAFile,
        };
        assert_eq!(why, Some(&expected), "{name}: {error}");
        let after = ground.path(name).symlink_metadata().unwrap().file_type();
        assert_eq!(kind, after, "{name}");
    }
    assert_eq!(fs::read(ground.path("real")).unwrap(), before);
    assert!(!Path::new("/nowhere").exists());
}

#[test]
fn odd_files_do_not_keep_others_from_being_told_of() {
    let ground = Ground::new();
    let odd = odd_files(&ground);
    let verdicts = verify(&ground.folder()).unwrap();
    assert_eq!(verdicts.len(), odd.len() + 1);
    let whole: Vec<_> = verdicts
        .iter()
        .filter(|(_, verdict)| *verdict == Verdict::Whole)
        .map(|(id, _)| id.as_str())
        .collect();
    assert_eq!(whole, ["real"]);
    let past = history(&ground.folder(), &Filter::default()).unwrap();
    assert_eq!(past.len(), odd.len() + 1);
    assert!(!why(&ground.folder(), None, ".envrc").unwrap().is_empty());
}

#[test]
fn garbage_is_met_with_a_verdict_and_set_aside() {
    let ground = Ground::new();
    let long = vec![b'x'; 10 << 20];
    let mut long_line = b"{\"seq\":1,\"at\":1,\"what\":\"".to_vec();
    long_line.extend(vec![b'y'; 3 << 20]);
    let deep = "[".repeat(60_000);
    let many = b"{\"seq\":1}\n".repeat(300_000);
    let garbage: [(&str, &[u8]); 8] = [
        ("huge", &long),
        ("long-line", &long_line),
        ("deep", deep.as_bytes()),
        ("deep-line", &[deep.as_bytes(), b"\n"].concat()),
        ("many-lines", &many),
        ("binary", b"\x7fELF\x02\0\0\n\xff\xfe"),
        ("text", b"hello\n"),
        ("newlines", b"\n\n\n"),
    ];
    let begun = Instant::now();
    for (name, content) in garbage {
        let path = ground.put(&format!("{name}.jsonl"), content);
        let verdict = verdict_of(&path);
        match name {
            "huge" => assert!(is_foreign(&verdict), "{verdict:?}"),
            _ => assert!(is_tampered(&verdict), "{name}: {verdict:?}"),
        }
        ground.write(name, &[stop()]);
        assert_eq!(verdict_of(&path), Verdict::Whole, "{name}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(verify(&ground.folder()).unwrap().len(), 2 * garbage.len());
}

#[test]
fn what_a_power_cut_leaves_is_torn() {
    let ground = Ground::new();
    assert_eq!(verdict_of(&ground.put("empty.jsonl", b"")), Verdict::Torn);
    let path = ground.write("a", &whole_life());
    let good = fs::read(&path).unwrap();
    fs::write(&path, [&good[..good.len() - 30], &[0; 4096]].concat()).unwrap();
    assert_eq!(verdict_of(&path), Verdict::Torn);
    ground.write("a", &[stop()]);
    assert_eq!(verdict_of(&path), Verdict::Whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn any_bytes_can_be_read(content: Vec<u8>, at: proptest::sample::Index, length in 0usize..200) {
        let ground = Ground::new();
        let path = ground.put("a.jsonl", &content);
        prop_assert!(verdict_of(&path) != Verdict::Whole);
        fs::remove_file(&path).unwrap();
        // The same in the middle of a good one.
        let good = fs::read(ground.write("a", &whole_life())).unwrap();
        let from = at.index(good.len());
        let to = (from + length).min(good.len());
        let spliced = [&good[..from], &content, &good[to..]].concat();
        fs::write(&path, &spliced).unwrap();
        prop_assert_eq!(verdict_of(&path) == Verdict::Whole, spliced == good);
        history(&ground.folder(), &Filter::default()).unwrap();
        why(&ground.folder(), None, "/w").unwrap();
        ground.write("a", &[stop()]);
        prop_assert_eq!(verdict_of(&path), Verdict::Whole);
    }
}
