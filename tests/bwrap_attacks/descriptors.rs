//! Descriptors: the command has what its caller left open and nothing that was spent on the way,
//! and no process of the sandbox holds a way out.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::launchers::{
    Answers, Launcher, SEARCH, comes_to_rest, distribution_has_old_holes, probe,
};
use crate::support::{Ran, World, is_root};
use crate::watch::children;

/// A process that the test started and that ends with it, with the first lines it printed.
struct Holding {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Holding {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Whoever waits for input ends when there is none.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// What is open in the command after `script`, whose `$BWRAP` starts the probe.
#[track_caller]
fn open_in_the_command(launcher: Launcher, world: &World, script: &str) -> BTreeSet<i32> {
    probe(world);
    let ran = Ran::of(&mut launcher.by_bash(world, script)).ok();
    let list = Answers::of(&ran).0.into_keys();
    list.map(|number| number.parse().unwrap()).collect()
}

/// One descriptor for every option that takes one, and one that was simply left open.
const EVERY_OPTION: &str = r#"
    printf -- '--dir\0/mnt/from-args\0' > args
    echo data > data
    printf '\x06\0\0\0\0\0\xff\x7f' > allow-everything
    mkdir -p shown
    exec 11< args 12< data 13< data 14< data 15< shown 16< shown 17< allow-everything \
        18< /dev/null 19> info 20> status 21< "$TOP" 22< "$TOP" 24< allow-everything
    exec $BWRAP --ro-bind / / --tmpfs /mnt --args 11 --file 12 /mnt/file --bind-data 13 /mnt/data \
        --ro-bind-data 14 /mnt/read-only --bind-fd 15 /mnt/shown --ro-bind-fd 16 /mnt/also-shown \
        --block-fd 18 --info-fd 19 --json-status-fd 20 @ "$TOP/probe" descriptors
"#;

#[test]
fn spent_descriptors_are_closed_and_others_are_not() {
    for (options, left) in [
        ("--seccomp 17 --sync-fd 21 24<&-", vec![22]),
        ("--add-seccomp-fd 17 --add-seccomp-fd 24 21<&-", vec![22]),
        ("--unshare-all --seccomp 17 --sync-fd 21 24<&-", vec![22]),
        (
            "--unshare-pid --as-pid-1 --seccomp 17 21<&- 24<&-",
            vec![22],
        ),
        (
            "--unshare-user --die-with-parent --new-session 17<&- 21<&- 22<&- 24<&-",
            vec![],
        ),
        (
            "--dev /dev --proc /proc --unshare-pid --lock-file /mnt/file 17<&- 21<&- 24<&-",
            vec![22],
        ),
    ] {
        let expected: BTreeSet<_> = [0, 1, 2].into_iter().chain(left).collect();
        for launcher in [Launcher::Distribution, Launcher::Ours] {
            let world = World::new();
            let script = EVERY_OPTION.replace('@', options);
            let open = open_in_the_command(launcher, &world, &script);
            assert_eq!(open, expected, "{launcher:?}: {options}");
        }
    }
}

/// Namespaces to join: a user namespace, one more inside, and a pid namespace of the first.
fn namespaces() -> (Holding, [String; 3]) {
    let inner = "unshare --user --map-current-user sh -c 'echo $$; read line; exit 0'";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--pid", "--fork"]);
    // Numbers count in the pid namespace, so the inner one is looked up from outside.
    command.args(["sh", "-c", &format!("{inner}; exit 0")]);
    command.env_clear().env("PATH", SEARCH);
    let mut holding = Holding::start(&mut command);
    holding.line();
    let outer = i32::try_from(holding.child.id()).unwrap();
    let shell = children(outer)[0];
    let inner = children(shell)[0];
    let files = [
        format!("/proc/{outer}/ns/user"),
        format!("/proc/{inner}/ns/user"),
        format!("/proc/{outer}/ns/pid_for_children"),
    ];
    (holding, files)
}

/// A namespace that can be named can be entered again, with the rights of whoever made it.
#[test]
fn namespaces_that_were_joined_are_not_handed_on() {
    let (_holding, [user, inner, pid]) = namespaces();
    for (options, leaked) in [
        ("--userns 20 21<&- 22<&-", vec![20]),
        ("--userns 20 --userns2 21 22<&-", vec![20, 21]),
        ("--userns 20 --pidns 22 21<&-", vec![20, 22]),
        ("--userns 20 --pidns 22 --unshare-pid 21<&-", vec![20, 22]),
        (
            "--userns 20 --userns2 21 --pidns 22 --unshare-pid --unshare-net",
            vec![20, 21, 22],
        ),
    ] {
        let script = format!(
            r#"exec 20< {user} 21< {inner} 22< {pid}
            exec $BWRAP --ro-bind / / {options} "$TOP/probe" descriptors"#
        );
        let world = World::new();
        let control = open_in_the_command(Launcher::Distribution, &world, &script);
        if distribution_has_old_holes() {
            let expected: BTreeSet<_> = [0, 1, 2].into_iter().chain(leaked).collect();
            assert_eq!(control, expected, "{options}");
        }
        let open = open_in_the_command(Launcher::Ours, &world, &script);
        assert_eq!(open, BTreeSet::from([0, 1, 2]), "{options}");
    }
}

/// What a process holds, looked at from outside. None if it hides, from its own user too.
fn held(pid: i32) -> Option<Vec<(String, String)>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let list = entries.map(|entry| {
        // It may be closed just now.
        let entry = entry.ok()?;
        let link = std::fs::read_link(entry.path()).ok()?;
        Some((
            entry.file_name().into_string().unwrap(),
            link.display().to_string(),
        ))
    });
    Some(list.flatten().collect())
}

#[test]
fn the_monitor_and_pid_1_hold_nothing_of_the_host() {
    let (_holding, [user, inner, pid]) = namespaces();
    for options in [
        "",
        "--unshare-all",
        "--unshare-pid --proc /proc --dev /dev --tmpfs /mnt --die-with-parent",
        "--userns 20 --userns2 21 --pidns 22",
        "--userns 20 --unshare-pid",
    ] {
        for launcher in [Launcher::Distribution, Launcher::Ours] {
            let world = World::new();
            let script = format!(
                r#"exec 7< "$TOP" 8< / 20< {user} 21< {inner} 22< {pid}
                exec $BWRAP --ro-bind / / {options} sh -c 'echo ready; read line; exit 0'"#
            );
            let mut holding = Holding::start(&mut launcher.by_bash(&world, &script));
            assert_eq!(holding.line(), "ready");
            let monitor = i32::try_from(holding.child.id()).unwrap();
            let mut line = vec![monitor];
            while let Some(next) = children(*line.last().unwrap()).first() {
                line.push(*next);
            }
            // The last of them is the command; it does have what was left open.
            let command = held(line.pop().unwrap()).unwrap();
            assert!(
                command.iter().any(|(number, _)| number == "7"),
                "{command:?}"
            );
            // A process may hide from its own user, and not from root.
            assert!(!is_root() || held(monitor).is_some());
            comes_to_rest(|| {
                let held = line.iter().filter_map(|process| held(*process));
                let strange = held.flatten().find(is_strange)?;
                Some(format!("{launcher:?} {options}: {strange:?}"))
            });
        }
    }
}

/// Neither a standard stream nor one of the launcher's own means to talk and to wait.
fn is_strange((number, link): &(String, String)) -> bool {
    let harmless = ["pipe:", "anon_inode:", "socket:"];
    !["0", "1", "2"].contains(&number.as_str())
        && !harmless.iter().any(|kind| link.starts_with(kind))
}

/// Everything that procfs calls a root, a working directory or an open file of somebody.
const WAYS: &str = r#"
    set --
    for way in /proc/[0-9]*/root /proc/[0-9]*/cwd /proc/[0-9]*/fd/* /proc/[0-9]*/task/*/root; do
        set -- "$@" "$way$TOP/secret" "$way/secret" "$way/../secret" "$way/../../secret"
    done
    exec /probe read "$@""#;

#[test]
fn no_process_of_the_sandbox_is_a_way_to_the_host() {
    let world = World::new();
    world.write("secret", "s3cret\n");
    world.write("w/lock", "");
    probe(&world);
    let base = "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
        --proc /proc --dev /dev --bind \"$W\" /work --ro-bind probe /probe";
    for options in [
        "--unshare-pid",
        "--unshare-all",
        "--unshare-all --as-pid-1",
        "--unshare-user",
        "--unshare-all --disable-userns --unshare-user",
        "--unshare-all --lock-file /work/lock",
        "--unshare-all --chdir /work",
    ] {
        // The control is a descriptor that the caller left open, which is the caller's choice.
        for (first, found) in [("exec 9< \"$TOP\"", true), ("", false)] {
            let script = format!("{first}\nexec $BWRAP {base} {options} sh -c '{WAYS}'");
            let ran = Ran::of(&mut Launcher::Ours.by_bash(&world, &script)).ok();
            let worked = Answers::of(&ran).0.values().any(|answer| answer == "0");
            assert_eq!(worked, found, "{options} {first}: {ran:?}");
        }
    }
}
