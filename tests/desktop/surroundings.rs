//! What a program is given: where it starts, its variables, its words, and under which names (S24 to S28).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::Done;
use crate::ground::{Ground, from_root, mount, with};
use crate::support::{compile, exists};

#[test]
fn s24_where_a_program_starts() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (outputs, zebra, alpha) = (
        ground.folder("outputs"),
        ground.folder("zebra"),
        ground.folder("alpha"),
    );
    assert_eq!(
        app.run(ground.sh("none", "pwd")).ok().trim_end(),
        ground.inside("")
    );
    let place = ground.inside("mnt/outputs");
    let cwd = json!({"cwd": place, "additionalMounts": {
        "zebra": mount(&zebra, "rw"), "outputs": mount(&outputs, "rw"), "alpha": mount(&alpha, "ro"),
    }});
    let done = app.run(with(ground.sh("there", "pwd; pwd -P"), cwd));
    assert_eq!(done.ok(), format!("{place}\n{place}\n"));
    let nowhere = json!({"cwd": ground.inside("no/such/place")});
    app.line
        .refused("spawn", with(ground.sh("nowhere", "pwd"), nowhere));
    // Below a mount that failed: at home.
    let failed = json!({
        "cwd": ground.inside("mnt/gone/deep"),
        "additionalMounts": {"gone": {"path": "no/such/place", "mode": "ro"}},
    });
    assert_eq!(
        app.line.spawn(with(ground.sh("gone", "pwd"), failed)),
        ["gone"]
    );
    assert_eq!(
        app.events.finished("gone").ok().trim_end(),
        ground.inside("")
    );
}

fn variables(done: Done) -> BTreeMap<String, String> {
    let text = done.ok();
    let pairs = text.split('\0').filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn s25_nothing_of_the_helpers_surroundings_goes_in() {
    let mut ground = Ground::bare();
    let mut command = ground.helping();
    command.envs([
        ("SECRET", "1"),
        ("SSH_AUTH_SOCK", "/x"),
        ("LD_PRELOAD", "/y"),
        ("NODE_OPTIONS", "z"),
    ]);
    ground.start_as(&mut command);
    ground.boots();
    let mut app = ground.app();
    let env = json!({"env": {
        "ANTHROPIC_API_KEY": "", "CLAUDE_CONFIG_DIR": "/x/y", "CLAUDECODE": "1", "TZ": "UTC",
        "ODD": "a=b\nc \u{20ac}", "LD_LIBRARY_PATH": "/evil", "NODE_OPTIONS": "--require /evil",
        "NUMBER": 5, "NESTED": {"a": 1},
    }});
    let seen = variables(app.run(with(ground.sh("e", "env -0"), env)));
    for name in [
        "SECRET",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        "NODE_OPTIONS",
        "ANTHROPIC_API_KEY",
        "CLAUDECODE",
        "LD_LIBRARY_PATH",
        "XDG_RUNTIME_DIR",
        "XDG_STATE_HOME",
        "NUMBER",
        "NESTED",
    ] {
        assert!(!seen.contains_key(name), "{name} in {seen:?}");
    }
    let path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
    for (name, value) in [
        ("HOME", ground.inside("").as_str()),
        ("USER", &ground.name),
        ("LOGNAME", &ground.name),
        ("PATH", path),
        ("SHELL", "/bin/bash"),
        ("TMPDIR", "/tmp"),
        ("TERM", "dumb"),
        ("CLAUDE_CONFIG_DIR", "/x/y"),
        ("ODD", "a=b\nc \u{20ac}"),
        ("TZ", "UTC"),
        ("LANG", "C.UTF-8"),
    ] {
        assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
    }
}

#[test]
fn s26_the_token_is_claudes_alone() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let stub = compile(&ground.world, "claude", "
        #include <stdio.h>
        extern char **environ;
        int main(void) { for (char **e = environ; *e; e++) { fputs(*e, stdout); putchar(0); } return 0; }");
    let sdk = ground
        .world
        .path("home/.config/Claude/claude-code-vm/2.1.0/claude");
    std::fs::create_dir_all(sdk.parent().unwrap()).unwrap();
    std::fs::rename(stub, &sdk).unwrap();
    let place = from_root(sdk.ancestors().nth(2).unwrap());
    app.line.ok(
        "installSdk",
        json!({"sdkSubpath": place, "version": "2.1.0"}),
    );
    let token = "sk-ant-oat-secret-4711";
    let mut of = |id: &str, command: &str, env: Value| {
        let more = json!({
            "command": command, "args": ["-c", "env -0"], "env": env, "oauthToken": token,
        });
        let seen = variables(app.run(with(ground.sh(id, ""), more)));
        seen.get("CLAUDE_CODE_OAUTH_TOKEN").cloned()
    };
    assert_eq!(of("a", "claude", json!({})).as_deref(), Some(token));
    assert_eq!(
        of(
            "b",
            "/usr/local/bin/claude",
            json!({"ANTHROPIC_API_KEY": ""})
        )
        .as_deref(),
        Some(token)
    );
    assert_eq!(of("c", "bash", json!({})), None);
    assert_eq!(
        of("d", "claude", json!({"ANTHROPIC_API_KEY": "mine"})),
        None
    );
    assert_eq!(
        of("e", "claude", json!({"CLAUDE_CODE_OAUTH_TOKEN": ""})),
        None
    );
    assert_eq!(
        of("f", "claude", json!({"CLAUDE_CODE_USE_BEDROCK": "1"})),
        None
    );
    // One that was approved before takes the place of one that was not sent.
    app.line.ok(
        "addApprovedOauthToken",
        json!({"token": "sk-ant-oat-approved-4712"}),
    );
    let more = json!({"command": "claude", "args": []});
    let seen = variables(app.run(with(ground.sh("g", ""), more)));
    assert_eq!(seen["CLAUDE_CODE_OAUTH_TOKEN"], "sk-ant-oat-approved-4712");
    drop(app);
    // Nobody wrote it down.
    let mut command = std::process::Command::new("grep");
    command.args([
        "-rlF",
        "-e",
        "sk-ant-oat-secret",
        "-e",
        "sk-ant-oat-approved",
    ]);
    let found = command.arg(ground.world.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn s27_names_of_sessions_that_are_none() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let before = everything(&ground.world.path(""));
    let long = "n".repeat(300);
    let names = [
        "../../x", "a/b", "", ".hid", &long, "-x", "a b", "a\nb", "..", "a\0b", "\u{e9}", "/abs",
    ];
    for (at, name) in names.iter().enumerate() {
        let params = with(ground.sh(&format!("p{at}"), "true"), json!({"name": name}));
        app.line.refused("spawn", params);
    }
    assert_eq!(everything(&ground.world.path("")), before);
    // The longest there may be, and one that begins like another.
    let longest = format!("{}-{}", ground.name, "n".repeat(127 - ground.name.len()));
    assert_eq!(longest.len(), 128);
    let params = with(ground.sh("longest", "pwd"), json!({"name": longest}));
    assert_eq!(app.run(params).ok(), format!("/sessions/{longest}\n"));
}

/// Every path below a folder, but what a helper writes while it serves.
fn everything(folder: &Path) -> Vec<String> {
    let mut command = std::process::Command::new("find");
    let found = command
        .arg(folder)
        .args(["-mindepth", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
    all.retain(|path| !path.ends_with("/log"));
    all.sort();
    assert!(exists(folder));
    all
}

#[test]
fn s28_words_arrive_as_they_are() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let long = "x".repeat(131_071);
    let words = [
        "a\nb",
        "'\"\\",
        "",
        "$(touch /tmp/no)",
        "--",
        "\u{1f600}",
        &long,
        "last",
    ];
    let mut args = vec![
        "-c".to_owned(),
        "printf '%s\\0' \"$@\"".to_owned(),
        "sh".to_owned(),
    ];
    args.extend(words.iter().map(|word| (*word).to_owned()));
    let done = app.run(with(ground.sh("a", ""), json!({"args": args})));
    let heard = done.ok();
    let heard: Vec<&str> = heard.split_terminator('\0').collect();
    assert!(heard == words, "{} words, or not the same", heard.len());
}
