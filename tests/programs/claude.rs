//! Claude Code itself, against a stand-in for the Messages API on the box's own loopback.

use crate::shop::from_npm;
use crate::support::{Ran, World, is_root, project};

const TALK: &str = r#"
mkfifo ~/port
python3 -c "$STAND_IN" ~/port "$1" "The work is done" &
read -r port < ~/port
export ANTHROPIC_BASE_URL=http://127.0.0.1:$port ANTHROPIC_API_KEY=dummy
"$2" -p "Do the work" --dangerously-skip-permissions
kill $!
"#;

#[test]
fn claude_starts_by_its_path_alone() {
    let Some(claude) = from_npm("claude", "claude") else {
        return;
    };
    let world = World::new();
    let program = claude.to_str().unwrap();
    world
        .run(&[], &[program, "--version"])
        .ok()
        .says("(Claude Code)");
    // And by its name.
    let mut command = world.at_home(&world.path("home"), claude.parent().unwrap());
    Ran::of(command.args(["--", "claude", "--version"]))
        .ok()
        .says("(Claude Code)");
}

#[test]
fn claude_works_with_its_shell_in_the_folder() {
    let Some(claude) = from_npm("claude", "claude") else {
        return;
    };
    let world = World::new();
    let modules = claude.ancestors().nth(2).unwrap().display();
    let policy = world.write(
        "claude.toml",
        &format!("[files]\nvisible = [\"{modules}\"]\n"),
    );
    let stand_in = project().join("tests/programs/stand_in_api.py");
    let stand_in = std::fs::read_to_string(stand_in).unwrap();
    let work = "echo made by the tool > made.txt; id -u; touch ~/note; ls ~/note";
    let mut command = world.cowork();
    command
        .args(["run", "-q", "--timeout", "90s", "--mount"])
        .arg(world.work())
        .arg("--profile")
        .arg(policy)
        .args(["--env", &format!("STAND_IN={stand_in}")]);
    for switch in [
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_TELEMETRY",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_AUTOUPDATER",
    ] {
        command.args(["--env", &format!("{switch}=1")]);
    }
    command
        .args(["--", "sh", "-ec", TALK, "sh", work])
        .arg(&claude);
    let uid = match is_root() {
        true => "1000".to_owned(),
        false => nix::unistd::getuid().to_string(),
    };
    Ran::of(&mut command)
        .ok()
        .says("The work is done")
        .says(&uid)
        .says("/note");
    assert_eq!(world.read("made.txt"), "made by the tool\n");
}
