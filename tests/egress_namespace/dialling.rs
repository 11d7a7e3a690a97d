//! Connections into a box, for published ports.

use std::io::{IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use cowork_linux::policy::NetMode;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};

use crate::Case;
use crate::ground::{self, Started, knocker, start};
use crate::support::World;

pub(crate) const CASES: &[Case] = &[
    ("a_published_port_is_reached_from_outside", reached),
    (
        "a_line_that_talks_nonsense_is_closed_and_the_box_goes_on",
        nonsense,
    ),
];

/// Serves 8000 over one kind of address, 8001 over the other, and lets 8002 wait for ever; ends
/// when it is told so at 8000.
const SERVER: &str = r#"
static int serve(const char *text, int port, int backlog) {
    struct sockaddr_storage at;
    socklen_t length;
    address(text, port, &at, &length);
    int s = socket(at.ss_family, SOCK_STREAM, 0);
    if (bind(s, (void *)&at, length) < 0 || listen(s, backlog) < 0) exit(1);
    return s;
}
int main() {
    struct pollfd two[2] = { { serve("127.0.0.1", 8000, 64), POLLIN }, { serve("::1", 8001, 64), POLLIN } };
    serve("127.0.0.1", 8002, 1);
    puts("ready");
    fflush(stdout);
    for (;;) {
        poll(two, 2, -1);
        for (int i = 0; i < 2; i++) {
            char said[16] = "";
            if (!two[i].revents) continue;
            int s = accept(two[i].fd, 0, 0);
            read(s, said, sizeof said - 1);
            dprintf(s, "%d: %s", 8000 + i, said);
            close(s);
            if (!strcmp(said, "end")) return 0;
        }
    }
}"#;

fn box_with_server(world: &World) -> Started {
    knocker(world, SERVER);
    // A box without any other network can publish too.
    let plan = ground::plan(world, &["./knock"], |policy| {
        policy.net.mode = NetMode::None
    });
    let started = start(&plan);
    started.wait_for_line("ready");
    started
}

fn question(number: u32, port: u16) -> Vec<u8> {
    [&number.to_le_bytes()[..], &port.to_le_bytes()].concat()
}

/// The number of the question, the error, and the socket.
fn answer(line: &OwnedFd) -> Option<(u32, i32, Option<TcpStream>)> {
    let mut waiting = [PollFd::new(line.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut waiting, 20_000u16), Ok(1), "no answer comes");
    let mut said = [0u8; 64];
    let mut parts = [IoSliceMut::new(&mut said)];
    let mut space = nix::cmsg_space!([i32; 4]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let packet = recvmsg::<()>(line.as_raw_fd(), &mut parts, Some(&mut space), flags).unwrap();
    let mut passed = Vec::new();
    for control in packet.cmsgs().unwrap() {
        if let ControlMessageOwned::ScmRights(fds) = control {
            passed.extend(fds);
        }
    }
    let length = packet.bytes;
    if length == 0 {
        return None;
    }
    assert_eq!((length, passed.len() <= 1), (8, true));
    let number = u32::from_le_bytes(said[..4].try_into().unwrap());
    let errno = i32::from_le_bytes(said[4..8].try_into().unwrap());
    // SAFETY: the kernel installed it for this process alone.
    let socket = passed.pop().map(|fd| unsafe { TcpStream::from_raw_fd(fd) });
    Some((number, errno, socket))
}

fn dial(line: &OwnedFd, number: u32, port: u16) -> (i32, Option<TcpStream>) {
    send(line.as_raw_fd(), &question(number, port), MsgFlags::empty()).unwrap();
    let (answered, errno, socket) = answer(line).unwrap();
    assert_eq!(answered, number);
    (errno, socket)
}

fn talk(socket: Option<TcpStream>, word: &str) -> String {
    let mut socket = socket.unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.write_all(word.as_bytes()).unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    said
}

fn reached() {
    let world = World::new();
    let started = box_with_server(&world);
    // Here nobody listens: these ports are the box's own.
    assert!(TcpStream::connect("127.0.0.1:8000").is_err());
    let line = started.running.dialer().unwrap();
    let (errno, socket) = dial(&line, 1, 8000);
    assert_eq!((errno, talk(socket, "hello").as_str()), (0, "8000: hello"));
    let (errno, socket) = dial(&line, 0xffff_fffe, 8001);
    assert_eq!((errno, talk(socket, "hello").as_str()), (0, "8001: hello"));
    let (errno, socket) = dial(&line, 3, 9);
    assert_eq!((errno, socket.is_some()), (libc::ECONNREFUSED, false));
    // Whoever is not let in does not keep others from it.
    let crowd: Vec<_> = (0..8).map(|number| dial(&line, number, 8002)).collect();
    assert!(
        crowd
            .iter()
            .all(|(errno, socket)| *errno == 0 && socket.is_some())
    );
    let (_, socket) = dial(&line, 4, 8000);
    assert_eq!(talk(socket, "end"), "8000: end");
    let (said, _) = started.serve();
    said.ok();
    assert!(answer(&line).is_none(), "the line ends with the box");
}

fn nonsense() {
    let world = World::new();
    let started = box_with_server(&world);
    let odd = started.running.dialer().unwrap();
    let good = started.running.dialer().unwrap();
    send(odd.as_raw_fd(), b"what is this", MsgFlags::empty()).unwrap();
    assert!(answer(&odd).is_none());
    // One that asks and does not listen is given up, not waited for.
    let deaf = started.running.dialer().unwrap();
    let mut asked = 0;
    while asked < 100_000 && send(deaf.as_raw_fd(), &question(asked, 9), MsgFlags::empty()).is_ok()
    {
        asked += 1;
        if asked.is_multiple_of(64) {
            // Lets pid 1 have its turn, and shows that others still have theirs.
            assert_eq!(dial(&good, asked, 9).0, libc::ECONNREFUSED);
        }
    }
    assert!(asked > 0 && asked < 100_000);
    drop(deaf);
    // Lines beyond the last four push the oldest out.
    let more: Vec<_> = (0..4).map(|_| started.running.dialer().unwrap()).collect();
    assert_eq!(dial(&more[3], 7, 9).0, libc::ECONNREFUSED);
    assert!(answer(&good).is_none());
    let (_, socket) = dial(&more[0], 8, 8000);
    assert_eq!(talk(socket, "end"), "8000: end");
    let (said, _) = started.serve();
    said.ok();
}
