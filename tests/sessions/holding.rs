//! `--while-open`: a box that ends with whoever holds it open.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use crate::ground::{Ground, eventually};
use crate::support::{Ran, binary};
use crate::watch::{Watch, descendants};

/// A process that does nothing but have one end of a pipe; and the other end.
fn holder() -> (Child, OwnedFd) {
    let (ours, theirs) = std::io::pipe().unwrap();
    let mut command = Command::new("sleep");
    let holder = command.arg("1000").stdout(OwnedFd::from(theirs));
    (holder.spawn().unwrap(), ours.into())
}

/// `cowork-linux run FLAGS` with the descriptor at number 9.
fn run_with(ground: &Ground, end: &OwnedFd, flags: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 9<&0 </dev/null", "sh"]);
    command.arg(binary()).args(["run", "-q"]).args(flags);
    command.arg("--mount").arg(ground.world.work());
    if !program.is_empty() {
        command.arg("--").args(program);
    }
    ground.surround(&mut command);
    command.stdin(end.try_clone().unwrap());
    command
}

/// Those of these processes that have the pipe open, as far as they let themselves be looked at.
fn with_pipe(pids: &[i32], end: &OwnedFd) -> Vec<i32> {
    let own = std::fs::read_link(format!("/proc/self/fd/{}", end.as_raw_fd())).unwrap();
    let has = |pid: &&i32| {
        let list = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let links = list.into_iter().flatten().flatten();
        let mut links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.any(|link| link == own)
    };
    pids.iter().filter(has).copied().collect()
}

#[test]
fn a_box_in_the_background_ends_with_the_process_that_holds_it() {
    let ground = Ground::new();
    let (mut holder, end) = holder();
    let hosts = ["--network", "allow", "--allow-host", "a.example"];
    let flags = [
        &["-d", "--keep", "--name", "held", "--while-open", "9"][..],
        &hosts,
    ];
    Ran::of(&mut run_with(&ground, &end, &flags.concat(), &[])).ok();
    // The same without it, to see that it is the flag that ends the other.
    Ran::of(&mut run_with(
        &ground,
        &end,
        &["-d", "--keep", "--name", "free"],
        &[],
    ))
    .ok();
    let mut inside = ground.spawn(&[
        "exec",
        "held",
        "--",
        "sh",
        "-c",
        "ls /proc/self/fd; setsid sleep 1000 & sleep 1000 & wait",
    ]);
    let mut said = [0; 8];
    std::io::Read::read_exact(&mut inside.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"0\n1\n2\n3\n", "3 is the folder that is listed");
    let supervisor = ground.supervisor("held");
    let below = descendants(supervisor);
    assert!(
        below.len() >= 3,
        "first process, gateway, program: {below:?}"
    );
    assert_eq!(
        with_pipe(&below, &end),
        [0; 0],
        "only the supervisor has it"
    );
    assert_eq!(with_pipe(&[supervisor], &end), [supervisor]);
    let all = Watch::over(&[&below[..], &[supervisor]].concat());
    assert_eq!(all.len(), below.len() + 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    all.all_gone();
    inside.wait().unwrap();
    eventually("it has ended", || ground.state("held") == "ended");
    let json = ground.json(&["inspect", "held"]);
    assert_eq!(json["record"]["outcome"], "let-go", "{json}");
    let journal = std::fs::read_to_string(ground.journal("held")).unwrap();
    assert!(
        journal.contains("whoever held it open is gone") && journal.contains("\"holder\""),
        "{journal}"
    );
    assert_eq!(ground.state("free"), "running");
}

#[test]
fn a_box_in_front_of_its_caller_ends_with_the_holder_too() {
    for isolation in ["namespaces", "landlock"] {
        let ground = Ground::new();
        let (mut holder, end) = holder();
        let flags = ["--while-open", "9", "--isolation", isolation];
        let script = "echo up; trap '' TERM HUP INT; sleep 1000 & while :; do sleep 1000; done";
        let mut command = run_with(&ground, &end, &flags, &["sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(launcher.stdout.as_mut().unwrap(), &mut up).unwrap();
        let below = Watch::over(&descendants(launcher.id() as i32));
        assert!(below.len() >= 2);
        holder.kill().unwrap();
        holder.wait().unwrap();
        let output = launcher.wait_with_output().unwrap();
        below.all_gone();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(137), "{isolation}: {said}");
        assert!(said.contains("whoever held it open is gone"), "{said}");
    }
}

#[test]
fn what_cannot_be_let_go_of_is_refused_by_name() {
    let ground = Ground::new();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let (gone, other) = std::io::pipe().unwrap();
    drop(other);
    for (number, why) in [
        ("1", "standard stream"),
        ("9", "neither a pipe nor a socket"),
        ("77", "no descriptor 77 is open"),
        ("x", "not the number of a descriptor"),
    ] {
        Ran::of(&mut run_with(
            &ground,
            &null,
            &["--while-open", number],
            &["true"],
        ))
        .failed_with(125)
        .complains("--while-open")
        .complains(why);
    }
    let flags = ["--while-open", "9"];
    Ran::of(&mut run_with(&ground, &gone.into(), &flags, &["true"]))
        .failed_with(125)
        .complains("closed already");
    let (mut holder, end) = holder();
    Ran::of(&mut run_with(&ground, &end, &flags, &["true"])).ok();
    holder.kill().unwrap();
    holder.wait().unwrap();
}
