//! One name for the proxy, another for the server: what can be seen of a connection's inside has to
//! agree with what was asked for. And words at the doors that are no names and no requests.

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::knock::{Came, INSIDE, connect, get, latin, say, socks};
use crate::world::{WEB4, world};

const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;

fn with_length(width: usize, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[4 - width..], content].concat()
}

fn server_name(names: &[&[u8]]) -> Vec<u8> {
    let entries: Vec<u8> = names
        .iter()
        .flat_map(|name| [&[0][..], &with_length(2, name)].concat())
        .collect();
    with_length(2, &entries)
}

/// The handshake message of a client that speaks TLS 1.3 and 1.2, with these extensions in front.
fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let known = [
        (10, vec![0, 4, 0, 29, 0, 23]),
        (13, vec![0, 6, 4, 3, 8, 4, 4, 1]),
        (43, vec![4, 3, 4, 3, 3]),
        (51, vec![0, 0]),
    ];
    let all = extensions.iter().chain(&known);
    let all: Vec<u8> = all
        .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &with_length(2, content)].concat())
        .collect();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend(with_length(1, &[9; 32]));
    body.extend(with_length(2, &[0x13, 1, 0x13, 2, 0xc0, 0x2b, 0xc0, 0x2f]));
    body.extend([1, 0]);
    body.extend(with_length(2, &all));
    [&[1][..], &with_length(3, &body)].concat()
}

fn record(content: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &with_length(2, content)].concat()
}

fn named(names: &[&str]) -> Vec<u8> {
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    record(&hello(&[(SERVER_NAME, server_name(&names))]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// This hello to this host, through the redirection and through both proxies.
fn by_all_doors(host: &str, bytes: &[u8]) -> Vec<Value> {
    let hello = hex(bytes);
    let request = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
    let mut address = vec![5, 1, 0, 3, host.len() as u8];
    address.extend(host.bytes());
    address.extend(443u16.to_be_bytes());
    vec![
        json!({"do": "tls", "place": [host, 443], "name": null, "hello": hello}),
        json!({"do": "tls", "place": [host, 443], "name": null, "hello": hello, "proxy": ["127.0.0.1", INSIDE.http]}),
        json!({"do": "say", "place": ["127.0.0.1", INSIDE.socks], "until": "\u{16}",
               "text": ["\u{5}\u{1}\0", latin(&address), latin(bytes)]}),
        json!({"do": "say", "place": ["127.0.0.1", INSIDE.http], "until": "\u{16}\u{3}", "text": [request, latin(bytes)]}),
    ]
}

/// A record of a handshake: the server said hello in its turn.
fn is_answered(came: &Came) -> bool {
    came.text().contains("\u{16}\u{3}")
}

/// NW-55
#[test]
fn the_name_in_a_hello_is_the_name_that_was_asked_for() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let evil = world().name_at("evil", &[WEB4]);
    let control =
        json!({"do": "tls", "place": [fine, 443], "name": null, "hello": hex(&named(&[&evil]))});
    assert!(is_answered(&ground.knock_outside(&[control])[0]));
    assert_eq!(world().hellos(&evil), 1);

    let flags = ["--allow-host", fine.as_str()];
    let good = by_all_doors(&fine, &named(&[&fine]));
    for (attempt, came) in good.iter().zip(ground.knock(&flags, &good)) {
        assert!(is_answered(&came), "{attempt}: {came:?}");
    }
    let upper = by_all_doors(&fine, &named(&[&fine.to_uppercase()]));
    for (attempt, came) in upper.iter().zip(ground.knock(&flags, &upper)) {
        assert!(is_answered(&came), "{attempt}: {came:?}");
    }
    // No name says nothing of another.
    let silent = by_all_doors(&fine, &record(&hello(&[])));
    for (attempt, came) in silent.iter().zip(ground.knock(&flags, &silent)) {
        assert!(is_answered(&came), "{attempt}: {came:?}");
    }

    let evil_hello = hello(&[(SERVER_NAME, server_name(&[evil.as_bytes()]))]);
    let (half, rest) = evil_hello.split_at(60);
    let (inside_name, end) = evil_hello.split_at(evil_hello.len() - 30);
    let twice = hello(&[
        (SERVER_NAME, server_name(&[fine.as_bytes()])),
        (SERVER_NAME, server_name(&[evil.as_bytes()])),
    ]);
    let attacks = [
        named(&[&evil]),
        // In pieces: records of their own, down to a byte each.
        [record(half), record(rest)].concat(),
        [record(inside_name), record(end)].concat(),
        evil_hello
            .iter()
            .flat_map(|byte| record(&[*byte]))
            .collect(),
        // More than one name, in one list or in two.
        named(&[&fine, &evil]),
        named(&[&evil, &fine]),
        record(&twice),
        // Names that some read otherwise.
        named(&[&format!("{evil}\0.{fine}")]),
        named(&[&format!("{fine}\0{evil}")]),
        named(&[&format!("{fine}.{evil}")]),
        named(&[&format!("x{fine}")]),
    ];
    for attack in &attacks {
        let attempts = by_all_doors(&fine, attack);
        for (attempt, came) in attempts.iter().zip(ground.knock(&flags, &attempts)) {
            assert!(
                !is_answered(&came) && came.error() != Some("timeout"),
                "{attempt}: {came:?}"
            );
        }
    }
    assert_eq!(world().hellos(&evil), 1, "only the control's");
}

/// NW-55: real clients.
#[test]
fn a_client_that_names_another_host_inside_is_cut_off() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let evil = world().name_at("evil", &[WEB4]);
    let script = |proxy: &str| {
        format!(
            "curl -sSk --noproxy '{proxy}' --connect-to {evil}:443:{fine}:443 https://{evil}/echo; echo connect $?
            curl -sSk --noproxy '{proxy}' -H 'Host: {evil}' http://{fine}/echo; echo host $?"
        )
    };
    ground
        .control(&script("*"))
        .ok()
        .says("connect 0")
        .says("host 0");
    let before = world().requests(&evil).len();
    assert_eq!(before, 2);
    for proxy in ["*", ""] {
        let ran = ground.sh(&["--allow-host", &fine], &script(proxy));
        assert!(!ran.out.contains("connect 0"), "{ran:?}");
        assert!(!ran.out.contains("\"Host\", "), "{ran:?}");
    }
    let seen = world().requests(&evil);
    assert_eq!(seen.len(), before, "{seen:?}");
}

/// NW-56
#[test]
fn a_hello_that_hides_its_name_is_refused_by_the_name_it_shows() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let cover = world().name_at("cover", &[WEB4]);
    let hidden = |outer: &str| {
        // An outer hello: kind, cipher, configuration, key, and what nobody between can read.
        let mut content = vec![0, 0, 1, 0, 1, 42];
        content.extend(with_length(2, &[5; 32]));
        content.extend(with_length(2, &[6; 160]));
        record(&hello(&[
            (SERVER_NAME, server_name(&[outer.as_bytes()])),
            (ENCRYPTED_HELLO, content),
        ]))
    };
    let control =
        json!({"do": "tls", "place": [fine, 443], "name": null, "hello": hex(&hidden(&cover))});
    assert!(is_answered(&ground.knock_outside(&[control])[0]));
    let flags = ["--allow-host", fine.as_str()];
    let attempts = by_all_doors(&fine, &hidden(&cover));
    for (attempt, came) in attempts.iter().zip(ground.knock(&flags, &attempts)) {
        assert!(
            !is_answered(&came) && came.error() != Some("timeout"),
            "{attempt}: {came:?}"
        );
    }
    assert_eq!(world().hellos(&cover), 1);
    // What browsers send to everybody looks the same, with the host's own name outside.
    let attempts = by_all_doors(&fine, &hidden(&fine));
    for (attempt, came) in attempts.iter().zip(ground.knock(&flags, &attempts)) {
        assert!(is_answered(&came), "{attempt}: {came:?}");
    }
}

/// NW-59
#[test]
fn other_protocols_at_the_proxy_are_refused() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let request = |line: &str, more: &str| {
        say(
            INSIDE.http,
            json!(format!("{line}\r\nHost: {fine}\r\n{more}\r\n")),
        )
    };
    let attempts = [
        say(
            INSIDE.http,
            json!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0"),
        ),
        say(INSIDE.http, json!(latin(&named(&[&fine])))),
        request("CONNECT-UDP denied.test:443 HTTP/1.1", ""),
        request(
            "GET https://denied.test/.well-known/masque/udp/192.0.2.1/443/ HTTP/1.1",
            "Connection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n",
        ),
        request("CONNECT udp://denied.test:443 HTTP/1.1", ""),
        request("GET http://denied.test/ HTTP/2.0", ""),
        request("GET http://denied.test/ HTTP/0.9", ""),
        request("GET http://denied.test/", ""),
        request("BREW http://denied.test/ HTTP/1.1", "Connection: close\r\n"),
    ];
    let came = ground.knock(&["--allow-host", &fine], &attempts);
    for (attempt, came) in attempts.iter().zip(&came) {
        let refused =
            came.is_refusal() || came.status().is_some_and(|code| (500..506).contains(&code));
        assert!(refused, "{attempt}: {came:?}");
    }
    // Of other protocols the web's own is passed on, with an allowed host: what comes after it is theirs.
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let place = json!(["127.0.0.1", INSIDE.http]);
    let by_proxy = format!("GET http://{fine}/upgrade HTTP/1.1\r\nHost: {fine}\r\n{upgrade}\r\n");
    let directly = format!("GET /upgrade HTTP/1.1\r\nHost: {fine}\r\n{upgrade}\r\n");
    let attempts = [
        json!({"do": "say", "place": place, "text": [by_proxy, "and back"], "until": "and back"}),
        json!({"do": "say", "place": [fine, 80], "text": [directly, "and back"], "until": "and back"}),
    ];
    for came in ground.knock(&["--allow-host", &fine], &attempts) {
        let text = came.text();
        assert!(
            text.contains(" 101 ") && text.ends_with("and back"),
            "{text}"
        );
    }
    // One that could hide requests is not asked for, nor taken from a server that nobody asked.
    let target = format!("http://{fine}/upgrade");
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let close = "Connection: close\r\n";
    let attempts = [
        request(&format!("GET {target} HTTP/1.1"), &format!("{h2c}{close}")),
        request(&format!("GET {target}?unasked=h2c HTTP/1.1"), close),
    ];
    for came in ground.knock(&["--allow-host", &fine], &attempts) {
        assert!(came.status().is_some_and(|code| code >= 400), "{came:?}");
    }
}

/// NW-65, NW-62
#[test]
fn what_is_no_host_is_refused_as_such() {
    let ground = Ground::new();
    let long = "a".repeat(256);
    let labels = vec!["b".repeat(60); 5].join(".");
    let wide_label = format!("{}.test", "c".repeat(64));
    let hosts = [
        long.as_str(),
        &labels,
        &wide_label,
        "a..b",
        ".allowed.test",
        "*.allowed.test",
        "*",
        "allowed.test..",
        "allowed%2etest",
        "allowed.test%00",
        "allowed.test\u{a0}",
        "allowed.test\u{200b}",
        "\u{430}llowed.test",
        "allowed\u{3002}test",
        "allowed.test\\@denied.test",
        "allowed.test#denied.test",
        "allowed.test?denied.test",
        "allowed.test/denied.test",
        "allowed.test\tdenied.test",
        "allowed.test\u{b}",
        "-allowed.test",
        "allowed.test:80:443",
        "[allowed.test]",
        "[::1",
        "::1]",
        "[]",
        "[fe80::1%25eth0]",
        "[fe80::1%eth0]",
        "[fe80::1]",
        "fe80::1%lo",
        "[v1.fe80::a+en1]",
    ];
    let attempts: Vec<_> = hosts
        .iter()
        .flat_map(|host| {
            let host = latin(host.as_bytes());
            let bytes: Vec<u8> = host.chars().map(|one| one as u8).take(255).collect();
            let name = [&[3, bytes.len() as u8][..], &bytes].concat();
            let place = format!("{host}:443");
            [
                connect(INSIDE.http, &place),
                get(INSIDE.http, &format!("http://{place}/"), "allowed.test"),
                socks(INSIDE.socks, 1, &name, 443),
            ]
        })
        .collect();
    let flags = ["--allow-host", "allowed.test", "--allow-host", "*:*"];
    for (attempt, came) in attempts.iter().zip(ground.knock(&flags, &attempts)) {
        assert!(came.is_refusal(), "{attempt}: {came:?}");
    }
    let fine = [connect(INSIDE.http, "allowed.test:80")];
    assert!(
        ground.knock(&flags, &fine)[0].text().contains("200"),
        "the same gateway goes on"
    );
}
