//! Copies between the caller's regular files and the box's pipes.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cowork_linux::terminal::FileCopy;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{pipe, read, write};

/// A test that has not come to its end by then has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn nonblocking(fd: &OwnedFd) {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK)).unwrap();
}

fn try_read(fd: &OwnedFd, into: &mut Vec<u8>) {
    let mut buffer = [0; 65536];
    match read(fd, &mut buffer) {
        Ok(count) => into.extend_from_slice(&buffer[..count]),
        Err(Errno::EAGAIN) => {}
        Err(error) => panic!("reading: {error}"),
    }
}

fn try_write(fd: &OwnedFd, bytes: &[u8]) -> usize {
    match write(fd, bytes) {
        Ok(count) => count,
        Err(Errno::EAGAIN) => 0,
        Err(error) => panic!("writing: {error}"),
    }
}

fn pattern(len: usize) -> Vec<u8> {
    let line = "0123456789 abcdefghijklmnop größer 日本語\r\n".as_bytes();
    line.iter()
        .copied()
        .cycle()
        .take(len / line.len() * line.len())
        .collect()
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn run(copy: &mut FileCopy, mut between: impl FnMut()) {
    let start = Instant::now();
    while !copy.finished() && start.elapsed() < PATIENCE {
        copy.progress().unwrap();
        between();
    }
    assert!(copy.finished());
}

#[test]
fn a_redirected_input_arrives_whole_and_ends() {
    let data = pattern(3 << 20);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    file.seek(SeekFrom::Start(7)).unwrap();
    let (program, end) = pipe().unwrap();
    nonblocking(&program);
    let mut copy = FileCopy::inward(file.into(), end).unwrap();
    let mut heard = Vec::new();
    run(&mut copy, || try_read(&program, &mut heard));
    while heard.len() < data.len() - 7 {
        try_read(&program, &mut heard);
    }
    assert!(heard == data[7..]);
    assert_eq!(
        read(&program, &mut [0; 1]),
        Ok(0),
        "the end has come through"
    );
}

#[test]
fn what_the_program_did_not_read_is_left_for_the_next() {
    let data = pattern(1 << 20);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    file.rewind().unwrap();
    let (program, end) = pipe().unwrap();
    let mut copy = FileCopy::inward(file.try_clone().unwrap().into(), end).unwrap();
    copy.progress().unwrap();
    read(&program, &mut [0; 100]).unwrap();
    drop(program);
    copy.progress().unwrap();
    assert!(copy.finished());
    assert_eq!(file.stream_position().unwrap(), 100);
}

#[test]
fn a_redirected_output_is_written_whole_also_when_appending() {
    for append in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "before\n").unwrap();
        let mut file = File::options()
            .append(append)
            .write(true)
            .open(&path)
            .unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        let (end, program) = pipe().unwrap();
        fcntl(
            &program,
            FcntlArg::F_SETFL(OFlag::O_WRONLY | OFlag::O_NONBLOCK),
        )
        .unwrap();
        let mut copy = FileCopy::outward(end, file.into()).unwrap();
        let data = pattern(3 << 20);
        let (mut sent, mut program) = (0, Some(program));
        run(&mut copy, || {
            let Some(open) = &program else { return };
            sent += try_write(open, &data[sent..]);
            if sent == data.len() {
                program = None;
            }
        });
        assert!(fs::read(&path).unwrap() == [b"before\n", &data[..]].concat());
    }
}

#[test]
fn output_left_in_the_pipe_is_saved_though_somebody_holds_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (end, program) = pipe().unwrap();
    let mut copy = FileCopy::outward(end, File::create(&path).unwrap().into()).unwrap();
    write(&program, b"last words").unwrap();
    copy.drain(soon()).unwrap();
    assert!(copy.finished());
    assert_eq!(fs::read(&path).unwrap(), b"last words");
}

#[test]
fn a_full_disk_is_reported_and_the_program_told() {
    let (end, program) = pipe().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut copy = FileCopy::outward(end, full.into()).unwrap();
    write(&program, b"x").unwrap();
    let error = copy.progress().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ENOSPC as i32));
    assert_eq!(write(&program, b"x"), Err(Errno::EPIPE));
}
