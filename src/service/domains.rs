//! Which hosts a session may reach: the app's list as rules of the gateway.

use std::collections::HashSet;

use hyper::Uri;

use super::names::shortened;
use crate::policy::egress::{
    BUNDLES, Class, Host, HostPattern, Ports, Rule, Rules, Target, classify,
};

const SAID: &str = "allowedDomains of the app";
const SAID_OPEN: &str = "the app's setting for all domains";
const SAID_CLAUDE: &str = "what Claude Code needs";
const SAID_BASE: &str = "ANTHROPIC_BASE_URL";
/// With more than this, or longer ones, the rules would not fit what a session is told at once.
const MOST: usize = 1024;
const MOST_TEXT: usize = 64 << 10;
/// A name below these is nobody's on the internet: who lists one means a machine at home or at work.
const AT_HOME: [&str; 7] = [
    ".local",
    ".lan",
    ".internal",
    ".home.arpa",
    ".home",
    ".corp",
    ".intranet",
];

/// The rules, and what of the list could not be understood or cannot come true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) rules: Rules,
    /// One sentence each; the other entries hold nevertheless.
    pub(super) notes: Vec<String>,
}

/// Whether every public host may be reached.
pub(super) fn is_unrestricted(allowed: Option<&[String]>) -> bool {
    allowed.is_none_or(|list| list.iter().any(|entry| entry.trim() == "*"))
}

/// The rules for one session. Private addresses are reached only where the list has them, or a
/// name that can only be one of theirs, written out.
pub(super) fn rules(
    allowed: Option<&[String]>,
    is_claude: bool,
    base_url: Option<&str>,
) -> Allowed {
    let mut allow = Vec::new();
    let mut notes = Vec::new();
    if is_unrestricted(allowed) {
        let pattern = HostPattern {
            target: Target::Any,
            ports: Ports::all(),
        };
        allow.push(Rule::new(pattern, SAID_OPEN));
    }
    let list = allowed.unwrap_or_default();
    let (mut seen, mut text) = (HashSet::new(), 0);
    for (index, entry) in list.iter().map(|entry| entry.trim()).enumerate() {
        if !seen.insert(entry) {
            continue;
        }
        text += entry.len();
        if seen.len() > MOST || text > MOST_TEXT {
            let left = list.len() - index;
            notes.push(format!(
                "the app allows more domains than a session can be told; the last {left} of them \
                 are left out"
            ));
            break;
        }
        match HostPattern::parse(entry) {
            // Said already, for every port.
            Ok(pattern) if pattern.target == Target::Any => {}
            Ok(pattern) => allow.push(Rule {
                private: is_at_home(&pattern.target),
                ..Rule::new(pattern, SAID)
            }),
            Err(why) => notes.push(format!("the app allows a domain that is none: {why}")),
        }
    }
    if is_claude {
        allow.extend(claude());
        if let Some(url) = base_url.filter(|url| !url.is_empty()) {
            match base(url) {
                Ok(rule) => allow.push(rule),
                Err(why) => notes.push(why),
            }
        }
    }
    let deny = Vec::new();
    Allowed {
        rules: Rules { allow, deny },
        notes,
    }
}

/// Where the program itself has to get to, whatever its tools may.
fn claude() -> impl Iterator<Item = Rule> {
    let hosts = BUNDLES.iter().filter(|bundle| bundle.name == "claude");
    hosts
        .flat_map(|bundle| bundle.hosts)
        .filter_map(|host| HostPattern::parse(host).ok())
        .map(|pattern| Rule::new(pattern, SAID_CLAUDE))
}

fn is_at_home(target: &Target) -> bool {
    let Target::Exact(name) = target else {
        return false;
    };
    let name = name.as_str();
    !name.contains('.') || AT_HOME.iter().any(|ending| name.ends_with(ending))
}

/// The host that the user's own configuration puts in the place of Claude's API.
fn base(url: &str) -> Result<Rule, String> {
    let because = |why: &str| {
        // Without what could be a password in it.
        let shown = url.rsplit('@').next().unwrap_or_default();
        format!("{SAID_BASE} ({}) {why}", shortened(shown))
    };
    let uri: Uri = url
        .parse()
        .map_err(|_| because("is no address of the web"))?;
    let usual = match uri.scheme_str() {
        Some("https") => 443,
        Some("http") => 80,
        _ => return Err(because("starts with neither https:// nor http://")),
    };
    let host = uri.host().unwrap_or_default();
    let host = Host::parse(host).map_err(|bad| because(&format!("names no host: {}", bad.why)))?;
    let at_itself = "is an address of this computer's own, which a session cannot reach: there it \
                     is the session's; let the service listen on an address of the network";
    let target = match host {
        Host::Name(name) if name.is_localhost() => return Err(because(at_itself)),
        Host::Name(name) => Target::Exact(name),
        Host::Address(address)
            if matches!(classify(address), Class::Loopback | Class::Unspecified) =>
        {
            return Err(because(at_itself));
        }
        Host::Address(address) => Target::Net(address.into()),
    };
    let pattern = HostPattern {
        target,
        ports: Ports::one(uri.port_u16().unwrap_or(usual)),
    };
    Ok(Rule {
        // The user's own configuration sends the program there.
        private: true,
        ..Rule::new(pattern, SAID_BASE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::egress::Name;

    fn listed(entries: &[&str]) -> Allowed {
        let list: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
        rules(Some(&list), false, None)
    }

    /// The word of the refusal, or `ok`.
    fn admit(allowed: &Allowed, host: &str, port: u16) -> &'static str {
        let host = Host::parse(host).unwrap();
        let answer = allowed.rules.admit(&host, port);
        answer.map_or_else(|refusal| refusal.word(), |_| "ok")
    }

    fn dial(allowed: &Allowed, host: &str, address: &str, port: u16) -> &'static str {
        let host = Host::parse(host).unwrap();
        let address = address.parse().unwrap();
        let answer = allowed.rules.admit_address(&host, address, port, &[]);
        answer.map_or_else(|refusal| refusal.word(), |()| "ok")
    }

    #[test]
    fn i5_a_list_means_these_and_what_lies_below_stars() {
        let some = listed(&["example.org", "*.files.example", " spaced.example "]);
        assert_eq!(some.notes, Vec::<String>::new());
        for (host, word) in [
            ("example.org", "ok"),
            ("EXAMPLE.org.", "ok"),
            ("spaced.example", "ok"),
            ("a.b.files.example", "ok"),
            ("www.example.org", "not-listed"),
            ("files.example", "not-listed"),
            ("evilexample.org", "not-listed"),
            ("example.org.evil.test", "not-listed"),
            ("api.anthropic.com", "not-listed"),
        ] {
            assert_eq!(admit(&some, host, 443), word, "{host}");
        }
        assert_eq!(admit(&some, "example.org", 22), "port");
        assert_eq!(admit(&listed(&[]), "example.org", 443), "not-listed");
    }

    #[test]
    fn i6_a_star_or_nothing_means_every_public_host() {
        let star = ["*".to_owned(), "x.example".to_owned()];
        for allowed in [None, Some(star.as_slice())] {
            assert!(is_unrestricted(allowed));
            let all = rules(allowed, false, None);
            assert_eq!(admit(&all, "anything.example", 22), "ok");
            assert_eq!(admit(&all, "1.1.1.1", 9418), "ok");
        }
        assert!(!is_unrestricted(Some(&[])));
        assert!(!is_unrestricted(Some(&["*.example".to_owned()])));
    }

    #[test]
    fn i7_nothing_private_is_reached_unless_it_is_written_out() {
        for all in [rules(None, true, None), listed(&["*", "name.example"])] {
            for (address, word) in [
                ("127.0.0.1", "loopback-address"),
                ("::1", "loopback-address"),
                ("10.0.0.1", "private-address"),
                ("169.254.169.254", "metadata-address"),
            ] {
                assert_eq!(admit(&all, address, 80), word, "{address}");
                assert_eq!(dial(&all, "name.example", address, 80), word, "{address}");
            }
            assert_ne!(admit(&all, "localhost", 80), "ok");
            assert_eq!(dial(&all, "name.example", "93.184.216.34", 80), "ok");
        }
        let said = listed(&["10.0.0.1", "nas.lan", "printer", "*.corp.example"]);
        assert_eq!(admit(&said, "10.0.0.1", 443), "ok");
        assert_eq!(admit(&said, "10.0.0.2", 443), "private-address");
        for name in ["nas.lan", "printer"] {
            assert_eq!(dial(&said, name, "192.168.1.7", 443), "ok", "{name}");
            assert_eq!(dial(&said, name, "127.0.0.1", 443), "loopback-address");
        }
        assert_eq!(
            dial(&said, "a.corp.example", "192.168.1.7", 443),
            "private-address"
        );
    }

    #[test]
    fn what_is_no_domain_is_named_and_the_others_hold() {
        let bad = [
            "https://a.example/path",
            "a b.example",
            "*",
            "*.*.example",
            "a.example:99999",
            "ex\u{202e}ample.org",
            "../etc",
            "user@a.example",
            "",
        ];
        for entry in bad.into_iter().filter(|entry| *entry != "*") {
            let some = listed(&[entry, "good.example"]);
            assert_eq!(some.notes.len(), 1, "{entry:?}");
            assert!(!some.notes[0].contains('\u{202e}'));
            assert_eq!(admit(&some, "good.example", 443), "ok", "{entry:?}");
            assert_eq!(some.rules.allow.len(), 1, "{entry:?}");
        }
        // A star for some ports is not a star for all, nor is it what a list of hosts means.
        assert_eq!(admit(&listed(&["*:443"]), "a.example", 443), "not-listed");
    }

    #[test]
    fn a_list_without_end_is_cut_to_what_a_session_can_be_told() {
        let long = |number: usize| format!("{number}.{}.example", "a".repeat(60));
        for list in [
            (0..100_000)
                .map(|number| format!("{number}.example"))
                .collect::<Vec<_>>(),
            (0..5000).map(long).collect(),
            vec!["x.".repeat(5 << 20)],
        ] {
            let some = rules(Some(&list), true, None);
            assert!(some.notes.len() <= 1 && !some.rules.allow.is_empty());
            let told = serde_json::to_string(&some.rules).unwrap().len();
            assert!(told < 160 << 10, "{told}");
        }
        let same = vec!["a.example".to_owned(); 5000];
        let some = rules(Some(&same), false, None);
        assert_eq!((some.rules.allow.len(), some.notes.len()), (1, 0));
    }

    #[test]
    fn claude_itself_reaches_what_it_cannot_do_without() {
        let list = ["example.org".to_owned()];
        let some = rules(Some(&list), true, None);
        assert_eq!(admit(&some, "api.anthropic.com", 443), "ok");
        assert_eq!(admit(&some, "api.anthropic.com", 80), "port");
        let base = |url| rules(Some(&list), true, Some(url));
        assert_eq!(
            admit(
                &base("https://proxy.example:8443/v1"),
                "proxy.example",
                8443
            ),
            "ok"
        );
        assert_eq!(
            admit(&base("https://proxy.example:8443/v1"), "proxy.example", 443),
            "port"
        );
        assert_eq!(
            admit(&base("http://192.168.1.5:4000"), "192.168.1.5", 4000),
            "ok"
        );
        let at_work = base("https://llm.company.example");
        assert_eq!(dial(&at_work, "llm.company.example", "10.9.8.7", 443), "ok");
        assert!(
            at_work
                .rules
                .knows(&Name::parse("llm.company.example").unwrap())
        );
        // Another program's is not its business.
        let other = rules(Some(&list), false, Some("https://proxy.example"));
        assert_eq!(admit(&other, "proxy.example", 443), "not-listed");
    }

    #[test]
    fn an_odd_base_is_told_of_without_its_password() {
        for url in [
            "http://127.0.0.1:4000",
            "http://localhost:4000",
            "http://[::1]:4000",
            "ftp://a.example",
            "a.example",
            "https://",
            "https://user:secret@/x",
            "https://user:secret@a_b!.example/x",
        ] {
            let some = rules(Some(&[]), true, Some(url));
            assert_eq!(some.notes.len(), 1, "{url}");
            assert!(!some.notes[0].contains("secret"), "{}", some.notes[0]);
            let plain = rules(Some(&[]), true, None);
            assert_eq!(some.rules, plain.rules, "{url}");
        }
    }
}
