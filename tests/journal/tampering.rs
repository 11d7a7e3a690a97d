//! Whatever is done to a journal afterwards shows.

use std::fs;
use std::path::Path;

use cowork_linux::journal::{
    Filter, Journal, RefusalKind, RunNote, Verdict, What, history, read, verify,
};

use crate::ground::{
    Ground, exec, exit, id, is_tampered, refusal, said, start, stop, verdict_of, whole_life,
};

/// The smallest limit there is.
const LIMIT: u64 = 256 * 1024;

fn lines(path: &Path) -> Vec<Vec<u8>> {
    let content = fs::read(path).unwrap();
    content
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

#[track_caller]
fn changed_everywhere(path: &Path, places: impl Iterator<Item = usize>) {
    let good = fs::read(path).unwrap();
    assert_eq!(verdict_of(path), Verdict::Whole);
    for at in places {
        for byte in [good[at] ^ 1, b'\n', b'"', 0] {
            if byte == good[at] {
                continue;
            }
            let mut bad = good.clone();
            bad[at] = byte;
            fs::write(path, &bad).unwrap();
            let verdict = verdict_of(path);
            assert!(is_tampered(&verdict), "{byte} at {at}: {verdict:?}");
        }
    }
    fs::write(path, &good).unwrap();
    assert_eq!(verdict_of(path), Verdict::Whole);
}

#[test]
fn one_byte_changed_anywhere() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let size = fs::metadata(&path).unwrap().len() as usize;
    changed_everywhere(&path, 0..size);
}

#[test]
fn a_changed_line_is_named() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"paused\"", "\"refused\"")).unwrap();
    let reading = read(&path).unwrap();
    let Verdict::Tampered { line, why } = reading.verdict else {
        panic!("{:?}", reading.verdict);
    };
    assert_eq!(line, 5, "{why}");
    assert_eq!(reading.entries.len(), whole_life().len());
}

#[test]
fn shortened_anywhere() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let good = fs::read(&path).unwrap();
    for length in 0..good.len() {
        fs::write(&path, &good[..length]).unwrap();
        let verdict = verdict_of(&path);
        assert_eq!(verdict, Verdict::Torn, "{length}");
    }
}

#[test]
fn lines_removed_moved_doubled_or_put_in_between() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let good = lines(&path);
    let other = lines(&ground.write("b", &whole_life()));
    let mut tried = 0;
    let mut shows = |what: &str, bad: Vec<Vec<u8>>| {
        fs::write(&path, bad.concat()).unwrap();
        let verdict = verdict_of(&path);
        assert!(is_tampered(&verdict), "{what}: {verdict:?}");
        tried += 1;
    };
    for at in 0..good.len() {
        if at + 1 < good.len() {
            let mut bad = good.clone();
            bad.remove(at);
            shows("removed", bad);
            let mut bad = good.clone();
            bad.swap(at, at + 1);
            shows("moved", bad);
        }
        let mut bad = good.clone();
        bad.insert(at, good[at].clone());
        shows("doubled", bad);
        let mut bad = good.clone();
        bad[at] = other[at].clone();
        shows("from another session", bad);
        let mut bad = good.clone();
        bad.insert(at, b"\n".to_vec());
        shows("an empty line", bad);
    }
    shows(
        "something at the end",
        [good.clone(), vec![b"{}".to_vec()]].concat(),
    );
    shows("another session's", other.clone());
    assert_eq!(tried, 5 * good.len());
    // The last line gone is a missing end.
    fs::write(&path, good[..good.len() - 1].concat()).unwrap();
    assert_eq!(verdict_of(&path), Verdict::Torn);
}

#[test]
fn what_cannot_be_seen_in_one_file_can_be_seen_by_its_last_hash() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let first_run = fs::read(&path).unwrap();
    ground.write("a", &whole_life());
    let kept_elsewhere = ground.read("a").head;
    fs::write(&path, first_run).unwrap();
    assert_eq!(verdict_of(&path), Verdict::Whole);
    assert_ne!(ground.read("a").head, kept_elsewhere);
}

#[test]
fn a_journal_that_does_not_verify_is_set_aside_and_not_continued() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let text = fs::read_to_string(&path).unwrap();
    let bad = text.replace("claude", "cloude");
    fs::write(&path, &bad).unwrap();
    ground.write("a", &whole_life());
    let reading = ground.read("a");
    assert_eq!(reading.verdict, Verdict::Whole);
    let What::Aside { file, why } = &reading.entries[0].what else {
        panic!("{:?}", reading.entries[0]);
    };
    assert!(why.starts_with("line 1"), "{why}");
    assert_eq!(fs::read_to_string(ground.folder().join(file)).unwrap(), bad);
    let verdicts: Vec<Verdict> = verify(&ground.folder())
        .unwrap()
        .into_iter()
        .map(|(_, verdict)| verdict)
        .collect();
    assert_eq!(verdicts.len(), 2);
    assert!(is_tampered(&verdicts[0]), "{verdicts:?}");
    assert_eq!(verdicts[1], Verdict::Whole);
}

/// Writes so much that lines are dropped several times.
fn cut_journal(ground: &Ground) -> (u64, u64) {
    let mut journal = Journal::create_within(&ground.folder(), &id("a"), 0).unwrap();
    journal.append(&start("claude")).unwrap();
    let mut refused = 0;
    for number in 1..=4000 {
        journal.append(&exec(number)).unwrap();
        if number % 5 == 0 {
            let object = format!("/w/{number}/.envrc");
            journal
                .append(&refusal(RefusalKind::File, &object))
                .unwrap();
            refused += 1;
        }
        let size = fs::metadata(ground.path("a")).unwrap().len();
        assert!(size <= LIMIT, "{size}");
    }
    journal.append(&exit(0, 3)).unwrap();
    journal.append(&stop()).unwrap();
    (4000, refused)
}

#[test]
fn a_cut_journal_is_bounded_verifiable_and_still_tells_of_its_run() {
    let ground = Ground::new();
    let (execs, refused) = cut_journal(&ground);
    let reading = ground.read("a");
    assert_eq!(reading.verdict, Verdict::Whole);
    let What::Cut { dropped, run, .. } = &reading.entries[0].what else {
        panic!("{:?}", reading.entries[0]);
    };
    assert_eq!(reading.entries[1].seq, dropped + 1);
    assert!(run.as_ref().is_some_and(|run: &RunNote| run.execs > 1000));
    assert!(said(&reading).len() > 500, "half of it is kept");
    let past = history(&ground.folder(), &Filter::default()).unwrap();
    assert_eq!(past.len(), 1);
    assert_eq!(past[0].program[0], "claude");
    assert_eq!((past[0].execs, past[0].refused()), (execs, refused));
    assert_eq!(past[0].exit.unwrap().code, Some(3));
    let left: Vec<_> = fs::read_dir(ground.folder()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_cut_journal_shows_changes_as_well() {
    let ground = Ground::new();
    cut_journal(&ground);
    let path = ground.path("a");
    let good = lines(&path);
    // Reading it takes a while: all of the cut's hash, some of the rest.
    let size = good.concat().len();
    let cut = good[0].len();
    changed_everywhere(
        &path,
        (cut - 36..cut)
            .step_by(5)
            .chain((cut..size).step_by(size / 7)),
    );
    for gone in [0, 1, good.len() / 2] {
        let mut bad = good.clone();
        bad.remove(gone);
        fs::write(&path, bad.concat()).unwrap();
        assert!(is_tampered(&verdict_of(&path)), "{gone}");
    }
    let text = String::from_utf8(good.concat()).unwrap();
    let at = text.find("\"dropped\":").unwrap() + 10;
    let mut bad = text.into_bytes();
    bad[at] = if bad[at] == b'9' { b'8' } else { b'9' };
    fs::write(&path, bad).unwrap();
    assert!(is_tampered(&verdict_of(&path)));
}

#[test]
fn a_cut_journal_goes_on_when_its_session_does() {
    let ground = Ground::new();
    cut_journal(&ground);
    let before = ground.read("a");
    ground.write("a", &whole_life());
    let after = ground.read("a");
    assert_eq!(after.verdict, Verdict::Whole);
    let number = after.entries.len() - whole_life().len();
    assert_eq!(after.entries[..number], before.entries[..]);
    assert_eq!(said(&after)[number..], whole_life());
}
