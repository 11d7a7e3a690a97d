//! Logs while they are written: followed, flooded, by processes that are killed.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use cowork_linux::logs::{LogStore, Reader, Stream, is_being_written};

use crate::shop::{LINE, count, folder, given_folder, line, log_of, process, read, size};

/// A process that does not outlive its test.
struct Started(std::process::Child);

impl Started {
    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_missed_across_rotations_by_one_who_follows() {
    const LINES: u64 = 5000;
    let folder = folder();
    let reader = Reader::open(folder.path()).unwrap();
    let over = AtomicBool::new(false);
    // As far as the writer may be ahead: less than the log holds.
    let (ahead, shown) = sync_channel(50);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut store = LogStore::open(folder.path(), 5 << 10).unwrap();
            for number in 0..LINES {
                ahead.send(()).unwrap();
                let text = line(number);
                let (start, end) = text.split_at(number as usize % LINE);
                store.write(Stream::Out, start.as_bytes());
                store.write(Stream::Out, end.as_bytes());
            }
            over.store(true, Ordering::SeqCst);
        });
        let mut seen = Vec::new();
        let mut acknowledged = 0;
        for record in reader
            .follow(None, None, || over.load(Ordering::SeqCst))
            .unwrap()
        {
            let record = record.unwrap();
            assert_eq!(record.stream, Stream::Out, "{record:?}");
            seen.extend_from_slice(&record.bytes);
            while acknowledged < seen.len() / LINE {
                shown.recv().unwrap();
                acknowledged += 1;
            }
        }
        let expected: String = (0..LINES).map(line).collect();
        assert!(seen == expected.as_bytes());
    });
}

#[test]
fn following_from_the_end_shows_only_news() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
    store.write(Stream::Out, b"old\nunfinished");
    let reader = Reader::open(folder.path()).unwrap();
    let mut asked = 0;
    let followed = reader.follow(None, Some(0), || {
        asked += 1;
        store.write(Stream::Out, format!(" {asked}").as_bytes());
        asked == 3
    });
    let seen: Vec<u8> = followed
        .unwrap()
        .flat_map(|record| record.unwrap().bytes)
        .collect();
    assert_eq!(seen, b" 1 2 3");
}

#[test]
fn what_comes_while_one_reads_is_left_to_those_who_follow() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
    (0..3).for_each(|number| store.write(Stream::Out, line(number).as_bytes()));
    let reader = Reader::open(folder.path()).unwrap();
    for lines in [None, Some(3)] {
        let mut seen = 0;
        for record in reader.records(None, lines).unwrap() {
            assert_eq!(record.unwrap().bytes.len(), LINE);
            seen += 1;
            assert!(seen <= 3, "there is no end to it");
            store.write(Stream::Out, line(3).as_bytes());
        }
        assert_eq!(seen, 3);
    }
}

#[test]
#[ignore = "a process that another test starts"]
fn flooding_writer() {
    let mut store = LogStore::open(&given_folder(), 256 << 10).unwrap();
    let parent = nix::unistd::getppid();
    for number in 0.. {
        store.write(Stream::Out, line(number).as_bytes());
        if number % 1000 == 0 {
            assert_eq!(nix::unistd::getppid(), parent, "nobody is left to end this");
        }
    }
}

/// Checks that lines follow each other, but for those that a note says are missing.
#[derive(Default)]
struct Sequence {
    next: u64,
    part: Vec<u8>,
}

impl Sequence {
    #[track_caller]
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Note {
            let note = str::from_utf8(bytes).unwrap();
            if note.contains("made room") {
                assert!(self.part.is_empty());
                assert_eq!(count(note) % LINE as u64, 0);
                self.next += count(note) / LINE as u64;
            } else {
                assert!(note.contains("never written whole"), "{note}");
            }
            return;
        }
        self.part.extend_from_slice(bytes);
        while let Some((text, _)) = self.part.split_at_checked(LINE) {
            assert_eq!(text, line(self.next).as_bytes());
            self.next += 1;
            self.part.drain(..LINE);
        }
    }
}

#[test]
fn one_who_follows_sees_the_last_words_of_a_writer_that_is_killed() {
    for round in 0..4 {
        let folder = folder();
        let mut writer = Started(
            process("live::flooding_writer", folder.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let mut is_running = true;
        let mut sequence = Sequence::default();
        let mut last_seen = Instant::now();
        let reader = Reader::open(folder.path()).unwrap();
        let over = std::cell::Cell::new(false);
        for record in reader.follow(None, None, || over.get()).unwrap() {
            let record = record.unwrap();
            sequence.take(record.stream, &record.bytes);
            if is_running && sequence.next > 2000 * round + 7 {
                assert!(is_being_written(folder.path()));
                writer.end();
                is_running = false;
                over.set(true);
                last_seen = Instant::now();
            }
        }
        assert!(!is_running && last_seen.elapsed() < Duration::from_secs(10));
        assert!(!is_being_written(folder.path()));

        // Somebody who comes later sees the same end, and a new session goes on after it.
        let mut later = Sequence::default();
        for record in read(folder.path()) {
            later.take(record.stream, &record.bytes);
        }
        assert_eq!(later.next, sequence.next);
        log_of(folder.path(), &[line(later.next).as_bytes()]);
        let mut later = Sequence::default();
        for record in read(folder.path()) {
            later.take(record.stream, &record.bytes);
        }
        assert_eq!(later.next, sequence.next + 1);
        assert!(size(folder.path()) <= (1 << 20) + (256 << 10));
    }
}

/// How long it takes until one who follows is asked again after the writer was killed.
fn time_to_wake() -> Duration {
    let folder = folder();
    let mut writer = Started(
        process("live::silent_writer", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let reader = Reader::open(folder.path()).unwrap();
    let mut killed = None;
    let said = reader.follow(None, None, || match killed {
        Some(_) => !is_being_written(folder.path()),
        None => {
            if !read(folder.path()).is_empty() {
                writer.0.kill().unwrap();
                killed = Some(Instant::now());
            }
            false
        }
    });
    let said: Vec<Vec<u8>> = said.unwrap().map(|record| record.unwrap().bytes).collect();
    assert_eq!(said, [b"here"]);
    killed.unwrap().elapsed()
}

#[test]
fn the_death_of_a_writer_wakes_one_who_waits() {
    // On a machine with much to do one try may be slow; looking once a second always would be.
    let times: Vec<Duration> = (0..5).map(|_| time_to_wake()).collect();
    let shortest = times.iter().min().unwrap();
    assert!(*shortest < Duration::from_millis(500), "{times:?}");
}

#[test]
#[ignore = "a process that another test starts"]
fn silent_writer() {
    let mut store = LogStore::open(&given_folder(), 1 << 20).unwrap();
    store.write(Stream::Out, b"here");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn many_read_and_follow_while_one_floods() {
    let folder = folder();
    let mut writer = Started(
        process("live::flooding_writer", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let reader = Reader::open(folder.path()).unwrap();
    reader.follow(None, None, || false).unwrap().next();
    // Each of these ends, although the log never does.
    for lines in [None, Some(10), Some(0), Some(1_000_000)] {
        let mut records = reader.records(None, lines).unwrap().map(Result::unwrap);
        let mut sequence = Sequence::default();
        let first = records.find(|record| record.stream == Stream::Out);
        if let Some(first) = first {
            sequence.next = str::from_utf8(&first.bytes)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            sequence.take(first.stream, &first.bytes);
        }
        records.for_each(|record| sequence.take(record.stream, &record.bytes));
    }
    writer.end();
    assert!(size(folder.path()) <= 256 << 10);
    let last: Vec<_> = reader
        .records(None, Some(10))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        last.iter()
            .filter(|record| record.stream == Stream::Out)
            .count(),
        10
    );
}
