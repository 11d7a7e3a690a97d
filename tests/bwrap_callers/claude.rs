//! Claude Code with its own sandbox on, against a stand-in for the Messages API on loopback: each
//! command of its Bash tool runs below `bwrap`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::shop::{from_npm, has};
use crate::support::{Ran, exists, project};
use crate::visit::{Visit, WAIT};

const TALK: &str = r#"
mkfifo "$HOME/port"
python3 "$1" "$HOME/port" "$2" "The work is done" &
read -r port < "$HOME/port"
export ANTHROPIC_BASE_URL=http://127.0.0.1:$port
code=0
"$3" -p "Do the work" --settings "$4" || code=$?
kill $!
exit $code
"#;

struct Claude {
    caller: Caller,
    program: PathBuf,
}

impl Claude {
    fn of(caller: Caller) -> Option<Self> {
        if !has("claude", &["socat"]) {
            return None;
        }
        let program = from_npm("claude", "claude")?;
        Some(Self { caller, program })
    }

    /// Its sandbox is on, is a must, and is what allows the Bash tool to go ahead unasked.
    fn sandboxed() -> Value {
        json!({"sandbox": {
            "enabled": true,
            "failIfUnavailable": true,
            "autoAllowBashIfSandboxed": true,
            "allowUnsandboxedCommands": false,
        }})
    }

    /// Claude Code, which is told by the stand-in to run this script and then to end.
    fn command(&self, settings: &Value, script: &str) -> Command {
        let world = &self.caller.world;
        // In a file of its own: of a command that it reads itself it wants some to be confirmed.
        world.write("w/work.sh", script);
        // The pipe of another talk.
        let _ = std::fs::remove_file(world.path("home/port"));
        let mut command = self.caller.command("bash");
        command
            .args(["-ec", TALK, "bash"])
            .arg(project().join("tests/programs/stand_in_api.py"))
            .arg("bash work.sh")
            .arg(&self.program)
            .arg(settings.to_string())
            .env("ANTHROPIC_API_KEY", "dummy");
        for switch in [
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
            "DISABLE_AUTOUPDATER",
        ] {
            command.env(switch, "1");
        }
        command
    }

    fn works(&self, script: &str) -> Ran {
        Ran::of(&mut self.command(&Self::sandboxed(), script))
    }
}

#[test]
fn its_shell_works_in_the_folder_below_our_binary() {
    let Some(claude) = Claude::of(Caller::new()) else {
        return;
    };
    let work = claude.caller.world.work();
    let visit = Visit::in_folder(&work);
    let script =
        format!("{WAIT}; echo made by the tool > made.txt; grep Seccomp: /proc/self/status");
    let (way, ran) = visit.of(&mut claude.command(&Claude::sandboxed(), &script));
    // That its own filter is on as well shows that it ran in all of its sandbox.
    ran.ok().says("The work is done").says("Seccomp:\\t2");
    let made = std::fs::read_to_string(work.join("made.txt")).unwrap();
    assert_eq!(made, "made by the tool\n");
    way.leads_through(&claude.caller.bwrap());
}

#[test]
fn its_shell_writes_nowhere_else() {
    let Some(claude) = Claude::of(Caller::new()) else {
        return;
    };
    let home = claude.caller.world.path("home");
    let ran = claude.works("echo x > ~/outside");
    ran.ok()
        .says("The work is done")
        .says("Read-only file system");
    assert!(!exists(&home.join("outside")));
    // With the sandbox off the same command goes through.
    let off = json!({"permissions": {"allow": ["Bash"]}});
    let ran = Ran::of(&mut claude.command(&off, "echo x > ~/outside"));
    ran.ok().says("The work is done");
    assert!(exists(&home.join("outside")));
}

#[test]
fn its_shell_has_no_network() {
    let Some(claude) = Claude::of(Caller::new()) else {
        return;
    };
    // The stand-in itself is what there is to reach.
    let connect = "exec 5<> /dev/tcp/127.0.0.1/${ANTHROPIC_BASE_URL##*:} && echo it got through";
    let ran = claude.works(connect);
    ran.ok()
        .says("The work is done")
        .says("Connection refused")
        .says_not("it got through");
    let off = json!({"permissions": {"allow": ["Bash"]}});
    let ran = Ran::of(&mut claude.command(&off, connect));
    ran.ok().says("it got through");
}

#[test]
fn it_runs_nothing_when_the_first_bwrap_fails() {
    let caller = Caller::new().with_a_bwrap_that_fails();
    let Some(claude) = Claude::of(caller) else {
        return;
    };
    claude.works("echo made > made.txt");
    assert!(!exists(&claude.caller.world.work().join("made.txt")));
}
