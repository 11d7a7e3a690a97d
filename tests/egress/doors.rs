//! What a program inside meets: names, proxies, the redirection, refusals it can act on, and the
//! account that is kept of it.

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::knock::{INSIDE, connect, get};
use crate::support::Ran;
use crate::world::{WEB4, WEB6, world};

#[test]
fn the_usual_variables_point_to_the_proxies() {
    let ground = Ground::new();
    let ran = ground
        .sh(
            &["--allow-host", "allowed.test"],
            "env; echo; cat /etc/resolv.conf",
        )
        .ok();
    let (variables, resolver) = ran.out.split_once("\n\n").unwrap();
    let value = |name: &str| {
        let line = variables
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {variables}"))
    };
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        assert_eq!(
            value(name).trim_end_matches('/'),
            "http://127.0.0.1:3128",
            "{name}"
        );
    }
    assert_eq!(value("NODE_USE_ENV_PROXY"), "1");
    for name in ["no_proxy", "NO_PROXY"] {
        assert!(
            value(name).contains("127.0.0.1") && !value(name).contains("allowed"),
            "{}",
            value(name)
        );
    }
    assert!(resolver.contains("nameserver 127.0.0.1"), "{resolver}");
}

#[test]
fn a_refusal_says_why_and_which_flag_would_help() {
    let ground = Ground::new();
    let other = world().name_at("other", &[WEB4]);
    let script = format!(
        "curl -sS -i http://{other}/; curl -sS -i https://{other}/; curl -sS -i https://allowed.test:8443/; \
         curl -sS -i http://10.0.0.1/"
    );
    let ran = ground.sh(&["--allow-host", "allowed.test"], &script);
    let text = ran.out.to_lowercase();
    assert!(
        text.matches("x-proxy-error: blocked-by-allowlist").count() >= 3,
        "{ran:?}"
    );
    ran.says(&format!("--allow-host {other}"));
    // The same is said to the person who started it, once for each host.
    let mut command = ground.cowork();
    command.args([
        "run",
        "--network",
        "allow",
        "--allow-host",
        "allowed.test",
        "--mount",
    ]);
    command.arg(ground.work()).args(["--", "sh", "-c"]);
    command.arg(format!(
        "for n in 1 2 3; do curl -sS http://{other}/; done; true"
    ));
    let ran = Ran::of(&mut command).ok();
    let flag = format!("--allow-host {other}");
    assert_eq!(ran.err.matches(&flag).count(), 1, "{}", ran.err);
}

#[test]
fn names_are_answered_with_addresses_that_mean_something_inside_only() {
    let ground = Ground::new();
    let name = world().name_at("known", &[WEB4, WEB6]);
    let ask = |name: &str, kind: &str, way: &str, edns: bool| json!({"do": "dns", "name": name, "kind": kind, "way": way, "edns": edns});
    let mut attempts = Vec::new();
    for way in ["udp", "tcp"] {
        for edns in [true, false] {
            for kind in ["A", "AAAA", "HTTPS", "SRV", "TXT"] {
                attempts.push(ask(&name, kind, way, edns));
            }
            attempts.push(ask("unknown.test", "A", way, edns));
            attempts.push(ask(&name.to_uppercase(), "A", way, edns));
        }
    }
    let came = ground.knock(&["--allow-host", &name], &attempts);
    let record = |came: &Value| {
        came["records"][0][3]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for group in came.chunks(7) {
        let [four, six, https, srv, text, unknown, upper] = group else {
            panic!("{group:?}");
        };
        let four = record(four.heard());
        assert!(
            four.starts_with("198.18.") || four.starts_with("198.19."),
            "{four}"
        );
        assert!(record(six.heard()).starts_with("fd"), "{six:?}");
        assert_eq!(record(upper.heard()), four, "{upper:?}");
        for empty in [https, srv, text] {
            assert_eq!(empty.heard()["code"], 0, "{empty:?}");
            assert_eq!(empty.heard()["records"], json!([]), "{empty:?}");
        }
        assert_eq!(unknown.heard()["code"], 3, "{unknown:?}");
        assert_eq!(unknown.heard()["identity"], 4242);
    }
    // Backwards too: which host was that again?
    let four = record(came[0].heard());
    let mut backwards: Vec<_> = four.split('.').rev().collect();
    backwards.extend(["in-addr", "arpa"]);
    let came = ground.knock(
        &["--allow-host", &name],
        &[
            ask(&name, "A", "udp", true),
            ask(&backwards.join("."), "PTR", "udp", true),
        ],
    );
    assert_eq!(
        record(came[0].heard()),
        four,
        "the first name gets the first address"
    );
    assert_eq!(came[1].heard()["code"], 0, "{came:?}");
}

#[test]
fn a_host_of_either_kind_is_reached_by_a_program_of_either_kind() {
    let ground = Ground::new();
    let names = [
        world().name_at("four", &[WEB4]),
        world().name_at("six", &[WEB6]),
    ];
    for (name, address) in names.iter().zip([WEB4, WEB6]) {
        for kind in ["-4", "-6"] {
            let script = format!("curl -sS {kind} --noproxy '*' http://{name}/echo");
            let ran = ground.sh(&["--allow-host", "*.names.test"], &script).ok();
            let told: Value = serde_json::from_str(&ran.out).unwrap();
            assert_eq!(told["address"], address, "{name} by {kind}");
        }
    }
}

#[test]
fn much_data_goes_through_every_door_unchanged() {
    let ground = Ground::new();
    let name = world().name_at("much", &[WEB4]);
    let rule = format!("{name}:80,443,9");
    let size = 20 << 20;
    let script = format!(
        "set -e
        head -c {size} /dev/zero > /tmp/much
        for way in 'noproxy *' 'proxy http://127.0.0.1:3128' 'proxy socks5h://127.0.0.1:1080'; do
            for scheme in http https; do
                curl -sS --${{way%% *}} \"${{way#* }}\" --cacert ca.pem $scheme://{name}/bytes/{size} | wc -c
                curl -sS --${{way%% *}} \"${{way#* }}\" --cacert ca.pem -T /tmp/much $scheme://{name}/echo | grep -o '\"body\": [0-9]*'
                curl -sS --${{way%% *}} \"${{way#* }}\" --cacert ca.pem $scheme://{name}/chunked/500 | tail -n 1
                curl -sS --${{way%% *}} \"${{way#* }}\" --cacert ca.pem -I $scheme://{name}/bytes/77 | grep -i content-length | tr -d '\\r'
            done
        done
        python3 -c '
import socket, sys
line = socket.create_connection((sys.argv[1], 9))
for _ in range(20): line.sendall(bytes(1 << 20))
line.shutdown(socket.SHUT_WR)
print(line.recv(100).decode())' {name}"
    );
    let ran = ground.sh(&["--allow-host", &rule], &script).ok();
    let lines: Vec<_> = ran
        .out
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
        .split(" content-length: 77")
        .map(str::to_owned)
        .collect();
    assert_eq!(lines.len(), 7, "{ran:?}");
    for line in &lines[..6] {
        assert_eq!(line.trim(), format!("{size} \"body\": {size} chunk 499"));
    }
    // Whoever has said everything still hears the answer.
    assert_eq!(lines[6].trim(), size.to_string());
}

#[test]
fn troubles_outside_are_told_apart_from_refusals() {
    let ground = Ground::new();
    let nobody = world().name_at("nobody", &[WEB4]);
    let gone = world().name("gone", json!({"rcode": 3}));
    let broken = world().name("broken", json!({"rcode": 2}));
    let silent = world().name("silent", json!({"silent": true}));
    let long: Vec<String> = (1..=200).map(|last| format!("93.184.219.{last}")).collect();
    let long = world().name("long", json!({"answers": {"A": [long]}}));
    let slow = world().name("slow", json!({"answers": {"A": [[WEB4]]}, "delay": 0.5}));
    let attempts: Vec<_> = [&gone, &broken, &silent]
        .iter()
        .flat_map(|name| {
            [
                connect(INSIDE.http, &format!("{name}:80")),
                json!({"do": "connect", "place": [name, 80]}),
            ]
        })
        .chain([
            connect(INSIDE.http, &format!("{nobody}:81")),
            json!({"do": "connect", "place": [nobody, 81]}),
        ])
        .collect();
    let came = ground.knock(&["--allow-host", "*.names.test:*"], &attempts);
    for pair in came.chunks(2) {
        let code = pair[0].status();
        assert!(matches!(code, Some(502..=504)), "{pair:?}");
        assert!(!pair[0].text().contains("blocked-by-allowlist"), "{pair:?}");
        let said = matches!(pair[1].status(), Some(502..=504));
        assert!(said || pair[1].is_refusal(), "{pair:?}");
    }
    let attempts = [
        connect(INSIDE.http, &format!("{long}:80")),
        connect(INSIDE.http, &format!("{slow}:80")),
    ];
    for came in ground.knock(&["--allow-host", "*.names.test"], &attempts) {
        assert!(came.text().contains("\"port\": 80"), "{came:?}");
    }
}

#[test]
fn an_account_is_kept_of_what_was_reached_and_what_was_not() {
    let ground = Ground::new();
    let fine = world().name_at("fine", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let flags = ["--name", "kept", "--allow-host", fine.as_str()];
    let script = format!(
        "curl -sS http://{fine}/bytes/5000 -o /dev/null; curl -sS --cacert ca.pem https://{fine}/echo -o /dev/null
        curl -sS http://{other}/ -o /dev/null; curl -sS --noproxy '*' http://{fine}/echo -o /dev/null"
    );
    ground.sh(&flags, &script);
    let logs = ground.say(&["logs", "--network", "--json", "kept"]).ok();
    let lines: Vec<Value> = logs
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let text = logs.out.as_str();
    assert!(lines.len() >= 4, "{text}");
    for part in [
        fine.as_str(),
        other.as_str(),
        WEB4,
        "/bytes/5000",
        "--allow-host",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let plain = ground.say(&["logs", "--network", "kept"]).ok();
    assert!(
        plain.out.contains("refused") && plain.out.contains(&fine),
        "{plain:?}"
    );
    // Nothing that only TLS's two ends should know.
    assert!(
        !text.contains("https://") || !text.contains("/echo\",\"tls"),
        "{text}"
    );
}

#[test]
fn another_proxy_may_stand_before_the_world() {
    let ground = Ground::new();
    let name = world().name_at("far", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let proxy = world().trusting_proxy();
    for kind in ["http", "socks5"] {
        let upstream = format!("{kind}://127.0.0.1:{proxy}");
        let flags = [
            "--upstream-proxy",
            upstream.as_str(),
            "--allow-host",
            name.as_str(),
        ];
        let script = format!(
            "curl -sS http://{name}/echo; curl -sS --cacert ca.pem https://{name}/echo; curl -sS --noproxy '*' --cacert ca.pem https://{name}/echo"
        );
        let ran = ground.sh(&flags, &script).ok();
        assert_eq!(ran.out.matches("\"method\": \"GET\"").count(), 3, "{ran:?}");
        let ran = ground.knock(
            &flags,
            &[
                connect(INSIDE.http, &format!("{other}:80")),
                get(INSIDE.http, &format!("http://{other}/"), &other),
            ],
        );
        assert!(ran.iter().all(|came| came.status() == Some(403)), "{ran:?}");
    }
    assert!(world().requests(&other).is_empty());
}

/// Where the kernel cannot redirect, the proxies are there, and the plan says who is served.
#[test]
fn without_redirection_the_proxies_remain() {
    let ground = Ground::new();
    let name = world().name_at("proxied", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let policy = ground
        .scratch
        .write("proxies.toml", "[net]\nredirect = false\n");
    let flags = [
        "--profile",
        policy.to_str().unwrap(),
        "--allow-host",
        name.as_str(),
    ];
    let script = format!(
        "curl -sS http://{name}/echo; curl -sS --cacert ca.pem https://{name}/echo
        curl -sS -x socks5h://127.0.0.1:1080 http://{name}/echo"
    );
    let ran = ground.sh(&flags, &script).ok();
    assert_eq!(ran.out.matches("\"method\": \"GET\"").count(), 3, "{ran:?}");
    let attempts = [
        connect(INSIDE.http, &format!("{other}:80")),
        json!({"do": "connect", "place": [WEB4, 80]}),
        json!({"do": "connect", "place": [other, 80]}),
    ];
    let came = ground.knock(&flags, &attempts);
    assert_eq!(came[0].status(), Some(403), "{came:?}");
    for came in &came[1..] {
        assert!(came.error().is_some_and(|why| why != "timeout"), "{came:?}");
    }
    assert!(world().requests(&other).is_empty());
    let plan = ground.say(
        &[
            &["run", "--dry-run", "--network", "allow"][..],
            &flags,
            &["--", "true"],
        ]
        .concat(),
    );
    assert!(
        plan.ok().out.contains("prox"),
        "the plan says who is served"
    );
}

/// The lists of hosts that this computer's own tools use.
#[test]
fn the_registries_of_this_computer_are_reached() {
    let ground = Ground::new();
    let mirror = world().name_at("mirror", &[WEB4]);
    ground
        .scratch
        .write("home/.npmrc", &format!("registry=https://{mirror}/npm/\n"));
    let attempts = [
        connect(INSIDE.http, &format!("{mirror}:443")),
        connect(INSIDE.http, "denied.test:443"),
    ];
    let came = ground.knock(&["--bundle", "registries"], &attempts);
    assert_eq!(came[0].status(), Some(200), "{came:?}");
    assert_eq!(came[1].status(), Some(403), "{came:?}");
    let came = ground.knock(&["--allow-host", "allowed.test"], &attempts);
    assert_eq!(came[0].status(), Some(403), "{came:?}");
}
