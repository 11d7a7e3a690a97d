//! Requests at the HTTP proxy that mean one host for whoever judges and another for whoever serves.

use serde_json::json;

use crate::ground::Ground;
use crate::knock::{Came, INSIDE, refused, refused_inside, say};
use crate::world::{Canary, WEB4, world};

/// PX-04
#[test]
fn whole_addresses_are_judged_and_other_schemes_are_none() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let place = format!("127.0.0.1:{}", canary.port);
    let plain = world().trusting_proxy();
    let request = |proxy, line: String| {
        say(
            proxy,
            json!(format!(
                "{line}\r\nHost: {place}\r\nConnection: close\r\n\r\n"
            )),
        )
    };
    let control = ground.knock_outside(&[
        request(plain, format!("GET http://{place}/ HTTP/1.1")),
        request(
            plain,
            format!("POST http://allowed.test:80@{place}/ HTTP/1.1"),
        ),
        request(plain, format!("GET ftp://{place}/ HTTP/1.1")),
    ]);
    assert!(control.iter().all(Came::is_canary), "{control:?}");

    let attempts: Vec<_> = [
        format!("GET http://{place}/ HTTP/1.1"),
        format!("GET http://{place}/ HTTP/1.0"),
        format!("POST http://allowed.test:80@{place}/ HTTP/1.1"),
        format!("GET http://allowed.test@{place}/ HTTP/1.1"),
        format!("GET HTTP://{place}/ HTTP/1.1"),
        format!("GET ftp://{place}/ HTTP/1.1"),
        format!("GET gopher://{place}/ HTTP/1.1"),
        format!("GET https://{place}/ HTTP/1.1"),
        format!("GET ws://{place}/ HTTP/1.1"),
        "GET file:///etc/passwd HTTP/1.1".into(),
        format!("GET //{place}/ HTTP/1.1"),
        format!("GET http:/{place}/ HTTP/1.1"),
        format!("GET http:{place} HTTP/1.1"),
        format!("GET {place} HTTP/1.1"),
        // Not a proxy's form at all: the only place it names is in its Host.
        "GET / HTTP/1.1".into(),
        "OPTIONS * HTTP/1.1".into(),
        "CONNECT / HTTP/1.1".into(),
        format!("CONNECT http://{place}/ HTTP/1.1"),
        "CONNECT 127.0.0.1 HTTP/1.1".into(),
        "CONNECT allowed.test:99999 HTTP/1.1".into(),
        "CONNECT allowed.test:-1 HTTP/1.1".into(),
        "CONNECT allowed.test:443x HTTP/1.1".into(),
        "CONNECT allowed.test:0 HTTP/1.1".into(),
        "CONNECT :443 HTTP/1.1".into(),
        "CONNECT  HTTP/1.1".into(),
    ]
    .into_iter()
    .map(|line| request(INSIDE.http, line))
    .collect();
    refused_inside(&ground, &attempts, &[&canary]);
}

/// PX-05
#[test]
fn a_request_goes_to_the_host_that_was_judged() {
    let ground = Ground::new();
    let canary = Canary::on_the_host("127.0.0.1");
    let place = format!("127.0.0.1:{}", canary.port);
    let fine = world().name_at("fine", &[WEB4]);
    let evil = world().name_at("evil", &[WEB4]);
    let request = |proxy, line: &str, hosts: &[&str]| {
        let hosts: String = hosts
            .iter()
            .map(|host| format!("Host: {host}\r\n"))
            .collect();
        say(
            proxy,
            json!(format!("{line}\r\n{hosts}Connection: close\r\n\r\n")),
        )
    };
    let careless = world().careless_proxy(&[&fine]);
    let control = ground.knock_outside(&[
        request(careless, &format!("GET http://{place}/ HTTP/1.1"), &[&fine]),
        request(
            careless,
            &format!("GET http://{place}/ HTTP/1.1"),
            &[&evil, &fine],
        ),
        request(
            careless,
            &format!("GET http://{evil}/echo HTTP/1.1"),
            &[&fine],
        ),
    ]);
    assert!(
        control[0].is_canary() && control[1].is_canary(),
        "{control:?}"
    );
    assert_eq!(control[2].status(), Some(200));
    let visits = canary.visits();

    let flags = ["--allow-host", fine.as_str()];
    let attempts = [
        request(
            INSIDE.http,
            &format!("GET http://{place}/ HTTP/1.1"),
            &[&fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{place}/ HTTP/1.1"),
            &[&evil, &fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{evil}/echo HTTP/1.1"),
            &[&fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{evil}@{place}/ HTTP/1.1"),
            &[&fine],
        ),
        request(
            INSIDE.http,
            &format!("CONNECT {evil}:443 HTTP/1.1"),
            &[&format!("{fine}:443")],
        ),
    ];
    let came = ground.knock(&flags, &attempts);
    refused(&attempts, &came);
    assert_eq!(canary.visits(), visits);
    assert!(world().requests(&evil).is_empty());

    // The other way round: to the right host, for the wrong one.
    let hidden = [
        request(
            INSIDE.http,
            &format!("GET http://{fine}/a HTTP/1.1"),
            &[&evil],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/b HTTP/1.1"),
            &[&evil, &fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/c HTTP/1.1"),
            &[&fine, &evil],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/d HTTP/1.1"),
            &[&format!("{fine}\r\nX: y\r\nHost: {evil}")],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/e HTTP/1.1"),
            &[&format!("{fine}, {evil}")],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/f HTTP/1.1\r\nHost : {evil}"),
            &[&fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/g HTTP/1.1\r\n Host: {evil}"),
            &[&fine],
        ),
        request(
            INSIDE.http,
            &format!("GET http://{fine}/h HTTP/1.1\r\nX: y\r\n Host: {evil}"),
            &[&fine],
        ),
    ];
    ground.knock(&flags, &hidden);
    for seen in world().requests("names.test") {
        let of_evil = seen.to_string().contains(&evil) && seen["host"] != fine.as_str();
        // What the control said, before.
        let by_control = seen["target"] == "/echo";
        assert!(!of_evil || by_control, "{seen}");
    }
    // And as it should be, it works.
    let right = [request(
        INSIDE.http,
        &format!("GET http://{fine}/echo HTTP/1.1"),
        &[&fine],
    )];
    assert_eq!(ground.knock(&flags, &right)[0].status(), Some(200));
}

/// PX-05: a second request on a connection that the first one opened.
#[test]
fn every_request_of_a_connection_is_judged() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let evil = world().name_at("evil", &[WEB4]);
    let first = format!("GET http://{fine}/bytes/5 HTTP/1.1\r\nHost: {fine}\r\n\r\n");
    let second =
        format!("GET http://{evil}/echo HTTP/1.1\r\nHost: {evil}\r\nConnection: close\r\n\r\n");
    let with_body = |length: &str, body: &str| {
        format!(
            "POST http://{fine}/bytes/5 HTTP/1.1\r\nHost: {fine}\r\n{length}\r\n\r\n{body}{second}"
        )
    };
    let attempts = [
        say(INSIDE.http, json!([first, second])),
        say(INSIDE.http, json!(format!("{first}{second}"))),
        // Requests whose end is a matter of opinion.
        say(
            INSIDE.http,
            json!(with_body(
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "0\r\n\r\n"
            )),
        ),
        say(
            INSIDE.http,
            json!(with_body(
                "Transfer-Encoding: chunked\r\nContent-Length: 5",
                "0\r\n\r\n"
            )),
        ),
        say(
            INSIDE.http,
            json!(with_body("Content-Length: 0\r\nContent-Length: 5", "")),
        ),
        say(INSIDE.http, json!(with_body("Content-Length: +0", ""))),
        say(
            INSIDE.http,
            json!(with_body("Transfer-Encoding: xchunked", "0\r\n\r\n")),
        ),
        say(
            INSIDE.http,
            json!(with_body("Transfer-Encoding:\x0bchunked", "0\r\n\r\n")),
        ),
        say(
            INSIDE.http,
            json!(with_body("Transfer-Encoding: chunked", "0;x=\"\n\r\n\r\n")),
        ),
    ];
    let came = ground.knock(&["--allow-host", &fine], &attempts);
    // The first two are clear: one answer of each kind.
    for came in &came[..2] {
        let text = came.text();
        assert!(text.contains("xxxxx") && text.contains(" 403 "), "{text}");
    }
    assert!(
        came.iter().all(|came| came.error() != Some("timeout")),
        "{came:?}"
    );
    assert!(
        world().requests(&evil).is_empty(),
        "{:?}",
        world().requests(&evil)
    );
    assert!(world().questions(&evil).is_empty());
    // At the plain proxy all after the first is passed on unread: that is what the attack needs.
    let plain = world().trusting_proxy();
    ground.knock_outside(&[say(plain, json!([first, second]))]);
    assert_eq!(world().requests(&evil).len(), 1);
}
