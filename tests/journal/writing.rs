//! What is written is read, once and in order.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use cowork_linux::journal::{Journal, RefusalKind, Verdict, What};
use proptest::prelude::*;

use crate::ground::{Ground, exec, id, refusal, said, start, stop, whole_life};

#[test]
fn a_whole_life_is_read_as_it_was_written() {
    let ground = Ground::new();
    let life = whole_life();
    ground.write("a", &life);
    let reading = ground.read("a");
    assert_eq!(reading.verdict, Verdict::Whole);
    assert_eq!(said(&reading), life);
    assert!(!reading.running);
    let numbers: Vec<u64> = reading.entries.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (1..=life.len() as u64).collect::<Vec<_>>());
    assert_eq!(reading.entries.last().unwrap().hash, reading.head);
}

#[test]
fn only_the_user_may_look() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&ground.folder()), 0o700);
}

#[test]
fn a_running_session_is_whole_and_nobody_else_writes_to_it() {
    let ground = Ground::new();
    let mut journal = ground.open("a");
    journal.append(&start("claude")).unwrap();
    let reading = ground.read("a");
    assert_eq!((reading.verdict, reading.running), (Verdict::Whole, true));
    assert_eq!(reading.head, journal.head());
    let second = Journal::create(&ground.folder(), &id("a")).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::WouldBlock, "{second}");
    drop(journal);
    let reading = ground.read("a");
    assert_eq!((reading.verdict, reading.running), (Verdict::Torn, false));
}

#[test]
fn a_session_started_again_goes_on_in_the_same_chain() {
    let ground = Ground::new();
    ground.write("a", &whole_life());
    ground.write("a", &whole_life());
    let reading = ground.read("a");
    assert_eq!(reading.verdict, Verdict::Whole);
    assert_eq!(said(&reading), [whole_life(), whole_life()].concat());
}

#[test]
fn the_end_of_a_run_that_was_killed_is_noted_by_the_next_one() {
    let ground = Ground::new();
    let path = ground.write("a", &[start("claude"), exec(1)]);
    let content = std::fs::read(&path).unwrap();
    std::fs::write(&path, &content[..content.len() - 10]).unwrap();
    ground.write("a", &[start("claude"), stop()]);
    let reading = ground.read("a");
    assert_eq!(reading.verdict, Verdict::Whole);
    let second_line = content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let bytes = (content.len() - 10 - second_line) as u64;
    let expected = [
        start("claude"),
        What::Mended { bytes },
        start("claude"),
        stop(),
    ];
    assert_eq!(said(&reading), expected);
}

#[test]
fn two_sessions_do_not_meet() {
    let ground = Ground::new();
    let (mut first, mut second) = (ground.open("a"), ground.open("b"));
    for _ in 0..3 {
        first.append(&start("one")).unwrap();
        second.append(&start("two")).unwrap();
    }
    drop((first, second));
    assert_eq!(said(&ground.read("a")), vec![start("one"); 3]);
    assert_eq!(said(&ground.read("b")), vec![start("two"); 3]);
}

#[test]
fn a_session_that_never_began_leaves_nothing() {
    let ground = Ground::new();
    drop(ground.open("a"));
    assert!(!ground.path("a").exists());
}

#[test]
fn repeated_refusals_are_counted_and_add_up_at_the_stop() {
    let ground = Ground::new();
    let mut journal = ground.open("a");
    for _ in 0..100 {
        journal
            .append(&refusal(RefusalKind::File, "/w/.envrc"))
            .unwrap();
    }
    journal.append(&stop()).unwrap();
    drop(journal);
    let said = said(&ground.read("a"));
    assert_eq!(said.len(), 9, "{said:?}");
    assert_eq!(said.last(), Some(&stop()));
    let counts = said.iter().map(|what| match what {
        What::Refusal { count, .. } => *count,
        _ => 0,
    });
    assert_eq!(counts.sum::<u64>(), 100);
}

#[test]
fn what_can_only_be_read_is_not_written() {
    let ground = Ground::new();
    let mut journal = ground.open("a");
    for what in [
        What::Other(serde_json::Map::new()),
        What::Cut {
            dropped: 0,
            last: String::new(),
            run: None,
        },
    ] {
        let error = journal.append(&what).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_text_is_read_as_it_was_written(
        texts in proptest::collection::vec(any::<String>(), 1..8),
        long in 0usize..20_000,
        number: i32,
    ) {
        let ground = Ground::new();
        let long: String = texts[0].chars().cycle().take(long).collect();
        let text = |at: usize| texts[at % texts.len()].clone();
        let all = [
            What::Exec { exec: 1, program: texts.clone(), cwd: Some(long.clone()) },
            What::Change { of: text(1), from: None, to: long.clone() },
            What::Signal { signal: number, by: text(2) },
            refusal(RefusalKind::Network, &long),
            What::Stop { outcome: text(3), by: text(4) },
        ];
        ground.write("a", &all);
        let reading = ground.read("a");
        prop_assert_eq!(&reading.verdict, &Verdict::Whole);
        let bounded: Vec<What> = all.iter().map(What::bounded).collect();
        prop_assert_eq!(said(&reading), bounded);
    }
}
