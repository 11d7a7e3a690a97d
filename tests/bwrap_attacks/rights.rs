//! A command with rights in its own namespaces, or on its way to some: masks stay on, read-only
//! stays read-only, and below the root lies nothing.

use std::process::Stdio;

use crate::launchers::{Answers, Launcher, comes_to_rest, probe};
use crate::support::{Ran, World};
use crate::watch::children;

const BOTH: [Launcher; 2] = [Launcher::Distribution, Launcher::Ours];

/// Tries to take the masks off, and to make the root writable.
const UNMASK: &str = r#"
    umount "$W/folder"; umount "$W/file"; mount -o remount,bind,rw /; mount -o remount,rw /
    cat "$W/folder/secret" "$W/file"; echo > "$TOP/new"; : "#;

/// A project with something hidden in it, and what the attempt to see it showed.
fn unmask(launcher: Launcher, options: &str, command: &str) -> (World, Ran) {
    let world = World::new();
    world.write("w/folder/secret", "s3cret\n");
    world.write("w/file", "s3cret\n");
    let script = format!(
        r#"exec $BWRAP --ro-bind / / --bind "$W" "$W" --tmpfs "$W/folder" --ro-bind /dev/null "$W/file" \
            {options} {command} sh -c '{UNMASK}' 2>&1"#
    );
    let ran = Ran::of(&mut launcher.by_bash(&world, &script));
    (world, ran)
}

#[track_caller]
fn stays_masked(launcher: Launcher, options: &str, command: &str) {
    let (world, ran) = unmask(launcher, options, command);
    assert!(ran.out.contains("mount"), "nothing was tried: {ran:?}");
    assert!(
        !ran.out.contains("s3cret"),
        "{launcher:?} {options}: {ran:?}"
    );
    assert!(
        !world.path("new").exists(),
        "{launcher:?} {options}: {ran:?}"
    );
}

#[track_caller]
fn is_unmasked(launcher: Launcher, options: &str) {
    let (world, ran) = unmask(launcher, options, "");
    assert_eq!(ran.out.matches("s3cret").count(), 2, "{ran:?}");
    assert!(world.path("new").exists(), "{ran:?}");
}

/// `--dev` moves all but root to a second user namespace, `--disable-userns` moves everybody;
/// rights there are none over mounts that belong to the first. Without them they are the caller's
/// gift, and that is the control.
#[test]
fn rights_in_the_inner_user_namespace_are_none_over_the_mounts() {
    for launcher in BOTH {
        is_unmasked(launcher, "--unshare-user --cap-add ALL");
        for options in [
            "--unshare-user --uid 5 --cap-add ALL --dev /dev",
            "--unshare-all --uid 5 --cap-add ALL --dev /dev --proc /proc",
            "--unshare-all --uid 5 --cap-add CAP_SYS_ADMIN --dev /dev --as-pid-1 --proc /proc",
            "--unshare-user --cap-add ALL --disable-userns",
            "--unshare-user --uid 0 --gid 0 --cap-add ALL --disable-userns --dev /dev",
        ] {
            stays_masked(launcher, options, "");
        }
    }
}

#[test]
fn a_user_namespace_made_inside_has_no_rights_over_the_mounts() {
    for launcher in BOTH {
        for options in [
            "--unshare-user --dev-bind /proc /proc",
            "--unshare-all --proc /proc --dev /dev",
        ] {
            stays_masked(launcher, options, "unshare --user --map-root-user --mount");
        }
    }
}

#[test]
fn no_user_namespace_is_made_where_they_are_disabled() {
    for launcher in BOTH {
        let world = World::new();
        probe(&world);
        for (options, allowed) in [
            ("--unshare-user", true),
            ("--unshare-user --disable-userns", false),
            (
                "--unshare-user --disable-userns --uid 0 --gid 0 --cap-add ALL",
                false,
            ),
            (
                "--unshare-all --unshare-user --disable-userns --proc /proc --uid 0 --cap-add ALL",
                false,
            ),
            (
                "--unshare-user --disable-userns --dev /dev --dev-bind /proc /proc --cap-add ALL",
                false,
            ),
        ] {
            let script =
                format!(r#"exec $BWRAP --ro-bind / / {options} "$TOP/probe" user-namespaces"#);
            let ran = Ran::of(&mut launcher.by_bash(&world, &script)).ok();
            let answers = Answers::of(&ran);
            for call in ["unshare", "clone", "clone3"] {
                if allowed {
                    answers.worked(call);
                } else {
                    answers.refused(call, &["ENOSPC"]);
                }
            }
            if !allowed {
                answers.refused("raise", &["EROFS", "EACCES", "ENOSPC", "EPERM"]);
            }
        }
    }
}

/// The host's root is not below the sandbox's, for whoever may take that one away.
#[test]
fn below_the_root_lies_nothing() {
    let world = World::new();
    world.write("secret", "s3cret\n");
    probe(&world);
    let script = r#"exec $BWRAP @ --ro-bind /usr /usr --symlink usr/bin /bin --bind "$W" /work \
        --ro-bind probe /probe --cap-add ALL /probe unroot "$TOP/secret""#;
    for options in [
        "",
        "--unshare-user",
        "--unshare-user --dev /dev",
        "--unshare-all --proc /proc --dev /dev",
        "--tmpfs /",
        "--ro-bind /var / --tmpfs /",
    ] {
        for launcher in BOTH {
            let script = script.replace('@', options);
            let ran = Ran::of(&mut launcher.by_bash(&world, &script));
            let answers = Answers::of(&ran);
            for (name, answer) in &answers.0 {
                let looked = name.starts_with("after-");
                assert!(
                    !looked || answer != "0",
                    "{launcher:?} {options}: {answers:?}"
                );
            }
        }
    }
    // The control: outside the secret is there to be read.
    assert!(world.path("secret").is_file());
}

/// Where each mount is, as the command sees it.
#[test]
fn the_table_of_mounts_shows_one_root_and_no_scaffold() {
    for options in [
        "",
        "--unshare-all",
        "--tmpfs /",
        "--unshare-user --dev /dev --proc /proc",
    ] {
        let world = World::new();
        let script = format!(
            r#"exec $BWRAP {options} --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
                --symlink usr/lib64 /lib64 --ro-bind /proc /host --tmpfs "$W" cat /host/self/mountinfo"#
        );
        let places = |launcher: Launcher| {
            let ran = Ran::of(&mut launcher.by_bash(&world, &script)).ok();
            // Ours covers more of procfs for root.
            let places = ran
                .out
                .lines()
                .map(place)
                .filter(|place| place != "/proc/sys");
            let mut places: Vec<_> = places.collect();
            places.sort();
            places
        };
        let ours = places(Launcher::Ours);
        assert_eq!(ours, places(Launcher::Distribution), "{options}");
        assert_eq!(ours.iter().filter(|place| *place == "/").count(), 1);
    }
}

fn place(line: &str) -> String {
    line.split(' ').nth(4).unwrap().to_owned()
}

/// Every process between the caller and the command has laid down its rights.
#[test]
fn the_launchers_own_processes_keep_no_rights() {
    for launcher in BOTH {
        for options in [
            "--unshare-user --unshare-pid",
            "--unshare-pid",
            "--unshare-all --dev /dev",
        ] {
            let world = World::new();
            let script = format!(
                "exec $BWRAP --ro-bind / / {options} sh -c 'echo ready; read line; exit 0'"
            );
            let mut command = launcher.by_bash(&world, &script);
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut monitor = command.spawn().unwrap();
            let mut ready = [0; 6];
            let out = monitor.stdout.as_mut().unwrap();
            std::io::Read::read_exact(out, &mut ready).unwrap();
            let monitor_id = i32::try_from(monitor.id()).unwrap();
            for process in [monitor_id, children(monitor_id)[0]] {
                comes_to_rest(|| {
                    let file = format!("/proc/{process}/status");
                    let status = std::fs::read_to_string(file).unwrap();
                    let fields = ["CapEff", "CapPrm", "CapInh", "CapAmb"];
                    let empty = fields.map(|field| format!("{field}:\t0000000000000000\n"));
                    let is_quiet = empty.iter().all(|line| status.contains(line))
                        && status.contains("NoNewPrivs:\t1");
                    (!is_quiet).then(|| format!("{launcher:?} {options}: {status}"))
                });
            }
            drop(monitor.stdin.take());
            assert!(monitor.wait().unwrap().success());
        }
    }
}

/// A caller's directory that is not in the sandbox is not the command's directory.
#[test]
fn the_callers_directory_is_not_brought_along() {
    let world = World::new();
    world.write("secret", "s3cret\n");
    let look = "cat secret ./secret ../*/secret /proc/self/cwd/secret /proc/1/cwd/secret; pwd -P";
    let base = "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64";
    for options in [
        "--unshare-pid --proc /proc",
        "--unshare-all --proc /proc --as-pid-1",
        "",
    ] {
        for launcher in BOTH {
            let script = format!("exec $BWRAP {base} {options} sh -c '{look}' 2> /dev/null");
            let ran = Ran::of(&mut launcher.by_bash(&world, &script)).ok();
            assert_eq!(ran.out, "/\n", "{launcher:?} {options}");
        }
    }
    // The control: with that directory in the sandbox, it is.
    let script = format!(r#"exec $BWRAP {base} --ro-bind "$TOP" "$TOP" cat secret"#);
    let ran = Ran::of(&mut Launcher::Ours.by_bash(&world, &script)).ok();
    assert_eq!(ran.out, "s3cret\n");
}
