//! Whose death ends a sandbox: with `--die-with-parent` that of the parent and of the monitor,
//! however early; without it nobody's.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::launchers::{Launcher, distribution_has_old_holes, probe};
use crate::support::World;
use crate::watch::until_closed;

/// Much longer than anything takes; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sandbox whose command says that it is up and then waits for a word.
const COMMAND: [&str; 3] = ["sh", "-c", "echo up; read line && echo still here"];

/// The ends of the pipes that every process of the sandbox holds.
struct Line {
    to: PipeWriter,
    from: PipeReader,
}

impl Line {
    fn start(command: &mut Command) -> (Child, Self) {
        let (input, to) = std::io::pipe().unwrap();
        let (from, output) = std::io::pipe().unwrap();
        let child = command.stdin(input).stdout(output).spawn().unwrap();
        (child, Self { to, from })
    }

    #[track_caller]
    fn hear_up(&mut self) {
        let mut said = [0; 3];
        self.from.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"up\n");
    }

    /// Asks the command for a last word, which ends it.
    #[track_caller]
    fn still_there(mut self) {
        self.to.write_all(b"word\n").unwrap();
        assert_eq!(until_closed(self.from.into(), PATIENCE), "still here\n");
    }

    /// Whether somebody is there who says that it is up, and a last word when asked.
    fn answers(mut self) -> bool {
        let mut said = [0; 3];
        self.from.read_exact(&mut said).is_ok()
            && self.to.write_all(b"word\n").is_ok()
            && until_closed(self.from.into(), PATIENCE) == "still here\n"
    }

    /// All are gone, though nobody said a word to them.
    #[track_caller]
    fn all_gone(self) {
        let said = until_closed(self.from.into(), PATIENCE);
        assert!(matches!(said.as_str(), "" | "up\n"), "{said}");
        drop(self.to);
    }
}

/// Sets of options under which other processes stand between the monitor and the command.
const SETS: [&[&str]; 8] = [
    &[],
    &["--unshare-pid"],
    &["--unshare-all"],
    &["--unshare-pid", "--as-pid-1"],
    &["--lock-file", "/etc/passwd"],
    // A second user namespace makes the kernel forget whose death was to be told.
    &["--dev", "/dev"],
    &["--unshare-pid", "--dev", "/dev"],
    &["--unshare-all", "--dev", "/dev", "--as-pid-1"],
];

/// Starts a launcher by a parent that dies `delay` microseconds later, or at once if negative.
fn orphaned(launcher: Launcher, world: &World, options: &[&str], delay: i64) -> Line {
    let started = launcher.command(world);
    let mut parent = Command::new(probe(world));
    parent.args(["parent", &delay.to_string()]);
    parent.arg(started.get_program()).args(started.get_args());
    parent.args(["--args", "9", "--ro-bind", "/", "/"]);
    parent.args(options).args(COMMAND);
    parent.env_clear().env("PATH", crate::launchers::SEARCH);
    let (mut parent, line) = Line::start(&mut parent);
    let status = parent.wait().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(libc::SIGKILL), "{status:?}");
    line
}

/// The parent is dead before the launcher has so much as read that it is to die with it.
#[test]
fn a_parent_that_is_dead_already_counts_as_one_that_dies() {
    let world = World::new();
    if distribution_has_old_holes() {
        // Whether the parent's death comes before it is asked for is a race; a survivor is enough.
        let survives = |_| orphaned(Launcher::Distribution, &world, &[], -1).answers();
        assert!((0..50).any(survives));
    }
    for options in SETS {
        for _ in 0..5 {
            orphaned(Launcher::Ours, &world, options, -1).all_gone();
        }
    }
}

#[test]
fn a_parent_that_dies_at_any_moment_takes_the_sandbox_along() {
    let world = World::new();
    let usual = Instant::now();
    Launcher::Ours
        .run(&world, &["--ro-bind", "/", "/", "--unshare-all", "true"])
        .ok();
    let usual = i64::try_from(usual.elapsed().as_micros()).unwrap();
    for options in SETS {
        for round in 0..20 {
            orphaned(Launcher::Ours, &world, options, usual * round / 16).all_gone();
        }
    }
}

#[test]
fn a_killed_monitor_takes_the_sandbox_along_only_when_asked_to() {
    for launcher in [Launcher::Distribution, Launcher::Ours] {
        for options in SETS {
            for together in [true, false] {
                let world = World::new();
                let mut command = launcher.command(&world);
                command.args(["--ro-bind", "/", "/"]).args(options);
                if together {
                    command.arg("--die-with-parent");
                }
                let (mut monitor, mut line) = Line::start(command.args(COMMAND));
                drop(command);
                line.hear_up();
                monitor.kill().unwrap();
                monitor.wait().unwrap();
                if together {
                    line.all_gone();
                } else {
                    line.still_there();
                }
            }
        }
    }
}

/// Without the option a sandbox goes on when its parent is gone.
#[test]
fn a_dead_parent_is_nothing_to_a_sandbox_that_was_not_told() {
    for launcher in [Launcher::Distribution, Launcher::Ours] {
        let world = World::new();
        let script = r#"$BWRAP --ro-bind / / --unshare-pid sh -c 'echo up; read line && echo still here' <&3 & kill -9 $$"#;
        let mut command = launcher.by_bash(&world, &format!("exec 3<&0\n{script}"));
        let (mut parent, mut line) = Line::start(&mut command);
        drop(command);
        parent.wait().unwrap();
        line.hear_up();
        line.still_there();
    }
}
