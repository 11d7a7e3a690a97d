//! Relay and outer terminal over real pseudo-terminals. Two pairs stand for the two sides: the test is the person at the outer master and the program at the inner slave.

#![allow(clippy::unwrap_used)]

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cowork_linux::terminal::{OuterTerminal, Relay};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{pipe, read, write};

/// A test that has not come to its end by then has failed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Person {
    screen: OwnedFd,
    terminal: OwnedFd,
}

struct Setup {
    person: Person,
    program: OwnedFd,
    relay: Relay,
}

fn setup() -> Setup {
    let outer = openpty(&size(24, 80), None).unwrap();
    let inner = openpty(&size(1, 1), None).unwrap();
    raw(&outer.slave);
    raw(&inner.slave);
    nonblocking(&outer.master);
    nonblocking(&inner.slave);
    let terminal = outer.slave.as_fd();
    let relay = Relay::new(inner.master, Some(terminal), Some(terminal)).unwrap();
    let person = Person {
        screen: outer.master,
        terminal: outer.slave,
    };
    Setup {
        person,
        program: inner.slave,
        relay,
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn raw(terminal: &OwnedFd) {
    let mut settings = tcgetattr(terminal).unwrap();
    cfmakeraw(&mut settings);
    tcsetattr(terminal, SetArg::TCSANOW, &settings).unwrap();
}

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

/// Waits until the relay or one of `others` has something to do.
fn wait<'a>(relay: &'a Relay, others: &[(&'a OwnedFd, PollFlags)]) {
    let mut asked = Vec::new();
    relay.interests(&mut asked);
    asked.extend(
        others
            .iter()
            .map(|(fd, wanted)| PollFd::new(fd.as_fd(), *wanted)),
    );
    poll(&mut asked, PollTimeout::from(1000u16)).unwrap();
}

/// Runs the relay until the person has seen `wanted` more bytes.
fn seen(person: &Person, relay: &mut Relay, wanted: usize) -> Vec<u8> {
    let (start, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < wanted && start.elapsed() < PATIENCE {
        relay.progress().unwrap();
        try_read(&person.screen, &mut seen);
        if seen.len() < wanted {
            wait(relay, &[(&person.screen, PollFlags::POLLIN)]);
        }
    }
    seen
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

#[test]
fn the_box_gets_the_size_of_the_callers_terminal() {
    let Setup {
        person,
        program,
        relay,
    } = setup();
    relay.resize().unwrap();
    let inner = OuterTerminal::take(program.as_fd())
        .unwrap()
        .size()
        .unwrap();
    let outer = OuterTerminal::take(person.terminal.as_fd())
        .unwrap()
        .size()
        .unwrap();
    assert_eq!((inner.rows, inner.columns), (24, 80));
    assert_eq!(inner, outer);
}

#[test]
fn ten_megabytes_arrive_byte_for_byte() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    let data = pattern(10 << 20);
    let (start, mut sent, mut seen) = (Instant::now(), 0, Vec::new());
    while seen.len() < data.len() && start.elapsed() < PATIENCE {
        sent += try_write(&program, &data[sent..]);
        relay.progress().unwrap();
        try_read(&person.screen, &mut seen);
        let more = if sent < data.len() {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        wait(
            &relay,
            &[(&program, more), (&person.screen, PollFlags::POLLIN)],
        );
    }
    assert!(seen == data, "{} of {} bytes", seen.len(), data.len());
}

#[test]
fn typed_bytes_reach_the_program_unchanged() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    let typed: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let (start, mut sent, mut heard) = (Instant::now(), 0, Vec::new());
    while heard.len() < typed.len() && start.elapsed() < PATIENCE {
        sent += try_write(&person.screen, &typed[sent..]);
        relay.progress().unwrap();
        try_read(&program, &mut heard);
        let more = if sent < typed.len() {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        wait(
            &relay,
            &[(&person.screen, more), (&program, PollFlags::POLLIN)],
        );
    }
    assert!(heard == typed, "{} of {} bytes", heard.len(), typed.len());
}

#[test]
fn a_terminal_that_does_not_read_stops_the_box_and_fills_no_memory() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    let data = pattern(4 << 20);
    let mut sent = 0;
    loop {
        let before = (sent, relay.waiting());
        sent += try_write(&program, &data[sent..]);
        relay.progress().unwrap();
        assert!(relay.waiting() <= 256 << 10);
        if before == (sent, relay.waiting()) {
            // Once more: the terminal may have made room just after the first try.
            let more = try_write(&program, &data[sent..]);
            sent += more;
            if more == 0 {
                break;
            }
        }
    }
    assert!(sent < 1 << 20, "{sent} bytes went somewhere");
    let mut asked = Vec::new();
    relay.interests(&mut asked);
    assert_eq!(
        asked.len(),
        2,
        "only the person's keys and screen are waited for"
    );
    drop(asked);
    assert!(
        seen(&person, &mut relay, sent) == data[..sent],
        "and nothing is lost"
    );
}

#[test]
fn the_relay_ends_when_the_program_has_closed_its_terminal_and_all_is_shown() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    write(&program, b"last words").unwrap();
    drop(program);
    assert_eq!(seen(&person, &mut relay, 10), b"last words");
    relay.progress().unwrap();
    assert!(relay.finished());
    let mut asked = Vec::new();
    relay.interests(&mut asked);
    assert!(asked.is_empty(), "a closed side must not wake the loop");
}

#[test]
fn draining_shows_what_is_left_and_undoes_modes_though_the_terminal_is_held_open() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    write(&program, b"\x1b[?1049h\x1b]52;c;eA==\x07end").unwrap();
    relay.drain(soon()).unwrap();
    let mut seen = Vec::new();
    try_read(&person.screen, &mut seen);
    assert_eq!(seen, b"\x1b[?1049hend\x1b[?1049l");
    drop(relay);
    try_read(&person.screen, &mut seen);
    assert_eq!(seen.len(), 19, "and only once");
}

#[test]
fn draining_gives_up_on_a_stalled_terminal_at_its_deadline() {
    let mut all = setup();
    let data = pattern(1 << 20);
    while try_write(&all.program, &data) > 0 {
        all.relay.progress().unwrap();
    }
    let start = Instant::now();
    all.relay.drain(start + Duration::from_millis(50)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_dropped_relay_leaves_the_terminal_in_order() {
    let mut all = setup();
    write(&all.program, b"\x1b[?25l").unwrap();
    assert_eq!(seen(&all.person, &mut all.relay, 6), b"\x1b[?25l");
    drop(all.relay);
    let mut seen = Vec::new();
    try_read(&all.person.screen, &mut seen);
    assert_eq!(seen, b"\x1b[?25h");
}

#[test]
fn a_stopped_program_lends_its_screen_and_gets_it_back() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    write(&program, b"\x1b[?1049h").unwrap();
    relay.suspend(soon()).unwrap();
    assert_eq!(seen(&person, &mut relay, 16), b"\x1b[?1049h\x1b[?1049l");
    relay.resume().unwrap();
    assert_eq!(seen(&person, &mut relay, 8), b"\x1b[?1049h");
}

#[test]
fn the_callers_descriptors_stay_blocking() {
    let Setup { person, .. } = setup();
    let flags = OFlag::from_bits_truncate(fcntl(&person.terminal, FcntlArg::F_GETFL).unwrap());
    assert!(!flags.contains(OFlag::O_NONBLOCK));
}

#[test]
fn the_end_of_input_is_the_end_for_the_program_even_within_a_line() {
    let inner = openpty(None, None).unwrap();
    let (input, typed) = pipe().unwrap();
    let mut relay = Relay::new(inner.master, Some(input.as_fd()), None).unwrap();
    write(&typed, b"half a line").unwrap();
    drop(typed);
    for _ in 0..4 {
        relay.progress().unwrap();
    }
    nonblocking(&inner.slave);
    let mut line = [0; 64];
    assert_eq!(read(&inner.slave, &mut line), Ok(11));
    assert_eq!(read(&inner.slave, &mut line), Ok(0));
}

#[test]
fn a_caller_who_hangs_up_does_not_block_the_box() {
    let Setup {
        person,
        program,
        mut relay,
    } = setup();
    drop(person);
    let data = pattern(1 << 20);
    let (start, mut sent) = (Instant::now(), 0);
    while sent < data.len() && start.elapsed() < PATIENCE {
        sent += try_write(&program, &data[sent..]);
        relay.progress().unwrap();
    }
    assert_eq!(sent, data.len());
}

#[test]
fn a_screen_that_could_not_be_opened_again_is_never_waited_for() {
    let inner = openpty(None, None).unwrap();
    raw(&inner.slave);
    nonblocking(&inner.slave);
    let (screen, output) = pipe().unwrap();
    let mut relay = Relay::new(inner.master, None, Some(output.as_fd())).unwrap();
    let data = pattern(1 << 20);
    let mut sent = 0;
    while let more @ 1.. = try_write(&inner.slave, &data[sent..]) {
        sent += more;
        relay.progress().unwrap();
    }
    nonblocking(&screen);
    let (start, mut seen) = (Instant::now(), Vec::new());
    while seen.len() < sent && start.elapsed() < PATIENCE {
        relay.progress().unwrap();
        try_read(&screen, &mut seen);
    }
    assert!(seen == data[..sent]);
}
