//! What a policy says about the network, layer over layer, and what of it widens the box.

use serde::{Deserialize, Serialize};

use super::egress::{
    BundleName, HostPattern, HostPort, Name, Publish, Rate, Rule, Rules, SecretSource, SecretSpec,
    Upstream, UpstreamChoice,
};
use super::error::ValueError;
use super::expand::Paths;
use super::file::NetPart;
use super::key::{Key, Origin, Origins, raised, subset};
use super::stack::{grow, put};
use super::words::{Cap, Later};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Net {
    pub mode: NetMode,
    /// Whether programs may talk TCP to each other over the box's own loopback.
    pub loopback: bool,
    /// Whether connections of programs that know no proxy are led to the gateway too.
    pub redirect: bool,
    /// Hosts that may be reached, each with who said so.
    pub allow: Vec<Rule>,
    /// Hosts that may not, whatever else is said.
    pub deny: Vec<Rule>,
    /// Lists of hosts by name.
    pub bundles: Vec<BundleName>,
    /// A proxy through which everything goes.
    pub upstream_proxy: Option<UpstreamChoice>,
    pub publish: Vec<Publish>,
    pub host_ports: Vec<HostPort>,
    pub secrets: Vec<SecretSpec>,
    /// Hosts whose TLS ends at the gateway.
    pub tls_audit: Vec<Name>,
    /// At a time.
    pub connections: u32,
    pub rate: Option<Rate>,
}

/// From the tightest to the widest.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NetMode {
    /// An empty network namespace with loopback.
    None,
    /// Only the listed hosts.
    Allow,
    /// The host's network.
    Host,
}

impl NetMode {
    pub const ALL: [Self; 3] = [Self::None, Self::Allow, Self::Host];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allow => "allow",
            Self::Host => "host",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl Net {
    /// Enough for a thousand at once; each takes two descriptors of the gateway.
    pub const CONNECTIONS: u32 = 2048;
    pub const MOST_CONNECTIONS: u32 = 65_536;

    /// No network, and nothing said about one.
    pub(super) fn none() -> Self {
        Self {
            mode: NetMode::None,
            loopback: true,
            redirect: true,
            allow: Vec::new(),
            deny: Vec::new(),
            bundles: Vec::new(),
            upstream_proxy: None,
            publish: Vec::new(),
            host_ports: Vec::new(),
            secrets: Vec::new(),
            tls_audit: Vec::new(),
            connections: Self::CONNECTIONS,
            rate: None,
        }
    }

    /// The secret that Claude itself logs in with, for which there is a gateway of its own.
    pub fn claude_secret(&self) -> Option<&SecretSpec> {
        self.secrets.iter().find(|secret| secret.is_claudes())
    }

    /// Whether the machine's registries have to be known before there are rules.
    pub fn wants_registries(&self) -> bool {
        self.mode == NetMode::Allow && self.bundles.iter().any(BundleName::is_registries)
    }

    /// Which hosts may be reached, and who said so. `registries` is what the bundle of that name
    /// stands for on this machine.
    pub fn rules(&self, registries: &[Rule]) -> Rules {
        if self.mode != NetMode::Allow {
            return Rules::default();
        }
        let bundled = self.bundles.iter().flat_map(|bundle| {
            let said = format!("bundle {bundle}");
            // A test holds every one of them to be a pattern.
            let patterns = bundle
                .hosts()
                .iter()
                .filter_map(|host| HostPattern::parse(host).ok());
            let found = registries.iter().filter(|_| bundle.is_registries());
            patterns
                .map(move |pattern| Rule::new(pattern, said.clone()))
                .chain(found.cloned())
        });
        Rules {
            allow: self.allow.iter().cloned().chain(bundled).collect(),
            deny: self.deny.clone(),
        }
    }

    /// The proxy itself, once it was looked for where the policy says.
    pub fn upstream(&self) -> Option<&Upstream> {
        match &self.upstream_proxy {
            Some(UpstreamChoice::At(proxy)) => Some(proxy),
            Some(UpstreamChoice::Environment) | None => None,
        }
    }

    /// What is said about hosts that nothing allows, and would therefore never be used.
    pub fn without_use(&self, rules: &Rules) -> Option<String> {
        let secrets = self.secrets.iter().map(|secret| {
            let what = format!("the secret {}", secret.name);
            (what, &secret.host)
        });
        let audits = self
            .tls_audit
            .iter()
            .map(|host| ("TLS audit".to_owned(), host));
        secrets
            .chain(audits)
            .find(|(_, host)| !rules.knows(host))
            .map(|(what, host)| format!("{what} is for {host}, which no rule allows"))
    }

    pub(super) fn lay(
        &mut self,
        layer: &NetPart,
        origin: &Origin,
        origins: &mut Origins,
        paths: Paths<'_>,
    ) -> Result<(), (Key, ValueError)> {
        put(origins, Key::NetMode, &mut self.mode, layer.mode);
        put(origins, Key::Loopback, &mut self.loopback, layer.loopback);
        put(origins, Key::Redirect, &mut self.redirect, layer.redirect);
        if let Some(allow) = &layer.allow {
            let rules = allow.iter().map(|pattern| said(pattern, origin, "allow"));
            lay_rules(origins, Key::Allow, &mut self.allow, rules.collect());
        }
        if let Some(deny) = &layer.deny {
            let rules = deny.iter().map(|pattern| said(&pattern.0, origin, "deny"));
            lay_rules(origins, Key::Deny, &mut self.deny, rules.collect());
        }
        if let Some(bundles) = &layer.bundles {
            grow(origins, Key::Bundles, &mut self.bundles, bundles.clone());
        }
        if let Some(Later(proxy)) = &layer.upstream_proxy {
            let proxy = proxy.clone().map_err(ValueError::Unsaid);
            let proxy = proxy.map_err(|why| (Key::UpstreamProxy, why))?;
            self.upstream_proxy = proxy.limit();
            origins.set(Key::UpstreamProxy);
        }
        if let Some(publish) = &layer.publish {
            grow(origins, Key::Publish, &mut self.publish, publish.clone());
        }
        if let Some(ports) = &layer.host_ports {
            grow(origins, Key::HostPorts, &mut self.host_ports, ports.clone());
        }
        if let Some(secrets) = &layer.secrets {
            self.lay_secrets(secrets, origins, paths)
                .map_err(|why| (Key::Secrets, why))?;
        }
        if let Some(hosts) = &layer.tls_audit {
            grow(origins, Key::TlsAudit, &mut self.tls_audit, hosts.clone());
        }
        put(
            origins,
            Key::Connections,
            &mut self.connections,
            layer.connections,
        );
        put(
            origins,
            Key::Rate,
            &mut self.rate,
            layer.rate.map(Cap::limit),
        );
        Ok(())
    }

    /// The nearest layer decides where the value for one name and place comes from.
    fn lay_secrets(
        &mut self,
        secrets: &[Later<SecretSpec>],
        origins: &mut Origins,
        paths: Paths<'_>,
    ) -> Result<(), ValueError> {
        let mut nearer: Vec<SecretSpec> = Vec::with_capacity(secrets.len());
        for Later(secret) in secrets {
            let mut secret = secret.clone().map_err(ValueError::Unsaid)?;
            if matches!(paths, Paths::In(..)) && !secret.is_fit_for_files() {
                return Err(ValueError::SecretInFile(secret.name));
            }
            if let SecretSource::File(path) = &mut secret.from {
                *path = paths.path(path)?;
            }
            nearer.retain(|other| !same_place(other, &secret));
            nearer.push(secret);
        }
        self.secrets
            .retain(|old| !nearer.iter().any(|new| same_place(old, new)));
        grow(origins, Key::Secrets, &mut self.secrets, nearer);
        Ok(())
    }

    /// Whether `after` allows something by this key that `before` did not.
    pub(super) fn widens(key: Key, before: &Self, after: &Self) -> bool {
        let (b, a) = (before, after);
        match key {
            Key::NetMode => a.mode > b.mode,
            Key::Loopback => !b.loopback && a.loopback,
            Key::Redirect => !b.redirect && a.redirect,
            Key::Allow => !covered(&a.allow, &b.allow),
            Key::Deny => !covered(&b.deny, &a.deny),
            Key::Bundles => !subset(&a.bundles, &b.bundles),
            // Whoever is in between sees everything, and nobody in between is nobody who looks.
            Key::UpstreamProxy => a.upstream_proxy != b.upstream_proxy,
            Key::Publish => !subset(&a.publish, &b.publish),
            Key::HostPorts => !subset(&a.host_ports, &b.host_ports),
            Key::Secrets => !subset(&a.secrets, &b.secrets),
            Key::TlsAudit => !subset(&a.tls_audit, &b.tls_audit),
            Key::Connections => a.connections > b.connections,
            Key::Rate => raised(b.rate, a.rate),
            _ => false,
        }
    }
}

fn same_place(one: &SecretSpec, other: &SecretSpec) -> bool {
    (&one.name, &one.host, &one.header) == (&other.name, &other.host, &other.header)
}

/// Whether each of these is within one of those.
fn covered(these: &[Rule], those: &[Rule]) -> bool {
    these
        .iter()
        .all(|this| those.iter().any(|that| this.pattern.within(&that.pattern)))
}

/// A rule as its user knows it: the flag, or the key and the file.
fn said(pattern: &HostPattern, origin: &Origin, list: &str) -> Rule {
    let said = match origin {
        Origin::Flags => format!("--{list}-host {pattern}"),
        other => format!("{list} {pattern} of {other}"),
    };
    Rule::new(pattern.clone(), said)
}

/// Who said a thing first stays the one who said it.
fn lay_rules(origins: &mut Origins, key: Key, rules: &mut Vec<Rule>, more: Vec<Rule>) {
    let is_known = |new: &Rule| rules.iter().any(|old| old.pattern == new.pattern);
    let (known, new): (Vec<_>, Vec<_>) = more.into_iter().partition(is_known);
    if known.is_empty() || !new.is_empty() {
        grow(origins, key, rules, new);
    } else {
        origins.join(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::stack::Stack;
    use super::super::{Policy, PolicyFile};
    use super::*;
    use crate::policy::egress::Host;

    fn policy(text: &str) -> Policy {
        Stack::of_file(&PolicyFile::parse(text).unwrap()).policy
    }

    #[test]
    fn rules_say_who_said_them() {
        let net = policy(
            "[net]\nmode = \"allow\"\nallow = [\"a.example\"]\ndeny = [\"b.example\"]\n\
             bundles = [\"claude\", \"registries\"]",
        )
        .net;
        assert!(net.wants_registries());
        let mirror = HostPattern::parse("mirror.example:443").unwrap();
        let rules = net.rules(&[Rule::new(mirror, "npm of this machine")]);
        let who = |host: &str| {
            let host = Host::parse(host).unwrap();
            rules.admit(&host, 443).map(|rule| rule.said_by.clone())
        };
        assert_eq!(who("a.example").unwrap(), "--allow-host a.example");
        assert_eq!(who("api.anthropic.com").unwrap(), "bundle claude");
        assert_eq!(who("mirror.example").unwrap(), "npm of this machine");
        let denied = who("b.example").unwrap_err();
        assert_eq!(denied.rule.as_deref(), Some("--deny-host b.example:*"));
    }

    #[test]
    fn without_the_mode_a_list_allows_nothing() {
        for mode in ["none", "host"] {
            let text =
                format!("[net]\nmode = \"{mode}\"\nallow = [\"*:*\"]\nbundles = [\"claude\"]");
            assert_eq!(policy(&text).net.rules(&[]), Rules::default(), "{mode}");
        }
        // An empty list is no list, not every host.
        let empty = policy("[net]\nmode = \"allow\"\nallow = []").net.rules(&[]);
        assert!(
            empty
                .admit(&Host::parse("a.example").unwrap(), 443)
                .is_err()
        );
    }

    #[test]
    fn a_secret_for_a_host_that_is_not_allowed_is_said_to_be() {
        let text = "[net]\nmode = \"allow\"\nallow = [\"a.example\"]\nsecrets = [\"A@a.example\"]";
        let net = policy(text).net;
        assert_eq!(net.without_use(&net.rules(&[])), None);
        let net = policy(&text.replace("A@a", "A@b")).net;
        let why = net.without_use(&net.rules(&[])).unwrap();
        assert_eq!(why, "the secret A is for b.example, which no rule allows");
        let net = policy(&format!("{text}\ntls-audit = [\"c.example\"]")).net;
        assert!(
            net.without_use(&net.rules(&[]))
                .unwrap()
                .contains("c.example")
        );
    }

    #[test]
    fn every_key_of_the_network_widens_in_one_direction() {
        let base = "[net]\nmode = \"allow\"\nallow = [\"*.a.example\"]\ndeny = [\"x.a.example\"]\n\
                    publish = [\"8080:80\"]\nrate = \"1M\"\nconnections = 10\n";
        let before = policy(base);
        let with = |from: &str, to: &str| policy(&base.replace(from, to)).wider_than(&before);
        let add = |line: &str| policy(&format!("{base}{line}\n")).wider_than(&before);
        assert_eq!(with("\"allow\"", "\"host\""), [Key::NetMode]);
        assert_eq!(with("\"allow\"", "\"none\""), []);
        assert_eq!(with("*.a.example", "b.a.example"), []);
        assert_eq!(with("*.a.example", "*.a.example:*"), [Key::Allow]);
        assert_eq!(with("*.a.example", "*.example"), [Key::Allow]);
        assert_eq!(with("*.a.example", "a.example"), [Key::Allow]);
        assert_eq!(
            with("x.a.example", "*.a.example"),
            [Key::Allow, Key::Deny][..0]
        );
        assert_eq!(with("x.a.example", "x.a.example:443"), [Key::Deny]);
        assert_eq!(with("x.a.example", "y.a.example"), [Key::Deny]);
        assert_eq!(with("8080:80", "8081:80"), [Key::Publish]);
        assert_eq!(with("8080:80", "0.0.0.0:8080:80"), [Key::Publish]);
        assert_eq!(with("1M", "2M"), [Key::Rate]);
        assert_eq!(with("\"1M\"", "\"none\""), [Key::Rate]);
        assert_eq!(with("10", "9"), []);
        assert_eq!(with("10", "11"), [Key::Connections]);
        assert_eq!(add("host-ports = [5432]"), [Key::HostPorts]);
        assert_eq!(add("bundles = [\"github\"]"), [Key::Bundles]);
        assert_eq!(add("secrets = [\"A@b.a.example\"]"), [Key::Secrets]);
        assert_eq!(add("tls-audit = [\"b.a.example\"]"), [Key::TlsAudit]);
        assert_eq!(add("upstream-proxy = \"env\""), [Key::UpstreamProxy]);
        assert_eq!(add("redirect = false"), []);
    }

    #[test]
    fn a_nearer_layer_says_where_a_secret_comes_from() {
        let file = |text: &str| PolicyFile::parse(text).unwrap();
        let mut stack = Stack::of_file(&file(
            "[net]\nsecrets = [\"A=env:X@a.example\", \"B@a.example\"]",
        ));
        let nearer = file("[net]\nsecrets = [\"A=env:Y@a.example\"]");
        stack.lay(Origin::Flags, &nearer, Paths::AsGiven).unwrap();
        let said: Vec<_> = stack
            .policy
            .net
            .secrets
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(said, ["B=env:B@a.example", "A=env:Y@a.example"]);
        let none = file("[net]\nsecrets = []");
        stack.lay(Origin::Flags, &none, Paths::AsGiven).unwrap();
        assert_eq!(stack.policy.net.secrets, []);
    }
    fn lay_as_file(text: &str) -> Result<Policy, String> {
        let env = |name: &str| (name == "HOME").then(|| "/home/u$r".into());
        let mut stack = Stack::new();
        let path = std::path::Path::new("/p/x.toml");
        let laid = stack.lay_file(Origin::Named(path.to_owned()), path, text, &env);
        let policy = stack.policy;
        laid.map(|()| policy)
            .map_err(|error| crate::report::text(&error))
    }

    #[test]
    fn a_file_says_where_a_secret_is_and_never_what_it_is() {
        let secrets = |list: &str| lay_as_file(&format!("[net]\nsecrets = [\"{list}\"]"));
        let found = secrets("A=file:~/k@a.example\", \"B=file:k@a.example").unwrap();
        let said: Vec<_> = found.net.secrets.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["A=file:/home/u$r/k@a.example", "B=file:/p/k@a.example"]
        );
        let origins = Stack::new().origins;
        let resolved = super::super::Resolved {
            policy: found.clone(),
            origins,
            files: vec![],
        };
        let again = lay_as_file(&super::super::as_toml(&resolved, false)).unwrap();
        assert_eq!(again.net.secrets, found.net.secrets);
        for literal in ["A=hunter2@a.example", "A=hunter2@", "A hunter2@a.example"] {
            let why = secrets(literal).unwrap_err();
            assert!(
                why.contains("net.secrets") && !why.contains("hunter2"),
                "{why}"
            );
        }
        assert!(
            secrets("A=hunter2@a.example")
                .unwrap_err()
                .contains("A=env:VARIABLE")
        );
    }

    #[test]
    fn a_password_of_a_proxy_in_a_file_is_refused_unread() {
        let why =
            lay_as_file("[net]\nupstream-proxy = \"http://me:hunter2@p.example\"").unwrap_err();
        assert!(
            why.contains("net.upstream-proxy") && !why.contains("hunter2"),
            "{why}"
        );
        let net = lay_as_file("[net]\nupstream-proxy = \"env\"").unwrap().net;
        assert_eq!(net.upstream_proxy, Some(UpstreamChoice::Environment));
    }
}
