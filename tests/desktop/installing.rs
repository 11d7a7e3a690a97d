//! What the app installs, keeps and clears away (M27 to M32).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::App;
use crate::ground::{Ground, from_root, mount, with};
use crate::support::{compile, exists};

/// A program that says its name, where it is and its words, installed as the app does it.
fn install(ground: &Ground, app: &mut App, version: &str) -> Value {
    let source = format!(
        "
        #include <stdio.h>
        #include <unistd.h>
        int main(int n, char **a) {{
            char where[4096] = {{0}};
            if (readlink(\"/proc/self/exe\", where, 4095) < 0) return 1;
            printf(\"version {version} at %s with %s\\n\", where, n > 1 ? a[1] : \"nothing\");
            return 0;
        }}"
    );
    let made = compile(&ground.world, "claude", &source);
    let folder = ground.world.path("home/.config/Claude/claude-code-vm");
    std::fs::create_dir_all(folder.join(version)).unwrap();
    std::fs::rename(made, folder.join(version).join("claude")).unwrap();
    let params = json!({"sdkSubpath": from_root(&folder), "version": version});
    app.line.ok("installSdk", params.clone());
    params
}

fn claude(ground: &Ground, id: &str, command: &str) -> Value {
    with(
        ground.sh(id, ""),
        json!({"command": command, "args": ["word"]}),
    )
}

#[test]
fn m27_m28_the_program_that_the_app_has_fetched() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let why = app.line.refused("spawn", claude(&ground, "none", "claude"));
    assert!(why.contains("claude"), "{why}");
    install(&ground, &mut app, "2.1.9");
    let says = "version 2.1.9 at /usr/local/bin/claude with word\n";
    assert_eq!(app.run(claude(&ground, "a", "claude")).ok(), says);
    assert_eq!(
        app.run(claude(&ground, "b", "/usr/local/bin/claude")).ok(),
        says
    );
    let write = "echo x >> /usr/local/bin/claude; echo $?; rm /usr/local/bin/claude; echo $?; \
                 mv /usr/local/bin/claude /tmp/; echo $?; echo x > /usr/local/bin/other; echo $?";
    let said = app
        .run(ground.sh("w", &format!("{{ {write}; }} 2>/dev/null")))
        .ok();
    assert!(!said.lines().any(|code| code == "0"), "{said}");

    // A newer one is there at once, in the session that runs.
    let known = install(&ground, &mut app, "2.1.10");
    let says = "version 2.1.10 at /usr/local/bin/claude with word\n";
    assert_eq!(app.run(claude(&ground, "c", "claude")).ok(), says);
    for _ in 0..100 {
        app.line.ok("installSdk", known.clone());
    }

    // One that is missing is no error yet.
    let missing = with(known, json!({"version": "9.9.9"}));
    app.line.ok("installSdk", missing);
    let why = app.line.refused("spawn", claude(&ground, "d", "claude"));
    assert!(why.contains("claude-code-vm/9.9.9/claude"), "{why}");
}

#[test]
fn m27_what_is_no_program_for_this_machine() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.world.path("home/.config/Claude/claude-code-vm");
    for (version, content, mode) in [
        ("1.0.1", &b"\xcf\xfa\xed\xfe\x07\x00\x00\x01"[..], 0o755),
        ("1.0.2", b"#!/no/such/interpreter\n", 0o755),
        (
            "1.0.3",
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0",
            0o755,
        ),
        ("1.0.4", b"#!/bin/sh\necho ran\n", 0o644),
    ] {
        let program = folder.join(version).join("claude");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, content).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let params = json!({"sdkSubpath": from_root(&folder), "version": version});
        app.line.ask("installSdk", params);
        let why = app
            .line
            .refused("spawn", claude(&ground, version, "claude"));
        assert!(why.contains("claude"), "{version}: {why}");
    }
    for (subpath, version) in [
        ("../x", "1"),
        (from_root(&folder).as_str(), "../1.0.4"),
        ("etc", ".."),
        ("", ""),
    ] {
        app.line.ask(
            "installSdk",
            json!({"sdkSubpath": subpath, "version": version}),
        );
        app.line.refused("spawn", claude(&ground, "x", "claude"));
    }
}

#[test]
fn m29_m30_homes_and_transcripts_outlive_the_helper() {
    let mut ground = Ground::booted();
    let mut app = ground.app();
    let (config, proj, more) = (
        ground.folder("config"),
        ground.folder("proj"),
        ground.folder("more"),
    );
    let slug: String = ground
        .inside("")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    ground.expects(config.join("projects"));
    ground.expects(config.join("projects").join(&slug));
    let env = json!({"env": {"CLAUDE_CONFIG_DIR": ground.inside("mnt/.claude")}});
    // What Claude Code makes of its working folder.
    let place = "d=$CLAUDE_CONFIG_DIR/projects/$(pwd -P | sed 's/[^A-Za-z0-9]/-/g')";
    let mounts =
        json!({"additionalMounts": {"proj": mount(&proj, "rw"), ".claude": mount(&config, "rwd")}});
    let script = format!("{place}; mkdir -p $d; echo spoken > $d/id.jsonl; echo kept > ~/x");
    app.run(with(with(ground.sh("a", &script), env.clone()), mounts))
        .ok();
    assert_eq!(
        std::fs::read_to_string(config.join("projects").join(&slug).join("id.jsonl")).unwrap(),
        "spoken\n"
    );
    drop(app);
    drop(ground.helper.take());
    ground.start(&[]);
    ground.boots();
    let mut app = ground.app();
    let mounts = json!({"isResume": true, "additionalMounts": {
        ".claude": mount(&config, "rwd"), "more": mount(&more, "ro"), "proj": mount(&proj, "rw"),
    }});
    let script = format!("{place}; cat $d/id.jsonl ~/x");
    let done = app.run(with(with(ground.sh("a", &script), env), mounts));
    assert_eq!(done.ok(), "spoken\nkept\n");
}

#[test]
fn m31_sessions_are_counted_and_cleared_away() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let precious = ground.world.write("state/precious", "x");
    let mounts = json!({"additionalMounts": {"w": mount(&folder, "rwd")}});
    let script = "head -c 3000000 /dev/zero > ~/big; ln -s ~/mnt/w ~/link; ln -s / ~/root; mkdir -p ~/a/b; chmod 0 ~/a; echo up; read x";
    app.line.spawn(with(ground.sh("p", script), mounts));
    app.events.says("p", "up");
    let info = app
        .line
        .ok("getSessionsDiskInfo", json!({"lowWaterBytes": 524_288_000}));
    let (total, free) = (
        info["totalBytes"].as_u64().unwrap(),
        info["freeBytes"].as_u64().unwrap(),
    );
    assert!(total > 0 && free <= total, "{info}");
    crate::ground::eventually("its size is known", || {
        let info = app.line.ok("getSessionsDiskInfo", json!({}));
        let sessions = info["sessions"].as_array().unwrap();
        let known = sessions
            .iter()
            .find(|session| session["name"] == ground.name.as_str());
        known.is_some_and(|known| known["sizeBytes"].as_u64().unwrap() >= 3_000_000)
    });
    let names = json!({"names": [ground.name, "../x", "nope", "../../precious", ""]});
    let result = app.line.ok("deleteSessionDirs", names.clone());
    assert!(result["errors"][&ground.name].is_string(), "{result}");
    assert!(result["errors"]["../x"].is_string(), "{result}");
    assert!(result["errors"]["../../precious"].is_string(), "{result}");
    assert!(
        !result["deleted"]
            .as_array()
            .unwrap()
            .contains(&json!(ground.name)),
        "{result}"
    );
    app.line.ok("writeStdin", json!({"id": "p", "data": "\n"}));
    app.events.finished("p").ok();

    let result = app.line.ok("deleteSessionDirs", names);
    assert!(
        result["deleted"]
            .as_array()
            .unwrap()
            .contains(&json!(ground.name)),
        "{result}"
    );
    assert_eq!(
        std::fs::read_to_string(folder.join("file")).unwrap(),
        "of the user\n"
    );
    assert!(exists(&precious) && exists(Path::new("/etc/passwd")));
    let info = app.line.ok("getSessionsDiskInfo", json!({}));
    assert!(
        !info["sessions"].to_string().contains(&ground.name),
        "{info}"
    );
    // A new one under the old name is a new one.
    assert_eq!(app.run(ground.sh("q", "ls -A ~")).ok(), "mnt\n");
}

#[test]
fn m32_caches_are_cleared_and_nothing_else_is() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let outputs = ground.folder("outputs");
    let mounts = json!({"additionalMounts": {"outputs": mount(&outputs, "rw")}});
    let fill = "mkdir -p ~/.cache/x; head -c 2000000 /dev/zero > ~/.cache/x/y; echo kept > ~/note; \
                echo made > mnt/outputs/made; echo tmp > /tmp/t";
    app.run(with(ground.sh("p", fill), mounts)).ok();
    let prune = json!({"onlyIfFreeBytesBelow": 0, "includeSessionTmp": true, "sessionTmpOlderThanSeconds": 0});
    let types = |result: &Value| {
        assert!(result["prunedSessions"].is_array(), "{result}");
        assert!(result["skippedSessions"].is_array(), "{result}");
        assert!(result["freedBytes"].is_u64(), "{result}");
        assert!(result["errors"].is_object(), "{result}");
    };
    // Not while there is room enough.
    let much = with(prune.clone(), json!({"onlyIfFreeBytesBelow": 1}));
    let result = app.line.ok("pruneSessionCaches", much);
    types(&result);
    assert_eq!(result["freedBytes"], 0);
    // Not while a program runs.
    app.line.spawn(ground.sh("runs", "echo up; read x"));
    app.events.says("runs", "up");
    let result = app.line.ok("pruneSessionCaches", prune.clone());
    types(&result);
    assert!(
        result["skippedSessions"]
            .as_array()
            .unwrap()
            .contains(&json!(ground.name)),
        "{result}"
    );
    app.line
        .ok("kill", json!({"id": "runs", "signal": "SIGKILL"}));
    app.events.finished("runs");
    app.line.ok("stopVM", json!({}));
    let result = app.line.ok("pruneSessionCaches", prune);
    types(&result);
    assert!(
        result["prunedSessions"]
            .as_array()
            .unwrap()
            .contains(&json!(ground.name)),
        "{result}"
    );
    assert!(
        result["freedBytes"].as_u64().unwrap() >= 2_000_000,
        "{result}"
    );
    assert_eq!(
        std::fs::read_to_string(outputs.join("made")).unwrap(),
        "made\n"
    );
    app.line.ok("startVM", json!({}));
    let said = app
        .run(ground.sh("after", "cat ~/note; ls ~/.cache 2>/dev/null; true"))
        .ok();
    assert_eq!(said, "kept\n");
}
