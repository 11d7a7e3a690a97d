//! The launcher as a target: what a folder can do to it, and what it leaves behind.

use std::os::unix::fs::symlink;

use crate::outside::{Living, is_alive, run, tree};
use crate::support::{World, exists};

/// LN-01, LN-02, FS-51, FS-54
#[test]
fn links_in_the_folder_lead_the_launcher_nowhere() {
    let world = World::new();
    let victim = world.path("victim");
    std::fs::create_dir(&victim).unwrap();
    let places = [
        ".git", ".claude", ".vscode", ".idea", "mnt", "outputs", "proc", "dev", "tmp",
    ];
    let targets = [
        victim.display().to_string(),
        format!("/oldroot{}", victim.display()),
        format!("/proc/1/root{}", victim.display()),
        format!("/proc/self/cwd/../..{}", victim.display()),
        "../victim".to_owned(),
    ];
    for (number, target) in targets.iter().enumerate() {
        let w = world.path(&format!("w{number}"));
        std::fs::create_dir(&w).unwrap();
        for place in places {
            symlink(target, w.join(place)).unwrap();
        }
        let before = (tree(&victim), tree(&w));
        let script = "for p in .git .claude .vscode .idea mnt; do mkdir -p $p/hooks; echo x > $p/settings.json; done; :";
        for program in ["true", script] {
            let mut command = world.cowork();
            command
                .args(["run", "-q", "--mount"])
                .arg(&w)
                .args(["--", "sh", "-c", program]);
            crate::support::Ran::of(&mut command).ok();
            assert_eq!((tree(&victim), tree(&w)), before, "{target}: {program}");
        }
    }
    // The control: whoever follows the link does land there.
    std::fs::create_dir(world.path("w0/.claude/x")).unwrap();
    assert!(exists(&victim.join("x")));
}

/// LN-03, FS-58
#[test]
fn a_box_leaves_a_folder_exactly_as_it_found_it() {
    let world = World::new();
    for name in [
        "w/a.txt",
        "w/src/main.rs",
        "w/.claude/settings.json",
        "w/.vscode/other.json",
    ] {
        world.write(name, "as it was\n");
    }
    world
        .control("git init -q repo && git -C repo config user.name x")
        .ok();
    let before = tree(&world.work());
    world.sh("true").ok();
    assert_eq!(tree(&world.work()), before);
    // Nor does an attempt at a guarded place leave a stub.
    let attempts = "mkdir .claude/hooks; echo x > .envrc; echo x > .mcp.json; echo x > .claude/settings.json; \
        echo x > repo/.git/hooks/post-checkout; mkdir .idea; ln -s x .bashrc; :";
    world.sh(attempts).ok();
    let after = tree(&world.work());
    let names = |tree: &std::collections::BTreeMap<std::path::PathBuf, String>| {
        tree.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    assert_eq!(
        std::fs::read_to_string(world.work().join(".claude/settings.json")).unwrap(),
        "as it was\n"
    );
    // The control: the same without a box.
    world.control(attempts).ok();
    assert_ne!(names(&tree(&world.work())), names(&before));
}

/// LN-04, PR-11
#[test]
fn a_killed_launcher_takes_everything_with_it() {
    let world = World::new();
    let of_this_test = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = world.path("").display().to_string();
        mounts.lines().filter(|line| line.contains(&name)).count()
    };
    // Everybody who is alive holds the pipe open: its end is the end of all.
    let script = "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1000; done' &) ; (sleep 1000 &); echo up; exec sleep 1000";
    let (living, said) = Living::start(&mut run(
        &world,
        &["--name", "killed"],
        &["sh", "-c", script],
    ));
    assert_eq!(said, "up");
    let pid = living.id();
    assert!(is_alive(pid));
    assert_eq!(living.kill_and_hear_the_end(), "");
    assert!(!is_alive(pid));
    assert_eq!(of_this_test(), 0);
    // Nothing holds the session: it can be started again at once.
    world.run(&["--name", "killed"], &["true"]).ok();

    // The control: without a box the children of a killed parent live on.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "sleep 1000 & echo $!; wait"]);
    let (mut control, child) = Living::start(&mut shell);
    let child: i32 = child.parse().unwrap();
    let parent = nix::unistd::Pid::from_raw(control.id());
    nix::sys::signal::kill(parent, nix::sys::signal::Signal::SIGKILL).unwrap();
    assert!(is_alive(child));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    control.hear_the_end();
}

/// LN-11, FS-50, FS-52
#[test]
fn a_folder_that_became_a_link_shows_nothing_of_the_home() {
    let world = World::new();
    world.write("home/.ssh/id_ed25519", "s3cret\n");
    world.write("w/ordinary", "ordinary\n");
    std::fs::rename(world.work(), world.path("x")).unwrap();
    symlink(world.path("home"), world.work()).unwrap();
    // The control: the link leads there.
    assert!(exists(&world.work().join(".ssh/id_ed25519")));
    let look = "ls -a; cat .ssh/id_ed25519";
    let ran = world.sh(look).says_not("s3cret");
    assert_eq!(ran.code, 125, "{ran:?}");
    for source in [
        "/proc/self/root",
        "/proc/self/cwd",
        "/proc/1/root",
        "/proc/self/fd/0",
        "/",
        "/proc",
        "/dev",
    ] {
        let mut command = world.cowork();
        command.args(["run", "-q", "--mount", source, "--", "echo", "ran"]);
        crate::support::Ran::of(&mut command)
            .failed_with(125)
            .says_not("ran")
            .complains("help: ");
    }
}

/// LN-11, FS-50: the folder and a link to the home change places while boxes start.
#[test]
fn a_folder_that_is_swapped_during_the_start_never_shows_the_home() {
    let world = World::new();
    world.write("home/.ssh/id_ed25519", "s3cret\n");
    world.write("good/ordinary", "ordinary\n");
    std::fs::remove_dir(world.work()).unwrap();
    // `w` is the good folder at one moment and a link to the keys at the next.
    let swap =
        "cd \"$1\"; ln -s home/.ssh w; while :; do ln -sfn good w; ln -sfn home/.ssh w; done";
    let mut shell = std::process::Command::new("sh");
    let top = world.path("");
    shell
        .args(["-c", &format!("echo up; {swap}"), "sh"])
        .arg(&top)
        .stderr(std::process::Stdio::null());
    let (_swapping, _) = Living::start(&mut shell);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let mut command = world.cowork();
        command
            .args(["run", "-q", "--mount"])
            .arg(top.join("w"))
            .args(["--", "sh", "-c", "ls -a /workspace/"]);
        let ran = crate::support::Ran::of(&mut command);
        let what = if ran.out.contains("id_ed25519") {
            "keys"
        } else if ran.code == 0 {
            "good"
        } else {
            "refused"
        };
        seen.insert(what);
    }
    assert!(!seen.contains("keys"), "{seen:?}");
}
