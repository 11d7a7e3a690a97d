//! Claude Code itself in VM mode: the app talks to it in lines of JSON over the socket, it works in a
//! mounted folder, and a later process takes up the conversation. The Messages API is the stand-in of the
//! tests' own internet, reached as the rules of the session allow.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::client::App;
use crate::egress::{in_the_world, in_the_world_with};
use crate::ground::{Ground, eventually, from_root, mount, with};
use crate::support::project;
use crate::world::world;

fn claude() -> Option<PathBuf> {
    let program = project().join(".build/npm/node_modules/.bin/claude");
    if !program.is_file() {
        let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == "claude"),
            "claude is missing"
        );
        crate::ground::eprintln("SKIPPED: claude is missing (packaging/test-setup.sh installs it)");
        return None;
    }
    Some(std::fs::canonicalize(program).unwrap())
}

const TOKEN: &str = "sk-ant-oat01-told-to-claude-alone";

/// What the app asks for, but the words that are only for one of the two.
fn spawn(ground: &Ground, id: &str, folders: [&Path; 2], more: &[&str]) -> Value {
    let [proj, config] = folders;
    let mut args = vec![
        "--output-format",
        "stream-json",
        "--verbose",
        "--input-format",
        "stream-json",
        "--dangerously-skip-permissions",
    ];
    args.extend(more);
    let env = json!({
        "CLAUDE_CONFIG_DIR": ground.inside("mnt/.claude"), "CLAUDE_CODE_IS_COWORK": "1", "ANTHROPIC_API_KEY": "",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        // The one that signed the certificates of that internet.
        "NODE_EXTRA_CA_CERTS": ground.inside("mnt/proj/ca.pem"),
    });
    let program = json!({
        "command": "/usr/local/bin/claude", "args": args, "cwd": ground.inside(""), "env": env,
        "additionalMounts": {"proj": mount(proj, "rw"), ".claude": mount(config, "rwd")},
        "allowedDomains": ["index.names.test"], "oauthToken": TOKEN, "oneShot": false, "mountSkeletonHome": false,
    });
    with(ground.sh(id, ""), program)
}

/// The lines that it has printed, which are JSON each.
fn lines(app: &App, id: &str) -> Vec<Value> {
    let said = app.events.of(id).out;
    let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let read =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    whole.lines().map(read).collect()
}

/// Says something to it and waits for the result.
#[track_caller]
fn talk(app: &mut App, id: &str, text: &str) -> Value {
    let message = json!({"type": "user", "message": {"role": "user", "content": text}});
    app.line.ok(
        "writeStdin",
        json!({"id": id, "data": format!("{message}\n")}),
    );
    let is_result = |line: &Value| line["type"] == "result";
    app.events.until("it has a result", |heard| {
        heard.of(id).out.contains("\"type\":\"result\"") || heard.of(id).exit.is_some()
    });
    eventually("the whole line", || {
        app.events.listen(std::time::Duration::from_millis(20));
        lines(app, id).iter().any(is_result) || app.events.of(id).exit.is_some()
    });
    let all = lines(app, id);
    let result = all.iter().find(|line| is_result(line));
    result
        .unwrap_or_else(|| panic!("no result: {:?}", app.events.of(id)))
        .clone()
}

/// The stand-in asks everybody for the same work, so there is one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The app's folders for a session, and Claude Code where the app keeps it.
fn furnish(ground: &Ground, program: &Path) -> [PathBuf; 3] {
    let proj = ground.folder("proj");
    let config = ground.world.path("home/.config/Claude/local/.claude");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::copy(world().authorities(), proj.join("ca.pem")).unwrap();
    let sdk = ground.world.path("home/.config/Claude/claude-code-vm");
    std::fs::create_dir_all(sdk.join("2.0.0")).unwrap();
    symlink(program, sdk.join("2.0.0/claude")).unwrap();
    [proj, config, sdk]
}

#[test]
fn claude_works_over_the_socket_and_takes_up_where_it_was() {
    let Some(program) = claude() else {
        return;
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = in_the_world();
    let mut app = ground.app();
    let [proj, config, sdk] = furnish(&ground, &program);
    app.line.ok(
        "installSdk",
        json!({"sdkSubpath": from_root(&sdk), "version": "2.0.0"}),
    );
    let work =
        "cd mnt/proj && echo made by the tool > made.txt && cat file && env | grep -c OAUTH_TOKEN";
    world().internet(&json!({"ask": "shell", "command": work}));
    let before = world().requests("/v1/messages").len();

    let folders = [proj.as_path(), config.as_path()];
    let failed = app.line.spawn(spawn(&ground, "first", folders, &[]));
    assert!(failed.is_empty(), "{failed:?}");
    let result = talk(&mut app, "first", "Do the work");
    assert_eq!(result["is_error"], false, "{result}");
    let said = result["result"].as_str().unwrap();
    assert!(
        said.contains("The work is done") && said.contains("of the user"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_to_string(proj.join("made.txt")).unwrap(),
        "made by the tool\n"
    );
    let conversation = result["session_id"].as_str().unwrap().to_owned();
    app.line
        .ok("kill", json!({"id": "first", "signal": "SIGTERM"}));
    app.events.finished("first");
    let seen = world().requests("/v1/messages");
    assert!(seen.len() > before);
    for request in &seen[before..] {
        assert_eq!(
            (&request["tls"], &request["host"]),
            (&json!(true), &json!("api.anthropic.com"))
        );
        assert!(request["headers"].to_string().contains(TOKEN), "{request}");
    }

    app.line.ok("stopVM", json!({}));
    app.line.ok("startVM", json!({}));
    app.line.ok(
        "installSdk",
        json!({"sdkSubpath": from_root(&sdk), "version": "2.0.0"}),
    );
    let again = spawn(&ground, "second", folders, &["--resume", &conversation]);
    app.line.spawn(with(again, json!({"isResume": true})));
    // The stand-in calls its tool only in a conversation that has no result of one: so the first half is known.
    let result = talk(&mut app, "second", "And now?");
    assert_eq!(result["is_error"], false, "{result}");
    let said = result["result"].as_str().unwrap();
    assert!(
        said.contains("The work is done") && said.contains("of the user"),
        "{said}"
    );
    let is_call = |line: &&Value| {
        line["type"] == "assistant" && line["message"]["content"][0]["type"] == "tool_use"
    };
    let calls = lines(&app, "second").iter().filter(is_call).count();
    assert_eq!(calls, 0, "it began from the beginning");
    app.line
        .ok("kill", json!({"id": "second", "signal": "SIGTERM"}));
    app.events.finished("second");
    let slug: String = ground
        .inside("")
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let transcript = config.join(format!("projects/{slug}/{conversation}.jsonl"));
    assert!(transcript.is_file(), "{}", transcript.display());
}

#[test]
fn the_token_stays_outside_and_is_on_every_request() {
    let Some(program) = claude() else {
        return;
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let ground = in_the_world_with(&["--token-outside"]);
    let mut app = ground.app();
    let [proj, config, sdk] = furnish(&ground, &program);
    app.line.ok(
        "installSdk",
        json!({"sdkSubpath": from_root(&sdk), "version": "2.0.0"}),
    );
    // Its own variables and everybody's, and what it could have left in its folders.
    let work = "cat mnt/proj/file; env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; grep -r sk-ant /sessions /tmp";
    world().internet(&json!({"ask": "shell", "command": work}));
    let folders = [proj.as_path(), config.as_path()];
    for (id, token) in [
        ("one", "sk-ant-oat01-first"),
        ("two", "sk-ant-oat01-second"),
    ] {
        let before = world().requests("/v1/messages").len();
        let program = spawn(&ground, id, folders, &[]);
        let program = with(program, json!({"oauthToken": token}));
        app.line.spawn(program);
        let result = talk(&mut app, id, "Do the work");
        assert_eq!(result["is_error"], false, "{result}");
        let said = app.events.of(id).out;
        assert!(said.contains("kept-outside"), "{said}");
        assert!(!said.contains("sk-ant-oat01"), "{said}");
        app.line.ok("kill", json!({"id": id, "signal": "SIGTERM"}));
        app.events.finished(id);
        let seen = world().requests("/v1/messages");
        assert!(seen.len() > before);
        for request in &seen[before..] {
            let headers = request["headers"].to_string();
            assert!(headers.contains(token), "{request}");
            assert!(!headers.contains("kept-outside"), "{request}");
        }
    }
}
