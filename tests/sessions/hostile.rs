//! Clients of the same user that keep to no rule: the session goes on and serves the others.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect,
    listen, recv, send, sendmsg, setsockopt, socket, socketpair, sockopt,
};

use crate::ground::{Ground, eventually};

fn new() -> OwnedFd {
    socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap()
}

pub fn listener(path: &Path) -> OwnedFd {
    let ours = new();
    bind(ours.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    listen(&ours, Backlog::new(8).unwrap()).unwrap();
    ours
}

pub fn call(ground: &Ground, id: &str) -> OwnedFd {
    let ours = new();
    setsockopt(
        &ours,
        sockopt::ReceiveTimeout,
        &nix::sys::time::TimeVal::new(10, 0),
    )
    .unwrap();
    connect(
        ours.as_raw_fd(),
        &UnixAddr::new(&ground.socket(id)).unwrap(),
    )
    .unwrap();
    ours
}

/// As many connections as can be had without waiting.
pub fn crowd(ground: &Ground, id: &str, count: usize) -> Vec<OwnedFd> {
    let at = UnixAddr::new(&ground.socket(id)).unwrap();
    let lines = (0..count).map(|_| {
        let line = new();
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&line, flags).unwrap();
        connect(line.as_raw_fd(), &at).is_ok().then_some(line)
    });
    lines.flatten().collect()
}

pub fn say(line: &OwnedFd, bytes: &[u8]) -> bool {
    send(line.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL).is_ok()
}

pub fn say_with(line: &OwnedFd, bytes: &[u8], fds: &[RawFd]) {
    let parts = [std::io::IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(fds)];
    let _ = sendmsg::<()>(
        line.as_raw_fd(),
        &parts,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
}

pub fn hear(line: &OwnedFd) -> String {
    let mut bytes = vec![0u8; 1 << 20];
    let count = recv(line.as_raw_fd(), &mut bytes, MsgFlags::empty()).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[track_caller]
pub fn goes_on(ground: &Ground, id: &str) {
    assert_eq!(ground.exec(id, &["echo", "served"]).ok().out, "served\n");
    assert_eq!(ground.state(id), "running");
}

pub fn open_files(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

#[test]
fn packets_that_mean_nothing_are_answered_or_dropped() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let supervisor = ground.supervisor(&id);
    let before = open_files(supervisor);
    let odd: [&[u8]; 12] = [
        b"{",
        b"null",
        b"\0\0\0\0",
        b"o",
        b"o\x01bytes",
        b"{\"ask\":\"nothing\"}",
        b"{\"ask\":\"exec\"}",
        b"{\"ask\":\"signal\",\"signal\":99999}",
        b"{\"ask\":\"signal\",\"signal\":0}",
        b"{\"ask\":\"resize\",\"rows\":0,\"columns\":65535}",
        b"{\"ask\":\"inspect\",\"more\":1}",
        b"\xff\xfe\xfd",
    ];
    for bytes in odd {
        let line = call(&ground, &id);
        assert!(say(&line, bytes));
        // The same line is still good for a question, unless it was closed.
        say(&line, b"{\"ask\":\"inspect\"}");
        hear(&line);
    }
    let line = call(&ground, &id);
    let mut state = 7u64;
    for _ in 0..300 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let length = (state >> 50) as usize % 600 + 1;
        let bytes: Vec<u8> = (0..length).map(|at| (state >> (at % 50)) as u8).collect();
        if !say(&line, &bytes) {
            break;
        }
    }
    goes_on(&ground, &id);
    drop(line);
    crate::ground::eventually("nothing stays open", || open_files(supervisor) <= before);
}

#[test]
fn packets_that_are_too_long_are_refused() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let line = call(&ground, &id);
    let _ = setsockopt(&line, sockopt::SndBuf, &(4 << 20));
    assert!(say(&line, &vec![b'{'; 150 << 10]));
    assert!(hear(&line).contains("refused"));
    say(&line, &vec![b'['; 190 << 10]);
    let nested = [b"{\"ask\":".as_slice(), &vec![b'['; 100_000]].concat();
    say(&line, &nested);
    goes_on(&ground, &id);
}

#[test]
fn descriptors_that_do_not_fit_are_closed() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let supervisor = ground.supervisor(&id);
    goes_on(&ground, &id);
    let before = open_files(supervisor);
    let null = std::fs::File::open("/dev/null").unwrap();
    let folder = std::fs::File::open("/").unwrap();
    let pipe = nix::unistd::pipe().unwrap();
    let words = std::fs::File::open("/proc/self/exe").unwrap();
    let exec =
        |streams: &str| format!("{{\"ask\":\"exec\",\"terminal\":false,\"streams\":{streams}}}");
    let all = exec("[true,true,true]");
    let none = exec("[false,false,false]");
    // Reading it would wait for ever.
    let event = nix::sys::eventfd::EventFd::new().unwrap();
    let cases: [(&str, Vec<RawFd>); 9] = [
        (&none, vec![event.as_fd().as_raw_fd()]),
        (&all, vec![]),
        (&all, vec![null.as_raw_fd()]),
        (&none, vec![null.as_raw_fd()]),
        (&none, vec![folder.as_raw_fd()]),
        (&none, vec![pipe.0.as_raw_fd()]),
        (&none, vec![words.as_raw_fd()]),
        (&all, vec![null.as_raw_fd(); 250]),
        ("{\"ask\":\"inspect\"}", vec![null.as_raw_fd(); 4]),
    ];
    for (sentence, fds) in cases {
        let line = call(&ground, &id);
        match fds.is_empty() {
            true => assert!(say(&line, sentence.as_bytes())),
            false => say_with(&line, sentence.as_bytes(), &fds),
        }
        let said = hear(&line);
        assert!(
            said.contains("refused") || said.contains("seen") || said.is_empty(),
            "{sentence} {} {said}",
            fds.len()
        );
    }
    goes_on(&ground, &id);
    crate::ground::eventually("nothing stays open", || open_files(supervisor) <= before);
}

#[test]
fn more_connections_than_there_may_be_do_not_lock_the_user_out_for_ever() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let lines = crowd(&ground, &id, 300);
    // Those beyond the bound hear why; none of it takes long.
    let (ran, taken) = crate::ground::timed(|| ground.exec(&id, &["true"]));
    assert!(taken < std::time::Duration::from_secs(8), "{taken:?}");
    assert!(ran.code == 0 || ran.err.contains("too many"), "{ran:?}");
    let (_, taken) = crate::ground::timed(|| ground.say(&["ls"]));
    assert!(taken < std::time::Duration::from_secs(8), "{taken:?}");
    drop(lines);
    crate::ground::eventually("it serves again", || ground.exec(&id, &["true"]).code == 0);
    goes_on(&ground, &id);
}

#[test]
fn half_open_ones_and_ones_that_never_read_hold_nobody_up() {
    let ground = Ground::new();
    let id = ground.start(
        &["-i"],
        &["sh", "-c", "while :; do echo noise; sleep 0.01; done"],
    );
    let half: Vec<_> = (0..20).map(|_| call(&ground, &id)).collect();
    for line in &half {
        nix::sys::socket::shutdown(line.as_raw_fd(), nix::sys::socket::Shutdown::Write).unwrap();
    }
    let deaf: Vec<_> = (0..10).map(|_| call(&ground, &id)).collect();
    for line in &deaf {
        let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(line, flags).unwrap();
        say(line, b"{\"ask\":\"attach\",\"input\":true}");
        for _ in 0..200 {
            if !say(line, b"{\"ask\":\"inspect\"}") {
                break;
            }
        }
    }
    goes_on(&ground, &id);
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", ground.supervisor(&id))).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 32 << 10, "{line}");
    drop((half, deaf));
    goes_on(&ground, &id);
}

/// One that starts programs and leaves at once, again and again.
#[test]
fn programs_of_those_who_left_do_not_pile_up() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    for _ in 0..15 {
        let mut child = ground.spawn(&["exec", &id, "--", "sleep", "1000"]);
        crate::watch::send(child.id() as i32, nix::sys::signal::Signal::SIGKILL);
        child.wait().unwrap();
    }
    let first = ground.first(&id);
    crate::ground::eventually("only its own is left", || {
        crate::watch::children(first).len() == 1
    });
    goes_on(&ground, &id);
}

#[test]
fn lines_that_are_brought_are_lines_like_others() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let supervisor = ground.supervisor(&id);
    let before = open_files(supervisor);
    let first = call(&ground, &id);
    let bring = |line: &OwnedFd, brought: &OwnedFd| {
        say_with(line, b"{\"ask\":\"line\"}", &[brought.as_raw_fd()]);
    };
    let pair = || {
        // This end waits when there is nothing to hear, and that one must not.
        let kind = SockType::SeqPacket;
        socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC).unwrap()
    };
    // One after the other over the same line, and one over one that was brought itself.
    let mut last = first;
    for _ in 0..3 {
        let (ours, theirs) = pair();
        bring(&last, &theirs);
        assert!(say(&ours, b"{\"ask\":\"inspect\"}"));
        assert!(hear(&ours).contains("seen"));
        drop(theirs);
        last = ours;
    }
    // What is no line is not listened to.
    let (read, write) = nix::unistd::pipe().unwrap();
    let folder = OwnedFd::from(std::fs::File::open("/").unwrap());
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    for odd in [
        read,
        write,
        folder,
        stream.into(),
        listener(&ground.world.path("l")),
    ] {
        bring(&last, &odd);
    }
    assert!(say(&last, b"{\"ask\":\"inspect\"}"));
    assert!(hear(&last).contains("seen"));
    // Nor is nothing at all.
    assert!(say(&last, b"{\"ask\":\"line\"}"));
    assert_eq!(hear(&last), "");
    goes_on(&ground, &id);
    drop(last);
    // More than there are places for, each of which brings another one: some of them make room for others,
    // as those who come by themselves do.
    let mut brought = vec![call(&ground, &id)];
    for _ in 0..400 {
        let (ours, theirs) = pair();
        bring(&brought[brought.len() - 1], &theirs);
        drop(theirs);
        say(&ours, b"{\"ask\":\"inspect\"}");
        if !hear(&ours).contains("seen") {
            break;
        }
        brought.push(ours);
    }
    assert!((100..300).contains(&brought.len()), "{}", brought.len());
    // For a program there may be none, as when others are at work in it; for a question there is.
    eventually("there is room to ask", || {
        let line = call(&ground, &id);
        say(&line, b"{\"ask\":\"inspect\"}") && hear(&line).contains("seen")
    });
    drop(brought);
    eventually("all of them are let go", || {
        open_files(supervisor) <= before
    });
    goes_on(&ground, &id);
}
