//! The decision: may this host be reached at this port, and may this address be dialled for it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::addresses::{Class, classify, embedded, lists};
use super::host::{Host, Name};
use super::pattern::{HostPattern, Ports, Target};
use super::refusal::{Reason, Refusal};

/// A pattern and who said it, such as `--allow-host github.com` or `bundle claude`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub pattern: HostPattern,
    pub said_by: String,
    /// Its names may lead to private addresses: the machine's own configuration sends programs
    /// there, as with a company's mirror.
    #[serde(default)]
    pub private: bool,
}

impl Rule {
    pub fn new(pattern: HostPattern, said_by: impl Into<String>) -> Self {
        Self {
            pattern,
            said_by: said_by.into(),
            private: false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub allow: Vec<Rule>,
    /// Wins over `allow`.
    pub deny: Vec<Rule>,
}

impl Rules {
    /// Whether a program may reach this host at this port: the rule that allows it.
    pub fn admit(&self, host: &Host, port: u16) -> Result<&Rule, Refusal> {
        let refuse = |reason| Refusal::new(host, port, reason);
        let host = &one_spelling(host);
        if let Some(rule) = self.denied(host, port) {
            return Err(refuse(Reason::Denied).by(&rule.said_by));
        }
        let class = match host {
            Host::Name(_) => Class::Public,
            Host::Address(address) => classify(*address),
        };
        let named = || self.allow.iter().filter(|rule| allows(rule, host, class));
        if let Some(rule) = named().find(|rule| rule.pattern.ports.contains(port)) {
            return Ok(rule);
        }
        Err(match (host, named().next()) {
            (_, Some(rule)) => refuse(Reason::Port).by(&rule.said_by),
            (Host::Address(address), None) if class != Class::Public => refuse(Reason::Address {
                class,
                address: *address,
            }),
            _ => refuse(Reason::NotListed),
        })
    }

    /// Whether the name may be asked for at all, at whatever port.
    pub fn knows(&self, name: &Name) -> bool {
        let forbidden = self
            .deny
            .iter()
            .filter(|rule| forbids_name(&rule.pattern.target, name))
            .flat_map(|rule| rule.pattern.ports.ranges().iter().copied())
            .collect();
        let forbidden = Ports::merged(forbidden);
        self.allow
            .iter()
            .filter(|rule| rule.pattern.target.is_name(name))
            .any(|rule| !forbidden.cover(&rule.pattern.ports))
    }

    /// Whether this address may be dialled for a host that was admitted. `own` are the addresses
    /// of the host itself.
    pub fn admit_address(
        &self,
        host: &Host,
        address: IpAddr,
        port: u16,
        own: &[IpAddr],
    ) -> Result<(), Refusal> {
        let refuse = |reason| Err(Refusal::new(host, port, reason));
        let address = address.to_canonical();
        if let Some(rule) = self.denied(&Host::Address(address), port) {
            return refuse(Reason::Denied).map_err(|refusal| refusal.by(&rule.said_by));
        }
        let class = match classify(address) {
            Class::Unspecified => Class::Unspecified,
            _ if own.iter().any(|own| own.to_canonical() == address) => Class::Own,
            class => class,
        };
        let listed = || {
            let at_port = |rule: &&Rule| rule.pattern.ports.contains(port);
            self.allow
                .iter()
                .filter(at_port)
                .any(|rule| match (&rule.pattern.target, host) {
                    (Target::Net(net), _) => lists(net, address, class),
                    (target, Host::Name(name)) if rule.private => {
                        matches!(class, Class::Private | Class::Shared) && target.is_name(name)
                    }
                    _ => false,
                })
        };
        if class == Class::Public || listed() {
            return Ok(());
        }
        refuse(Reason::Address { class, address })
    }

    fn denied(&self, host: &Host, port: u16) -> Option<&Rule> {
        self.deny.iter().find(|rule| {
            rule.pattern.ports.contains(port)
                && match host {
                    Host::Name(name) => forbids_name(&rule.pattern.target, name),
                    Host::Address(address) => forbids_address(&rule.pattern.target, *address),
                }
        })
    }
}

fn one_spelling(host: &Host) -> Host {
    match host {
        Host::Name(name) => Host::Name(name.clone()),
        Host::Address(address) => Host::from(*address),
    }
}

fn allows(rule: &Rule, host: &Host, class: Class) -> bool {
    match (&rule.pattern.target, host) {
        (target, Host::Name(name)) => target.is_name(name),
        (Target::Any, Host::Address(_)) => class == Class::Public,
        (Target::Net(net), Host::Address(address)) => lists(net, *address, class),
        (Target::Exact(_) | Target::Below(_), Host::Address(_)) => false,
    }
}

/// What forbids everything forbids this machine's names too.
fn forbids_name(target: &Target, name: &Name) -> bool {
    match target {
        Target::Any => true,
        Target::Below(parent) => name.is_below(parent),
        Target::Exact(exact) => exact == name,
        Target::Net(_) => false,
    }
}

/// An address is forbidden in every form in which the network would take a packet there.
fn forbids_address(target: &Target, address: IpAddr) -> bool {
    match (target, address) {
        (Target::Any, _) => true,
        (Target::Net(net), address) => {
            let inner = match address {
                IpAddr::V4(_) => None,
                IpAddr::V6(outer) => Some(embedded(outer)),
            };
            net.contains(&address)
                || inner
                    .into_iter()
                    .flatten()
                    .any(|inner| net.contains(&IpAddr::V4(inner)))
        }
        (Target::Exact(_) | Target::Below(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let rule = |pattern: Result<HostPattern, String>| {
            let pattern = pattern.unwrap();
            let said = format!("--allow-host {pattern}");
            Rule::new(pattern, said)
        };
        Rules {
            allow: allow.iter().map(|p| rule(HostPattern::parse(p))).collect(),
            deny: deny
                .iter()
                .map(|p| rule(HostPattern::parse_denied(p)))
                .collect(),
        }
    }

    /// The word of the refusal, or `ok`.
    fn admit(rules: &Rules, host: &str, port: u16) -> &'static str {
        match Host::parse(host) {
            Err(_) => "no-host",
            Ok(host) => rules.admit(&host, port).map_or_else(|r| r.word(), |_| "ok"),
        }
    }

    fn dial(rules: &Rules, address: &str, port: u16, own: &[&str]) -> &'static str {
        let own: Vec<IpAddr> = own.iter().map(|a| a.parse().unwrap()).collect();
        let host = Host::parse("name.example").unwrap();
        rules
            .admit_address(&host, address.parse().unwrap(), port, &own)
            .map_or_else(|r| r.word(), |()| "ok")
    }

    #[test]
    fn px_01_loopback_is_not_reached_by_its_address() {
        let open = rules(&["*:*"], &[]);
        assert_eq!(admit(&open, "1.1.1.1", 443), "ok");
        assert_eq!(admit(&open, "127.0.0.1", 443), "loopback-address");
        assert_eq!(admit(&open, "[::1]", 443), "loopback-address");
        assert_eq!(admit(&open, "0.0.0.0", 443), "unspecified-address");
        assert_eq!(admit(&open, "[::]", 443), "unspecified-address");
        let said = rules(&["127.0.0.1:5432", "0.0.0.0/0:*"], &[]);
        assert_eq!(admit(&said, "127.0.0.1", 5432), "ok");
        assert_eq!(admit(&said, "127.0.0.1", 443), "port");
        assert_eq!(admit(&said, "0.0.0.0", 443), "unspecified-address");
    }

    #[test]
    fn px_02_localhost_in_every_spelling_is_this_machine() {
        let open = rules(&["*:*", "*.localhost:*"], &[]);
        for host in [
            "localhost",
            "localhost.",
            "LOCALHOST",
            "x.localhost",
            "a.b.LocalHost.",
        ] {
            assert_eq!(admit(&open, host, 443), "not-listed", "{host}");
            assert!(!open.knows(&Name::parse(host).unwrap()), "{host}");
        }
        assert_eq!(admit(&open, "localhost.example", 443), "ok");
        let said = rules(&["localhost", "x.localhost"], &[]);
        assert_eq!(admit(&said, "LOCALHOST.", 443), "ok");
        assert_eq!(admit(&said, "x.localhost", 443), "ok");
        assert_eq!(admit(&said, "y.localhost", 443), "not-listed");
        // Even then it is the address that decides.
        assert_eq!(dial(&said, "127.0.0.1", 443, &[]), "loopback-address");
    }

    #[test]
    fn px_03_an_address_in_odd_clothes_is_no_host_or_the_same_address() {
        let open = rules(&["*:*"], &[]);
        for odd in [
            "0x7f000001",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "0",
            "１２７.0.0.1",
            "[127.0.0.1]",
        ] {
            assert_eq!(admit(&open, odd, 443), "no-host", "{odd}");
        }
        assert_eq!(admit(&open, "[::ffff:7f00:1]", 443), "loopback-address");
        let mapped = Host::Address("::ffff:127.0.0.1".parse().unwrap());
        assert_eq!(
            open.admit(&mapped, 443).unwrap_err().word(),
            "loopback-address"
        );
    }

    #[test]
    fn px_06_a_name_is_matched_from_dot_to_dot() {
        let exact = rules(&["example.com"], &[]);
        let below = rules(&["*.example.com"], &[]);
        for evil in [
            "evilexample.com",
            "example.com.evil.test",
            "com",
            "example.co",
            "xample.com",
        ] {
            assert_eq!(admit(&exact, evil, 443), "not-listed", "{evil}");
            assert_eq!(admit(&below, evil, 443), "not-listed", "{evil}");
        }
        assert_eq!(admit(&exact, "example.com", 443), "ok");
        assert_eq!(admit(&exact, "a.example.com", 443), "not-listed");
        assert_eq!(admit(&below, "a.example.com", 443), "ok");
        assert_eq!(admit(&below, "example.com", 443), "not-listed");
    }

    #[test]
    fn px_09_what_a_name_leads_to_is_checked_by_itself() {
        let open = rules(&["*:*", "10.0.0.0/8:5432"], &[]);
        for (address, word) in [
            ("93.184.216.34", "ok"),
            ("127.0.0.1", "loopback-address"),
            ("::1", "loopback-address"),
            ("::ffff:127.0.0.1", "loopback-address"),
            ("0.0.0.0", "unspecified-address"),
            ("192.168.1.1", "private-address"),
            ("100.64.0.1", "shared-address"),
            ("169.254.1.1", "link-local-address"),
            ("fe80::1", "link-local-address"),
            ("224.0.0.1", "multicast-address"),
            ("198.18.0.1", "reserved-address"),
            ("255.255.255.255", "reserved-address"),
        ] {
            assert_eq!(dial(&open, address, 443, &[]), word, "{address}");
        }
        assert_eq!(dial(&open, "10.1.2.3", 5432, &[]), "ok");
        assert_eq!(dial(&open, "10.1.2.3", 443, &[]), "private-address");
    }

    #[test]
    fn a_name_the_machine_vouches_for_may_be_at_home() {
        let mut some = rules(&["name.example", "*.example:*"], &[]);
        assert_eq!(dial(&some, "10.1.2.3", 443, &[]), "private-address");
        some.allow[0].private = true;
        assert_eq!(dial(&some, "10.1.2.3", 443, &[]), "ok");
        assert_eq!(dial(&some, "100.64.0.1", 443, &[]), "ok");
        assert_eq!(dial(&some, "10.1.2.3", 22, &[]), "private-address");
        assert_eq!(dial(&some, "10.1.2.3", 443, &["10.1.2.3"]), "own-address");
        for (address, word) in [
            ("127.0.0.1", "loopback-address"),
            ("169.254.169.254", "metadata-address"),
            ("169.254.1.1", "link-local-address"),
            ("198.18.0.1", "reserved-address"),
        ] {
            assert_eq!(dial(&some, address, 443, &[]), word, "{address}");
        }
    }

    #[test]
    fn the_hosts_own_addresses_have_to_be_written_out() {
        let own = &["203.0.114.7", "10.1.2.3", "::ffff:203.0.114.8"];
        let nets = rules(&["*:*", "10.0.0.0/8", "203.0.114.0/24"], &[]);
        assert_eq!(dial(&nets, "10.1.2.4", 443, own), "ok");
        assert_eq!(dial(&nets, "203.0.114.9", 443, own), "ok");
        for own_address in ["10.1.2.3", "203.0.114.7", "203.0.114.8"] {
            assert_eq!(
                dial(&nets, own_address, 443, own),
                "own-address",
                "{own_address}"
            );
        }
        assert_eq!(dial(&rules(&["10.1.2.3"], &[]), "10.1.2.3", 443, own), "ok");
    }

    #[test]
    fn px_10_ports_count_and_a_rule_that_forbids_wins() {
        let some = rules(&["example.com", "*.net:22"], &["denied.net", "*:25"]);
        assert_eq!(admit(&some, "example.com", 80), "ok");
        assert_eq!(admit(&some, "example.com", 22), "port");
        assert_eq!(admit(&some, "example.com", 25), "denied");
        assert_eq!(admit(&some, "other.net", 22), "ok");
        for denied in ["denied.net", "DENIED.net.", "Denied.Net"] {
            assert_eq!(admit(&some, denied, 22), "denied", "{denied}");
            assert!(!some.knows(&Name::parse(denied).unwrap()));
        }
        assert_eq!(admit(&some, "a.denied.net", 22), "ok");
        let who = some
            .admit(&Host::parse("example.com").unwrap(), 443)
            .unwrap();
        assert_eq!(who.said_by, "--allow-host example.com");
    }

    #[test]
    fn px_11_only_names_of_rules_are_known_outside() {
        let some = rules(
            &["example.com", "*.cdn.example:443", "10.0.0.0/8"],
            &["x.cdn.example:443"],
        );
        let knows = |name: &str| some.knows(&Name::parse(name).unwrap());
        assert!(knows("example.com") && knows("EXAMPLE.com.") && knows("a.cdn.example"));
        assert!(!knows("c2VjcmV0.example.com") && !knows("cdn.example") && !knows("x.cdn.example"));
        // What is forbidden at some ports only may still be asked for.
        let part = rules(&["example.com"], &["example.com:80"]);
        assert!(part.knows(&Name::parse("example.com").unwrap()));
        let both = rules(&["example.com"], &["example.com:80", "*:81-500"]);
        assert!(!both.knows(&Name::parse("example.com").unwrap()));
        assert!(!rules(&[], &[]).knows(&Name::parse("example.com").unwrap()));
    }

    #[test]
    fn px_14_metadata_has_to_be_written_out() {
        let wide = rules(&["*:*", "169.254.0.0/16:*", "0.0.0.0/0:*"], &[]);
        assert_eq!(admit(&wide, "169.254.169.254", 80), "metadata-address");
        assert_eq!(admit(&wide, "[::ffff:a9fe:a9fe]", 80), "metadata-address");
        assert_eq!(admit(&wide, "2852039166", 80), "no-host");
        assert_eq!(dial(&wide, "169.254.169.254", 80, &[]), "metadata-address");
        assert_eq!(dial(&wide, "169.254.1.1", 80, &[]), "ok");
        let said = rules(&["169.254.169.254"], &[]);
        assert_eq!(admit(&said, "169.254.169.254", 80), "ok");
        assert_eq!(dial(&said, "169.254.169.254", 80, &[]), "ok");
    }

    #[test]
    fn nw_61_translated_and_tunnelled_addresses_are_what_is_in_them() {
        let open = rules(&["*:*", "127.0.0.0/8:*"], &["9.9.9.9"]);
        for odd in [
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::7f00:1",
            "64:ff9b:1::7f00:1",
        ] {
            assert_eq!(
                admit(&open, &format!("[{odd}]"), 443),
                "embedded-address",
                "{odd}"
            );
            assert_eq!(dial(&open, odd, 443, &[]), "embedded-address", "{odd}");
        }
        for forbidden in [
            "9.9.9.9",
            "::ffff:9.9.9.9",
            "64:ff9b::909:909",
            "2002:909:909::1",
        ] {
            assert_eq!(dial(&open, forbidden, 443, &[]), "denied", "{forbidden}");
        }
        assert_eq!(dial(&open, "64:ff9b::909:90a", 443, &[]), "ok");
    }

    #[test]
    fn an_address_is_admitted_by_a_rule_for_addresses_only() {
        let names = rules(&["example.com", "*.example.com"], &[]);
        assert_eq!(admit(&names, "93.184.216.34", 443), "not-listed");
        let nets = rules(&["93.184.216.0/24:443"], &[]);
        assert_eq!(admit(&nets, "93.184.216.34", 443), "ok");
        assert_eq!(admit(&nets, "93.184.216.34", 80), "port");
        assert_eq!(admit(&nets, "93.184.217.34", 443), "not-listed");
        assert_eq!(admit(&nets, "example.com", 443), "not-listed");
        assert_eq!(admit(&rules(&[], &[]), "93.184.216.34", 443), "not-listed");
        let forbidden = rules(&["*"], &["93.184.216.0/24"]);
        assert_eq!(admit(&forbidden, "93.184.216.34", 443), "denied");
        assert_eq!(dial(&forbidden, "93.184.216.34", 443, &[]), "denied");
    }
}
