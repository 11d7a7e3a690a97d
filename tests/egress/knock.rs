//! Attempts at doors, made by `probes/knock.py` in a box or without one.

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::support::Ran;
use crate::world::Canary;

/// What came of an attempt.
#[derive(Debug, Clone)]
pub(crate) struct Came(Value);

impl Came {
    /// What was heard, or the error in angle brackets.
    pub(crate) fn text(&self) -> String {
        match (&self.0["heard"], &self.0["error"]) {
            (Value::String(heard), _) => heard.clone(),
            (Value::Null, Value::String(error)) => format!("<{error}>"),
            (heard, _) => heard.to_string(),
        }
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.0["error"].as_str()
    }

    pub(crate) fn heard(&self) -> &Value {
        &self.0["heard"]
    }

    /// The code of an HTTP answer.
    pub(crate) fn status(&self) -> Option<u16> {
        let text = self.0["heard"].as_str()?;
        let line = text
            .strip_prefix("HTTP/1.1 ")
            .or_else(|| text.strip_prefix("HTTP/1.0 "));
        let code = line?.get(..3)?;
        code.parse().ok()
    }

    /// The code of a SOCKS5 answer, after the one about how to log in.
    pub(crate) fn socks(&self) -> Option<u8> {
        let text = self.0["heard"].as_str()?;
        let code = text.strip_prefix("\u{5}\0\u{5}")?.chars().next()?;
        u8::try_from(code).ok()
    }

    /// Refused at a door: an answer that says so, or the end of the connection; never an answer of
    /// whoever was meant, and never nothing at all.
    pub(crate) fn is_refusal(&self) -> bool {
        if let Some(code) = self.status() {
            return (400..500).contains(&code);
        }
        if let Some(code) = self.socks() {
            return (1..=8).contains(&code);
        }
        match (self.error(), self.heard()) {
            (Some(error), _) => matches!(error, "ECONNRESET" | "ECONNREFUSED" | "EPIPE"),
            (None, Value::String(heard)) => {
                matches!(
                    heard.as_str(),
                    "" | "<ECONNRESET>" | "<EPIPE>" | "\u{5}\u{ff}"
                )
            }
            _ => false,
        }
    }

    pub(crate) fn is_canary(&self) -> bool {
        self.text().contains("canary")
    }
}

fn read(ran: &Ran, count: usize) -> Vec<Came> {
    let came: Vec<Value> = serde_json::from_str(&ran.out)
        .unwrap_or_else(|_| panic!("no answers: {} {}", ran.out, ran.err));
    assert_eq!(came.len(), count);
    came.into_iter().map(Came).collect()
}

impl Ground {
    /// Makes these attempts in one box.
    #[track_caller]
    pub(crate) fn knock(&self, flags: &[&str], attempts: &[Value]) -> Vec<Came> {
        let list = Value::from(attempts).to_string();
        let ran = self.run(flags, &["python3", "knock.py", &list]);
        assert_eq!(ran.code, 0, "{} {}", ran.out, ran.err);
        read(&ran, attempts.len())
    }

    /// Makes these attempts on the host.
    #[track_caller]
    pub(crate) fn knock_outside(&self, attempts: &[Value]) -> Vec<Came> {
        let list = Value::from(attempts).to_string();
        let ran = Ran::of(
            self.on_the_host()
                .args(["/usr/bin/python3", "knock.py", &list]),
        )
        .ok();
        read(&ran, attempts.len())
    }

    /// Makes these attempts in a running session.
    #[track_caller]
    pub(crate) fn knock_in(&self, id: &str, attempts: &[Value]) -> Vec<Came> {
        let list = Value::from(attempts).to_string();
        let ran = self.exec(id, &["python3", "knock.py", &list]).ok();
        read(&ran, attempts.len())
    }
}

/// `CONNECT place` at an HTTP proxy, and a request through the tunnel.
pub(crate) fn connect(proxy: u16, place: &str) -> Value {
    let first = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    say(proxy, json!([first, request_to(host)]))
}

/// A request as it is made of the host itself.
fn request_to(host: &str) -> String {
    format!("GET /echo HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// `GET url` at an HTTP proxy.
pub(crate) fn get(proxy: u16, url: &str, host: &str) -> Value {
    let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    say(proxy, json!(request))
}

pub(crate) fn say(port: u16, text: Value) -> Value {
    json!({"do": "say", "place": ["127.0.0.1", port], "text": text})
}

/// The doors of a box, or a proxy without a box that is all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doors {
    pub(crate) http: u16,
    pub(crate) socks: u16,
}

pub(crate) const INSIDE: Doors = Doors {
    http: 3128,
    socks: 1080,
};

impl Doors {
    pub(crate) fn of(proxy: u16) -> Self {
        Self {
            http: proxy,
            socks: proxy,
        }
    }

    /// Asks every proxy for this place.
    pub(crate) fn all(self, host: &str, port: u16) -> Vec<Value> {
        let place = format!("{host}:{port}");
        vec![
            connect(self.http, &place),
            get(self.http, &format!("http://{place}/echo"), &place),
            socks_name(self.socks, host.trim_matches(['[', ']']), port),
        ]
    }
}

/// SOCKS5's `CONNECT` to a name, and a request through the tunnel.
pub(crate) fn socks_name(proxy: u16, host: &str, port: u16) -> Value {
    let mut address = vec![3, u8::try_from(host.len()).unwrap()];
    address.extend(host.bytes());
    socks(proxy, 1, &address, port)
}

/// SOCKS5's `CONNECT` to an address.
pub(crate) fn socks_address(proxy: u16, host: &str, port: u16) -> Value {
    let address = match host.parse().unwrap() {
        std::net::IpAddr::V4(four) => [&[1], four.octets().as_slice()].concat(),
        std::net::IpAddr::V6(six) => [&[4], six.octets().as_slice()].concat(),
    };
    socks(proxy, 1, &address, port)
}

pub(crate) fn socks(proxy: u16, command: u8, address: &[u8], port: u16) -> Value {
    let mut request = vec![5, command, 0];
    request.extend(address);
    request.extend(port.to_be_bytes());
    let host = match address {
        [3, _, name @ ..] => latin(name),
        _ => "allowed.test".into(),
    };
    say(
        proxy,
        json!(["\u{5}\u{1}\0", latin(&request), request_to(&host)]),
    )
}

/// Bytes as the probe takes them: one character for each.
pub(crate) fn latin(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// All attempts were refused, at once.
#[track_caller]
pub(crate) fn refused(attempts: &[Value], came: &[Came]) {
    for (attempt, came) in attempts.iter().zip(came) {
        assert!(came.is_refusal(), "{attempt} came to: {}", came.text());
    }
}

/// All names and all public addresses at all ports: what is refused then is refused for what it is.
pub(crate) const WIDE: &[&str] = &["--allow-host", "*:*"];
pub(crate) const NARROW: &[&str] = &["--allow-host", "allowed.test"];

/// Every attempt is refused in a box with either rules, and the canary does not hear of it.
#[track_caller]
pub(crate) fn refused_inside(
    ground: &Ground,
    attempts: &[Value],
    canaries: &[&Canary],
) -> Vec<Came> {
    let before: Vec<_> = canaries.iter().map(|canary| canary.visits()).collect();
    let mut all = Vec::new();
    for flags in [WIDE, NARROW] {
        let came = ground.knock(flags, attempts);
        refused(attempts, &came);
        all.extend(came);
    }
    let after: Vec<_> = canaries.iter().map(|canary| canary.visits()).collect();
    assert_eq!(before, after, "somebody came to {canaries:?}");
    all
}
