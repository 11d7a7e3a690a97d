//! What every test of logs needs: a folder, what is in it, a process of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cowork_linux::logs::{LogStore, Reader, Record, Stream};

/// How long a numbered line is.
pub(crate) const LINE: usize = 16;

pub(crate) fn line(number: u64) -> String {
    format!("{number:015}\n")
}

/// The folder of one test, gone after it.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("cowork-test-")
        .tempdir()
        .unwrap()
}

pub(crate) fn read(folder: &Path) -> Vec<Record> {
    tail(folder, None)
}

pub(crate) fn tail(folder: &Path, lines: Option<usize>) -> Vec<Record> {
    let reader = Reader::open(folder).unwrap();
    let records = reader.records(None, lines).unwrap();
    records.map(Result::unwrap).collect()
}

/// Everything of one stream, in one piece.
pub(crate) fn joined(records: &[Record], stream: Stream) -> Vec<u8> {
    let of_stream = records.iter().filter(|record| record.stream == stream);
    of_stream.flat_map(|record| record.bytes.clone()).collect()
}

pub(crate) fn notes(records: &[Record]) -> Vec<String> {
    let notes = records
        .iter()
        .filter(|record| record.stream == Stream::Note);
    notes
        .map(|record| String::from_utf8(record.bytes.clone()).unwrap())
        .collect()
}

/// The number at the beginning of a note that says how much of something is missing.
pub(crate) fn count(note: &str) -> u64 {
    note.split(' ').next().unwrap().parse().unwrap()
}

/// The files of a log, and nothing else may be there.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("log."), "{name}");
    }
    files
}

/// What a log takes on disk.
pub(crate) fn size(folder: &Path) -> u64 {
    let files = files(folder);
    files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

/// A log with these records, all printed to the standard output.
pub(crate) fn log_of(folder: &Path, records: &[&[u8]]) {
    let mut store = LogStore::open(folder, 1 << 20).unwrap();
    for record in records {
        store.write(Stream::Out, record);
    }
    assert_eq!(store.lost(), 0);
}

/// Bytes that look like anything but a pattern, the same every time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

const FOLDER: &str = "COWORK_TEST_LOG";

/// This program once more, to run one test that is a process of another's.
pub(crate) fn process(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(process_arguments(test)).env(FOLDER, folder);
    command
}

pub(crate) fn process_arguments(test: &str) -> [&str; 5] {
    [test, "--exact", "--ignored", "--nocapture", "--quiet"]
}

/// The folder that [`process`] was given.
pub(crate) fn given_folder() -> PathBuf {
    std::env::var_os(FOLDER)
        .expect("started by another test")
        .into()
}

/// A line of /proc/self/status, in KiB.
pub(crate) fn memory(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
