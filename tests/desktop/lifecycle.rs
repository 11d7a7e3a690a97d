//! Starting and stopping the machine that is none, and what the app is told of it (L1 to L10).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Line, frame};
use crate::ground::{Ground, with, within};
use crate::support::binary;

fn kinds(events: &[Value]) -> Vec<String> {
    let said = |event: &Value| {
        let step = event["step"].as_str().map(|step| format!("{step} "));
        let kind = event["type"].as_str().unwrap();
        let status = event["status"].as_str().unwrap();
        format!("{kind} {}{status}", step.unwrap_or_default())
    };
    events.iter().map(said).collect()
}

#[test]
fn l1_the_acknowledgement_is_first_whatever_happens() {
    let ground = Ground::booted();
    let mut app = ground.app();
    for id in ["a", "b", "c"] {
        app.line
            .spawn(ground.sh(id, "while :; do echo line; echo line >&2; done"));
    }
    for _ in 0..20 {
        let mut line = ground.line();
        line.put(&frame(b"{\"method\":\"subscribeEvents\",\"params\":{}}"));
        let first = line.hear().unwrap();
        assert_eq!(first["success"], true, "{first}");
        assert!(first.get("type").is_none(), "{first}");
        let next = line.hear().unwrap();
        assert!(next["type"].is_string(), "{next}");
    }
    app.line.ok("stopVM", json!({}));
}

const STARTED: [&str; 4] = [
    "startupStep vm_boot started",
    "startupStep vm_boot completed",
    "networkStatus CONNECTED",
    "apiReachability REACHABLE",
];

/// The steps of section 3.6 that the case is not about.
fn essential(events: &[Value]) -> Vec<String> {
    let mut kinds = kinds(events);
    kinds.retain(|kind| !kind.contains("guest_vsock_connect"));
    kinds
}

#[test]
fn l2_what_a_start_tells_in_this_order_and_once() {
    let ground = Ground::new();
    let mut app = ground.app();
    let before = app.events.listen(Duration::from_millis(100));
    assert!(
        !kinds(&before).iter().any(|kind| kind == STARTED[2]),
        "{before:?}"
    );
    app.line.ok(
        "startVM",
        json!({"bundlePath": "/x", "memoryGB": 4, "cpuCount": 4}),
    );
    app.events.until("all of it", |heard| {
        essential(&heard.states)
            .iter()
            .any(|kind| kind == STARTED[3])
    });
    app.events.listen(Duration::from_millis(300));
    let heard = essential(&app.events.states[before.len()..]);
    assert_eq!(heard, STARTED);
    // A second start while it is started tells nothing new.
    app.line.ok("startVM", json!({}));
    let more = essential(&app.events.listen(Duration::from_millis(300)));
    assert!(
        !more.iter().any(|kind| kind.contains("started")),
        "{more:?}"
    );
}

#[test]
fn l3_who_comes_late_hears_how_things_are() {
    let ground = Ground::booted();
    let mut late = ground.listener();
    late.until("how things are", |heard| {
        let heard = kinds(&heard.states);
        heard.contains(&STARTED[2].to_owned()) && heard.contains(&STARTED[3].to_owned())
    });
    ground.line().ok("stopVM", json!({}));
    late.until("that it was stopped", |heard| {
        kinds(&heard.states).contains(&"networkStatus NOT_CONNECTED".to_owned())
    });
    let mut later = ground.listener();
    let heard = kinds(&later.listen(Duration::from_millis(300)));
    assert!(!heard.contains(&STARTED[2].to_owned()), "{heard:?}");
}

#[test]
fn l4_l5_it_says_whether_it_runs_and_may_be_told_twice() {
    let ground = Ground::new();
    let mut line = ground.line();
    let is = |line: &mut Line, expected: bool| {
        assert_eq!(line.is_connected(), expected);
        assert_eq!(
            line.ok("isRunning", json!({})),
            json!({"running": expected})
        );
    };
    is(&mut line, false);
    line.ok("stopVM", json!({}));
    for _ in 0..2 {
        line.ok("startVM", json!({}));
        is(&mut line, true);
    }
    for _ in 0..2 {
        line.ok("stopVM", json!({}));
        is(&mut line, false);
    }
    line.ok("startVM", json!({}));
    is(&mut line, true);
}

#[test]
fn l6_a_stop_ends_every_process_and_tells_of_each() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.line.spawn(ground.sh("a", "echo up; sleep 1000"));
    app.line.spawn(ground.sh("b", "echo up; sleep 1000 & wait"));
    let stubborn = ground.sh(
        "c",
        "trap '' TERM INT HUP; echo up; while :; do sleep 1; done",
    );
    let other = json!({"name": ground.other("two")});
    app.line.spawn(with(stubborn, other));
    for id in ["a", "b", "c"] {
        app.events.says(id, "up");
    }
    let watch = ground.boxed();
    within(20, "a stop", || app.line.ok("stopVM", json!({})));
    within(5, "the three ends", || {
        for id in ["a", "b", "c"] {
            let done = app.events.finished(id);
            assert!(done.code() > 128 && done.signal().is_some(), "{done:?}");
        }
    });
    watch.all_gone();
    app.events.until("no network", |heard| {
        kinds(&heard.states)
            .last()
            .is_some_and(|last| last == "networkStatus NOT_CONNECTED")
    });
    // What the sessions held is still theirs.
    app.line
        .refused("writeStdin", json!({"id": "a", "data": "x"}));
    assert_eq!(
        app.line.ok("isProcessRunning", json!({"id": "a"}))["running"],
        false
    );
}

#[test]
fn l7_the_boot_at_full_speed() {
    let ground = Ground::new();
    let root = ground.world.path("home/.config");
    let whose = json!({"userDataName": "Claude", "userDataRoot": root});
    let mut line = ground.line();
    let mut events = crate::client::Listener::to(&ground.socket(), whose.clone());
    let all = [
        (
            "configure",
            with(whose.clone(), json!({"sessionOnly": true})),
        ),
        ("isGuestConnected", json!({})),
        (
            "configure",
            with(
                whose,
                json!({
                    "networkDrives": [], "memoryMB": 4096, "cpuCount": 4,
                    "smolBinPath": "/usr/lib/claude-desktop/resources/smol-bin.x64.img",
                    "logDir": ground.world.path("home/.config/Claude/logs"),
                    "virtiofsdPath": "/usr/libexec/virtiofsd",
                }),
            ),
        ),
        ("stopVM", json!({})),
        ("createVM", json!({"bundlePath": "/x", "diskSizeGB": 10})),
        (
            "startVM",
            json!({"bundlePath": "/x", "memoryGB": 4, "cpuCount": 4}),
        ),
    ];
    within(10, "the boot", || {
        let numbers: Vec<u64> = all
            .into_iter()
            .map(|(method, params)| line.request(method, params))
            .collect();
        for number in numbers {
            let reply = line.reply(number);
            assert_eq!(reply["success"], true, "{reply}");
        }
        assert!(line.is_connected());
        let sdk = json!({"sdkSubpath": "no/such/place", "version": "2.1.209"});
        line.ok("installSdk", sdk.clone());
        line.ok("installSdk", sdk);
        line.ok("addApprovedOauthToken", json!({"token": "sk-ant-oat-none"}));
        line.spawn(ground.sh("first", "true"));
        events.finished("first");
    });
}

#[test]
fn l8_without_namespaces_nothing_starts_and_nothing_runs() {
    let mut ground = Ground::bare();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let mut command = Command::new("unshare");
    ground.surround(&mut command);
    // An ordinary user there, whoever it is here: root's boxes want more than namespaces.
    command.args([
        "--user",
        "--map-user=1000",
        "--map-group=1000",
        "--keep-caps",
    ]);
    command.args(["sh", "-c", script, "sh"]);
    command
        .arg(binary())
        .args(["helper", "-socket"])
        .arg(ground.socket());
    ground.start_as(&mut command);
    let mut app = ground.app();
    let why = app.line.refused("startVM", json!({}));
    assert!(why.contains("user.max_user_namespaces"), "{why}");
    assert!(!app.line.is_connected());
    let trace = ground.world.path("w/ran");
    let script = format!("touch {}", trace.display());
    let why = app.line.refused("spawn", ground.sh("a", &script));
    assert!(!why.is_empty());
    app.line.refused(
        "spawn",
        with(ground.sh("b", "true"), json!({"command": "true"})),
    );
    app.events.listen(Duration::from_millis(300));
    assert!(!app.events.knows("a") && !app.events.knows("b"));
    assert!(!trace.exists(), "it ran without a box");
}

#[test]
fn l9_a_first_word_that_nobody_waits_for() {
    let ground = Ground::new();
    let mut line = ground.line();
    line.say(&json!({"method": "configure", "params": {"sessionOnly": true}}));
    line.say(&json!({"method": "isRunning", "id": 2}));
    line.say(&json!({"method": "isGuestConnected", "id": 3}));
    let mut replies: Vec<Value> = (0..3).map(|_| line.hear().unwrap()).collect();
    replies.retain(|reply| reply.get("id").is_none());
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_eq!(replies[0]["success"], true);
    line.says_no_more();
    line.is_closed();
}

#[test]
fn l10_methods_of_other_years() {
    let ground = Ground::new();
    let mut line = ground.line();
    let disk = json!({"diskName": "x", "sizeGiB": 10});
    assert_eq!(line.ok("createDiskImage", disk), json!({}));
    assert_eq!(
        line.ok("getDownloadStatus", json!({})),
        json!({"status": "ready"})
    );
    assert_eq!(
        line.ok("getNetworkDrives", json!({})),
        json!({"drives": []})
    );
    assert_eq!(
        line.ok("createVM", json!({"name": "old", "bundlePath": "/x"})),
        json!({})
    );
    assert_eq!(
        line.ok("isDebugLoggingEnabled", json!({})),
        json!({"enabled": false})
    );
    line.ok("setDebugLogging", json!({"enabled": true}));
    assert_eq!(
        line.ok("isDebugLoggingEnabled", json!({})),
        json!({"enabled": true})
    );
    line.ok(
        "sendGuestResponse",
        json!({"id": "g1", "resultJson": "{}", "error": ""}),
    );
}

/// A server that answers one request after another with this status; where it is.
fn answers(status: &'static str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in server.incoming().flatten() {
            let mut some = [0u8; 1000];
            let _ = stream.read(&mut some);
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    format!("http://{address}/probe")
}

#[test]
fn whether_the_api_can_be_reached_is_told_as_it_is() {
    // Any answer is one, even a refusal.
    for status in ["200 OK", "404 Not Found", "500 No"] {
        let ground = Ground::new();
        let mut app = ground.app();
        app.line
            .ok("startVM", json!({"apiProbeURL": answers(status)}));
        app.events.until("that it is reached", |heard| {
            kinds(&heard.states).contains(&STARTED[3].to_owned())
        });
    }
    // Where nobody answers it is not, and one miss is not yet "unreachable".
    let ground = Ground::new();
    let mut app = ground.app();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", nobody.local_addr().unwrap());
    drop(nobody);
    app.line.ok("startVM", json!({"apiProbeURL": url}));
    app.events.until("that it is not reached", |heard| {
        let heard = kinds(&heard.states);
        heard.iter().any(|kind| kind.starts_with("apiReachability"))
    });
    let heard = kinds(&app.events.states);
    assert!(
        heard.contains(&"apiReachability PROBABLY_UNREACHABLE".to_owned()),
        "{heard:?}"
    );
    assert!(app.line.is_connected());
}
