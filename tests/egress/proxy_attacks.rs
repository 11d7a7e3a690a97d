//! The proxies of a box against whoever wants more from them than its rules say. Each attempt is
//! made at a plain proxy on the host as well, where it gets through.

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::knock::{
    Came, Doors, INSIDE, NARROW, WIDE, connect, get, latin, refused, refused_inside, say, socks,
    socks_address, socks_name,
};
use crate::world::{Canary, HOST4, WEB6, world};

/// PX-01
#[test]
fn loopback_of_the_host_is_not_reached() {
    let ground = Ground::new();
    let four = Canary::on_the_host("127.0.0.1");
    let six = Canary::on_the_host("::1");
    let attempts = |doors: Doors| {
        let mut all = doors.all("127.0.0.1", four.port);
        all.extend(doors.all("[::1]", six.port));
        all.push(socks_address(doors.socks, "127.0.0.1", four.port));
        all.push(socks_address(doors.socks, "::1", six.port));
        all
    };
    let plain = Doors::of(world().trusting_proxy());
    let control = ground.knock_outside(&attempts(plain));
    assert!(control.iter().all(Came::is_canary), "{control:?}");
    assert_eq!((four.visits(), six.visits()), (4, 4));

    let came = refused_inside(&ground, &attempts(INSIDE), &[&four, &six]);
    for (number, came) in came.iter().enumerate() {
        match number % 8 {
            0 | 1 | 3 | 4 => {
                assert_eq!(came.status(), Some(403), "{came:?}");
                let text = came.text().to_lowercase();
                assert!(
                    text.contains("x-proxy-error: blocked-by-allowlist"),
                    "{text}"
                );
            }
            // Connection not allowed by the rules.
            _ => assert_eq!(came.socks(), Some(2), "{came:?}"),
        }
    }
}

/// PX-02
#[test]
fn no_spelling_of_localhost_helps() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    for name in ["localhost", "*.localhost"] {
        world().put(name, json!({"answers": {"A": [["127.0.0.1"]]}}));
    }
    let spellings = [
        "localhost",
        "localhost.",
        "LOCALHOST",
        "x.localhost",
        "LocalHost.",
    ];
    let attempts = |doors: Doors| -> Vec<Value> {
        spellings
            .iter()
            .flat_map(|host| doors.all(host, canary.port))
            .collect()
    };
    let control = ground.knock_outside(&attempts(Doors::of(world().trusting_proxy())));
    assert!(control.iter().all(Came::is_canary), "{control:?}");
    refused_inside(&ground, &attempts(INSIDE), &[&canary]);
}

/// PX-03
#[test]
fn no_spelling_of_an_address_helps() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let understood = [
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "0",
        "0x7f.1",
        "[::ffff:7f00:1]",
    ];
    // Understood by some, in brackets, with a zone, or in letters of another width.
    let odd = [
        "[127.0.0.1]",
        "127.0.0.1.",
        "127.000.000.001",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:7f00:0001]",
        "[::1%lo]",
        "[::127.0.0.1]",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "%31%32%37.0.0.1",
        "127.0.0.1%00.allowed.test",
        "0000::1",
        "[::]",
        "0.0.0.0",
    ];
    let attempts = |doors: Doors, hosts: &[&str]| -> Vec<Value> {
        let bytes = |host: &&str| latin(host.as_bytes());
        let hosts = hosts.iter().map(bytes);
        hosts
            .flat_map(|host| {
                let place = format!("{host}:{}", canary.port);
                let bare = host.trim_matches(['[', ']']);
                let mut name = vec![3, u8::try_from(bare.chars().count()).unwrap()];
                name.extend(bare.chars().map(|one| u8::try_from(one).unwrap()));
                [
                    connect(doors.http, &place),
                    get(doors.http, &format!("http://{place}/"), &place),
                    socks(doors.socks, 1, &name, canary.port),
                ]
            })
            .collect()
    };
    let plain = Doors::of(world().trusting_proxy());
    let control = ground.knock_outside(&attempts(plain, &understood));
    assert!(control.iter().all(Came::is_canary), "{control:?}");
    refused_inside(&ground, &attempts(INSIDE, &understood), &[&canary]);
    refused_inside(&ground, &attempts(INSIDE, &odd), &[&canary]);
}

/// PX-13
#[test]
fn socks_has_the_same_rules_and_no_other_commands() {
    let ground = Ground::new();
    let canary = Canary::beyond("10.0.0.2");
    let four = [1, 10, 0, 0, 2];
    let mut long = vec![3, 255];
    long.extend([b'a'; 255]);
    let datagrams = |proxy: u16| socks(proxy, 3, &[1, 0, 0, 0, 0], 0);
    let bind = |proxy: u16| socks(proxy, 2, &four, canary.port);
    let plain = world().trusting_proxy();
    let control = ground.knock_outside(&[
        socks(plain, 1, &four, canary.port),
        json!({"do": "say", "place": ["127.0.0.1", plain], "until": "\u{7f}", "text": ["\u{5}\u{1}\0", latin(&[5, 2, 0, 1, 10, 0, 0, 2, 0, 80])]}),
        json!({"do": "say", "place": ["127.0.0.1", plain], "until": "\u{7f}", "text": ["\u{5}\u{1}\0", latin(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0])]}),
    ]);
    assert!(control[0].is_canary(), "{control:?}");
    assert!(
        control[1..].iter().all(|came| came.socks() == Some(0)),
        "{control:?}"
    );
    let visits = canary.visits();

    let port = canary.port.to_be_bytes();
    let logged_in = [&[5, 1, 0][..], &four, &port].concat();
    let attempts = [
        socks(INSIDE.socks, 1, &four, canary.port),
        socks_address(INSIDE.socks, "::ffff:10.0.0.2", canary.port),
        socks_name(INSIDE.socks, "10.0.0.2", canary.port),
        bind(INSIDE.socks),
        datagrams(INSIDE.socks),
        socks(INSIDE.socks, 9, &four, canary.port),
        socks(INSIDE.socks, 1, &[9, 9, 9], canary.port),
        socks(INSIDE.socks, 1, &[3, 0], canary.port),
        socks(INSIDE.socks, 1, &long, canary.port),
        socks_name(INSIDE.socks, "allowed.test\0.evil.test", 443),
        socks_name(INSIDE.socks, "denied.test\0.allowed.test", 443),
        // Version 4, by address and by name, and something with a password.
        say(
            INSIDE.socks,
            json!(latin(
                &[&[4, 1], port.as_slice(), &[10, 0, 0, 2, b'u', 0]].concat()
            )),
        ),
        say(
            INSIDE.socks,
            json!(latin(
                &[
                    &[4, 1],
                    port.as_slice(),
                    &[0, 0, 0, 1, b'u', 0],
                    b"10.0.0.2\0"
                ]
                .concat()
            )),
        ),
        say(
            INSIDE.socks,
            json!([
                "\u{5}\u{1}\u{2}",
                "\u{1}\u{1}a\u{1}b",
                latin(&logged_in),
                ""
            ]),
        ),
        say(INSIDE.socks, json!("\u{5}\0")),
        say(INSIDE.socks, json!("GET / HTTP/1.1\r\n\r\n")),
    ];
    let came = ground.knock(WIDE, &attempts);
    for (number, (attempt, came)) in attempts.iter().zip(&came).enumerate() {
        match number {
            3..=5 => assert_eq!(came.socks(), Some(7), "{attempt}: {came:?}"),
            6 => assert_eq!(came.socks(), Some(8), "{attempt}: {came:?}"),
            11.. => assert!(
                !came.is_canary() && came.error() != Some("timeout"),
                "{came:?}"
            ),
            _ => assert!(came.is_refusal(), "{attempt}: {came:?}"),
        }
    }
    assert_eq!(canary.visits(), visits);
    let fine = [
        socks_name(INSIDE.socks, "allowed.test", 80),
        socks_name(INSIDE.socks, "ALLOWED.test.", 80),
    ];
    for came in ground.knock(NARROW, &fine) {
        assert!(came.text().contains("\"port\": 80"), "{came:?}");
    }
}

/// PX-14
#[test]
fn the_metadata_of_clouds_is_out_of_reach() {
    let ground = Ground::new();
    let canary = Canary::beyond("169.254.169.254");
    let name = world().name_at("metadata", &["169.254.169.254"]);
    let hosts = [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "[::ffff:a9fe:a9fe]",
        name.as_str(),
    ];
    let attempts = |doors: Doors| -> Vec<Value> {
        hosts
            .iter()
            .flat_map(|host| doors.all(host, canary.port))
            .collect()
    };
    let control = ground.knock_outside(&attempts(Doors::of(world().trusting_proxy())));
    assert!(control.iter().all(Came::is_canary), "{control:?}");
    let visits = canary.visits();
    // Not even a rule for the whole net it lies in.
    for wide in ["*:*", "169.254.0.0/16:*", "0.0.0.0/0:*", "*.names.test:*"] {
        let attempts = attempts(INSIDE);
        refused(&attempts, &ground.knock(&["--allow-host", wide], &attempts));
    }
    assert_eq!(canary.visits(), visits);
}

/// PX-15
#[test]
fn a_proxy_does_not_lead_to_itself() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let again = |proxy: u16, host: &str, other: u16| {
        let first = format!("CONNECT {host}:{other} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let second = format!(
            "CONNECT 127.0.0.1:{} HTTP/1.1\r\nHost: x\r\n\r\n",
            canary.port
        );
        say(proxy, json!([first, second, "GET / HTTP/1.0\r\n\r\n"]))
    };
    let plain = world().trusting_proxy();
    let control = ground.knock_outside(&[again(plain, "127.0.0.1", plain)]);
    assert!(control[0].is_canary(), "{control:?}");
    let attempts = [
        again(INSIDE.http, "127.0.0.1", INSIDE.http),
        again(INSIDE.http, "localhost", INSIDE.http),
        again(INSIDE.http, "[::1]", INSIDE.http),
        again(INSIDE.http, "127.0.0.1", INSIDE.socks),
        again(INSIDE.http, "127.0.0.1", 53),
        again(INSIDE.http, "0.0.0.0", INSIDE.http),
        // A proxy of the host, which would pass everything on.
        again(INSIDE.http, "127.0.0.1", plain),
        again(INSIDE.http, HOST4, plain),
    ];
    refused_inside(&ground, &attempts, &[&canary]);
}

/// The addresses that the box's own names stand for mean nothing outside and nothing to others.
#[test]
fn an_address_that_stands_for_no_name_leads_nowhere() {
    let ground = Ground::new();
    let canary = Canary::beyond("198.18.0.1");
    let six = Canary::beyond(WEB6);
    let attempts: Vec<_> = (1..=20)
        .map(|last| json!({"do": "connect", "place": [format!("198.18.0.{last}"), canary.port]}))
        .chain([json!({"do": "connect", "place": ["198.19.255.254", canary.port]})])
        .chain([json!({"do": "connect", "place": [WEB6, six.port]})])
        .collect();
    assert!(ground.knock_outside(&attempts[..1])[0].is_canary());
    refused(&attempts, &ground.knock(NARROW, &attempts));
    assert_eq!((canary.visits(), six.visits()), (1, 0));
}
