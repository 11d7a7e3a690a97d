//! What programs print, on its way into a log: in turns, within bounds, on full disks.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use cowork_linux::logs::{DEFAULT_LIMIT, Heard, LogStore, Pump, Reader, Recent, Stream};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::shop::{
    LINE, count, folder, given_folder, joined, line, memory, noise, notes, process,
    process_arguments, read, size,
};

/// One turn, after something has happened at the other end. A process that is just being started
/// by another test may have a copy of that end for a moment.
fn turn(pump: &mut Pump, store: &mut LogStore, seen: &mut Vec<u8>) -> Heard {
    let mut interests = Vec::new();
    pump.interests(&mut interests);
    if !interests.is_empty() {
        nix::poll::poll(&mut interests, nix::poll::PollTimeout::NONE).unwrap();
    }
    let stream = pump.stream();
    let heard = pump.progress(store, &mut |of, bytes| {
        assert_eq!(of, stream);
        seen.extend_from_slice(bytes);
    });
    heard.unwrap()
}

#[test]
fn a_flood_gets_its_turn_and_no_more() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), DEFAULT_LIMIT).unwrap();
    let (end, mut program) = std::io::pipe().unwrap();
    let room = fcntl(&program, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap() as usize;
    let printed = noise(room);
    program.write_all(&printed).unwrap();
    drop(program);
    let mut pump = Pump::new(end.into(), Stream::Err).unwrap();
    let mut watched = Vec::new();
    let mut turns = 0;
    loop {
        let before = watched.len();
        let heard = turn(&mut pump, &mut store, &mut watched);
        assert!(watched.len() - before <= 80 << 10);
        turns += 1;
        match heard {
            Heard::More => {}
            Heard::NothingNow => assert_eq!(watched.len(), room),
            Heard::Ended => break,
        }
    }
    assert!(turns > room / (80 << 10), "{turns}");
    assert!(watched == printed && joined(&read(folder.path()), Stream::Err) == printed);
    assert!(pump.pipe().is_none());
}

#[test]
fn a_quiet_program_is_not_waited_for() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), DEFAULT_LIMIT).unwrap();
    let (end, mut program) = std::io::pipe().unwrap();
    let mut pump = Pump::new(end.into(), Stream::Out).unwrap();
    let heard = pump.progress(&mut store, &mut |_, _| panic!("nothing was printed"));
    assert_eq!(heard.unwrap(), Heard::NothingNow);
    program.write_all(b"hello").unwrap();
    let mut seen = Vec::new();
    assert_eq!(turn(&mut pump, &mut store, &mut seen), Heard::NothingNow);
    drop(program);
    for _ in 0..2 {
        assert_eq!(turn(&mut pump, &mut store, &mut seen), Heard::Ended);
    }
    assert_eq!(joined(&read(folder.path()), Stream::Out), b"hello");
    assert_eq!(seen, b"hello");
}

#[test]
fn a_terminal_that_is_closed_is_the_end_and_not_an_error() {
    let folder = folder();
    let mut store = LogStore::open(folder.path(), DEFAULT_LIMIT).unwrap();
    let pair = nix::pty::openpty(None, None).unwrap();
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    let mut pump = Pump::new(pair.master, Stream::Out).unwrap();
    nix::unistd::write(&pair.slave, b"bye\n").unwrap();
    drop(pair.slave);
    let mut seen = Vec::new();
    while turn(&mut pump, &mut store, &mut seen) != Heard::Ended {
        assert!(seen.len() <= 5);
    }
    assert_eq!(joined(&read(folder.path()), Stream::Out), b"bye\r\n");
}

/// Fails when the memory has grown since `early` by more than an allocator's mood.
#[track_caller]
fn assert_not_grown(early: Option<u64>) {
    let (early, late) = (early.unwrap(), memory("VmRSS:"));
    assert!(late <= early + 512, "from {early} to {late} KiB");
}

/// Pumps 256 MiB of what a program prints into a log of 1 MiB, then reads the log.
#[test]
#[ignore = "a process that another test starts"]
fn pumping_supervisor() {
    const LITTLE: u64 = 4 << 20;
    let folder = given_folder();
    let mut program = Command::new("head")
        .args(["-c", "256M", "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut store = LogStore::open(&folder, 1 << 20).unwrap();
    let mut pump = Pump::new(program.stdout.take().unwrap().into(), Stream::Out).unwrap();
    let mut recent = Recent::new();
    let (mut taken, mut early) = (0, None);
    loop {
        let mut interests = Vec::new();
        pump.interests(&mut interests);
        nix::poll::poll(&mut interests, nix::poll::PollTimeout::NONE).unwrap();
        let heard = pump.progress(&mut store, &mut |stream, bytes| {
            taken += bytes.len() as u64;
            recent.push(stream, bytes);
        });
        assert!(size(&folder) <= 1 << 20);
        if taken > LITTLE {
            early.get_or_insert_with(|| memory("VmRSS:"));
        }
        if heard.unwrap() == Heard::Ended {
            break;
        }
    }
    program.wait().unwrap();
    assert_eq!(taken, 256 << 20);
    assert_not_grown(early);

    let reader = Reader::open(&folder).unwrap();
    let mut early = None;
    for _ in 0..20 {
        for record in reader.records(None, Some(1_000_000_000)).unwrap() {
            record.unwrap();
            early.get_or_insert_with(|| memory("VmRSS:"));
        }
    }
    assert_not_grown(early);
}

#[test]
fn neither_a_flood_nor_reading_it_takes_more_memory_or_disk_with_time() {
    let folder = folder();
    let ran = process("pumping::pumping_supervisor", folder.path()).output();
    assert_ran(&ran.unwrap());
}

/// Writes to a log on a disk of 256 KiB, half of which is taken by something else.
#[test]
#[ignore = "a process that another test starts"]
fn writer_on_a_full_disk() {
    let disk = given_folder();
    let other = disk.join("other");
    fs::write(&other, vec![0; 128 << 10]).unwrap();
    let log = disk.join("log");
    fs::create_dir(&log).unwrap();
    let mut store = LogStore::open(&log, 1 << 20).unwrap();
    let mut numbers = 0..1_000_000;
    for number in numbers.by_ref() {
        store.write(Stream::Out, line(number).as_bytes());
        if store.lost() >= 10 * LINE as u64 {
            break;
        }
    }
    store.note("a remark is not worth a note about its loss");
    let lost = store.lost();
    assert_eq!(lost, 10 * LINE as u64);
    fs::remove_file(&other).unwrap();
    store.write(Stream::Out, b"after\n");
    assert_eq!(store.lost(), lost);

    let records = read(&log);
    let kept = joined(&records, Stream::Out);
    let written: String = (0..numbers.start - 10).map(line).collect();
    assert!(kept == format!("{written}after\n").into_bytes());
    let [note] = &notes(&records)[..] else {
        panic!("{:?}", notes(&records));
    };
    assert_eq!(count(note), lost);
    assert!(note.ends_with("No space left on device"), "{note}");
    assert_eq!(records[records.len() - 2].stream, Stream::Note);

    // Full from the first byte on, and until the end.
    let second = disk.join("second");
    fs::create_dir(&second).unwrap();
    let _ = fs::write(&other, vec![0; 512 << 10]);
    let mut store = LogStore::open(&second, 1 << 20).unwrap();
    for _ in 0..1000 {
        store.write(Stream::Out, &[b'x'; 1000]);
    }
    assert_eq!(store.lost(), 1_000_000);
    fs::remove_file(&other).unwrap();
    drop(store);
    let [note] = &notes(&read(&second))[..] else {
        panic!("{:?}", notes(&read(&second)));
    };
    assert_eq!(count(note), 1_000_000);
}

#[test]
fn a_full_disk_costs_what_did_not_fit_and_says_so() {
    let folder = folder();
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["-U", "-r"]);
    }
    let script = "mount -t tmpfs -o size=256k,mode=700 tmpfs \"$COWORK_TEST_LOG\" && exec \"$@\"";
    let ran = command
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(process_arguments("pumping::writer_on_a_full_disk"))
        .env("COWORK_TEST_LOG", folder.path())
        .output()
        .unwrap();
    assert_ran(&ran);
}

#[track_caller]
fn assert_ran(ran: &std::process::Output) {
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}{complained}"
    );
}

/// A process that may not make large files would be ended by a signal if it did.
#[test]
#[ignore = "a process that another test starts"]
fn writer_with_a_limit() {
    let folder = given_folder();
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, 8 << 10, hard).unwrap();
    let written = noise(100_000);
    let mut store = LogStore::open(&folder, 1 << 20).unwrap();
    written
        .chunks(999)
        .for_each(|piece| store.write(Stream::Out, piece));
    assert_eq!(store.lost(), 0);
    let kept = joined(&read(&folder), Stream::Out);
    assert!(written.ends_with(&kept) && kept.len() > 16 << 10);
    drop(store);

    setrlimit(Resource::RLIMIT_FSIZE, 100, hard).unwrap();
    let mut store = LogStore::open(&folder, 1 << 20).unwrap();
    store.write(Stream::Out, &written);
    assert_eq!(store.lost(), 100_000);
    drop(store);
    assert_eq!(joined(&read(&folder), Stream::Out), kept);
}

#[test]
fn a_limit_on_files_does_not_end_the_session() {
    let folder = folder();
    let ran = process("pumping::writer_with_a_limit", folder.path()).output();
    assert_ran(&ran.unwrap());
}

#[test]
fn a_folder_that_vanishes_is_no_reason_to_stop() {
    let folder = folder();
    let log = folder.path().join("log");
    fs::create_dir(&log).unwrap();
    let mut store = LogStore::open(&log, 8 << 10).unwrap();
    fs::remove_dir_all(&log).unwrap();
    for _ in 0..100 {
        store.write(Stream::Out, &[b'x'; 500]);
    }
    assert!(store.lost() > 0);
    assert!(!Path::new(&log).exists());
}
