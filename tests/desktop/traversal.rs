//! Texts that lead elsewhere, and values of other types, in every field of every method.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::ground::{Ground, from_root};
use crate::hostile::Bystander;
use crate::support::exists;

/// Every path below a folder, with what is in it.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut next = vec![folder.to_owned()];
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            let content = match kind.is_file() {
                true => std::fs::read(entry.path()).unwrap(),
                false => Vec::new(),
            };
            if kind.is_dir() {
                next.push(entry.path());
            }
            found.push((entry.path(), content));
        }
    }
    found.sort();
    found
}

/// Texts that lead out of wherever they are put.
fn travellers(target: &Path) -> Vec<String> {
    let target = from_root(target);
    let up = "../".repeat(20);
    vec![
        format!("{up}{target}"),
        format!("/{target}"),
        format!("x/{up}{target}"),
        "..".into(),
        format!("./../{up}"),
        format!("{up}{target}\0"),
        "a\0b".into(),
        "~".into(),
        "$HOME".into(),
        "-rf".into(),
        "\n".into(),
        "x".repeat(70_000),
        String::new(),
        "/proc/self/cwd".into(),
        "/dev/null".into(),
    ]
}

/// Every string of every method, by its way through the params.
fn fields(ground: &Ground) -> Vec<(&'static str, Value, Vec<&'static [&'static str]>)> {
    let name = ground.name.as_str();
    vec![
        (
            "configure",
            json!({}),
            vec![
                &["userDataName"],
                &["userDataRoot"],
                &["logDir"],
                &["smolBinPath"],
            ],
        ),
        ("createVM", json!({}), vec![&["bundlePath"], &["name"]]),
        (
            "startVM",
            json!({}),
            vec![&["bundlePath"], &["apiProbeURL"]],
        ),
        (
            "spawn",
            json!({"id": "s", "name": name, "command": "true", "args": [], "isResume": true}),
            vec![
                &["id"],
                &["name"],
                &["command"],
                &["args", "0"],
                &["cwd"],
                &["env", "X"],
                &["env", "HOME"],
                &["env", "PATH"],
                &["additionalMounts", "m", "path"],
                &["additionalMounts", "m", "mode"],
                &["additionalMounts", "m"],
                &["allowedDomains", "0"],
                &["oauthToken"],
                &["sharedCwdPath"],
            ],
        ),
        ("kill", json!({"id": "nobody"}), vec![&["id"], &["signal"]]),
        (
            "writeStdin",
            json!({"id": "nobody", "data": ""}),
            vec![&["id"], &["data"]],
        ),
        ("isProcessRunning", json!({}), vec![&["id"]]),
        (
            "mountPath",
            json!({"processId": name, "subpath": "no/such", "mountName": "x", "mode": "ro"}),
            vec![&["processId"], &["subpath"], &["mountName"], &["mode"]],
        ),
        (
            "readFile",
            json!({"processName": name, "filePath": "/x"}),
            vec![&["processName"], &["filePath"]],
        ),
        (
            "installSdk",
            json!({"sdkSubpath": "no/such", "version": "1"}),
            vec![&["sdkSubpath"], &["version"]],
        ),
        (
            "addApprovedOauthToken",
            json!({}),
            vec![&["token"], &["name"]],
        ),
        (
            "sendGuestResponse",
            json!({}),
            vec![&["id"], &["resultJson"], &["error"]],
        ),
        (
            "deleteSessionDirs",
            json!({"names": []}),
            vec![&["names", "0"]],
        ),
        (
            "subscribeEvents",
            json!({}),
            vec![&["userDataName"], &["userDataRoot"]],
        ),
    ]
}

fn put(params: &Value, way: &[&str], value: Value) -> Value {
    let mut params = params.clone();
    if params["command"].is_string() {
        // Each is a process of its own.
        params["id"] = format!("s{}", crate::ground::fresh()).into();
    }
    let mut at = &mut params;
    for step in way {
        at = match step.parse::<usize>() {
            Ok(_) => {
                *at = json!([null]);
                &mut at[0]
            }
            Err(_) => &mut at[*step],
        };
    }
    *at = value;
    params
}

#[test]
fn traversal_in_every_field_of_every_method() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    bystander.is_served();
    let outside = ground.folder("outside");
    std::fs::create_dir(outside.join("deep")).unwrap();
    ground.expects(outside.join("deep"));
    std::fs::write(outside.join("deep/precious"), "precious").unwrap();
    let before = snapshot(&outside);
    let home = snapshot(&ground.world.path("home"));
    let mut count = 0;
    for (method, params, ways) in fields(&ground) {
        for way in ways {
            for text in travellers(&outside) {
                // A line of its own each: one of them may make it a stream of events.
                let mut line = ground.line();
                line.say(
                    &json!({"method": method, "id": 1, "params": put(&params, way, json!(text))}),
                );
                let reply = line
                    .hear()
                    .unwrap_or_else(|| panic!("{method} {way:?} {text:?}: no answer"));
                assert!(reply["success"].is_boolean(), "{method} {way:?}: {reply}");
                if method == "readFile" {
                    assert_eq!(reply["success"], false, "{way:?} {text:?}: {reply}");
                }
                count += 1;
            }
        }
        bystander.is_served();
    }
    assert!(count > 500, "{count}");
    assert_eq!(snapshot(&outside), before);
    let mut after = snapshot(&ground.world.path("home"));
    after.retain(|(path, _)| !path.ends_with("cowork-linux"));
    assert_eq!(after, home);
    // Names of sessions that it took are below its own state and nowhere else.
    assert!(!exists(&ground.world.path("state/x")));
    bystander.is_served();
}

#[test]
fn every_field_of_every_other_type() {
    let ground = Ground::booted();
    let mut bystander = Bystander::of(&ground);
    let odd = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1e300),
        json!(true),
        json!([]),
        json!({}),
        json!([[[]]]),
        json!({"a": {"b": []}}),
        json!(u64::MAX),
        json!([null, 1, "x", {}]),
        json!({"": null}),
    ];
    let numbers: [(&str, &[&str]); 4] = [
        ("getSessionsDiskInfo", &["lowWaterBytes"]),
        ("pruneSessionCaches", &["onlyIfFreeBytesBelow"]),
        ("pruneSessionCaches", &["sessionTmpOlderThanSeconds"]),
        ("setDebugLogging", &["enabled"]),
    ];
    let mut all: Vec<(&str, Value, Vec<&[&str]>)> = fields(&ground);
    all.extend(
        numbers.map(|(method, way)| (method, json!({"onlyIfFreeBytesBelow": 1}), vec![way])),
    );
    for (method, params, ways) in all {
        for way in ways {
            for value in &odd {
                let mut line = ground.line();
                line.say(
                    &json!({"method": method, "id": 1, "params": put(&params, way, value.clone())}),
                );
                let reply = line
                    .hear()
                    .unwrap_or_else(|| panic!("{method} {way:?} {value}: no answer"));
                assert!(reply["success"].is_boolean(), "{method} {way:?}: {reply}");
            }
        }
    }
    bystander.is_served();
}
