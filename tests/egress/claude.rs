//! Claude Code itself, in a box that reaches one host, with a key that stays outside.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;

use crate::ground::Ground;
use crate::secrets::secret_value;
use crate::support::project;
use crate::world::world;

fn claude() -> Option<PathBuf> {
    let folder = project().join(".build/npm/node_modules/.bin");
    if !folder.join("claude").is_file() {
        let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == "claude"),
            "claude is missing"
        );
        return None;
    }
    Some(std::fs::canonicalize(folder).unwrap().join("claude"))
}

#[test]
fn claude_works_with_a_key_it_never_sees() {
    let Some(claude) = claude() else {
        return;
    };
    let ground = Ground::new();
    let key = secret_value();
    let modules = claude.ancestors().nth(2).unwrap().display();
    let policy = ground.scratch.write(
        "claude.toml",
        &format!("[files]\nvisible = [\"{modules}\"]\n"),
    );
    // While its shell waits here, the box is looked through.
    world().internet(&json!({"ask": "shell", "command": "touch working; while ! [ -e go ]; do sleep 0.1; done; echo made by the tool > made.txt"}));
    let mut command = ground.cowork();
    command
        .args([
            "run",
            "-q",
            "--name",
            "agent",
            "--network",
            "allow",
            "--timeout",
            "90s",
        ])
        .args([
            "--allow-host",
            "api.anthropic.com",
            "--secret",
            "ANTHROPIC_API_KEY=env:REAL@api.anthropic.com",
        ])
        .arg("--profile")
        .arg(policy)
        .arg("--mount")
        .arg(ground.work())
        .env("REAL", &key);
    for switch in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
    ] {
        command.args(["--env", &format!("{switch}=1")]);
    }
    command.arg("--").arg(&claude);
    command.args(["-p", "Do the work", "--dangerously-skip-permissions"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    ground.waits_for(&ground.work().join("working"));

    let inside = ground
        .exec(
            "agent",
            &[
                "sh",
                "-c",
                "echo $ANTHROPIC_API_KEY; echo $ANTHROPIC_BASE_URL",
            ],
        )
        .ok();
    let stand_in = inside.out.lines().next().unwrap();
    assert!(stand_in.len() >= 8 && stand_in != key, "{inside:?}");
    ground.holds_no_secret("agent", &key, stand_in);

    std::fs::write(ground.work().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said} {complained}");
    assert!(said.contains("The work is done"), "{said} {complained}");
    let made = std::fs::read_to_string(ground.work().join("made.txt")).unwrap();
    assert_eq!(made, "made by the tool\n");

    let seen = world().requests("/v1/messages");
    assert!(!seen.is_empty());
    for seen in &seen {
        assert_eq!(seen["tls"], true, "{seen}");
        assert_eq!(seen["host"], "api.anthropic.com");
        let text = seen["headers"].to_string();
        assert!(text.contains(&key) && !text.contains(stand_in), "{seen}");
    }
}
