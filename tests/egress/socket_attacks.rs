//! Sockets of other kinds, the kernel's own tables, and sockets of the host: none of them is a way out.
//! What leaves is counted on the cable, packet by packet.

use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::knock::{NARROW, WIDE};
use crate::support::Ran;
use crate::world::{Canary, HOST4, fresh, world};

/// NW-03, NW-16, NW-51: no datagram of any kind, no early data, nothing that is no TCP.
#[test]
fn nothing_but_tcp_and_our_own_names_goes_anywhere() {
    let ground = Ground::new();
    let here = Canary::on_the_host("127.0.0.1");
    let address = "93.184.217.70";
    let request = "GET / HTTP/1.0\r\n\r\n";
    let (inet, inet6, raw, seq) = (2, 10, 3, 5);
    let attempts = [
        json!({"do": "datagram", "place": ["127.0.0.1", here.port], "text": "leak"}),
        json!({"do": "datagram", "place": [HOST4, 4000], "text": "leak"}),
        // DNS to another server, QUIC, time, and one to everybody.
        json!({"do": "datagram", "place": [address, 53], "text": "leak"}),
        json!({"do": "datagram", "place": [address, 443], "text": "leak"}),
        json!({"do": "datagram", "place": [address, 123], "text": "leak"}),
        json!({"do": "datagram", "place": ["2606:2800:220:2::70", 443], "text": "leak"}),
        json!({"do": "datagram", "place": [address, 443], "text": "leak", "protocol": 136}),
        json!({"do": "fast-open", "place": ["127.0.0.1", here.port], "text": request}),
        json!({"do": "fast-open", "place": [address, 80], "text": request}),
        json!({"do": "socket", "family": inet, "type": 2, "protocol": 1, "send_to": [address, 0]}),
        json!({"do": "socket", "family": inet, "type": raw, "protocol": 1, "send_to": [address, 0]}),
        json!({"do": "socket", "family": inet6, "type": raw, "protocol": 58, "send_to": ["2606:2800:220:2::70", 0]}),
        json!({"do": "socket", "family": inet, "type": 1, "protocol": 132}),
        json!({"do": "socket", "family": inet, "type": seq, "protocol": 132}),
        json!({"do": "socket", "family": inet, "type": 6, "protocol": 33}),
    ];
    // What a user's program can send, and, with rights, pings of both kinds.
    let control = ground.knock_outside(&attempts[..10]);
    for number in [0, 1, 2, 3, 4, 5] {
        // Nobody listens at most of them, which the second datagram hears.
        let said = control[number].text();
        assert!(
            ["sent", "<ECONNREFUSED>"].contains(&said.as_str()),
            "{number}: {control:?}"
        );
    }
    assert_eq!(control[9].text(), "made", "{control:?}");
    let list = Value::from(&attempts[10..12]).to_string();
    let with_rights = world().host(&json!({"ask": "run", "folder": ground.work(), "words": ["/usr/bin/python3", "knock.py", list]}));
    assert_eq!(
        with_rights["out"], "[{\"heard\": \"made\"}, {\"heard\": \"made\"}]\n",
        "{with_rights}"
    );
    let mut before = world().packets(address);
    before.sort();
    for kind in ["icmp:0", "udp:123", "udp:443", "udp:53"] {
        assert!(before.contains(&kind.to_owned()), "{before:?}");
    }
    assert!(here.visits() >= 2);
    let visits = here.visits();

    let counts = |place: &str| world().counts(place);
    let (four, six) = (counts(address), counts("2606:2800:220:2::70"));
    for flags in [NARROW, WIDE] {
        let came = ground.knock(flags, &attempts);
        for (attempt, came) in attempts.iter().zip(&came) {
            // Early data and the rest fail; none is kept waiting.
            let failed = came.error().is_some_and(|why| why != "timeout");
            assert!(failed || came.is_refusal(), "{attempt}: {came:?}");
        }
    }
    assert_eq!(counts("2606:2800:220:2::70"), six);
    // With the wide rule the address may be reached by TCP, and by nothing else.
    let only_tcp = |counts: &Vec<(String, u64)>| -> Vec<(String, u64)> {
        counts
            .iter()
            .filter(|(kind, _)| !kind.starts_with("tcp"))
            .cloned()
            .collect()
    };
    assert_eq!(only_tcp(&counts(address)), only_tcp(&four));
    assert_eq!(here.visits(), visits);
}

/// NW-04, NW-05, NW-06, NW-07, NW-08
#[test]
fn a_box_with_a_network_has_no_other_sockets_than_one_without() {
    let ground = Ground::new();
    let packet = json!({"do": "socket", "family": 17, "type": 3, "protocol": 768});
    let list = Value::from(vec![packet.clone()]).to_string();
    let control = world().host(&json!({"ask": "run", "folder": ground.work(), "words": ["/usr/bin/python3", "knock.py", list]}));
    assert_eq!(control["out"], "[{\"heard\": \"made\"}]\n", "{control}");
    let mut attempts = vec![packet, json!({"do": "call", "words": [425, 1, "room"]})];
    for family in 3..46 {
        if family != 10 && family != 16 {
            for kind in [1, 2, 3, 5] {
                attempts
                    .push(json!({"do": "socket", "family": family, "type": kind, "protocol": 0}));
            }
        }
    }
    for protocol in 1..23 {
        attempts.push(json!({"do": "socket", "family": 16, "type": 3, "protocol": protocol}));
    }
    let came = ground.knock(WIDE, &attempts);
    assert_eq!(came[1].text(), "ENOSYS", "{came:?}");
    for (attempt, came) in attempts.iter().zip(&came) {
        assert!(
            came.error().is_some() || came.text() == "ENOSYS",
            "{attempt}: {came:?}"
        );
    }
}

/// NW-05: the kernel's tables are as the box was given them.
#[test]
fn routes_and_addresses_cannot_be_changed_from_inside() {
    let ground = Ground::new();
    let attempts = [
        json!({"do": "netlink", "kind": "addr"}),
        json!({"do": "netlink", "kind": "route"}),
        json!({"do": "netlink", "kind": "link"}),
        json!({"do": "netlink", "kind": "addr", "protocol": 12}),
    ];
    let list = Value::from(&attempts[..2]).to_string();
    let script =
        format!("unshare --net sh -c 'ip link set lo up; python3 knock.py \"$0\"' '{list}'");
    let control = world()
        .host(&json!({"ask": "run", "folder": ground.work(), "words": ["sh", "-c", script]}));
    assert_eq!(
        control["out"], "[{\"heard\": \"done\"}, {\"heard\": \"done\"}]\n",
        "{control}"
    );
    let came = ground.knock(WIDE, &attempts);
    for came in &came[..3] {
        assert_eq!(came.text(), "EPERM", "{came:?}");
    }
    assert_eq!(came[3].error(), Some("EPROTONOSUPPORT"), "{came:?}");
    // A namespace of its own, where it would have the right to.
    let ran = ground.sh(WIDE, "unshare -Un true; echo made $?");
    assert!(!ran.out.contains("made 0"), "{ran:?}");
}

/// NW-09, NW-10, NW-11, NW-14
#[test]
fn no_socket_of_the_host_comes_along() {
    let ground = Ground::new();
    let name = format!("cowork-canary-{}-{}", std::process::id(), fresh());
    world().host(&json!({"ask": "abstract", "name": name}));
    let path = ground.scratch.path("home/agent.sock");
    let _agent = UnixListener::bind(&path).unwrap();
    let attempt = [json!({"do": "abstract", "name": name})];
    assert_eq!(ground.knock_outside(&attempt)[0].text(), "connected");
    let came = ground.knock(WIDE, &attempt);
    assert!(
        matches!(came[0].error(), Some("ECONNREFUSED" | "EPERM")),
        "{came:?}"
    );

    let script = "echo agent $SSH_AUTH_SOCK; ls -l /proc/self/fd | grep -c socket";
    let mut command = ground.running(WIDE);
    command
        .env("SSH_AUTH_SOCK", &path)
        .args(["sh", "-c", script]);
    let ran = Ran::of(&mut command);
    assert_eq!(ran.out, "agent\n0\n", "{ran:?}");
    let mut control = ground.on_the_host();
    control
        .env("SSH_AUTH_SOCK", &path)
        .args(["sh", "-c", script]);
    Ran::of(&mut control).says("agent.sock");
}
