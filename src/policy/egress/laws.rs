//! Laws of the decision, tried on hosts and rules nobody would write.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "example",
            "evilexample",
            "com",
            "a",
            "b",
            "localhost",
            "xn--a",
            "_x"
        ])
        .prop_map(str::to_owned),
        "[a-z][a-z0-9_]{0,4}[a-z]",
    ]
}

fn name() -> impl Strategy<Value = String> {
    vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn address() -> impl Strategy<Value = std::net::IpAddr> {
    prop_oneof![
        any::<std::net::Ipv4Addr>().prop_map(Into::into),
        any::<std::net::Ipv6Addr>().prop_map(Into::into),
        any::<u32>().prop_map(|low| {
            std::net::Ipv6Addr::from((0x64_ff9b_u128 << 96) | u128::from(low)).into()
        }),
        select(vec![
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "1.1.1.1",
            "::1",
            "fd00::1"
        ])
        .prop_map(|text| text.parse().unwrap()),
    ]
}

fn host() -> impl Strategy<Value = Host> {
    prop_oneof![
        name().prop_map(|text| Host::parse(&text).unwrap()),
        address().prop_map(Host::from),
    ]
}

fn ports() -> impl Strategy<Value = &'static str> {
    select(vec![
        "",
        ":*",
        ":443",
        ":22,80",
        ":1-1024",
        ":8000-9000,443",
    ])
}

fn pattern() -> impl Strategy<Value = String> {
    let target = prop_oneof![
        name(),
        name().prop_map(|name| format!("*.{name}")),
        select(vec![
            "*",
            "10.0.0.0/8",
            "0.0.0.0/0",
            "127.0.0.1",
            "[::/0]",
            "[fc00::/7]",
            "1.1.1.1",
            "[64:ff9b::/96]",
            "169.254.169.254",
        ])
        .prop_map(str::to_owned),
    ];
    (target, ports()).prop_map(|(target, ports)| format!("{target}{ports}"))
}

fn rule(pattern: Result<HostPattern, String>) -> Rule {
    let pattern = pattern.unwrap();
    let said = pattern.to_string();
    Rule::new(pattern, said)
}

prop_compose! {
    fn rules()(allow in vec(pattern(), 0..5), deny in vec(pattern(), 0..3)) -> Rules {
        Rules {
            allow: allow.iter().map(|p| rule(HostPattern::parse(p))).collect(),
            deny: deny.iter().map(|p| rule(HostPattern::parse_denied(p))).collect(),
        }
    }
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![select(vec![22u16, 80, 443, 8080]), any::<u16>()]
}

/// The same name as somebody else would write it.
fn respelled(text: &str, upper: &[bool], dot: bool) -> String {
    let letters = text
        .chars()
        .zip(upper.iter().cycle())
        .map(|(c, up)| if *up { c.to_ascii_uppercase() } else { c });
    letters.chain(dot.then_some('.')).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spelling_decides_nothing(
        rules in rules(), name in name(), port in port(),
        upper in vec(any::<bool>(), 1..9), dot in any::<bool>(),
    ) {
        let plain = Host::parse(&name).unwrap();
        let other = Host::parse(&respelled(&name, &upper, dot)).unwrap();
        prop_assert_eq!(rules.admit(&plain, port), rules.admit(&other, port));
        prop_assert_eq!(plain, other);
    }

    #[test]
    fn a_pattern_is_the_same_in_every_spelling(
        pattern in pattern(), upper in vec(any::<bool>(), 1..9),
    ) {
        let other = respelled(&pattern, &upper, false);
        prop_assert_eq!(HostPattern::parse(&pattern), HostPattern::parse(&other));
    }

    #[test]
    fn forbidding_never_widens(
        rules in rules(), more in pattern(), host in host(), port in port(), address in address(),
    ) {
        let mut tighter = rules.clone();
        tighter.deny.push(rule(HostPattern::parse_denied(&more)));
        prop_assert!(rules.admit(&host, port).is_ok() || tighter.admit(&host, port).is_err());
        prop_assert!(
            rules.admit_address(&host, address, port, &[]).is_ok()
                || tighter.admit_address(&host, address, port, &[]).is_err()
        );
        if let Host::Name(name) = &host {
            prop_assert!(rules.knows(name) || !tighter.knows(name));
        }
    }

    #[test]
    fn allowing_never_narrows(
        rules in rules(), more in pattern(), host in host(), port in port(),
    ) {
        let mut wider = rules.clone();
        wider.allow.push(rule(HostPattern::parse(&more)));
        prop_assert!(rules.admit(&host, port).is_err() || wider.admit(&host, port).is_ok());
    }

    #[test]
    fn what_is_forbidden_is_never_admitted(
        rules in rules(), forbidden in pattern(), host in host(), port in port(),
    ) {
        let alone = Rules { allow: vec![rule(HostPattern::parse(&forbidden))], deny: vec![] };
        let mut all = rules;
        all.deny.push(rule(HostPattern::parse_denied(&forbidden)));
        if alone.admit(&host, port).is_ok() {
            prop_assert!(all.admit(&host, port).is_err());
        }
    }

    #[test]
    fn a_name_that_is_admitted_is_known_and_one_that_is_not_known_never_is(
        rules in rules(), name in name(), port in port(),
    ) {
        let name = Name::parse(&name).unwrap();
        if rules.admit(&Host::Name(name.clone()), port).is_ok() {
            prop_assert!(rules.knows(&name));
        }
    }

    #[test]
    fn a_pattern_within_another_admits_no_more(
        a in pattern(), b in pattern(), host in host(), port in port(), address in address(),
    ) {
        let (a, b) = (HostPattern::parse(&a).unwrap(), HostPattern::parse(&b).unwrap());
        let within = a.within(&b);
        let only = |pattern| Rules { allow: vec![rule(Ok(pattern))], deny: vec![] };
        let (a, b) = (only(a), only(b));
        if within {
            prop_assert!(a.admit(&host, port).is_err() || b.admit(&host, port).is_ok());
            prop_assert!(
                a.admit_address(&host, address, port, &[]).is_err()
                    || b.admit_address(&host, address, port, &[]).is_ok()
            );
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_never_met_by_accident(
        names in vec(name(), 0..4), address in address(), port in port(),
    ) {
        let allow = names.iter().map(|n| rule(HostPattern::parse(&format!("{n}:*"))));
        let any = rule(HostPattern::parse("*:*"));
        let rules = Rules { allow: allow.chain([any]).collect(), deny: vec![] };
        let public = classify(address) == Class::Public;
        let host = Host::from(address);
        prop_assert_eq!(rules.admit(&host, port).is_ok(), public && port != 0);
        prop_assert_eq!(rules.admit_address(&host, address, port, &[]).is_ok(), public);
        prop_assert!(rules.admit_address(&host, address, port, &[address]).is_err());
    }

    #[test]
    fn what_is_said_can_be_read_again(pattern in pattern(), host in host()) {
        let read = HostPattern::parse(&pattern).unwrap();
        prop_assert_eq!(HostPattern::parse(&read.to_string()), Ok(read.clone()));
        prop_assert_eq!(HostPattern::parse_denied(&read.to_string()).map(|p| p.target), Ok(read.target));
        let denied = HostPattern::parse_denied(&pattern).unwrap();
        prop_assert_eq!(HostPattern::parse(&denied.to_string()), Ok(denied));
        prop_assert_eq!(Host::parse(&host.to_string()), Ok(host));
    }

    #[test]
    fn a_longer_name_is_another_name(prefix in "[a-z0-9]{1,8}", port in port()) {
        for said in ["example.com:*", "*.example.com:*"] {
            let rules = Rules { allow: vec![rule(HostPattern::parse(said))], deny: vec![] };
            for evil in [format!("{prefix}example.com"), format!("example.com.{prefix}z")] {
                let host = Host::parse(&evil).unwrap();
                prop_assert!(rules.admit(&host, port).is_err(), "{}", evil);
            }
        }
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,80}", bytes in "[-a-z0-9.:*/@%\\[\\]=,]{0,30}") {
        for text in [&text, &bytes] {
            let _ = Host::parse(text);
            let _ = HostPattern::parse(text);
            let _ = Publish::parse(text);
            let _ = HostPort::parse(text);
            let _ = Rate::parse(text);
            let _ = SecretSpec::parse(text);
            let _ = UpstreamChoice::parse(text);
            let _ = Upstream::from_environment(&|_| Some(text.into()));
            let _ = Refusal::new(text, 1, Reason::Malformed(text.clone())).sentence();
        }
    }
}
