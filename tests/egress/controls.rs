//! The tests' world itself: what can be reached from its host, where no wall is.

use serde_json::json;

use crate::ground::Ground;
use crate::knock::{connect, get, say};
use crate::world::{Canary, HOST4, HOST6, WEB4, WEB6, world};

#[test]
fn the_host_reaches_the_internet_by_name_and_is_seen_there() {
    let ground = Ground::new();
    let both = world().name_at("both", &[WEB4, WEB6]);
    let six = world().name_at("six", &[WEB6]);
    for name in [&both, &six] {
        ground
            .control(&format!("curl -sS https://{name}/echo"))
            .ok()
            .says(&format!("\"sni\": \"{name}\""));
        let seen = world().requests(name);
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0]["host"], name.as_str());
        assert!(!world().questions(name).is_empty());
    }
    assert_eq!(world().requests(&six)[0]["address"], WEB6);
    // What belongs to nobody is there too, and every packet is counted.
    ground.control("curl -sS http://10.9.8.7:8080/echo").ok();
    assert_eq!(world().packets("10.9.8.7"), ["tcp:8080"]);
    ground
        .control("curl -sS http://nobody-knows-it.test/")
        .failed_with(6);
}

#[test]
fn canaries_sing() {
    let ground = Ground::new();
    let places = [
        Canary::on_the_host("127.0.0.1"),
        Canary::on_the_host("::1"),
        Canary::on_the_host(HOST4),
        Canary::on_the_host(HOST6),
        Canary::beyond("169.254.169.254"),
        Canary::beyond("10.0.0.1"),
        Canary::beyond("64:ff9b::7f00:1"),
        Canary::beyond("fd00::1"),
    ];
    let attempts: Vec<_> = places
        .iter()
        .map(|canary| json!({"do": "connect", "place": [canary.address, canary.port]}))
        .collect();
    let came = ground.knock_outside(&attempts);
    for (canary, came) in places.iter().zip(came) {
        assert!(came.is_canary(), "{canary:?}: {came:?}");
        assert_eq!(canary.visits(), 1, "{canary:?}");
    }
    let last = &places[0];
    let datagram = json!({"do": "datagram", "place": ["127.0.0.1", last.port], "text": "x"});
    ground.knock_outside(&[datagram]);
    assert_eq!(last.visits(), 3);
}

#[test]
fn plain_proxies_pass_on_what_ours_must_not() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let place = format!("127.0.0.1:{}", canary.port);
    let trusting = world().trusting_proxy();
    let careless = world().careless_proxy(&["allowed.test"]);
    let named = "\u{5}\u{1}\0";
    let then = format!(
        "\u{5}\u{1}\0\u{1}\u{7f}\0\0\u{1}{}{}",
        char::from((canary.port >> 8) as u8),
        char::from(canary.port as u8)
    );
    let came = ground.knock_outside(&[
        connect(trusting, &place),
        get(trusting, &format!("http://{place}/"), &place),
        say(trusting, json!([named, then, ""])),
        connect(careless, &place),
        get(careless, &format!("http://{place}/"), "allowed.test"),
        connect(careless, "evilallowed.test:80"),
    ]);
    for reached in [0, 1, 2, 4] {
        assert!(came[reached].is_canary(), "{reached}: {came:?}");
    }
    assert_eq!(came[3].status(), Some(403), "{came:?}");
    assert!(came[5].text().contains("\"port\": 80"), "{came:?}");
    assert_eq!(canary.visits(), 4);
}
