use std::ffi::OsString;
use std::path::PathBuf;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::*;

const VALUE: &str = "sk-very-secret-0123456789";

fn spec(name: &str, host: &str, header: Option<&str>) -> SecretSpec {
    SecretSpec {
        name: name.to_owned(),
        from: SecretSource::Said(VALUE.to_owned()),
        host: Name::parse(host).unwrap(),
        header: header.map(str::to_owned),
    }
}

/// The secrets, and the stand-in of the first.
fn secrets(specs: &[SecretSpec]) -> (Secrets, String) {
    let stand_ins = StandIns::new(specs).unwrap();
    let secrets = Secrets::take(specs, &stand_ins, |_| None).unwrap();
    (secrets, stand_ins.0[&specs[0].name].clone())
}

fn taken(
    spec: &SecretSpec,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Secrets, SecretError> {
    let specs = std::slice::from_ref(spec);
    Secrets::take(specs, &StandIns::new(specs).unwrap(), variable)
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    all.iter()
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        })
        .collect()
}

#[test]
fn the_stand_in_is_replaced_for_its_host_and_for_no_other() {
    let (secrets, stand_in) = secrets(&[spec("TOKEN", "api.test", None)]);
    assert!(stand_in.starts_with(STAND_IN) && stand_in.len() == STAND_IN.len() + 32);
    let said = headers(&[
        ("authorization", &format!("token {stand_in}")),
        ("x-two", &format!("{stand_in}/{stand_in}")),
        ("x-other", "nothing"),
    ]);
    let mut right = said.clone();
    secrets.add(&host("API.test."), &mut right);
    assert_eq!(right["authorization"], format!("token {VALUE}"));
    assert_eq!(right["x-two"], format!("{VALUE}/{VALUE}"));
    assert_eq!(right["x-other"], "nothing");
    assert!(right["authorization"].is_sensitive());
    for other in ["other.test", "www.api.test", "test", "192.0.2.1"] {
        let mut wrong = said.clone();
        secrets.add(&host(other), &mut wrong);
        assert_eq!(wrong, said, "{other}");
    }
}

#[test]
fn a_header_that_was_named_is_set_whatever_the_program_said() {
    let (secrets, stand_in) = secrets(&[spec("KEY", "api.test", Some("X-Api-Key"))]);
    for said in [
        headers(&[]),
        headers(&[("x-api-key", "somebody else's")]),
        headers(&[("x-api-key", &stand_in)]),
        headers(&[("x-api-key", "somebody else's"), ("x-api-key", &stand_in)]),
    ] {
        let mut sent = said.clone();
        secrets.add(&host("api.test"), &mut sent);
        let all: Vec<_> = sent.get_all("x-api-key").iter().collect();
        assert_eq!(all, [VALUE], "{said:?}");
    }
    // Only that header: a secret must not get into one that a host repeats.
    let mut sent = headers(&[("user-agent", &stand_in)]);
    secrets.add(&host("api.test"), &mut sent);
    assert_eq!(sent["user-agent"], stand_in);
}

#[test]
fn authorization_gets_the_word_that_belongs_there() {
    let (bearer, stand_in) = secrets(&[spec("KEY", "api.test", Some("authorization"))]);
    let mut sent = HeaderMap::new();
    bearer.add(&host("api.test"), &mut sent);
    assert_eq!(sent["authorization"], format!("Bearer {VALUE}"));
    // A scheme the program chose stays, and one in the value as well.
    let mut sent = headers(&[("authorization", &format!("token {stand_in}"))]);
    bearer.add(&host("api.test"), &mut sent);
    assert_eq!(sent["authorization"], format!("token {VALUE}"));
    let mut whole = spec("KEY", "api.test", Some("authorization"));
    whole.from = SecretSource::Said("Basic dTpw".to_owned());
    let mut sent = HeaderMap::new();
    secrets(&[whole]).0.add(&host("api.test"), &mut sent);
    assert_eq!(sent["authorization"], "Basic dTpw");
}

#[test]
fn basic_credentials_are_looked_into() {
    let (secrets, stand_in) = secrets(&[spec("PASSWORD", "git.test", None)]);
    let coded = crate::egress::upstream::base64(format!("me:{stand_in}").as_bytes());
    let mut sent = headers(&[("authorization", &format!("Basic {coded}"))]);
    secrets.add(&host("git.test"), &mut sent);
    let decoded = basic::decoded(&sent["authorization"]).unwrap();
    assert_eq!(decoded, format!("me:{VALUE}").into_bytes());
}

#[test]
fn claude_sends_the_users_key_and_no_other() {
    let cases = [
        ("ANTHROPIC_API_KEY", None, "x-api-key", VALUE.to_owned()),
        (
            "ANTHROPIC_AUTH_TOKEN",
            None,
            "authorization",
            format!("Bearer {VALUE}"),
        ),
        (
            "CLAUDE_CODE_OAUTH_TOKEN",
            None,
            "authorization",
            format!("Bearer {VALUE}"),
        ),
        (
            "ANTHROPIC_API_KEY",
            Some("x-corp-key"),
            "x-corp-key",
            VALUE.to_owned(),
        ),
    ];
    for (name, explicit, header, expected) in cases {
        let (secrets, _) = secrets(&[spec(name, "api.test", explicit)]);
        let mut sent = headers(&[
            ("x-api-key", "smuggled"),
            ("authorization", "Bearer smuggled"),
        ]);
        secrets.add_for_claude(&host("api.test"), &mut sent);
        assert_eq!(sent[header], expected, "{name}");
        assert_eq!(sent.len(), 1, "{name}: {sent:?}");
    }
}

#[test]
fn what_comes_back_in_headers_is_the_stand_in_again() {
    let (secrets, stand_in) = secrets(&[spec("TOKEN", "api.test", None)]);
    let mut back = headers(&[("set-cookie", &format!("t={VALUE}; Path=/")), ("etag", "1")]);
    secrets.hide(&host("api.test"), &mut back);
    assert_eq!(back["set-cookie"], format!("t={stand_in}; Path=/"));
    assert_eq!(back["etag"], "1");
}

#[test]
fn a_secret_for_two_hosts_is_one_variable() {
    let specs = [
        spec("TOKEN", "a.test", None),
        spec("TOKEN", "b.test", None),
        spec("OTHER", "a.test", None),
    ];
    let stand_ins = StandIns::new(&specs).unwrap();
    let all: Vec<_> = stand_ins.iter().collect();
    assert_eq!(
        all.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["OTHER", "TOKEN"]
    );
    assert_ne!(all[0].1, all[1].1, "stand-ins are random");
    let secrets = Secrets::take(&specs, &stand_ins, |_| None).unwrap();
    for to in ["a.test", "b.test"] {
        let mut sent = headers(&[("x", all[1].1)]);
        secrets.add(&host(to), &mut sent);
        assert_eq!(sent["x"], VALUE);
    }
}

#[test]
fn nothing_prints_a_value() {
    let (secrets, _) = secrets(&[spec("TOKEN", "api.test", Some("x-key"))]);
    let printed = format!("{secrets:?}{secrets:#?}");
    assert!(printed.contains("***") && !printed.contains("very-secret"));
    let mut sent = HeaderMap::new();
    secrets.add(&host("api.test"), &mut sent);
    assert!(!format!("{sent:?}").contains("very-secret"));
}

#[test]
fn values_that_could_end_a_header_are_refused_at_the_start() {
    for bad in [
        "",
        "hunter\n2",
        "hunter2\r\nX: y",
        "hunter\0two",
        "hunter\x7f2",
        "\x1b[m",
        " hunter2",
        "hunter2 ",
        "hunter\t2",
        "hünter2",
    ] {
        let mut with = spec("T", "a.test", None);
        with.from = SecretSource::Said(bad.to_owned());
        let error = taken(&with, |_| None).unwrap_err();
        assert!(matches!(error, SecretError::Unfit { .. }), "{bad:?}");
        assert!(!error.to_string().contains("hunter"), "{error}");
    }
    let mut long = spec("T", "a.test", None);
    long.from = SecretSource::Said("x".repeat(SecretSpec::LONGEST_VALUE + 1));
    assert!(taken(&long, |_| None).is_err());
    for bad in ["a b", "", "x:"] {
        let error = taken(&spec("T", "a.test", Some(bad)), |_| None).unwrap_err();
        assert!(matches!(error, SecretError::Header { .. }), "{bad:?}");
    }
}

#[test]
fn values_come_from_variables_and_files() {
    let mut from = spec("T", "a.test", Some("x"));
    from.from = SecretSource::Variable("HERE".to_owned());
    let environment = |name: &str| (name == "HERE").then(|| OsString::from("from-variable"));
    let secrets = taken(&from, environment).unwrap();
    assert_eq!(secrets.0[0].value.borrow().bytes(), b"from-variable");
    let error = taken(&from, |_| None).unwrap_err();
    assert!(error.to_string().contains("HERE is not set"));
    assert!(
        error
            .help()
            .unwrap()
            .contains("--secret T=file:PATH@a.test")
    );
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [("one\n", "one"), ("one\r\n", "one"), ("one", "one")] {
        let path = folder.path().join("secret");
        std::fs::write(&path, text).unwrap();
        from.from = SecretSource::File(path);
        let secrets = taken(&from, |_| None).unwrap();
        assert_eq!(
            secrets.0[0].value.borrow().bytes(),
            expected.as_bytes(),
            "{text:?}"
        );
    }
    from.from = SecretSource::File(PathBuf::from("/nowhere/at/all"));
    assert!(matches!(
        taken(&from, |_| None),
        Err(SecretError::Unreadable { .. })
    ));
}

#[test]
fn another_value_counts_from_the_next_request_on() {
    let specs = [
        spec("TOKEN", "one.test", None),
        spec("TOKEN", "two.test", None),
        spec("OTHER", "one.test", Some("x-other")),
    ];
    let (secrets, stand_in) = secrets(&specs);
    secrets.renew("TOKEN", "sk-quite-another").unwrap();
    for at in ["one.test", "two.test"] {
        let mut sent = headers(&[("x-key", &stand_in)]);
        secrets.add(&host(at), &mut sent);
        assert_eq!(sent["x-key"], "sk-quite-another");
    }
    let mut sent = headers(&[]);
    secrets.add(&host("one.test"), &mut sent);
    assert_eq!(sent["x-other"], VALUE);
    for (name, value) in [("NOBODY", "x"), ("TOKEN", ""), ("TOKEN", "a\r\nb")] {
        let why = secrets.renew(name, value).unwrap_err();
        assert!(why.contains(name), "{why}");
        assert!(!why.contains("\r\n"), "{why}");
    }
}
