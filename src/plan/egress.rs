//! What of the network a box gets: doors inside, and a gateway outside that decides.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::Facts;
use super::step::InsideStep;
use crate::policy::egress::{HostPort, Name, Publish, Rate, Rules, SecretSpec, Upstream};
use crate::policy::{Isolation, NetMode, Policy};

/// A listener in the box's network namespace; the gateway outside holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// Where every TCP connection that is not to the box itself ends up, for each kind of address.
    Redirect4,
    Redirect6,
    /// 127.0.0.1:3128
    Http,
    /// 127.0.0.1:1080
    Socks,
    /// 127.0.0.1:53
    DnsDatagrams,
    DnsStreams,
    /// Plain HTTP for Claude; the gateway adds the key and speaks TLS outside.
    Claude,
    /// 127.0.0.1:N leads to the host's.
    HostPort(u16),
}

pub use crate::policy::egress::{CLAUDE_PORT, DNS_PORT, HTTP_PORT, SOCKS_PORT};

/// The box's address beside its loopback's, and where connections are redirected to: among those
/// that the DNS gives out for names, at a place where it gives out none.
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6f77, 0x6f72, 0x6b00, 0, 0, 0xc612, 1);
/// No program in a box can want it: those below 1024 are not for programs.
pub const REDIRECT_PORT: u16 = 1;

/// More listeners than this are not worth their cost.
const MOST_LOW_PORTS: usize = 64;
const UNPRIVILEGED: u16 = 1024;

/// What the gateway is started with. Secrets' values are not in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Egress {
    pub rules: Rules,
    /// In the order in which the box makes and hands them over.
    pub doors: Vec<Door>,
    /// Ports that get listeners of their own where the kernel cannot redirect.
    pub low_ports: Vec<u16>,
    /// Why programs that know no proxy cannot be served, if they cannot.
    pub proxies_only: Option<String>,
    pub publish: Vec<Publish>,
    pub host_ports: Vec<HostPort>,
    pub secrets: Vec<SecretSpec>,
    /// Hosts whose TLS ends at the gateway.
    pub tls_audit: Vec<Name>,
    pub upstream: Option<Upstream>,
    /// At a time.
    pub connections: u32,
    pub rate: Option<Rate>,
}

/// Why a network cannot be had with the rest of what is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error(
        "cannot use {0} with `--isolation landlock`, because without a network namespace nothing \
         leads a program's connections to the gateway"
    )]
    NoNamespace(&'static str),
    #[error("cannot use {0} with `--network host`, because the box's ports are the host's there")]
    HostNetwork(&'static str),
    #[error("cannot publish a port, because `loopback = false` lets no program listen")]
    NoListening,
}

impl NetworkError {
    pub fn help(&self) -> String {
        match self {
            Self::NoNamespace(_) => "leave `--isolation landlock` out, and see `cowork-linux \
                                     doctor` if namespaces do not work here; or use `--network \
                                     none`, or `--network host` for all of the host's network"
                .into(),
            Self::HostNetwork(_) => "leave it out: what listens in the box listens on the \
                                     host, and the host's ports can be reached from the box"
                .into(),
            Self::NoListening => "set `loopback = true` under [net] in the policy".into(),
        }
    }
}

/// What a box's network takes, if it takes a gateway at all.
pub(super) fn decide(policy: &Policy, facts: &Facts) -> Result<Option<Egress>, NetworkError> {
    let net = &policy.net;
    let (publish, host_ports) = (net.publish.clone(), net.host_ports.clone());
    let secrets = net.secrets.clone();
    let asked = match net.mode {
        NetMode::Allow => Some("`--network allow`"),
        _ if !publish.is_empty() => Some("`--publish`"),
        _ if !host_ports.is_empty() => Some("`--host-port`"),
        _ => None,
    };
    let Some(asked) = asked else {
        return Ok(None);
    };
    if policy.lock.isolation == Isolation::Landlock {
        return Err(NetworkError::NoNamespace(asked));
    }
    if net.mode == NetMode::Host {
        return Err(NetworkError::HostNetwork(asked));
    }
    if !publish.is_empty() && !net.loopback {
        return Err(NetworkError::NoListening);
    }
    let rules = net.rules(&facts.registries.rules);
    let allows = net.mode == NetMode::Allow;
    let mut doors = Vec::with_capacity(8);
    if allows && net.redirect {
        doors.extend([Door::Redirect4, Door::Redirect6]);
    }
    if allows {
        let always = [
            Door::Http,
            Door::Socks,
            Door::DnsDatagrams,
            Door::DnsStreams,
        ];
        doors.extend(always);
    }
    if allows && net.claude_secret().is_some() {
        doors.push(Door::Claude);
    }
    doors.extend(
        host_ports
            .iter()
            .map(|HostPort(port)| Door::HostPort(*port)),
    );
    let proxies_only = (allows && !net.redirect).then(|| "`redirect = false`".to_owned());
    Ok(Some(Egress {
        low_ports: low_ports(&rules),
        rules,
        doors,
        proxies_only,
        publish,
        host_ports,
        secrets,
        tls_audit: net.tls_audit.clone(),
        upstream: net.upstream().cloned(),
        connections: net.connections,
        rate: net.rate,
    }))
}

/// Ports below 1024 that a rule allows, those that most programs use first.
fn low_ports(rules: &Rules) -> Vec<u16> {
    let all = || rules.allow.iter().map(|rule| &rule.pattern.ports);
    let is_allowed = |port: &u16| all().any(|ports| ports.contains(*port));
    let is_free = |port: &u16| ![DNS_PORT, REDIRECT_PORT].contains(port);
    let usual = [443, 80, 22];
    let rest = (1..UNPRIVILEGED).filter(|port| !usual.contains(port));
    let ports = usual.into_iter().chain(rest);
    let mut ports: Vec<u16> = ports
        .filter(|port| is_free(port) && is_allowed(port))
        .take(MOST_LOW_PORTS)
        .collect();
    ports.sort_unstable();
    ports
}

impl Egress {
    /// The steps inside that it takes, in their order.
    pub(super) fn steps(&self, mode: NetMode) -> Vec<InsideStep> {
        let mut steps = Vec::with_capacity(3);
        steps.push(match mode {
            NetMode::Allow => InsideStep::OwnNetwork,
            NetMode::None | NetMode::Host => InsideStep::LoopbackUp,
        });
        if self.doors.contains(&Door::Redirect4) {
            steps.push(InsideStep::Redirect);
        }
        // Also without any: then the gateway learns that the box has its network.
        steps.push(InsideStep::Doors(self.doors.clone()));
        steps
    }

    /// What is decided outside, as sentences.
    pub(super) fn sentences(&self, mode: NetMode) -> Vec<String> {
        let list = |rules: &[crate::policy::egress::Rule]| {
            let patterns: Vec<_> = rules.iter().map(|rule| rule.pattern.to_string()).collect();
            patterns.join(", ")
        };
        let mut lines = Vec::new();
        if mode == NetMode::Allow {
            let mut line = match self.rules.allow.as_slice() {
                [] => "reach no host: none is allowed yet".to_owned(),
                allowed => format!("reach only {}", list(allowed)),
            };
            if !self.rules.deny.is_empty() {
                line.push_str(&format!("; never {}", list(&self.rules.deny)));
            }
            lines.push(line);
            lines.extend(self.additions());
        }
        for publish in &self.publish {
            let (address, outside) = (publish.address, publish.outside);
            let host = std::net::SocketAddr::new(address, outside);
            lines.push(format!(
                "publish the box's port {} at {host}",
                publish.inside
            ));
        }
        lines
    }

    /// What happens to connections on the way out.
    fn additions(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(proxy) = &self.upstream {
            lines.push(format!("reach them through the proxy {proxy}"));
        }
        for secret in &self.secrets {
            let header = match &secret.header {
                Some(header) => format!(" as {header}"),
                None => String::new(),
            };
            let (name, host) = (&secret.name, &secret.host);
            lines.push(format!(
                "add the secret {name} to requests to {host}{header}, outside"
            ));
        }
        for host in &self.tls_audit {
            lines.push(format!(
                "end TLS to {host} at the gateway, and see its requests"
            ));
        }
        if let Some(rate) = self.rate {
            lines.push(format!("let at most {rate} bytes pass in a second"));
        }
        lines
    }

    /// For the one line at the start.
    pub(super) fn summary(&self, mode: NetMode) -> String {
        let count = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            _ => format!("{number} {what}s"),
        };
        let mut text = match mode {
            NetMode::Allow => format!("allow: {}", count(self.rules.allow.len(), "host")),
            NetMode::None | NetMode::Host => "no network".to_owned(),
        };
        if self.proxies_only.is_some() {
            text.push_str(" by proxy");
        }
        if !self.publish.is_empty() {
            let ports = count(self.publish.len(), "published port");
            text.push_str(&format!(", {ports}"));
        }
        if !self.host_ports.is_empty() {
            let ports = count(self.host_ports.len(), "port");
            text.push_str(&format!(", {ports} of the host"));
        }
        text
    }
}

impl Door {
    /// Where it listens; programs do not name the port of a redirected connection.
    pub fn port(self) -> u16 {
        match self {
            Self::Redirect4 | Self::Redirect6 => REDIRECT_PORT,
            Self::Http => HTTP_PORT,
            Self::Socks => SOCKS_PORT,
            Self::DnsDatagrams | Self::DnsStreams => DNS_PORT,
            Self::Claude => CLAUDE_PORT,
            Self::HostPort(port) => port,
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port();
        match self {
            Self::Redirect4 => f.write_str("redirected connections"),
            Self::Redirect6 => f.write_str("redirected connections over IPv6"),
            Self::Http => write!(f, "HTTP proxy at 127.0.0.1:{port}"),
            Self::Socks => write!(f, "SOCKS5 proxy at 127.0.0.1:{port}"),
            Self::DnsDatagrams => write!(f, "DNS at 127.0.0.1:{port}"),
            Self::DnsStreams => write!(f, "DNS over TCP at 127.0.0.1:{port}"),
            Self::Claude => write!(f, "Claude's API at 127.0.0.1:{port}"),
            Self::HostPort(port) => write!(f, "the host's port {port} at 127.0.0.1:{port}"),
        }
    }
}
