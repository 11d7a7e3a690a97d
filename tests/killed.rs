//! Whoever is killed, and whenever: nothing of the box goes on running, nothing stays locked or
//! mounted, and the exit code says what happened.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;
#[path = "killed/watch.rs"]
mod watch;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{Ran, World};
use watch::{Watch, children, marked, send};

/// A started launcher whose program has said that it is there.
struct Started {
    launcher: Child,
    out: BufReader<ChildStdout>,
    /// Pid 1 of the box, as the host numbers it.
    init: i32,
    program: i32,
}

impl Started {
    /// Starts a shell script, whose first line of output must be `ready`.
    fn script(world: &World, flags: &[&str], script: &str) -> Self {
        let mut command = world.cowork();
        command.args(["run", "-q"]).args(flags).arg("--mount");
        command.arg(world.work()).args(["--", "sh", "-c", script]);
        let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(launcher.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let init = only(&children(launcher.id() as i32));
        let program = only(&children(init)[..1]);
        Self {
            launcher,
            out,
            init,
            program,
        }
    }

    fn pid(&self) -> i32 {
        self.launcher.id() as i32
    }

    fn exit_code(&mut self) -> Option<i32> {
        self.launcher.wait().unwrap().code()
    }

    fn rest(&mut self) -> String {
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        text
    }
}

fn only(list: &[i32]) -> i32 {
    assert_eq!(list.len(), 1, "{list:?}");
    list[0]
}

/// A program with company: a job, a daemon in a session of its own, one that closed everything.
fn with_company(marker: &str) -> String {
    format!(
        "sleep {marker} & setsid sleep {marker} & (setsid sleep {marker} &) ; \
         (setsid sh -c 'exec sleep {marker} <&- >&- 2>&-' &) ; \
         while [ $(grep -lsa {marker} /proc/[0-9]*/cmdline | wc -l) -lt 5 ]; do :; done; \
         echo ready; exec sleep {marker}"
    )
}

/// A time to sleep that no other test uses.
fn marker(world: &World) -> String {
    use std::hash::{BuildHasher, RandomState};
    let number = RandomState::new().hash_one(world.work()) % 1_000_000_000;
    format!("1{number:09}.25")
}

#[track_caller]
fn nothing_left(world: &World, marker: &str) {
    let left = marked(marker);
    assert!(left.is_empty(), "still running: {left:?}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = world.path("");
    let ours = ours.to_str().unwrap();
    let left: Vec<_> = mounts.lines().filter(|line| line.contains(ours)).collect();
    assert!(left.is_empty(), "still mounted: {left:?}");
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    let world = World::new();
    let marker = marker(&world);
    let usual = Instant::now();
    world.run(&["--name", "again"], &["true"]).ok();
    let usual = usual.elapsed();
    for round in 0..60 {
        let (alive, held) = std::io::pipe().unwrap();
        let mut command = world.cowork();
        command.args(["run", "-q", "--name", "again", "--mount"]);
        command.arg(world.work()).args(["--", "sleep", &marker]);
        // Everybody in the box has this pipe: it ends with the last of them.
        let mut launcher = command.stderr(held).spawn().unwrap();
        drop(command);
        std::thread::sleep(usual * round / 50);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let said = watch::until_closed(alive.into(), Duration::from_secs(10));
        assert_eq!(said, "", "in round {round}");
    }
    world.run(&["--name", "again"], &["true"]).ok();
    nothing_left(&world, &marker);
}

#[test]
fn a_killed_launcher_takes_the_whole_box_along() {
    let world = World::new();
    let marker = marker(&world);
    let mut started = Started::script(&world, &["--name", "k"], &with_company(&marker));
    let everybody = Watch::over(&watch::descendants(started.pid()));
    assert!(everybody.len() >= 6, "{}", everybody.len());
    send(started.pid(), Signal::SIGKILL);
    assert_eq!(started.exit_code(), None);
    // The same name starts at once, not only when the dust has settled.
    world.run(&["--name", "k"], &["true"]).ok();
    everybody.all_gone();
    nothing_left(&world, &marker);
}

#[test]
fn a_killed_launcher_takes_a_stopped_box_along() {
    let world = World::new();
    let marker = marker(&world);
    let mut started = Started::script(&world, &[], &with_company(&marker));
    let everybody = Watch::over(&watch::descendants(started.pid()));
    send(started.program, Signal::SIGSTOP);
    send(started.init, Signal::SIGSTOP);
    send(started.pid(), Signal::SIGKILL);
    assert_eq!(started.exit_code(), None);
    everybody.all_gone();
    nothing_left(&world, &marker);
}

#[test]
fn a_killed_pid_1_ends_the_box_and_is_reported() {
    let world = World::new();
    let marker = marker(&world);
    let mut started = Started::script(&world, &[], &with_company(&marker));
    let everybody = Watch::over(&watch::descendants(started.pid()));
    send(started.init, Signal::SIGKILL);
    assert_eq!(started.exit_code(), Some(137));
    everybody.all_gone();
    nothing_left(&world, &marker);
    assert!(no_sessions(&world));
}

#[test]
fn a_killed_program_ends_the_box_and_is_reported() {
    let world = World::new();
    let marker = marker(&world);
    let mut started = Started::script(&world, &[], &with_company(&marker));
    let everybody = Watch::over(&watch::descendants(started.pid()));
    send(started.program, Signal::SIGKILL);
    assert_eq!(started.exit_code(), Some(137));
    everybody.all_gone();
    nothing_left(&world, &marker);
    assert!(no_sessions(&world));
}

/// Whether no session is kept, and the room of the one that was there is as good as new.
fn no_sessions(world: &World) -> bool {
    let state = world.path("state/cowork-linux");
    let entries = |folder: &str| -> Vec<_> {
        let list = std::fs::read_dir(state.join(folder));
        let list = list.into_iter().flatten().flatten();
        list.map(|entry| entry.file_name()).collect()
    };
    entries("sessions").is_empty()
        && entries("rooms/0/outputs").is_empty()
        && entries("rooms/0/inner/home") == ["mnt"]
}

#[test]
fn daemons_end_with_the_program() {
    let world = World::new();
    let marker = marker(&world);
    let script = format!(
        "(setsid sleep {marker} <&- >&- 2>&- &); \
         sh -c '(trap \"\" TERM HUP INT; setsid sleep {marker} &) &'; exit 3"
    );
    world.sh(&script).failed_with(3);
    // The launcher returns when nobody but pid 1 is left, so there is nothing to wait for.
    nothing_left(&world, &marker);
}

#[test]
fn a_flood_of_orphans_is_reaped_while_the_program_runs() {
    let world = World::new();
    let script = "i=0; while [ $i -lt 400 ]; do (true &); i=$((i+1)); done; \
        tries=0; while grep -qs '^State:.Z' /proc/[0-9]*/status; do \
        tries=$((tries+1)); [ $tries -lt 2000 ] || exit 9; done; echo reaped";
    world.sh(script).ok().says("reaped");
}

#[test]
fn the_program_cannot_kill_its_pid_1_or_the_launcher() {
    let world = World::new();
    let script = "sleep 1000 & kill -9 1; kill -TERM 1; kill -9 -1; wait; echo alive; exit 4";
    world.sh(script).failed_with(4).says("alive");
}

#[test]
fn signals_are_passed_on_and_become_the_exit_code() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        let world = World::new();
        let mut started = Started::script(&world, &[], "echo ready; exec sleep 1000");
        send(started.pid(), signal);
        assert_eq!(started.exit_code(), Some(128 + signal as i32), "{signal}");
        assert!(no_sessions(&world), "{signal}");
    }
}

#[test]
fn a_program_may_answer_a_signal_and_end_as_it_likes() {
    let world = World::new();
    let script = "trap 'echo got; exit 5' TERM USR1; echo ready; while :; do sleep 0.05; done";
    for signal in [Signal::SIGTERM, Signal::SIGUSR1] {
        let mut started = Started::script(&world, &[], script);
        send(started.pid(), signal);
        assert_eq!(started.exit_code(), Some(5));
        assert_eq!(started.rest(), "got\n");
    }
}

#[test]
fn a_signal_that_comes_too_early_is_not_lost() {
    let world = World::new();
    let usual = Instant::now();
    world.run(&[], &["true"]).ok();
    let usual = usual.elapsed();
    for (round, signal) in [Signal::SIGTERM, Signal::SIGINT]
        .into_iter()
        .cycle()
        .take(20)
        .enumerate()
    {
        let mut command = world.cowork();
        command.args(["run", "-q", "--", "sleep", "1000"]);
        let mut launcher = command.stderr(Stdio::null()).spawn().unwrap();
        let watch = Watch::over(&[launcher.id() as i32]);
        std::thread::sleep(usual * round as u32 / 20);
        send(launcher.id() as i32, signal);
        watch.all_gone();
        let status = launcher.wait().unwrap();
        let by_signal = std::os::unix::process::ExitStatusExt::signal(&status);
        let ended = status.code().or(by_signal.map(|number| 128 + number));
        assert_eq!(ended, Some(128 + signal as i32), "in round {round}");
    }
}

#[test]
fn a_hang_up_ends_even_a_program_that_does_not_listen() {
    let world = World::new();
    let script = "trap '' HUP TERM; echo ready; while :; do sleep 0.05; done";
    let mut started = Started::script(&world, &[], script);
    send(started.pid(), Signal::SIGHUP);
    assert_eq!(started.exit_code(), Some(137));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let world = World::new();
    let mut command = Command::new("sh");
    let run = format!(
        "trap '' HUP; exec {} run -q -- sh -c 'echo ready; read line; exit 6'",
        support::binary().display()
    );
    command.args(["-c", &run]).env_clear().envs([
        ("PATH", "/usr/bin:/bin"),
        ("HOME", world.path("home").to_str().unwrap()),
    ]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let mut ready = [0u8; 6];
    launcher
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    send(launcher.id() as i32, Signal::SIGHUP);
    drop(launcher.stdin.take());
    assert_eq!(launcher.wait().unwrap().code(), Some(6));
}

#[test]
fn a_running_name_is_refused_and_the_running_one_is_not_hurt() {
    let world = World::new();
    let mut started = Started::script(
        &world,
        &["--name", "busy"],
        "echo kept > ~/f; echo ready; trap 'cat ~/f; exit 0' TERM; while :; do sleep 0.05; done",
    );
    let mut second = world.cowork();
    second.args(["run", "-q", "--name", "busy", "--", "true"]);
    Ran::of(&mut second)
        .failed_with(125)
        .complains("cannot start the session busy")
        .complains("because: it is running already")
        .complains("help: ");
    send(started.pid(), Signal::SIGTERM);
    assert_eq!(started.exit_code(), Some(0));
    assert_eq!(started.rest(), "kept\n");
}
