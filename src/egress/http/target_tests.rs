use hyper::http::request::Parts;
use hyper::{Method, Request, Uri, Version};
use proptest::prelude::*;

use super::first;
use super::target::{self, Disagreement, Target};
use super::wrong::Wrong;
use crate::policy::egress::Host;

fn target(host: &str, port: u16) -> Target {
    Target {
        host: Host::parse(host).unwrap(),
        port,
    }
}

fn connect(text: &str) -> Result<Target, Wrong> {
    match text.parse::<Uri>() {
        Ok(uri) => target::of_connect(&uri),
        Err(_) => Err(Wrong::request("no address")),
    }
}

fn head(method: Method, uri: &str, hosts: &[&str]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for host in hosts {
        request = request.header("host", *host);
    }
    request.body(()).unwrap().into_parts().0
}

#[test]
fn connect_names_a_host_and_a_port_in_any_spelling_that_means_one_thing() {
    for (text, host, port) in [
        ("example.com:443", "example.com", 443),
        ("EXAMPLE.com.:8443", "example.com", 8443),
        ("192.0.2.1:22", "192.0.2.1", 22),
        ("[2001:db8::1]:443", "2001:db8::1", 443),
        ("[2001:0DB8:0::1]:443", "2001:db8::1", 443),
    ] {
        assert_eq!(connect(text), Ok(target(host, port)), "{text}");
    }
}

#[test]
fn connect_to_anything_else_is_no_request() {
    for text in [
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+443",
        "example.com:443:443",
        "example.com:https",
        ":443",
        "/",
        "*",
        "http://example.com:443",
        "http://example.com:443/",
        "example.com:443/path",
        "user@example.com:443",
        "user:password@example.com:443",
        "example.com:443@evil.test:443",
        "2001:db8::1:443",
        "[2001:db8::1]",
        "[2001:db8::1]x:443",
        "[fe80::1%25eth0]:443",
        "[::ffff:127.0.0.1:443",
        "127.1:443",
        "0x7f000001:443",
        "2130706433:443",
        "0177.0.0.1:443",
        "0:443",
        "a..b:443",
        ".example.com:443",
        "*.example.com:443",
        "example%2ecom:443",
        "exa\u{a0}mple.com:443",
        "１２７.0.0.1:443",
    ] {
        let wrong = connect(text).unwrap_err();
        assert_eq!(wrong.status, 400, "{text}");
        assert!(!wrong.sentence.is_empty(), "{text}");
    }
    let long = format!("{}:443", "a.".repeat(127) + "aa");
    assert!(connect(&long).is_err(), "256 letters");
}

#[test]
fn a_proxy_is_asked_for_whole_http_addresses() {
    let ask = |text: &str| target::of_absolute(&text.parse().unwrap());
    assert_eq!(ask("http://example.com/a?b"), Ok(target("example.com", 80)));
    assert_eq!(
        ask("HTTP://Example.COM.:8080"),
        Ok(target("example.com", 8080))
    );
    assert_eq!(ask("http://[::1]:80/"), Ok(target("::1", 80)));
    for (text, word) in [
        ("/a", "proxy"),
        ("*", "proxy"),
        ("https://example.com/", "CONNECT"),
        ("ftp://example.com/", "nothing else"),
        ("ws://example.com/", "nothing else"),
        ("http://user@example.com/", "Authorization"),
        ("http://user:password@example.com/", "Authorization"),
        ("http://example.com:99999/", "port"),
        ("http://example.com:/", "port"),
    ] {
        let wrong = ask(text).unwrap_err();
        assert!(wrong.sentence.contains(word), "{text}: {}", wrong.sentence);
        assert_eq!(wrong.status, 400);
    }
}

#[test]
fn px_05_every_place_that_names_a_host_has_to_name_the_same_one() {
    let expected = target("example.com", 80);
    let agrees = |uri: &str, hosts: &[&str]| {
        target::agrees(&head(Method::GET, uri, hosts), "http", 80, &expected)
    };
    for hosts in ["example.com", "EXAMPLE.com.", "example.com:80"] {
        assert_eq!(agrees("/", &[hosts]), Ok(()), "{hosts}");
        assert_eq!(agrees("http://example.com/", &[hosts]), Ok(()), "{hosts}");
    }
    let other = |name: &str| Err(Disagreement::Other(name.to_owned()));
    assert_eq!(agrees("/", &["evil.test"]), other("evil.test"));
    assert_eq!(agrees("/", &["example.com:81"]), other("example.com:81"));
    assert_eq!(
        agrees("/", &["example.com.evil.test"]),
        other("example.com.evil.test")
    );
    assert_eq!(
        agrees("http://evil.test/", &["example.com"]),
        other("evil.test")
    );
    assert_eq!(
        agrees("http://example.com:81/", &["example.com"]),
        other("example.com:81")
    );
    for (uri, hosts) in [
        ("/", &[][..]),
        ("/", &["example.com", "example.com"][..]),
        ("/", &["example.com", "evil.test"][..]),
        ("/", &[""][..]),
        ("/", &["example.com, evil.test"][..]),
        ("/", &["example.com/"][..]),
        ("/", &["user@example.com"][..]),
        ("/", &["example.com:"][..]),
        ("/", &["example.com\u{e9}"][..]),
        ("https://example.com/", &["example.com"][..]),
    ] {
        let said = agrees(uri, hosts);
        assert!(
            matches!(said, Err(Disagreement::Malformed(_))),
            "{uri} {hosts:?}: {said:?}"
        );
    }
}

#[test]
fn only_the_first_http_did_without_host() {
    let mut old = head(Method::GET, "/", &[]);
    old.version = Version::HTTP_10;
    let expected = target("example.com", 80);
    assert_eq!(target::agrees(&old, "http", 80, &expected), Ok(()));
    let mut old = head(Method::GET, "/", &["example.com", "evil.test"]);
    old.version = Version::HTTP_10;
    assert!(target::agrees(&old, "http", 80, &expected).is_err());
}

#[test]
fn a_host_is_not_asked_to_connect_further() {
    let nested = head(Method::CONNECT, "evil.test:443", &["example.com"]);
    let said = target::agrees(&nested, "http", 80, &target("example.com", 80));
    assert!(matches!(said, Err(Disagreement::Malformed(_))), "{said:?}");
}

#[test]
fn what_is_left_of_an_address_is_its_path() {
    let path = |method: &Method, uri: &str| {
        let path = target::path(method, &uri.parse().unwrap());
        path.map(|path| path.to_string()).ok()
    };
    for (uri, expected) in [
        ("/", "/"),
        ("/a?b=c", "/a?b=c"),
        ("//evil.test/a", "//evil.test/a"),
        ("http://example.com", "/"),
        ("http://example.com?a=b", "/?a=b"),
        ("http://example.com/a//b/../c?d#e", "/a//b/../c?d"),
        ("http://example.com//evil.test/", "//evil.test/"),
    ] {
        assert_eq!(path(&Method::GET, uri).as_deref(), Some(expected), "{uri}");
    }
    assert_eq!(path(&Method::OPTIONS, "*").as_deref(), Some("*"));
    assert_eq!(path(&Method::GET, "*"), None);
}

proptest! {
    /// Whatever is understood at all is said again in one spelling, and understood as the same.
    #[test]
    fn a_target_has_one_meaning(text in "[a-zA-Z0-9.:@%/?#\\[\\] _*-]{0,40}|\\PC{0,40}") {
        if let Ok(target) = connect(&text) {
            let again = format!("{}:{}", target.host, target.port);
            prop_assert_eq!(connect(&again), Ok(target.clone()));
            let uri = format!("http://{text}/");
            prop_assert_eq!(target::of_absolute(&uri.parse().unwrap()), Ok(target.clone()));
            let head = head(Method::GET, "/", &[&text]);
            prop_assert_eq!(target::agrees(&head, "http", 80, &target), Ok(()));
        }
    }

    #[test]
    fn no_first_words_are_too_odd(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = first::check(&bytes);
        let line = [b"GET http://", bytes.as_slice(), b" HTTP/1.1\r\n"].concat();
        let _ = first::check(&line);
    }
}
