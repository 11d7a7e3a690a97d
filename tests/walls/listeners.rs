//! Refused calls that pid 1 is asked about: nobody else gets to answer, and nothing makes a call go
//! on that the filter refuses.

use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::outside::{Answers, Living, probe, run};
use crate::support::{Ran, World, project};

const ATTACK: &str = include_str!("listeners.c");

const UNGUARDED: &str = "[guard]\nenabled = false\n";

fn attack(world: &World, flags: &[&str]) -> Answers {
    probe(world, "listeners", ATTACK);
    Answers::of(&world.run(flags, &["./listeners"]).ok())
}

fn control(world: &World) -> Answers {
    let program = probe(world, "listeners", ATTACK);
    Answers::of(&Ran::of(&mut Command::new(program)).ok())
}

#[test]
fn nothing_makes_a_refused_call_go_on() {
    let outside = control(&World::new());
    for name in [
        "call",
        "own-listener",
        "own-listener-call",
        "allow-call",
        "log-call",
        "any-listener",
        "vfork-call",
        "killed-call",
    ] {
        outside.worked(name);
    }
    assert_ne!(outside.get("restarted-done"), "0");

    let kinds: [&[&str]; 3] = [&[], &["--nesting"], &["--isolation", "landlock"]];
    for flags in kinds {
        nothing_went_on(&attack(&World::new(), flags));
    }
}

#[track_caller]
fn nothing_went_on(inside: &Answers) {
    for name in [
        "call",
        "own-listener-call",
        "allow-call",
        "log-call",
        "trace-call",
        "vfork-call",
        "killed-call",
    ] {
        inside.refused(name, &["EPERM"]);
    }
    for name in ["own-listener", "any-listener"] {
        inside.refused(name, &["EBUSY"]);
    }
    // A program may shut itself off from the answer, and from nothing else.
    inside.worked("deaf");
    inside.refused("deaf-call", &["ENOSYS"]);
}

#[test]
fn signals_break_off_a_refused_call_and_do_not_let_it_through() {
    let inside = attack(&World::new(), &[]);
    for kind in ["restarted", "broken"] {
        let said = |what: &str| inside.get(&format!("{kind}-{what}")).to_owned();
        assert_eq!(said("done"), "0", "{inside:?}");
        assert_eq!(said("other"), "0", "{inside:?}");
        assert_eq!(said("refused"), "some", "{inside:?}");
        assert_eq!(said("beats"), "some", "the control: {inside:?}");
    }
    // Where the program asked for it the kernel makes the call again by itself.
    assert_eq!(inside.get("restarted-broken-off"), "0");
}

/// The first process's child's child: pid 1, the program, the one it started.
fn descendant(pid: i32, generations: usize) -> i32 {
    (0..generations).fold(pid, |pid, _| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// Whom the kernel says it is traced by.
fn tracer(pid: i32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    line.unwrap().trim().to_owned()
}

fn personality(pid: i32) -> Option<String> {
    let read = std::fs::read_to_string(format!("/proc/{pid}/personality"));
    read.ok().map(|text| text.trim().to_owned())
}

#[test]
fn from_outside_the_call_was_not_made() {
    let world = World::new();
    let program = probe(&world, "listeners", ATTACK);
    let (control, line) = Living::start(Command::new(&program).arg("leave"));
    assert_eq!(line, "up");
    let child = descendant(control.id(), 1);
    assert_eq!(tracer(child), control.id().to_string());
    assert_eq!(personality(child).unwrap(), "00040000");
    control.end();

    let (inside, line) = Living::start(&mut run(&world, &[], &["./listeners", "leave"]));
    assert_eq!(line, "up");
    let child = descendant(inside.id(), 3);
    let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
    assert_eq!(comm, "listeners\n", "looked at another process");
    assert_eq!(tracer(child), "0");
    assert_ne!(personality(child).as_deref(), Some("00040000"));
    assert_eq!(inside.end(), 0);
}

/// What the box loads, tried out where nobody answers: as for the moment in which pid 1 is gone and
/// the programs are not.
#[test]
fn when_pid_1_is_gone_nobody_takes_its_place() {
    let world = World::new();
    let program = probe(&world, "listeners", ATTACK);
    let filter = |which: &str| {
        let arch = std::env::consts::ARCH;
        project().join(format!("seccomp/compiled/default.{which}.{arch}.bpf"))
    };
    let mut command = Command::new(program);
    command.arg("emulate");
    command.args([filter("every"), filter("program")]);
    let said = Answers::of(&Ran::of(&mut command).ok());
    said.worked("every");
    said.refused("every-call", &["ENOSYS"]);
    // The controls: one filter without the other is a hole, and so is a listener that leaves.
    for name in [
        "hole-listener",
        "hole-call",
        "ours",
        "unruled-listener",
        "unruled-call",
    ] {
        said.worked(name);
    }
    said.refused("beside-listener", &["EBUSY"]);
    said.refused("after-listener", &["EBUSY"]);
    said.refused("after-call", &["ENOSYS"]);
}

/// The same with a box: those who wait for the moment do not get it.
#[test]
fn a_violent_end_of_pid_1_is_no_chance() {
    let world = World::new();
    let program = probe(&world, "listeners", ATTACK);
    let (mut control, line) = Living::start(Command::new(&program).arg("wait"));
    assert_eq!(line, "up");
    assert_eq!(control.line(), "chance");
    assert_eq!(control.line(), "through");
    drop(control);

    for _ in 0..20 {
        let script = "./listeners wait & ./listeners wait & ./listeners wait";
        let (mut inside, line) = Living::start(&mut run(&world, &[], &["sh", "-c", script]));
        assert_eq!(line, "up");
        let first = descendant(inside.id(), 1);
        kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
        let rest = inside.hear_the_end();
        assert!(!rest.contains("chance"), "{rest}");
    }
}

/// Where there are no guards there is no listener, and the filter refuses by itself as it always did.
#[test]
fn without_guards_the_filter_refuses_by_itself() {
    let world = World::new();
    probe(&world, "listeners", ATTACK);
    let policy = world.write("unguarded.toml", UNGUARDED);
    let policy = policy.to_str().unwrap();
    let said = Answers::of(&world.run(&["--profile", policy], &["./listeners"]).ok());
    said.worked("own-listener");
    for name in [
        "call",
        "own-listener-call",
        "deaf-call",
        "allow-call",
        "vfork-call",
    ] {
        said.refused(name, &["EPERM"]);
    }
    assert_eq!(said.get("broken-broken-off"), "0", "nobody is waited for");
}

/// A profile of one's own is a filter like ours.
#[test]
fn a_profile_of_ones_own_is_no_way_around_it() {
    let world = World::new();
    probe(&world, "listeners", ATTACK);
    let own = r#"{"extends": "default", "syscalls": [
        {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW"}]}"#;
    let own = world.write("own.json", own);
    let flags = ["--seccomp", own.to_str().unwrap()];
    for _ in 0..2 {
        // The second time it comes from the cache.
        let said = Answers::of(&world.run(&flags, &["./listeners"]).ok());
        said.refused("own-listener", &["EBUSY"]);
        said.refused("own-listener-call", &["EPERM"]);
        said.refused("vfork-call", &["EPERM"]);
    }
    let kept = std::fs::read_dir(world.path("state/cowork-linux/filters")).unwrap();
    let names: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
    let ends = |with: &str| names.iter().filter(|path| ends_with(path, with)).count();
    assert_eq!(
        (ends(".every.bpf"), ends(".program.bpf")),
        (1, 1),
        "{names:?}"
    );
}

fn ends_with(path: &Path, end: &str) -> bool {
    path.to_string_lossy().ends_with(end)
}
