//! What is read is what was written, as much of it as there is room for.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::SystemTime;

use cowork_linux::logs::{DEFAULT_LIMIT, LogStore, Reader, Stream};
use proptest::prelude::*;

use crate::shop::{count, files, folder, joined, log_of, noise, notes, read, size, tail};

#[test]
fn every_byte_comes_back_on_its_stream_with_its_time() {
    let folder = folder();
    let before = SystemTime::now();
    let mut store = LogStore::open(folder.path(), DEFAULT_LIMIT).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    store.write(Stream::Out, &all);
    store.write(Stream::Err, b"");
    store.write(Stream::Err, &all);
    store.note("a remark");
    let records = read(folder.path());
    let said: Vec<(Stream, &[u8])> = records
        .iter()
        .map(|record| (record.stream, record.bytes.as_slice()))
        .collect();
    assert_eq!(
        said,
        [
            (Stream::Out, all.as_slice()),
            (Stream::Err, &all),
            (Stream::Note, b"a remark")
        ]
    );
    for record in records {
        let late = record.at.duration_since(before).unwrap_or_default();
        assert!(late.as_secs() < 60, "{late:?}");
    }
}

#[test]
fn only_the_owner_may_read_it() {
    let folder = folder();
    log_of(folder.path(), &[b"secret"]);
    let file = folder.path().join("log.0").metadata().unwrap();
    assert_eq!(file.permissions().mode() & 0o7777, 0o600);
}

#[test]
fn fifty_mebibytes_through_one_leave_the_last_one() {
    const LIMIT: u64 = 1 << 20;
    const TOTAL: usize = 50 << 20;
    let folder = folder();
    let written = noise(TOTAL);
    let mut store = LogStore::open(folder.path(), LIMIT).unwrap();
    let mut largest = 0;
    for (number, piece) in written.chunks(10_007).enumerate() {
        store.write(Stream::Out, piece);
        if number % 16 == 0 {
            largest = largest.max(size(folder.path()));
        }
    }
    largest = largest.max(size(folder.path()));
    let blocks: u64 = files(folder.path())
        .iter()
        .map(|file| file.metadata().unwrap().blocks() * 512)
        .sum();
    assert!(largest <= LIMIT, "{largest}");
    assert!(blocks <= LIMIT + 4 * 4096, "{blocks}");

    let records = read(folder.path());
    let kept = joined(&records, Stream::Out);
    assert!(written.ends_with(&kept));
    assert!(kept.len() as u64 > LIMIT * 7 / 10, "{}", kept.len());
    let [note] = &notes(&records)[..] else {
        panic!("{:?}", notes(&records));
    };
    assert!(note.contains("made room"), "{note}");
    assert_eq!(count(note) as usize, TOTAL - kept.len());
}

#[test]
fn a_smaller_limit_counts_from_the_next_start_on() {
    let folder = folder();
    let written = noise(1 << 20);
    let mut store = LogStore::open(folder.path(), 2 << 20).unwrap();
    store.write(Stream::Out, &written);
    drop(store);
    let mut store = LogStore::open(folder.path(), 64 << 10).unwrap();
    assert!(size(folder.path()) <= 64 << 10);
    store.write(Stream::Out, b"the end");
    let kept = joined(&read(folder.path()), Stream::Out);
    assert!(kept.ends_with(b"the end") && size(folder.path()) <= 64 << 10);
}

#[test]
fn a_log_goes_on_after_its_session_has_been_started_again() {
    let folder = folder();
    for number in 0..20 {
        let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
        store.write(Stream::Out, format!("{number}\n").as_bytes());
    }
    let expected: String = (0..20).map(|number| format!("{number}\n")).collect();
    let records = read(folder.path());
    assert_eq!(joined(&records, Stream::Out), expected.as_bytes());
    assert!(notes(&records).is_empty());
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn what_was_printed_before_a_time_is_left_out() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
    store.write(Stream::Out, b"early\n");
    let early = read(folder.path())[0].at;
    let since = loop {
        let now = SystemTime::now();
        if now.duration_since(early).unwrap_or_default().as_millis() > 1 {
            break now;
        }
    };
    // Records count milliseconds; this one must not be in the same as `since`.
    while SystemTime::now()
        .duration_since(since)
        .unwrap_or_default()
        .as_millis()
        < 1
    {}
    store.write(Stream::Err, b"late\nlater\n");
    let reader = Reader::open(folder.path()).unwrap();
    let shown = |since, lines| -> Vec<Vec<u8>> {
        let records = reader.records(since, lines).unwrap();
        records.map(|record| record.unwrap().bytes).collect()
    };
    assert_eq!(shown(Some(since), None), [b"late\nlater\n"]);
    assert_eq!(shown(Some(since), Some(9)), [b"late\nlater\n"]);
    assert_eq!(shown(Some(since), Some(1)), [b"later\n"]);
    assert_eq!(shown(Some(early), None).len(), 2);
    assert!(
        shown(
            Some(SystemTime::now() + std::time::Duration::from_secs(60)),
            None
        )
        .is_empty()
    );
}

/// The last lines, found the slow way: every byte of a program knows the number of its line.
fn last_lines(written: &[(Stream, Vec<u8>)], count: u64) -> Vec<(Stream, u8)> {
    let (mut begun, mut open) = (0, [None; 3]);
    let mut bytes = Vec::new();
    for (stream, piece) in written {
        for byte in piece {
            let line = *open[*stream as usize].get_or_insert_with(|| {
                begun += 1;
                begun
            });
            if *byte == b'\n' {
                open[*stream as usize] = None;
            }
            bytes.push((line, *stream, *byte));
        }
    }
    bytes.retain(|(line, ..)| *line + count > begun);
    bytes
        .into_iter()
        .map(|(_, stream, byte)| (stream, byte))
        .collect()
}

fn printed() -> impl Strategy<Value = Vec<(Stream, Vec<u8>)>> {
    let stream = prop_oneof![Just(Stream::Out), Just(Stream::Err)];
    let bytes = prop_oneof![
        4 => "[ab\n]{0,12}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..1500),
    ];
    proptest::collection::vec((stream, bytes), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Sizes are such that records meet the end of a file at every offset.
    #[test]
    fn rotation_loses_the_oldest_and_nothing_else(
        sizes in proptest::collection::vec(0usize..1500, 0..80),
        limit in 4096u64..9000,
        restart in 0usize..80,
    ) {
        let folder = folder();
        let limit = limit.max(5 << 10);
        let written = noise(sizes.iter().sum());
        let mut store = LogStore::open(folder.path(), limit).unwrap();
        let mut rest = written.as_slice();
        for (number, length) in sizes.into_iter().enumerate() {
            if number == restart {
                drop(store);
                store = LogStore::open(folder.path(), limit).unwrap();
            }
            let (piece, after) = rest.split_at(length);
            store.write(Stream::Out, piece);
            rest = after;
            prop_assert!(size(folder.path()) <= limit);
        }
        let records = read(folder.path());
        let kept = joined(&records, Stream::Out);
        prop_assert!(written.ends_with(&kept));
        let dropped: Vec<u64> = notes(&records).iter().map(|note| count(note)).collect();
        match (written.len() - kept.len()) as u64 {
            0 => prop_assert!(dropped.is_empty()),
            missing => prop_assert_eq!(dropped, [missing]),
        }
    }

    #[test]
    fn the_last_lines_are_the_last_lines(
        written in printed(),
        lines in 0u64..40,
        limit in prop_oneof![Just(1u64 << 20), Just(8u64 << 10)],
    ) {
        let folder = folder();
        let mut store = LogStore::open(folder.path(), limit).unwrap();
        for (stream, bytes) in &written {
            store.write(*stream, bytes);
        }
        // Of what is still there: the reading of everything is another test's.
        let kept: Vec<(Stream, Vec<u8>)> = read(folder.path())
            .into_iter()
            .filter(|record| record.stream != Stream::Note)
            .map(|record| (record.stream, record.bytes))
            .collect();
        let shown: Vec<(Stream, u8)> = tail(folder.path(), Some(lines as usize))
            .into_iter()
            .filter(|record| record.stream != Stream::Note)
            .flat_map(|record| record.bytes.into_iter().map(move |byte| (record.stream, byte)))
            .collect();
        prop_assert_eq!(shown, last_lines(&kept, lines));
    }
}
