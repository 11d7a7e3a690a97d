//! A program that comes later stands behind the same walls as the first one.

use std::process::Command;

use crate::ground::{Ground, eventually};
use crate::support::{Ran, binary, is_root};

#[test]
fn the_kernel_holds_it_as_it_holds_the_first() {
    let ground = Ground::new();
    let facts = "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Seccomp_filters|Groups|Uid|Gid):' /proc/self/status; umask; ulimit -a";
    let script = format!("({facts}) > /tmp/first; touch /tmp/done; exec sleep 1000");
    let id = ground.start(&[], &["sh", "-c", &script]);
    eventually("it has written", || {
        ground.exec(&id, &["test", "-e", "/tmp/done"]).code == 0
    });
    let first = ground.exec(&id, &["cat", "/tmp/first"]).ok().out;
    let later = ground.exec_sh(&id, facts).ok().out;
    assert_eq!(first, later);
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(later.contains(line), "no {line} in {later}");
    }
}

#[test]
fn it_is_in_the_namespaces_of_the_first_and_sees_the_same_mounts() {
    let ground = Ground::new();
    let kinds = "mnt pid net ipc uts user cgroup";
    let facts = format!(
        "for kind in {kinds}; do readlink /proc/self/ns/$kind; done; cat /proc/self/mountinfo"
    );
    let script = format!("({facts}) > /tmp/first; touch /tmp/done; exec sleep 1000");
    let id = ground.start(&[], &["sh", "-c", &script]);
    eventually("it has written", || {
        ground.exec(&id, &["test", "-e", "/tmp/done"]).code == 0
    });
    let first = ground.exec(&id, &["cat", "/tmp/first"]).ok().out;
    let later = ground.exec_sh(&id, &facts).ok().out;
    assert_eq!(first, later);
    let mut lines = later.lines();
    for kind in kinds.split(' ') {
        let mine = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        let inside = lines.next().unwrap();
        assert!(inside.starts_with(kind), "{inside}");
        assert!(
            mine.to_str() != Some(inside) || kind == "cgroup",
            "{kind} is the host's"
        );
    }
    assert!(lines.count() > 5);
}

/// Nothing of the supervisor's or of pid 1's is open in a program.
#[test]
fn it_gets_its_three_streams_and_nothing_else() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let ran = ground.exec(&id, &["ls", "/proc/self/fd"]).ok();
    assert_eq!(ran.out, "0\n1\n2\n3\n", "3 is the folder that ls reads");
    // Nor what the caller happens to have open, which reaches whatever else it starts.
    let look = ["ls", "-l", "/proc/self/fd"];
    let with_etc_open = |program: &[&str]| {
        let mut command = Command::new("sh");
        ground.surround(&mut command);
        command.args(["-c", "exec 9</etc; exec \"$@\"", "sh"]);
        Ran::of(command.args(program)).ok().out
    };
    let control = with_etc_open(&look);
    assert!(control.contains("9 -> /etc\n"), "{control}");
    let binary = binary();
    let exec = [binary.to_str().unwrap(), "exec", &id, "--"];
    let inside = with_etc_open(&[&exec[..], &look].concat());
    assert!(
        inside.contains(" 2 -> ") && inside.contains(" 3 -> "),
        "{inside}"
    );
    assert!(
        !inside.contains("/etc") && !inside.contains(" 9 -> "),
        "{inside}"
    );
}

#[test]
fn guarded_files_stay_as_they_are() {
    let ground = Ground::new();
    ground.world.write("w/.mcp.json", "mine");
    ground.world.write("w/.vscode/tasks.json", "mine");
    let id = ground.sleeper("s");
    for attack in [
        "echo evil > .mcp.json",
        "rm .mcp.json",
        "echo evil > x; mv x .mcp.json",
        "ln -sf x .mcp.json",
        "echo evil > .vscode/tasks.json",
    ] {
        ground.exec_sh(&id, attack);
    }
    let mine = std::fs::read_to_string(ground.world.path("w/.mcp.json")).unwrap();
    assert_eq!(mine, "mine");
    let mine = std::fs::read_to_string(ground.world.path("w/.vscode/tasks.json")).unwrap();
    assert_eq!(mine, "mine");
    ground
        .exec_sh(&id, "echo fine > other && cat other")
        .ok()
        .says("fine");
    // Refused where it is tried, not only put back later.
    assert_ne!(ground.exec_sh(&id, "echo evil > .mcp.json").code, 0);
}

#[test]
fn the_hosts_files_and_network_are_not_there() {
    let ground = Ground::new();
    let secret = ground.world.write("home/secret", "s");
    let id = ground.sleeper("s");
    ground
        .exec(&id, &["cat", secret.to_str().unwrap()])
        .failed_with(1);
    ground
        .exec_sh(&id, "ls /sys/class/net; cat /proc/net/dev")
        .says_not("eth");
    for call in ["mount -t tmpfs x /mnt", "unshare -U true", "chroot / true"] {
        assert_ne!(ground.exec_sh(&id, call).code, 0, "{call}");
    }
    // Root's programs are somebody whom the host does not know.
    let expected = match is_root() {
        true => 1000,
        false => nix::unistd::getuid().as_raw(),
    };
    let uid = ground.exec(&id, &["id", "-u"]).ok().out;
    assert_eq!(uid, format!("{expected}\n"));
    let host = format!("/proc/{}/status", ground.first(&id));
    let host = std::fs::read_to_string(host).unwrap();
    let on_host = host.lines().find_map(|line| line.strip_prefix("Uid:\t"));
    assert!(!on_host.unwrap().starts_with("0\t"), "{on_host:?}");
    // Whoever gets at the sockets of the host could speak to the supervisor.
    let runtime = ground.runtime();
    ground
        .exec(&id, &["ls", runtime.to_str().unwrap()])
        .failed_with(2);
    ground.exec_sh(&id, "cat /proc/net/unix").says_not(".sock");
}

/// The first process is out of reach of the programs in its box.
#[test]
fn the_first_process_cannot_be_touched_from_inside() {
    let ground = Ground::new();
    let id = ground.sleeper("s");
    ground.exec_sh(&id, "kill -9 1; kill -STOP 1; true").ok();
    for path in ["mem", "environ", "maps", "root/etc/passwd"] {
        let ran = ground.exec_sh(&id, &format!("head -c1 /proc/1/{path}"));
        assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{path}");
    }
    for folder in ["root/", "fd/", "cwd/"] {
        let ran = ground.exec_sh(&id, &format!("ls /proc/1/{folder}"));
        assert_eq!(ran.out, "", "{folder}");
    }
    ground.exec(&id, &["true"]).ok();
}
