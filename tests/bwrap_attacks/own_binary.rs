//! The launcher's own program file, when it belongs to whoever runs the sandbox: a command that
//! gets hold of it by procfs could wait until nobody runs it, and change what runs next time
//! without a sandbox.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::launchers::{Launcher, probe};
use crate::support::{self, DISTRIBUTION_BWRAP, Ran, World};
use crate::watch::until_closed;

/// Where a process of the launcher's own can be seen from inside.
fn sets() -> Vec<&'static [&'static str]> {
    let mut sets: Vec<&[&str]> = vec![
        &["--unshare-user", "--lock-file", "/etc/passwd"],
        &[
            "--unshare-user",
            "--proc",
            "/proc",
            "--lock-file",
            "/etc/passwd",
        ],
    ];
    if support::is_root() {
        // In the host's user namespace the monitor itself is in reach.
        sets.push(&["--cap-drop", "ALL"]);
        sets.push(&["--cap-drop", "ALL", "--lock-file", "/etc/passwd"]);
    }
    sets
}

/// Starts a throw-away copy and lets the command in the sandbox try. Whether the copy is changed.
fn infected(program: &Path, options: &[&str]) -> bool {
    let world = World::new();
    let probe = probe(&world);
    let copy = world.path("bwrap");
    Ran::of(Command::new("cp").arg(program).arg(&copy)).ok();
    let before = std::fs::read(&copy).unwrap();
    let (from, output) = std::io::pipe().unwrap();
    let mut command = Command::new("unshare");
    if support::is_root() {
        command.args(["-m", "--propagation", "private"]).arg(&copy);
    } else {
        command = Command::new(&copy);
    }
    command.env_clear().env("PATH", crate::launchers::SEARCH);
    command.args(["--ro-bind", "/", "/"]).args(options);
    command.args([&probe, "infect"]).arg(&copy);
    command.stdin(Stdio::null()).stdout(output);
    // It may be killed from inside, so its exit code says nothing.
    command.spawn().unwrap().wait().unwrap();
    drop(command);
    // Whoever stayed behind holds the pipe.
    let said = until_closed(from.into(), Duration::from_secs(10));
    let after = std::fs::read(&copy).unwrap();
    assert!(said.starts_with("reached="), "{said}");
    before != after
}

#[test]
fn the_command_cannot_change_the_launchers_program() {
    let world = World::new();
    for options in sets() {
        assert!(
            infected(Path::new(DISTRIBUTION_BWRAP), options),
            "{options:?}"
        );
        let ours = std::fs::canonicalize(Launcher::Ours.program(&world)).unwrap();
        assert!(!infected(&ours, options), "{options:?}");
    }
}
