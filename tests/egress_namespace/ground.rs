//! A box with doors, and somebody behind them.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use cowork_linux::plan::{self, Door, Plan, Request, Stdio};
use cowork_linux::policy::{MountSpec, NetMode, Policy, Sources, resolve};
use cowork_linux::probe::{self, OffLimits};
use cowork_linux::sandbox::{self, Belongings, Message, Running};
use cowork_linux::session::{Directory, fresh_id};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockFlag, accept4, getsockopt, sockopt};

use crate::outside;
use crate::support::{Ran, World};

/// Longer than anything here takes; a box that is still there then hangs.
const PATIENCE: u16 = 20_000;

/// Knocks from inside. `meet ADDRESS PORT...` connects and prints what it is told there.
pub(crate) const KNOCK: &str = r#"
#include <netdb.h>
#include <poll.h>
static int address(const char *text, int port, struct sockaddr_storage *to, socklen_t *length) {
    struct sockaddr_in *v4 = (void *)to;
    struct sockaddr_in6 *v6 = (void *)to;
    memset(to, 0, sizeof *to);
    if (strchr(text, ':')) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *length = sizeof *v6;
        return inet_pton(AF_INET6, text, &v6->sin6_addr);
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *length = sizeof *v4;
    return inet_pton(AF_INET, text, &v4->sin_addr);
}
static int reach(const char *text, int port, int kind) {
    struct sockaddr_storage to;
    socklen_t length;
    address(text, port, &to, &length);
    int s = socket(to.ss_family, kind, 0);
    if (s < 0 || connect(s, (void *)&to, length) < 0) return -1;
    return s;
}
static void meet(const char *text, int port) {
    char name[128], said[256] = "";
    snprintf(name, sizeof name, "%s %d", text, port);
    errno = 0;
    int s = reach(text, port, SOCK_STREAM);
    if (s < 0) { say(name, -1); return; }
    size_t have = 0;
    ssize_t more;
    while ((more = read(s, said + have, sizeof said - 1 - have)) > 0) have += more;
    printf("%s=%s\n", name, have ? said : "(nothing)");
    fflush(stdout);
    close(s);
}
/* A datagram and what comes back: an answer, or an error, or nothing for a long time. */
static void ask(const char *text, int port) {
    char name[128], said[256] = "";
    snprintf(name, sizeof name, "udp %s %d", text, port);
    errno = 0;
    int s = reach(text, port, SOCK_DGRAM);
    if (s < 0 || send(s, "?", 1, 0) < 0) { say(name, -1); return; }
    struct pollfd one = { .fd = s, .events = POLLIN };
    if (poll(&one, 1, 10000) == 0) { printf("%s=(silence)\n", name); return; }
    ssize_t length = recv(s, said, sizeof said - 1, 0);
    if (length < 0) say(name, -1);
    else printf("%s=%s\n", name, said);
    fflush(stdout);
}
"#;

/// A box that was started, and its doors.
pub(crate) struct Started {
    pub(crate) running: Running,
    pub(crate) doors: Vec<(Door, OwnedFd)>,
    pub(crate) not_redirected: i32,
    pub(crate) status: Option<i32>,
    out: OwnedFd,
    _directory: Directory,
}

/// What a plan for `program` in a world is; the policy and the plan can be changed on the way.
pub(crate) fn plan(world: &World, program: &[&str], change: impl FnOnce(&mut Policy)) -> Plan {
    let sources = Sources {
        profile: None,
        project_dir: None,
        flags: Default::default(),
        env: &|_| None,
    };
    let mut policy = resolve(&sources).unwrap().policy;
    policy.net.mode = NetMode::Allow;
    change(&mut policy);
    let state = world.path("state/cowork-linux");
    let mut facts = probe::facts(&policy, state.clone());
    facts.stdio = [Stdio::Direct, Stdio::Copied, Stdio::Direct];
    let spec = MountSpec::parse(world.work().as_os_str(), |path: &std::path::Path| {
        path.exists()
    })
    .unwrap();
    let request = Request {
        id: fresh_id().unwrap(),
        kept: false,
        detached: None,
        mounts: vec![probe::look_at(&spec, &OffLimits::new(&state, None)).unwrap()],
        needed: Vec::new(),
        path: Vec::new(),
        argv: program.iter().map(Into::into).collect(),
        workdir: None,
        hostname: None,
        env: Vec::new(),
        disguise: Default::default(),
        whole: Default::default(),
        limits: Vec::new(),
    };
    plan::build(&policy, &facts, &request).unwrap()
}

pub(crate) fn start(plan: &Plan) -> Started {
    let session = plan.session.as_ref().unwrap();
    let mut directory = Directory::open(session).unwrap();
    let turns = directory.turns().unwrap();
    directory.seal().unwrap();
    let heard = cowork_linux::filter::Heard::builtin("default").unwrap();
    let belongings = Belongings {
        directory: directory.path(),
        turns,
        forget: &[],
        cgroup: None,
    };
    let filters = sandbox::Filters {
        every: vec![heard.every.bytes().to_vec()],
        program: Some(heard.program.bytes().to_vec()),
    };
    let mut running = sandbox::launch(plan, &filters, Some(belongings)).unwrap();
    let out = running.streams.pipes[1].take().unwrap();
    let mut started = Started {
        running,
        doors: Vec::new(),
        not_redirected: 0,
        status: None,
        out,
        _directory: directory,
    };
    let wanted = plan.egress.iter().flat_map(|egress| &egress.doors);
    let wanted: Vec<Door> = wanted.copied().collect();
    while !wanted.is_empty() && started.status.is_none() {
        match started.running.receive().unwrap() {
            Some(Message::Listeners(listeners)) => {
                started.not_redirected = listeners.not_redirected;
                let named = |(place, fd)| (wanted[usize::from(place)], fd);
                started.doors.extend(listeners.open.into_iter().map(named));
                if !listeners.more {
                    break;
                }
            }
            Some(Message::Failed { step, errno, .. }) => {
                let cause = std::io::Error::from_raw_os_error(errno);
                panic!("{:?}", sandbox::explain(plan, step, cause));
            }
            other => panic!("instead of the doors came {other:?}"),
        }
    }
    started
}

/// Somebody who came through a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) door: Door,
    pub(crate) meant: SocketAddr,
    pub(crate) from: SocketAddr,
}

impl Started {
    /// Lets the box live to its end, tells every visitor where it had wanted to go, and answers
    /// datagrams. What the program said, and who came.
    pub(crate) fn serve(mut self) -> (Ran, Vec<Visitor>) {
        let mut visitors = Vec::new();
        while self.status.is_none() {
            self.turn(&mut visitors);
        }
        (self.said(), visitors)
    }

    /// One thing that happens; panics when nothing does for too long.
    pub(crate) fn turn(&mut self, visitors: &mut Vec<Visitor>) {
        let mut waiting = vec![PollFd::new(self.running.line(), PollFlags::POLLIN)];
        let doors = self.doors.iter().map(|(_, fd)| fd.as_fd());
        waiting.extend(doors.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let count = poll(&mut waiting, PollTimeout::from(PATIENCE)).unwrap();
        assert!(count > 0, "nothing happens in the box any more");
        let ready: Vec<bool> = waiting.iter().map(|fd| fd.any().unwrap()).collect();
        for (at, (door, listener)) in self.doors.iter().enumerate() {
            if ready[at + 1] {
                visitors.extend(welcome(*door, listener));
            }
        }
        if ready[0] {
            match self.running.receive().unwrap() {
                Some(Message::Ended { status }) => {
                    self.running.has_ended();
                    self.status = Some(status);
                }
                Some(_) => {}
                None => panic!("the box is gone without a word"),
            }
        }
    }

    /// Reads what the program prints up to a line it says.
    pub(crate) fn wait_for_line(&self, line: &str) {
        let mut out = std::fs::File::from(self.out.try_clone().unwrap());
        let mut said = Vec::new();
        while !said.ends_with(format!("{line}\n").as_bytes()) {
            let mut byte = [0];
            assert_eq!(out.read(&mut byte).unwrap(), 1, "it ended after {said:?}");
            said.push(byte[0]);
        }
    }

    /// What the program has printed, when it has ended.
    fn said(self) -> Ran {
        let mut out = String::new();
        std::fs::File::from(self.out)
            .read_to_string(&mut out)
            .unwrap();
        Ran {
            code: self.status.unwrap() >> 8,
            out,
            err: String::new(),
        }
    }
}

fn welcome(door: Door, listener: &OwnedFd) -> Option<Visitor> {
    use std::os::fd::{AsRawFd, FromRawFd};
    if door == Door::DnsDatagrams {
        let socket = UdpSocket::from(listener.try_clone().unwrap());
        let mut question = [0u8; 512];
        let (length, from) = socket.recv_from(&mut question).unwrap();
        let answer = answer(&question[..length]);
        socket.send_to(&answer, from).unwrap();
        let meant = socket.local_addr().unwrap();
        return Some(Visitor { door, meant, from });
    }
    let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).unwrap();
    // SAFETY: the kernel just made this descriptor for us alone.
    let mut visitor = unsafe { TcpStream::from_raw_fd(accepted) };
    let meant = meant(&visitor);
    let from = visitor.peer_addr().unwrap();
    let _ = write!(visitor, "{door:?} {meant}");
    Some(Visitor { door, meant, from })
}

/// Where a connection was to go: what the kernel remembers, or where it arrived.
fn meant(visitor: &TcpStream) -> SocketAddr {
    let local = visitor.local_addr().unwrap();
    if local.is_ipv4() {
        let Ok(raw) = getsockopt(visitor, sockopt::OriginalDst) else {
            return local;
        };
        let octets = u32::from_be(raw.sin_addr.s_addr).into();
        return SocketAddrV4::new(octets, u16::from_be(raw.sin_port)).into();
    }
    let Ok(raw) = getsockopt(visitor, sockopt::Ip6tOriginalDst) else {
        return local;
    };
    let (address, port) = (raw.sin6_addr.s6_addr.into(), u16::from_be(raw.sin6_port));
    SocketAddrV6::new(address, port, 0, 0).into()
}

/// An echo for what is no question; else that every name is 198.18.5.5.
fn answer(question: &[u8]) -> Vec<u8> {
    let Some(end) = question
        .get(12..)
        .and_then(|rest| rest.iter().position(|b| *b == 0))
    else {
        return question.to_vec();
    };
    // Name, kind and class.
    let asked = &question[12..12 + end + 5];
    let mut answer = [&question[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], asked].concat();
    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 198, 18, 5, 5]);
    answer
}

/// A program in the shared folder that knocks; `source` is its main.
pub(crate) fn knocker(world: &World, source: &str) -> PathBuf {
    outside::probe(world, "knock", &format!("{KNOCK}\n{source}"))
}
