//! Walls that bubblewrap does not have. They stand when they are asked for, and only then.

use crate::launchers::{Answers, Launcher, probe};
use crate::support::{self, Ran, World};

fn run(world: &World, options: &str, command: &str) -> Ran {
    probe(world);
    let script = format!(r#"exec $BWRAP --ro-bind / / --bind "$W" "$W" {options} {command}"#);
    Ran::of(&mut Launcher::Ours.by_bash(world, &script))
}

/// What is to be seen of filters in the command's and in its first process's status.
fn filters(world: &World, options: &str) -> Vec<String> {
    // The first process may come to them a moment later than the command.
    let command = r#"sh -c 'for try in $(seq 1000); do
        own=$(grep ^Seccomp: /proc/self/status); first=$(grep ^Seccomp: /proc/1/status)
        [ "$own" = "$first" ] && break; done; echo "$own"; echo "$first"'"#;
    let ran = run(
        world,
        &format!("--unshare-pid --proc /proc {options}"),
        command,
    )
    .ok();
    ran.out.lines().map(str::to_owned).collect()
}

#[test]
fn without_our_options_nothing_is_added() {
    let world = World::new();
    assert_eq!(filters(&world, ""), ["Seccomp:\t0"; 2]);
    assert_eq!(filters(&world, "--cowork-landlock"), ["Seccomp:\t0"; 2]);
    assert_eq!(
        filters(&world, "--cowork-seccomp default"),
        ["Seccomp:\t2"; 2]
    );
}

#[test]
fn the_built_in_filter_refuses_what_a_session_refuses() {
    let world = World::new();
    let calls = |options: &str| {
        let ran = run(&world, options, r#""$TOP/probe" calls"#).ok();
        Answers::of(&ran)
    };
    let open = calls("");
    for terminal in [
        "sti",
        "sti-wide",
        "linux",
        "linux-wide",
        "setd",
        "setd-wide",
    ] {
        open.refused(terminal, &["ENOTTY"]);
    }
    for name in ["keyctl", "vm-readv", "unshare", "clone"] {
        open.worked(name);
    }
    open.refused("setns", &["EBADF"]);
    open.refused("open-tree", &["ENOENT", "EBADF"]);
    for options in [
        "--cowork-seccomp default",
        "--cowork-seccomp default --unshare-all --dev /dev --proc /proc",
        "--cowork-seccomp default --cowork-landlock",
    ] {
        let closed = calls(options);
        for (name, answer) in &closed.0 {
            let by_filter = ["EPERM", "ENOSYS"].contains(&answer.as_str());
            assert!(by_filter, "{options}: {name}={answer}");
        }
    }
}

/// With rights over its mounts a command takes the masks off, and writes where it was not to.
/// Landlock knows nothing of mounts, and is a wall for those rights as well.
#[test]
fn landlock_holds_where_the_mounts_give_way() {
    let script = r#"umount "$W/mask"; mount -o remount,bind,rw /; cat "$W/mask"; echo x > "$TOP/new"; \
        mkdir "$TOP/folder"; echo x > "$W/own"; : "#;
    for (options, holds) in [("", false), ("--cowork-landlock", true)] {
        let world = World::new();
        world.write("w/mask", "s3cret\n");
        let rights = r#"--unshare-user --cap-add ALL --ro-bind /dev/null "$W/mask""#;
        let ran = run(
            &world,
            &format!("{rights} {options}"),
            &format!("sh -c '{script}'"),
        );
        assert_ne!(ran.out.contains("s3cret"), holds, "{options}: {ran:?}");
        assert_ne!(world.path("new").exists(), holds, "{options}: {ran:?}");
        assert_ne!(world.path("folder").exists(), holds, "{options}: {ran:?}");
        assert!(world.path("w/own").exists(), "{options}: {ran:?}");
    }
}

/// The rules follow the mounts: what is shared for writing is written to, and nothing else.
#[test]
fn landlock_says_what_the_mounts_say() {
    let world = World::new();
    world.write("w/read/f", "");
    world.write("other/f", "");
    let options = r#"--ro-bind "$W/read" "$W/read" --tmpfs /mnt --dev /dev --proc /proc --unshare-pid \
        --bind "$TOP/other" /mnt/other --cowork-landlock"#;
    let places = r#""$TOP/probe" create "$W/new" "$W/read/new" "$TOP/new" /mnt/new /mnt/other/new \
        /dev/shm/new /dev/null /etc/new /proc/self/comm"#;
    let answers = Answers::of(&run(&world, options, places).ok());
    let at = |name: &str| world.path(name).display().to_string();
    for place in [
        "/mnt/new",
        "/mnt/other/new",
        "/dev/shm/new",
        "/dev/null",
        &at("w/new"),
    ] {
        answers.worked(place);
    }
    for place in ["/etc/new", &at("new"), &at("w/read/new")] {
        answers.refused(place, &["EROFS", "EACCES"]);
    }
}

#[test]
fn limits_hold_and_cannot_be_raised() {
    let world = World::new();
    let greed = |options: &str| {
        let command = r#"sh -c 'ulimit -n 200; ulimit -d unlimited; exec "$TOP/probe" greed "$W/big"' 2> /dev/null"#;
        let ran = run(
            &world,
            &format!("--unshare-pid --unshare-user {options}"),
            command,
        )
        .ok();
        Answers::of(&ran)
    };
    let free = greed("");
    for name in ["memory", "files", "pids", "file-size"] {
        free.worked(name);
    }
    greed("--cowork-limit memory=64m").refused("memory", &["ENOMEM"]);
    greed("--cowork-limit files=20").refused("files", &["EMFILE"]);
    greed("--cowork-limit file-size=64k").refused("file-size", &["EFBIG"]);
    // Root's processes are not counted.
    if !support::is_root() {
        greed("--cowork-limit pids=20").refused("pids", &["EAGAIN"]);
    }
}
