//! Other processes: those of the host, pid 1 of the box, the launcher.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::support::{self, World, exists};
use super::{Verdicts, attacker};

const ON_OTHERS: [&str; 16] = [
    "vm-read",
    "vm-write",
    "proc-mem",
    "proc-environ",
    "proc-maps",
    "proc-fd",
    "proc-root",
    "proc-cwd",
    "ptrace-attach",
    "pidfd-getfd",
    "setown",
    "kcmp",
    "prlimit",
    "renice",
    "pidfd-signal",
    "signal",
];

/// Starts a program and returns it with the first line it says. It ends with its input.
fn started(command: &mut Command) -> (Child, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line)
}

/// The box's first process and the program, as the host sees them.
fn of_the_box(launcher: &Child) -> (String, String) {
    let child_of = |pid: &str| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().next().unwrap().to_owned()
    };
    let first = child_of(&launcher.id().to_string());
    let program = child_of(&first);
    (first, program)
}

fn boxed(world: &World, program: &[&str]) -> Command {
    let mut command = world.cowork();
    command
        .args(["run", "-q", "--mount"])
        .arg(world.work())
        .arg("--")
        .args(program);
    command
}

/// PR-01 to PR-06, PR-12, PR-57: by its number, a process of the same user.
#[test]
fn a_process_of_the_host_is_neither_seen_nor_touched() {
    let world = World::new();
    let attack = attacker(&world);
    let treasure = world.write("home/treasure", "77");
    let victim = || {
        let mut command = Command::new(&attack);
        let (child, line) = started(command.arg("victim").arg(&treasure));
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        (child, words[0].clone(), words[1].clone())
    };
    let (mut child, pid, at) = victim();
    let control = world.control(&format!("./attack process {pid} {at}"));
    Verdicts::of(control).done(&ON_OTHERS);
    assert_eq!(
        child.wait().unwrap().code(),
        Some(42),
        "the victim was not hit"
    );

    let (mut child, pid, at) = victim();
    let script =
        format!("./attack process {pid} {at}; ls /proc | grep -x {pid} | sed s/^/seen:\\ /; true");
    Verdicts::of(world.sh(&script)).all_refused_but(&[]);
    world
        .sh("cat /proc/[0-9]*/cmdline /proc/[0-9]*/comm | tr '\\0' ' '")
        .ok()
        .says_not("victim")
        .says_not("run -q");
    assert_eq!(child.try_wait().unwrap(), None, "the victim is gone");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// PR-52, PR-53: pid 1 answers for the box. No control: outside, the same would end the host's.
#[test]
fn pid_1_can_be_neither_killed_nor_read() {
    let world = World::new();
    attacker(&world);
    let script = "kill -9 1; kill -STOP 1; kill -INT 1; kill -SEGV 1; kill -CHLD 1
        sleep 60 & kill -9 -1; wait; ./attack process 1 0x1000; exit 7";
    let ran = world.sh(script).failed_with(7);
    let reaching = [
        "vm-read",
        "vm-write",
        "proc-mem",
        "proc-environ",
        "proc-fd",
        "proc-root",
        "proc-cwd",
        "proc-maps",
        "ptrace-attach",
        "ptrace-seize",
        "pidfd-getfd",
        "pidfd-getfd-child",
        "kcmp",
    ];
    Verdicts::of(support::Ran { code: 0, ..ran }).refused(&reaching);
    // The launcher still tells the program's own end.
    world.sh("kill -9 -1; kill -TERM $$").failed_with(143);
}

/// FS-12 for pid 1, and NS-09: what root can check from outside. To others pid 1 is closed.
#[test]
fn pid_1_holds_nothing_of_the_callers_and_nobody_is_root() {
    let world = World::new();
    let secret = world.path("home");
    let inner = boxed(&world, &["sh", "-c", "echo up; read line"]);
    let mut outer = Command::new("sh");
    outer
        .args(["-c", "exec 9<\"$HOME\"; exec \"$@\"", "sh"])
        .arg(inner.get_program())
        .args(inner.get_args());
    outer
        .env_clear()
        .envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let (mut child, line) = started(&mut outer);
    let (first, program) = of_the_box(&child);
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uids = [status(&first), status(&program)].map(|text| {
        let line = text.lines().find(|line| line.starts_with("Uid:")).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let held = |pid: &str| {
        let list = std::fs::read_dir(format!("/proc/{pid}/fd"));
        list.map(|list| {
            list.filter_map(|e| std::fs::read_link(e.unwrap().path()).ok())
                .collect::<Vec<_>>()
        })
    };
    let (by_launcher, by_first) = (held(&child.id().to_string()).unwrap(), held(&first));
    drop(child.stdin.take());
    child.wait().unwrap();

    assert_eq!(line, "up\n");
    for uid in uids.iter().flatten() {
        assert_ne!(uid, "0", "{uids:?}");
    }
    assert!(
        by_launcher.contains(&secret),
        "the control: {by_launcher:?}"
    );
    match by_first {
        Ok(list) => {
            assert!(support::is_root());
            let files: Vec<_> = list
                .iter()
                .filter(|to| to.starts_with(world.path("")))
                // An empty file that boxes take turns by.
                .filter(|to| !to.ends_with("state/cowork-linux/turns"))
                .collect();
            assert!(files.is_empty(), "{files:?}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

/// PR-54
#[test]
fn a_crash_leaves_no_memory_behind() {
    let world = World::new();
    attacker(&world);
    let found = |folder: &str| {
        let list = std::fs::read_dir(world.path(folder)).unwrap();
        list.filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with("core")
        })
        .count()
    };
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    world.control("ulimit -c unlimited && ./attack crash");
    // Hosts that send dumps elsewhere, or forbid them, show nothing in the folder.
    let dumps = found("w") > 0;
    assert!(
        dumps || !pattern.starts_with("core") || world.control("ulimit -Hc").out != "unlimited\n"
    );
    for name in std::fs::read_dir(world.work())
        .unwrap()
        .map(|e| e.unwrap().path())
    {
        if name
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("core")
        {
            std::fs::remove_file(name).unwrap();
        }
    }
    let script =
        "ulimit -c unlimited; ulimit -Hc; ./attack crash; cd ~; ./mnt/w/attack crash; ls ~";
    world
        .run(&["--name", "kept"], &["sh", "-c", script])
        .says("0\n")
        .says_not("core");
    world.open_home("kept");
    assert_eq!(
        found("w") + found("state/cowork-linux/sessions/kept/inner/home"),
        0
    );
}

/// PR-55. Outside, CAP_SYS_RESOURCE may do so, which not even every root has.
#[test]
fn the_box_cannot_make_itself_dearer_than_others_when_memory_is_short() {
    let world = World::new();
    let script = "echo -900 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj";
    const SYS_RESOURCE: u64 = 1 << 24;
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = own
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"))
        .unwrap();
    if u64::from_str_radix(effective, 16).unwrap() & SYS_RESOURCE != 0 {
        world.control(script).ok().says("-900");
    }
    let before = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    world.sh(script).ok().says_not("-900").says(before.trim());
    world.sh("echo -900 > /proc/1/oom_score_adj").failed_with(2);
    assert!(!exists(std::path::Path::new("/sessions")));
}
