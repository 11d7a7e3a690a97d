//! Ways around the rules: other addresses, no proxy, somebody else's proxy, other rules.

use std::process::Command;

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::knock::{Came, INSIDE, NARROW, WIDE, connect, refused};
use crate::support::Ran;
use crate::world::{Canary, HOST4, HOST6, WEB4, world};

fn to(address: &str, port: u16) -> Value {
    json!({"do": "connect", "place": [address, port]})
}

/// NW-01, NW-02, NW-15, NW-61
#[test]
fn no_address_of_the_host_or_its_net_is_reached() {
    let ground = Ground::new();
    let mut canaries = Vec::new();
    for address in ["127.0.0.1", "127.1.2.3", "::1", HOST4, HOST6] {
        canaries.push(Canary::on_the_host(address));
    }
    for address in [
        "10.1.0.1",
        "192.168.1.1",
        "172.31.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "fd00::2",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
    ] {
        canaries.push(Canary::beyond(address));
    }
    let mut attempts: Vec<_> = canaries
        .iter()
        .map(|one| to(&one.address, one.port))
        .collect();
    attempts.push(to("::ffff:127.0.0.1", canaries[0].port));
    attempts.push(to("0.0.0.0", canaries[0].port));
    attempts.push(to("::", canaries[2].port));
    let control = ground.knock_outside(&attempts);
    assert!(control.iter().all(Came::is_canary), "{control:?}");
    let before: Vec<_> = canaries.iter().map(Canary::visits).collect();

    for flags in [NARROW, WIDE] {
        refused(&attempts, &ground.knock(flags, &attempts));
    }
    let after: Vec<_> = canaries.iter().map(Canary::visits).collect();
    assert_eq!(before, after);
}

/// NW-50: programs that take no notice of proxies.
#[test]
fn whoever_ignores_the_proxies_is_judged_all_the_same() {
    let ground = Ground::new();
    let other = world().name_at("other", &[WEB4]);
    // An address of the web that only this test uses.
    let address = "93.184.217.50";
    let script = format!(
        "curl -sS --noproxy '*' --max-time 20 https://{other}/echo; echo named $?
        curl -sSk --noproxy '*' --max-time 20 https://{address}/echo; echo bare $?
        curl -sS --noproxy '*' --max-time 20 --resolve {other}:443:{address} https://{other}/echo; echo forced $?
        curl -sSk --noproxy '*' --max-time 20 --resolve allowed.test:443:{address} https://allowed.test/echo; echo posed $?"
    );
    ground
        .control(&script)
        .ok()
        .says("named 0")
        .says("bare 0")
        .says("forced 0")
        .says("posed 0");
    assert_eq!(world().packets(address), ["tcp:443"]);
    let requests = world().requests(&other).len();
    let asked = world().questions(&other).len();

    let ran = ground.sh(NARROW, &script);
    for (way, codes) in [
        ("named", &["6"][..]),
        ("bare", &["7", "35", "56"]),
        ("forced", &["7", "35", "56"]),
        ("posed", &["7", "35", "56"]),
    ] {
        let line = ran
            .out
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{way} ")));
        assert!(codes.contains(&line.unwrap()), "{way}: {ran:?}");
    }
    assert_eq!(world().requests(&other).len(), requests);
    assert_eq!(world().questions(&other).len(), asked);
}

/// NW-50: an address that is allowed can be reached as such, with no name for it.
#[test]
fn an_address_that_is_written_out_is_reached_without_a_name() {
    let ground = Ground::new();
    let flags = [
        "--allow-host",
        "93.184.217.60:80",
        "--allow-host",
        "[2606:2800:220:1::60]:80",
        "--allow-host",
        "93.184.218.0/24:7",
    ];
    let came = ground.knock(
        &flags,
        &[
            to("93.184.217.60", 80),
            to("2606:2800:220:1::60", 80),
            json!({"do": "say", "place": ["93.184.218.9", 7], "text": "and back", "until": "back"}),
            to("93.184.217.60", 443),
            to("93.184.217.61", 80),
            connect(INSIDE.http, "93.184.217.60:80"),
            connect(INSIDE.http, "[2606:2800:220:1::60]:80"),
        ],
    );
    for reached in [0, 1] {
        assert!(came[reached].text().contains("404"), "{came:?}");
    }
    assert!(came[2].text() == "and back", "{came:?}");
    assert!(came[3].is_refusal() && came[4].is_refusal(), "{came:?}");
    for reached in [5, 6] {
        assert!(came[reached].text().contains("\"port\": 80"), "{came:?}");
    }
    assert_eq!(world().packets("93.184.217.61"), Vec::<String>::new());
}

/// NW-52, NW-53: nothing of a box listens on the host, and nobody outside gets in.
#[test]
fn no_door_is_on_the_host() {
    let ground = Ground::new();
    let listening = || {
        let came = ground.knock_outside(&[json!({"do": "listening"})]);
        serde_json::from_value::<Vec<u16>>(came[0].heard().clone()).unwrap()
    };
    let proxy = world().trusting_proxy();
    assert!(listening().contains(&proxy), "the control is seen");
    let serve = "import socket, time
server = socket.create_server(('0.0.0.0', 8765)); six = socket.create_server(('::', 8765), family=socket.AF_INET6)
open('listening', 'w').close(); time.sleep(100)";
    let id = ground.start(WIDE, &["python3", "-c", serve]);
    ground.waits_for(&ground.work().join("listening"));
    let ours = [8765, 3128, 1080, 3129, 53];
    let seen = listening();
    assert!(ours.iter().all(|port| !seen.contains(port)), "{seen:?}");
    let inside = ground.knock_in(&id, &[json!({"do": "listening"})]);
    let inside: Vec<u16> = serde_json::from_value(inside[0].heard().clone()).unwrap();
    assert!(
        [8765, 3128, 1080, 53]
            .iter()
            .all(|port| inside.contains(port)),
        "{inside:?}"
    );
    let attempts: Vec<_> = ours.iter().map(|port| to("127.0.0.1", *port)).collect();
    for came in ground.knock_outside(&attempts) {
        assert_eq!(came.error(), Some("ECONNREFUSED"));
    }
}

/// NW-54: a proxy belongs to its box.
#[test]
fn the_proxy_of_one_session_is_of_no_use_to_another() {
    let ground = Ground::new();
    let first = world().name_at("first", &[WEB4]);
    let second = world().name_at("second", &[WEB4]);
    let one = ground.start(&["--allow-host", &first], &["sleep", "100"]);
    let other = ground.start(&["--allow-host", &second], &["sleep", "100"]);
    let proxy = |id: &str| ground.exec(id, &["sh", "-c", "echo $HTTPS_PROXY"]).ok().out;
    assert!(proxy(&one).contains(":3128"), "{}", proxy(&one));
    let ask = |id: &str, with: &str, name: &str| {
        let script = format!(
            "https_proxy='{}' curl -sS --cacert ca.pem https://{name}/echo",
            with.trim()
        );
        ground.exec(id, &["sh", "-c", &script])
    };
    ask(&one, &proxy(&one), &first).ok();
    ask(&other, &proxy(&other), &second).ok();
    for (id, with, name) in [
        (&other, proxy(&one), &first),
        (&one, proxy(&other), &second),
    ] {
        let ran = ask(id, &with, name);
        assert!(ran.code != 0 && ran.err.contains("403"), "{ran:?}");
    }
}

/// NW-63
#[test]
fn a_relay_inside_has_the_rules_of_its_box() {
    let ground = Ground::new();
    let relay = "import asyncio, sys
async def pour(r, w):
    while data := await r.read(4096): w.write(data); await w.drain()
    w.close()
async def one(r, w):
    theirs = await asyncio.open_connection('127.0.0.1', 3128)
    await asyncio.gather(pour(r, theirs[1]), pour(theirs[0], w))
async def main():
    await asyncio.start_server(one, '127.0.0.1', 9999)
    open('relaying', 'w').close()
    await asyncio.sleep(100)
asyncio.run(main())";
    let id = ground.start(NARROW, &["python3", "-c", relay]);
    ground.waits_for(&ground.work().join("relaying"));
    let came = ground.knock_in(
        &id,
        &[
            connect(9999, "denied.test:80"),
            connect(9999, "allowed.test:80"),
        ],
    );
    assert_eq!(came[0].status(), Some(403), "{came:?}");
    assert!(came[1].text().contains("\"port\": 80"), "{came:?}");
}

/// NW-64
#[test]
fn rules_written_while_it_runs_change_nothing() {
    let ground = Ground::new();
    let open = "[net]\nmode = \"allow\"\nallow = [\"*:*\"]\n";
    let id = ground.start(NARROW, &["sleep", "100"]);
    let home = ground.scratch.path("home");
    for place in [
        home.join(".config/cowork-linux/policy.toml"),
        ground.work().join(".cowork.toml"),
    ] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(place, open).unwrap();
    }
    // From inside as well, where a program may try it.
    ground.exec(&id, &["sh", "-c", "mkdir -p ~/.config/cowork-linux; echo x > ~/.config/cowork-linux/policy.toml; echo nameserver 93.184.216.53 > /etc/resolv.conf; echo '93.184.216.34 denied.test' >> /etc/hosts"]);
    let came = ground.knock_in(
        &id,
        &[
            connect(INSIDE.http, "denied.test:80"),
            to("denied.test", 80),
        ],
    );
    assert_eq!(came[0].status(), Some(403), "{came:?}");
    assert!(
        matches!(came[1].error(), Some("EAI_NONAME" | "ECONNRESET")),
        "{came:?}"
    );
}

/// NW-58
#[test]
fn a_redirection_to_a_denied_host_is_asked_again_and_refused() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let evil = world().name_at("evil", &[WEB4]);
    let canary = Canary::on_the_host("127.0.0.1");
    for target in [
        format!("https://{evil}/echo"),
        format!("http://127.0.0.1:{}/", canary.port),
    ] {
        for noproxy in ["", "*"] {
            let script = format!(
                "curl -sSf -L --noproxy '{noproxy}' --cacert ca.pem 'https://{fine}/redirect?to={target}'"
            );
            ground.control(&script).ok();
            let (requests, visits) = (world().requests(&evil).len(), canary.visits());
            let ran = ground.sh(&["--allow-host", &fine], &script);
            assert_ne!(ran.code, 0, "{ran:?}");
            let seen: Vec<_> = world()
                .requests(&evil)
                .into_iter()
                .filter(|seen| seen["host"] == evil.as_str())
                .collect();
            let before = requests;
            // The redirection itself names the host; only a request to it counts.
            assert!(seen.len() <= before, "{seen:?}");
            assert_eq!(canary.visits(), visits);
        }
    }
    let at_evil = world()
        .requests(&evil)
        .into_iter()
        .filter(|seen| seen["host"] == evil.as_str())
        .count();
    assert_eq!(at_evil, 2, "the controls, and nobody else");
}

/// A user's programs on the host see the world as the tests think they do.
#[test]
fn the_host_of_this_world_has_no_more_rights_than_its_user() {
    let ground = Ground::new();
    let ran =
        Ran::of(
            ground
                .on_the_host()
                .args(["sh", "-c", "id -u; grep CapEff /proc/self/status"]),
        )
        .ok();
    let uid = Ran::of(Command::new("id").arg("-u")).ok().out;
    assert!(ran.out.starts_with(&uid), "{ran:?}");
    if uid.trim() != "0" {
        ran.says("CapEff:\t0000000000000000");
    }
}
