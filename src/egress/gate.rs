//! The one decision every door asks for: who may be reached, resolved once, checked, dialled.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use tokio::net::TcpStream;

use super::accounts::{Accounts, Entry};
use super::dial::Dialer;
use super::http::Means;
use super::names::Names;
use super::resolve::Resolver;
use crate::policy::egress::{Host, HostPattern, Reason, Refusal, Rule, Rules};

/// Which door somebody came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Redirect,
    Http,
    Socks,
    Dns,
    Claude,
    HostPort,
    Publish,
}

impl Way {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Http => "http",
            Self::Socks => "socks",
            Self::Dns => "dns",
            Self::Claude => "claude",
            Self::HostPort => "host-port",
            Self::Publish => "publish",
        }
    }
}

/// Shared by all doors of a gateway, in one thread.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) rules: RefCell<Rules>,
    /// Addresses given out inside, and the names they stand for.
    pub(super) names: RefCell<Names>,
    pub(super) accounts: Rc<Accounts>,
    pub(super) resolver: Resolver,
    pub(super) dialer: Dialer,
    /// What the doors for HTTP have besides: keys and certificates.
    pub(super) http: Means,
}

/// A host somebody inside asks for.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) way: Way,
    pub(super) host: Host,
    pub(super) port: u16,
    /// The asker's end of the connection, as seen inside.
    pub(super) from: SocketAddr,
}

impl Ask {
    pub(super) fn refusal(&self, reason: Reason, rule: Option<String>) -> Refusal {
        Refusal {
            host: self.host.to_string(),
            port: self.port,
            reason,
            rule,
        }
    }
}

/// A connection to the outside. When its entry is dropped the audit is written.
#[derive(Debug)]
pub(super) struct Outside {
    pub(super) stream: TcpStream,
    pub(super) entry: Entry,
}

impl Gate {
    /// One that lets nobody by.
    pub(super) fn shut() -> Rc<Self> {
        Rc::new(Self {
            rules: RefCell::default(),
            names: Names::new(1).into(),
            accounts: Accounts::new(1, None),
            resolver: Resolver::new(),
            dialer: Dialer::default(),
            http: Means::default(),
        })
    }

    /// Decides, resolves, checks every address, dials the checked one. A refusal is written down
    /// here; the door only has to say it in its own protocol.
    pub(super) async fn open(self: &Rc<Self>, ask: &Ask) -> Result<Outside, Refusal> {
        let entry = self.accounts.begin(ask);
        let opened = self.reach(ask, &entry).await;
        match opened {
            Ok(stream) => Ok(Outside { stream, entry }),
            Err(refusal) => {
                entry.refused(&refusal);
                Err(refusal)
            }
        }
    }

    async fn reach(&self, ask: &Ask, entry: &Entry) -> Result<TcpStream, Refusal> {
        if !self.accounts.has_room() {
            return Err(ask.refusal(Reason::TooMany, None));
        }
        let rule = self
            .rules
            .borrow()
            .admit(&ask.host, ask.port)?
            .said_by
            .clone();
        entry.admitted(rule);
        if let (true, Host::Name(name)) = (self.dialer.has_upstream(), &ask.host) {
            // Whoever dials for us resolves for us as well; only names are left to it.
            let far = Host::Name(name.clone());
            return self
                .dialer
                .ask_upstream(&far, ask.port)
                .await
                .map_err(|why| self.unreachable(ask, why));
        }
        let found = match &ask.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self
                .resolver
                .resolve(name)
                .await
                .map_err(|why| ask.refusal(Reason::Unresolved(why), None))?,
        };
        let checked = self.checked(ask, &found)?;
        if self.dialer.has_upstream() {
            let far = Host::Address(checked[0]);
            let stream = self.dialer.ask_upstream(&far, ask.port).await;
            entry.reached(checked[0]);
            return stream.map_err(|why| self.unreachable(ask, why));
        }
        match self.dialer.dial(&checked, ask.port).await {
            Ok((stream, address)) => {
                entry.reached(address);
                Ok(stream)
            }
            Err(why) => Err(self.unreachable(ask, why)),
        }
    }

    /// Those of the addresses that may be dialled, at least one. The rules are asked again for
    /// each of them, so that a name cannot be made to mean somebody else.
    fn checked(&self, ask: &Ask, found: &[IpAddr]) -> Result<Vec<IpAddr>, Refusal> {
        let rules = self.rules.borrow();
        let mut first = None;
        let mut checked = Vec::with_capacity(found.len());
        for address in found {
            let own = self.dialer.own(*address);
            match rules.admit_address(&ask.host, *address, ask.port, own.as_slice()) {
                Ok(()) => checked.push(*address),
                Err(refusal) => first = first.or(Some(refusal)),
            }
        }
        match (checked.is_empty(), first) {
            (false, _) => Ok(checked),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => {
                Err(ask.refusal(Reason::Unresolved("it has no address".to_owned()), None))
            }
        }
    }

    fn unreachable(&self, ask: &Ask, why: std::io::Error) -> Refusal {
        ask.refusal(Reason::Unreachable(why.to_string()), None)
    }

    /// Writes down a refusal that a door found by itself (a name inside that does not match, a
    /// request that is none).
    pub(super) fn refuse(&self, ask: &Ask, refusal: &Refusal) {
        self.accounts.begin(ask).refused(refusal);
    }

    pub(super) fn allow(&self, rule: Rule) {
        let mut rules = self.rules.borrow_mut();
        // What was forbidden by the very same words is not any more.
        rules.deny.retain(|other| other.pattern != rule.pattern);
        if !rules
            .allow
            .iter()
            .any(|other| other.pattern == rule.pattern)
        {
            rules.allow.push(rule);
        }
    }

    pub(super) fn deny(&self, rule: Rule) {
        {
            let mut rules = self.rules.borrow_mut();
            rules.allow.retain(|other| other.pattern != rule.pattern);
            rules.deny.push(rule);
        }
        self.look_again();
    }

    /// Other rules from now on, instead of all there were.
    pub(super) fn replace(&self, rules: Rules) {
        self.rules.replace(rules);
        self.look_again();
    }

    pub(super) fn forget(&self, pattern: &HostPattern) {
        {
            let mut rules = self.rules.borrow_mut();
            rules.allow.retain(|rule| rule.pattern != *pattern);
            rules.deny.retain(|rule| rule.pattern != *pattern);
        }
        self.look_again();
    }

    /// Ends the connections that would not be allowed any more.
    fn look_again(&self) {
        let rules = self.rules.borrow();
        self.accounts.revoke(|host, port, address| {
            let own = address.and_then(|address| self.dialer.own(address));
            rules.admit(host, port).is_err()
                || address.is_some_and(|address| {
                    rules
                        .admit_address(host, address, port, own.as_slice())
                        .is_err()
                })
        });
    }
}

#[cfg(test)]
impl Gate {
    /// One that nobody listens to, with these hosts allowed.
    pub(super) fn for_tests(hosts: &[String]) -> Rc<Self> {
        let rule = |text: &String| {
            let pattern = HostPattern::parse(text).expect("a pattern");
            Rule::new(pattern, format!("--allow-host {text}"))
        };
        let rules = Rules {
            allow: hosts.iter().map(rule).collect(),
            deny: Vec::new(),
        };
        Rc::new(Self {
            rules: rules.into(),
            names: Names::new(64).into(),
            accounts: Accounts::new(4096, None),
            resolver: Resolver::new(),
            dialer: Dialer::default(),
            http: Means::default(),
        })
    }
}
