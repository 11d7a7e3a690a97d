//! Files as a crash, a power cut or somebody else leaves them.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use cowork_linux::logs::{LogError, LogStore, Reader, Stream, Unfit, is_being_written};
use proptest::prelude::*;

use crate::shop::{count, folder, joined, log_of, noise, notes, read};

const RECORDS: [&[u8]; 3] = [b"first\n", b"second \xff\x00\n", b"third\n"];

/// How many bytes of `RECORDS` lie in whole records of a file cut at this length.
fn whole_records(ends: &[u64], length: u64) -> usize {
    ends.iter().filter(|end| **end <= length).count()
}

/// Where each record of `RECORDS` ends in a file that holds them, and the file.
fn cut_marks(at: &Path) -> (Vec<u64>, Vec<u8>) {
    let mut store = LogStore::open(at, 1 << 20).unwrap();
    let file = at.join("log.0");
    let mut ends = vec![file.metadata().unwrap().len()];
    for record in RECORDS {
        store.write(Stream::Out, record);
        ends.push(file.metadata().unwrap().len());
    }
    (ends, fs::read(file).unwrap())
}

#[test]
fn a_log_cut_anywhere_shows_what_is_whole_and_goes_on() {
    let whole = folder();
    let (ends, bytes) = cut_marks(whole.path());
    for length in 0..bytes.len() {
        let folder = folder();
        let file = folder.path().join("log.0");
        fs::write(&file, &bytes[..length]).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let whole = whole_records(&ends, length as u64).saturating_sub(1);
        let expected = RECORDS[..whole].concat();
        let is_clean = ends.contains(&(length as u64));

        let records = read(folder.path());
        assert_eq!(joined(&records, Stream::Out), expected, "cut at {length}");
        assert_eq!(notes(&records).is_empty(), is_clean, "cut at {length}");

        log_of(folder.path(), &[b"after\n"]);
        let records = read(folder.path());
        let after = [expected, b"after\n".to_vec()].concat();
        assert_eq!(joined(&records, Stream::Out), after, "cut at {length}");
        assert_eq!(notes(&records).is_empty(), is_clean, "cut at {length}");
    }
}

#[test]
fn zeros_where_bytes_should_be_are_told_and_not_shown() {
    let whole = folder();
    let (ends, bytes) = cut_marks(whole.path());
    for from in ends[0] as usize..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[from..].fill(0);
        bytes.extend_from_slice(&[0; 5000]);
        fs::write(whole.path().join("log.0"), &bytes).unwrap();
        let records = read(whole.path());
        let intact = whole_records(&ends, from as u64) - 1;
        let shown = joined(&records, Stream::Out);
        assert_eq!(shown, RECORDS[..intact].concat(), "from {from}");
        assert!(!notes(&records).is_empty(), "from {from}");
    }
}

proptest! {
    #[test]
    fn damage_costs_the_records_it_lies_in(
        from: proptest::sample::Index,
        length in 1usize..4000,
        zeros: bool,
        sizes in proptest::collection::vec(1usize..600, 20),
    ) {
        let folder = folder();
        let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
        let file = folder.path().join("log.0");
        let mut marks = vec![file.metadata().unwrap().len() as usize];
        for (number, size) in sizes.iter().enumerate() {
            // A first byte by which to know them.
            let bytes = [&[number as u8], &noise(*size)[..]].concat();
            store.write(Stream::Out, &bytes);
            marks.push(file.metadata().unwrap().len() as usize);
        }
        drop(store);
        let whole = fs::read(&file).unwrap();
        let from = from.index(whole.len());
        let mut bytes = whole.clone();
        for (byte, other) in bytes[from..].iter_mut().zip(noise(length)) {
            *byte = if zeros { 0 } else { other };
        }
        let is_same = |from: usize, to: usize| whole[from..to] == bytes[from..to];
        prop_assume!(!is_same(0, whole.len()));
        fs::write(&file, &bytes).unwrap();

        let records = read(folder.path());
        prop_assert!(!notes(&records).is_empty());
        let shown: Vec<u8> = records
            .iter()
            .filter(|record| record.stream == Stream::Out)
            .map(|record| record.bytes[0])
            .collect();
        let is_intact = |number: &u8| {
            let number = usize::from(*number);
            is_same(0, marks[0]) && is_same(marks[number], marks[number + 1])
        };
        let intact: Vec<u8> = (0..sizes.len() as u8).filter(is_intact).collect();
        prop_assert_eq!(shown, intact);
    }

    #[test]
    fn files_of_any_content_are_read_without_harm(
        contents in proptest::collection::vec(proptest::option::of(
            proptest::collection::vec(any::<u8>(), 0..300)), 4),
    ) {
        let folder = folder();
        for (number, bytes) in contents.iter().enumerate() {
            if let Some(bytes) = bytes {
                fs::write(folder.path().join(format!("log.{number}")), bytes).unwrap();
            }
        }
        let bad = contents.iter().flatten().count();
        prop_assert_eq!(notes(&read(folder.path())).len(), bad);
        log_of(folder.path(), &[b"fresh"]);
        prop_assert_eq!(joined(&read(folder.path()), Stream::Out), b"fresh");
    }
}

#[test]
fn a_program_cannot_print_a_record_of_its_own() {
    let forged = folder();
    log_of(forged.path(), &[b"forged"]);
    let forged = fs::read(forged.path().join("log.0")).unwrap();
    let folder = folder();
    let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
    let file = folder.path().join("log.0");
    let header = file.metadata().unwrap().len() as usize;
    store.write(Stream::Out, &forged);
    store.write(Stream::Out, b"true");
    // Now the record's own header is lost, and its bytes are searched for the next one.
    let mut bytes = fs::read(&file).unwrap();
    bytes[header] ^= 1;
    fs::write(&file, bytes).unwrap();
    let records = read(folder.path());
    assert_eq!(joined(&records, Stream::Out), b"true");
    assert_eq!(notes(&records).len(), 1);
}

#[test]
fn a_damaged_file_full_of_beginnings_is_not_searched_for_ever() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), 16 << 20).unwrap();
    let file = folder.path().join("log.0");
    let header = file.metadata().unwrap().len() as usize;
    let beginnings = b"\xc7\x01\x00\x80\x00\x00".repeat(600_000);
    store.write(Stream::Out, &beginnings);
    drop(store);
    let mut bytes = fs::read(&file).unwrap();
    // Every header goes, so that every byte has to be looked at.
    let piece = (32 << 10) + 22;
    (header..bytes.len())
        .step_by(piece)
        .for_each(|at| bytes[at] = 0);
    fs::write(&file, bytes).unwrap();
    let begun = Instant::now();
    let records = read(folder.path());
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(joined(&records, Stream::Out), b"");
    assert_eq!(notes(&records).len(), 1, "{:?}", notes(&records));
    assert!(count(&notes(&records)[0]) as usize > beginnings.len());
}

#[track_caller]
fn refused(folder: &Path, expected: Unfit, named: &Path) {
    let reading = Reader::open(folder).map(drop);
    let writing = LogStore::open(folder, 1 << 20).map(drop);
    for refusal in [reading, writing] {
        match refusal {
            Err(ref error @ LogError::Unfit { ref path, why }) => {
                assert_eq!((path.as_path(), why), (named, expected));
                let help = error.help().unwrap();
                assert!(help.contains(named.to_str().unwrap()), "{help}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_but_a_file_of_ones_own_is_read_or_written() {
    for name in ["log.0", "log.1", "log.3"] {
        let folder = folder();
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        let file = folder.path().join(name);

        symlink(&elsewhere, &file).unwrap();
        refused(folder.path(), Unfit::Symlink, &file);
        fs::remove_file(&file).unwrap();
        symlink("nowhere", &file).unwrap();
        refused(folder.path(), Unfit::Symlink, &file);
        fs::remove_file(&file).unwrap();

        fs::hard_link(&elsewhere, &file).unwrap();
        refused(folder.path(), Unfit::Linked, &file);
        fs::remove_file(&file).unwrap();

        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused(folder.path(), Unfit::NotAFile, &file);
        fs::remove_file(&file).unwrap();

        fs::create_dir(&file).unwrap();
        refused(folder.path(), Unfit::NotAFile, &file);
        fs::remove_dir(&file).unwrap();

        let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
        refused(folder.path(), Unfit::NotAFile, &file);
        fs::remove_file(&file).unwrap();

        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o660)).unwrap();
        refused(folder.path(), Unfit::Writable(0o660), &file);
        if nix::unistd::geteuid().is_root() {
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            chown(&file, Some(12345), None).unwrap();
            refused(folder.path(), Unfit::Owner(12345), &file);
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
        assert!(!folder.path().join("nowhere").exists());
    }
}

#[test]
fn nothing_but_a_folder_of_ones_own_is_looked_into() {
    let outer = folder();
    let real = outer.path().join("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
    let link = outer.path().join("link");
    symlink(&real, &link).unwrap();
    refused(&link, Unfit::Symlink, &link);
    let file = outer.path().join("file");
    fs::write(&file, "").unwrap();
    refused(&file, Unfit::NotAFolder, &file);
    fs::set_permissions(&real, Permissions::from_mode(0o770)).unwrap();
    refused(&real, Unfit::Writable(0o770), &real);
    match nix::unistd::geteuid().is_root() {
        true => {
            fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
            chown(&real, Some(12345), None).unwrap();
            refused(&real, Unfit::Owner(12345), &real);
        }
        false => {
            let theirs = Path::new("/etc");
            assert_ne!(
                theirs.metadata().unwrap().uid(),
                nix::unistd::geteuid().as_raw()
            );
            refused(theirs, Unfit::Owner(0), theirs);
        }
    }
    let missing = Reader::open(&outer.path().join("missing")).unwrap_err();
    assert!(missing.help().unwrap().contains("cowork-linux ls"));
}

#[test]
fn half_a_record_is_nothing_to_tell_while_somebody_writes() {
    let folder = folder();
    let file = folder.path().join("log.0");
    let mut store = LogStore::open(folder.path(), 1 << 20).unwrap();
    let before = file.metadata().unwrap().len() as usize;
    store.write(Stream::Out, b"whole");
    let record = fs::read(&file).unwrap()[before..].to_vec();
    let mut writer = fs::File::options().append(true).open(&file).unwrap();
    writer.write_all(&record[..record.len() - 1]).unwrap();
    let records = read(folder.path());
    assert_eq!(
        (records.len(), joined(&records, Stream::Out)),
        (1, b"whole".to_vec())
    );
    drop(store);
    let records = read(folder.path());
    assert_eq!(count(&notes(&records)[0]) as usize, record.len() - 1);
    writer.write_all(&record[record.len() - 1..]).unwrap();
    assert_eq!(joined(&read(folder.path()), Stream::Out), b"wholewhole");
}

/// Second descriptors for what this process has open under a name.
fn copies_of(path: &Path) -> Vec<OwnedFd> {
    let path = fs::canonicalize(path).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == path))
        .map(|entry| {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: the only one who could close it is the caller, which waits for this.
            let open = unsafe { BorrowedFd::borrow_raw(number) };
            open.try_clone_to_owned().unwrap()
        })
        .collect()
}

#[test]
fn one_writes_at_a_time_and_one_can_tell() {
    let folder = folder();
    assert!(!is_being_written(folder.path()));
    let mut store = LogStore::open(folder.path(), 8 << 10).unwrap();
    for _ in 0..100 {
        assert!(is_being_written(folder.path()));
        let second = LogStore::open(folder.path(), 8 << 10);
        assert!(matches!(second, Err(LogError::InUse { .. })), "{second:?}");
        store.write(Stream::Out, &[b'x'; 500]);
    }
    // A child that was started meanwhile may have every descriptor of ours.
    let copies = copies_of(&folder.path().join("log.0"));
    drop(store);
    assert!(!copies.is_empty() && !is_being_written(folder.path()));
    LogStore::open(folder.path(), 8 << 10).unwrap();
}
