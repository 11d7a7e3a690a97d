//! Starts the gateway as a process of its own, and what it does first.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::task::LocalSet;

use super::accounts::Accounts;
use super::dial::Dialer;
use super::gate::Gate;
use super::http::Means;
use super::line::{Line, report};
use super::names::Names;
use super::pace::Pace;
use super::resolve::{self, Resolver};
use super::talk::{Hear, Tell};
use super::upstream::Proxy;
use super::{lock, publish, serve};
use crate::plan::Door;
use crate::policy::egress::{Rate, Rules};
use crate::sys;
use crate::sys::process::{Forked, SingleThreaded};

/// Names remembered inside; each has an address of either kind.
const NAMES: usize = 16 << 10;
/// Descriptors that are none of a connection's.
const SPARE: u64 = 128;
/// A connection's two ends, and its share of pipes.
const FOR_EACH: u64 = 3;

/// What a gateway is started with.
#[derive(Debug)]
pub struct Config {
    pub rules: Rules,
    pub connections: u32,
    pub rate: Option<Rate>,
    pub upstream: Option<Proxy>,
    pub http: Means,
    /// Ports of the host, and of the box, where they lead.
    pub published: Vec<(TcpListener, u16)>,
    /// Whom to ask for connections into the box.
    pub dialer: Option<OwnedFd>,
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    pid: i32,
    pidfd: OwnedFd,
    /// JSON packets; see [`super::Tell`] and [`super::Hear`].
    pub line: OwnedFd,
}

/// It holds nothing that would have to be put in order.
impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = sys::process::signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = sys::process::wait(self.pid, 0);
    }
}

/// Starts it. The doors stay the caller's as well, so that another one could take over.
pub fn start(config: Config, doors: &[(Door, OwnedFd)]) -> io::Result<Gateway> {
    let proof = SingleThreaded::prove()?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    match sys::process::clone_into(&proof, 0)? {
        Forked::Parent { pid, pidfd } => Ok(Gateway {
            pid,
            pidfd,
            line: ours,
        }),
        Forked::Child => {
            let code = match main(config, doors, theirs) {
                Ok(()) => 0,
                Err(_) => 1,
            };
            sys::process::exit_now(code)
        }
    }
}

/// The order of operations of a gateway.
fn main(config: Config, doors: &[(Door, OwnedFd)], line: OwnedFd) -> io::Result<()> {
    sys::process::die_with_parent()?;
    sys::process::call_oneself(c"cowork-gateway")?;
    let mut keep = vec![line.as_raw_fd()];
    keep.extend(doors.iter().map(|(_, fd)| fd.as_raw_fd()));
    keep.extend(config.dialer.as_ref().map(AsRawFd::as_raw_fd));
    keep.extend(
        config
            .published
            .iter()
            .map(|(listener, _)| listener.as_raw_fd()),
    );
    sys::fds::close_all_but(keep)?;
    sys::fds::put_null_at(&[0, 1, 2])?;
    std::panic::set_hook(Box::new(|_| {}));
    let most = room_for(config.connections)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(resolve::AT_ONCE)
        .build()?;
    lock::lock()?;
    let accounts = Accounts::new(most, config.rate.map(Pace::new));
    let gate = Rc::new(Gate {
        rules: config.rules.into(),
        names: Names::new(NAMES).into(),
        accounts: Rc::clone(&accounts),
        resolver: Resolver::new(),
        dialer: Dialer::new(config.upstream),
        http: config.http,
    });
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let line = Rc::new(Line::new(line)?);
        for (door, fd) in doors {
            serve::door(*door, fd.try_clone()?, &gate)?;
        }
        publish::open(config.published, config.dialer, &gate)?;
        accounts.say(Hear::Ready);
        tokio::task::spawn_local(report(Rc::clone(&line), Rc::clone(&accounts)));
        while let Some(word) = line.hear().await? {
            match word {
                Tell::Allow(rule) => gate.allow(rule),
                Tell::Deny(rule) => gate.deny(rule),
                Tell::Rules(rules) => gate.replace(rules),
                // The supervisor has looked at it already.
                Tell::Secret { name, value } => drop(gate.http.renew(&name, &value.0)),
                Tell::Forget(pattern) => gate.forget(&pattern),
                Tell::Totals => accounts.say(Hear::Totals(accounts.totals())),
            }
        }
        Ok(())
    })
}

/// How many connections there can be, with as many descriptors as this process may have.
fn room_for(connections: u32) -> io::Result<u32> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = (u64::from(connections) * FOR_EACH + SPARE).min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    let room = wanted.saturating_sub(SPARE) / FOR_EACH;
    Ok(u32::try_from(room).unwrap_or(u32::MAX).min(connections))
}

/// A listener that was made by somebody else, for this runtime.
pub(super) fn adopt(fd: OwnedFd) -> io::Result<tokio::net::TcpListener> {
    let listener = TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
