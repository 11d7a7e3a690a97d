//! The gateway of a session, as its supervisor sees it: started when the box has made its doors,
//! listened to, started again if it dies.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use super::client::{AskError, Call};
use super::diary::Diary;
use super::error::RunError;
use super::talk::Ask;
use super::whose;
use crate::egress::{
    self, Config, Gateway, Hear, LONGEST, LONGEST_TELL, Means, Proxy, Tell, Totals, Unsaid,
};
use crate::plan::{Door, Egress, Plan};
use crate::policy::egress::{Host, HostPattern, Rule, Rules};
use crate::sandbox::Running;
use crate::sys;

/// A gateway that dies this often is not started again.
const MOST_STARTS: u32 = 4;
/// Connections whose program is remembered until they are over.
const MOST_PROGRAMS: usize = 4096;
/// After looking for a program, nothing is looked for so many times as long.
const REST: u32 = 4;
/// Hosts that are named at the end of a run.
const MOST_REFUSED: usize = 100;
/// How long the gateway may take to say how much went through it.
const PATIENCE: Duration = Duration::from_millis(300);

/// What is needed besides the plan, and is in none: values.
#[derive(Debug, Default)]
pub struct Outfit {
    pub upstream: Option<Proxy>,
    /// Secrets and certificates.
    pub http: Means,
}

/// What a rule kept from being reached, once for each host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHost {
    pub host: String,
    pub because: String,
}

const NO_GATEWAY: &str = "it was started without --network allow";

fn no_answer(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => "there are more rules than it can take".to_owned(),
        _ => format!("the gateway does not answer: {error}"),
    }
}

#[derive(Debug, Default)]
pub(super) struct Network {
    plan: Option<Egress>,
    outfit: Outfit,
    published: Vec<(TcpListener, u16)>,
    doors: Vec<(Door, OwnedFd)>,
    gateway: Option<Gateway>,
    starts: u32,
    programs: HashMap<u64, String>,
    /// No connection's program is looked for before.
    rests_until: Option<Instant>,
    /// Room for what the gateway says.
    packet: Vec<u8>,
    pub(super) refused: Vec<RefusedHost>,
    totals: Option<Totals>,
}

impl Network {
    /// Takes the ports that are to be published, before there is a box: a port that is taken is
    /// an error of the start.
    pub(super) fn prepare(plan: &Plan, outfit: Outfit) -> Result<Self, RunError> {
        let Some(egress) = &plan.egress else {
            return Ok(Self::default());
        };
        if !egress.secrets.is_empty() {
            // A value may have been said on the command line, which everybody can read.
            sys::process::forget_words();
        }
        let mut published = Vec::new();
        for port in &egress.publish {
            let at = SocketAddr::new(port.address, port.outside);
            let listener =
                TcpListener::bind(at).map_err(|source| RunError::Publish { at, source })?;
            published.push((listener, port.inside));
        }
        Ok(Self {
            plan: Some(egress.clone()),
            outfit,
            published,
            ..Self::default()
        })
    }

    /// What must not be in the box, nor in its first process, which is born as a copy of this one.
    pub(super) fn secrets(&self) -> Vec<Vec<u8>> {
        let proxy = self.outfit.upstream.iter();
        let passwords = proxy.filter_map(|proxy| proxy.credentials.as_ref());
        let passwords = passwords.map(|(_, password)| password.clone().into_bytes());
        self.outfit.http.values().chain(passwords).collect()
    }

    /// Where each published port really is.
    pub(super) fn published(&self) -> Vec<String> {
        let named = self.published.iter().filter_map(|(listener, inside)| {
            let outside = listener.local_addr().ok()?;
            Some(format!("{outside} leads to port {inside} in the box"))
        });
        named.collect()
    }

    /// The box has made its doors: somebody is to stand behind them.
    pub(super) fn open(
        &mut self,
        doors: Vec<(Door, OwnedFd)>,
        running: &Running,
    ) -> io::Result<()> {
        self.doors = doors;
        self.start(running)
    }

    fn start(&mut self, running: &Running) -> io::Result<()> {
        let Some(plan) = &self.plan else {
            return Ok(());
        };
        self.starts += 1;
        let mut published = Vec::new();
        for (listener, inside) in &self.published {
            published.push((listener.try_clone()?, *inside));
        }
        let dialer = match published.is_empty() {
            true => None,
            false => Some(running.dialer()?),
        };
        let config = Config {
            rules: plan.rules.clone(),
            connections: plan.connections,
            rate: plan.rate,
            upstream: self.outfit.upstream.clone(),
            published,
            http: self.outfit.http.clone(),
            dialer,
        };
        self.gateway = Some(egress::start(config, &self.doors)?);
        Ok(())
    }

    pub(super) fn interests<'a>(&'a self, waiting: &mut Vec<PollFd<'a>>) {
        if let Some(gateway) = &self.gateway {
            waiting.push(PollFd::new(gateway.line.as_fd(), PollFlags::POLLIN));
        }
    }

    /// Hears what the gateway has to say by now.
    pub(super) fn progress(&mut self, running: &Running, diary: &mut Diary) {
        while let Some(gateway) = &self.gateway {
            let packet = &mut self.packet;
            packet.resize(LONGEST, 0);
            match recv(gateway.line.as_raw_fd(), packet, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => self.lost(running, diary),
                Ok(length) => {
                    // Another version cannot be at the other end; what is odd is nobody's harm.
                    if let Ok(word) = serde_json::from_slice(&packet[..length]) {
                        self.hear(word, running, diary);
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(_) => self.lost(running, diary),
            }
        }
    }

    fn hear(&mut self, word: Hear, running: &Running, diary: &mut Diary) {
        match word {
            Hear::Ready => {}
            Hear::Opened { id, port } => {
                let began = Instant::now();
                if self.programs.len() < MOST_PROGRAMS && self.rests_until <= Some(began) {
                    if let Some(program) = whose::program_at(running.pid().as_raw(), port) {
                        self.programs.insert(id, program);
                    }
                    // In a box with many connections a look takes long, and there are many of them.
                    self.rests_until = Some(Instant::now() + began.elapsed() * REST);
                }
            }
            Hear::Over(mut connection) => {
                connection.program = self.programs.remove(&connection.id);
                if let Some(refused) = &connection.refused
                    && refused.is_by_rule
                {
                    self.note(&connection.host, connection.port, &refused.because);
                }
                diary.connected(connection);
            }
            Hear::Request { request, .. } => diary.requested(request),
            Hear::Lost { words } => diary.missed(words),
            Hear::Totals(totals) => self.totals = Some(totals),
        }
    }

    fn note(&mut self, host: &str, port: u16, because: &str) {
        let host = match port {
            0 => host.to_owned(),
            port => format!("{host}:{port}"),
        };
        // A name and a port of it are refused in the same words.
        let is_known = |one: &RefusedHost| one.host == host || one.because == because;
        if self.refused.len() < MOST_REFUSED && !self.refused.iter().any(is_known) {
            let because = because.to_owned();
            self.refused.push(RefusedHost { host, because });
        }
    }

    /// The gateway died. The doors are still ours, so another one can take its place.
    fn lost(&mut self, running: &Running, diary: &mut Diary) {
        self.gateway = None;
        self.programs.clear();
        let started = self.starts < MOST_STARTS && self.start(running).is_ok();
        let what = match started {
            true => "the gateway died and was started again",
            false => "the gateway died: the box has no network any more",
        };
        diary.changed("network", None, what.to_owned());
    }

    /// Allows or forbids another host from now on.
    pub(super) fn change(&mut self, rule: Rule, allow: bool) -> Result<(), String> {
        let plan = self.plan.as_mut().ok_or(NO_GATEWAY)?;
        // Kept here as well, for a gateway that has to be started again and for `inspect`.
        let rules = &mut plan.rules;
        rules.allow.retain(|other| other.pattern != rule.pattern);
        rules.deny.retain(|other| other.pattern != rule.pattern);
        match allow {
            true => rules.allow.push(rule.clone()),
            false => rules.deny.push(rule.clone()),
        }
        let word = match allow {
            true => Tell::Allow(rule),
            false => Tell::Deny(rule),
        };
        self.tell(&word).map_err(no_answer)
    }

    /// Other rules from now on, instead of all there were.
    pub(super) fn replace_rules(&mut self, rules: Rules) -> Result<(), String> {
        let plan = self.plan.as_ref().ok_or(NO_GATEWAY)?;
        if plan.rules == rules {
            return Ok(());
        }
        self.tell(&Tell::Rules(rules.clone())).map_err(no_answer)?;
        if let Some(plan) = &mut self.plan {
            plan.rules = rules;
        }
        Ok(())
    }

    /// Another value for a secret that stays out here.
    pub(super) fn renew(&mut self, name: &str, value: Unsaid) -> Result<(), String> {
        self.outfit.http.renew(name, &value.0)?;
        let name = name.to_owned();
        self.tell(&Tell::Secret { name, value }).map_err(no_answer)
    }

    fn tell(&self, word: &Tell) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let line = &self.gateway.as_ref().ok_or_else(gone)?.line;
        let packet = serde_json::to_vec(word)?;
        if packet.len() > LONGEST_TELL {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        send(line.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// What went through the gateway until now.
    pub(super) fn totals(&mut self, running: &Running, diary: &mut Diary) -> Option<Totals> {
        self.totals = None;
        self.tell(&Tell::Totals).ok()?;
        let end = Instant::now() + PATIENCE;
        while self.totals.is_none() {
            let left = end.checked_duration_since(Instant::now())?;
            let line = self.gateway.as_ref()?.line.as_fd();
            let mut waiting = [PollFd::new(line, PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut waiting, timeout);
            self.progress(running, diary);
        }
        self.totals.take()
    }

    /// The rules as they are now.
    pub(super) fn rules(&self) -> Option<&Rules> {
        self.plan.as_ref().map(|plan| &plan.rules)
    }

    /// Hears the gateway's last words: the box is gone, so its connections are over.
    pub(super) fn end(&mut self, running: &Running, diary: &mut Diary) {
        let _ = self.totals(running, diary);
        self.gateway = None;
    }
}

impl Call {
    pub fn pause(&self, paused: bool) -> Result<(), AskError> {
        self.done(&Ask::Pause { paused })
    }

    /// Lets programs reach another host, or one less.
    pub fn host(&self, pattern: &HostPattern, allow: bool) -> Result<(), AskError> {
        let pattern = pattern.clone();
        self.done(&Ask::Host { pattern, allow })
    }

    /// Another value for a secret that the session was started with.
    pub fn secret(&self, name: &str, value: &str) -> Result<(), AskError> {
        let mut file = File::from(sys::fds::memory(c"value").map_err(AskError::Streams)?);
        file.write_all(value.as_bytes())
            .map_err(AskError::Streams)?;
        let name = name.to_owned();
        self.done_with(&Ask::Secret { name }, file.as_raw_fd())
    }

    /// Lets programs reach what these rules allow, and nothing that others allowed before.
    pub fn rules(&self, rules: &Rules) -> Result<(), AskError> {
        let rules = rules.clone();
        self.done(&Ask::Rules { rules })
    }
}

/// `example.com:443`, or the name alone where there is no port.
pub(super) fn object(host: &str, port: u16) -> String {
    match (Host::parse(host), port) {
        (_, 0) => host.to_owned(),
        (Ok(host), port) => format!("{host}:{port}"),
        (Err(_), port) => format!("{host}:{port}"),
    }
}
