//! Mounts of the host: those that come later, those that come and go, and the flags they have.

use std::process::Command;

use crate::launchers::{Answers, Launcher, distribution_has_old_holes, probe};
use crate::support::{Ran, World};

/// Every set of namespaces a caller may ask for meets mounts differently.
const NAMESPACES: [&str; 3] = ["", "--unshare-user", "--unshare-all"];

/// Starts a sandbox, mounts something on the host, and then lets the command in the sandbox try to
/// write to it. Prints what the probe said.
const LATE_MOUNT: &str = r#"
mkdir -p late; mkfifo go
"$BWRAP" @ --ro-bind / / sh -c 'echo ready; read line < go; "$0" create late/new; cat late/there' "$TOP/probe" > out 2>&1 &
while ! grep -q ready out 2> /dev/null; do kill -0 $!; done
mount -t tmpfs tmpfs late
echo shown > late/there
echo go > go
wait || true
cat out
ls late
"#;

#[test]
fn a_mount_made_later_does_not_appear_in_the_sandbox() {
    for namespaces in NAMESPACES {
        let script = LATE_MOUNT.replace('@', namespaces);
        let world = World::new();
        probe(&world);
        let ran = Ran::of(&mut Launcher::Ours.on_a_host(&world, &script)).ok();
        assert!(ran.out.starts_with("ready\n"), "{ran:?}");
        assert!(!ran.out.contains("shown"), "{namespaces}: {ran:?}");
        Answers::of(&ran).refused("late/new", &["EROFS"]);

        if distribution_has_old_holes() {
            let world = World::new();
            probe(&world);
            let ran = Ran::of(&mut Launcher::Distribution.on_a_host(&world, &script)).ok();
            Answers::of(&ran).worked("late/new");
            assert!(ran.out.contains("shown"), "{namespaces}: {ran:?}");
        }
    }
}

/// What the launcher mounts, and what a command with all rights mounts, is not seen outside: not
/// afterwards and not while it runs. The control is that `mount` on that host is seen.
#[test]
fn nothing_mounted_in_a_sandbox_appears_on_the_host() {
    let script = r#"
        mkdir -p "$W"/{t,p,d,b,inside}
        mkfifo go done
        sort /proc/self/mountinfo > before
        "$BWRAP" @ --cap-add ALL --bind / / --tmpfs "$W/t" --dev "$W/d" --bind /usr "$W/b" \
            --proc "$W/p" --tmpfs "$W/t/deeper" --ro-bind /dev/null "$W/mask" \
            sh -c 'mount -t tmpfs inside "$W/inside" && echo mounted; echo up > done; read line < go' &
        read line < done
        sort /proc/self/mountinfo | diff before -
        echo go > go
        wait $!
        sort /proc/self/mountinfo | diff before -
        echo same
        mount -t tmpfs tmpfs "$W/t"
        sort /proc/self/mountinfo | diff -q before - || echo seen"#;
    for namespaces in NAMESPACES {
        for launcher in [Launcher::Distribution, Launcher::Ours] {
            let world = World::new();
            let script = script.replace('@', namespaces);
            let ran = Ran::of(&mut launcher.on_a_host(&world, &script)).ok();
            assert!(
                ran.out.starts_with("mounted\nsame\n"),
                "{launcher:?} {namespaces}: {ran:?}"
            );
            assert!(ran.out.ends_with("seen\n"), "{ran:?}");
        }
    }
}

/// One mount of each kind below a folder, one of them hidden by another.
const KINDS: &str = r#"
    mkdir -p "$W"/{plain,links,exec,times,hidden,nested}
    mount -t tmpfs tmpfs "$W/plain"
    mount -t tmpfs -o nosymfollow tmpfs "$W/links"
    mount -t tmpfs -o noexec tmpfs "$W/exec"
    mount -t tmpfs -o noatime tmpfs "$W/times"
    mount -t tmpfs tmpfs "$W/hidden"; mount -t tmpfs tmpfs "$W/hidden"
    mount -t tmpfs tmpfs "$W/nested"; mkdir "$W/nested/deep"; mount -t tmpfs tmpfs "$W/nested/deep"
    echo target > "$W/links/target"; ln -s target "$W/links/link"
    cp /usr/bin/true "$W/exec/true"
"#;

#[test]
fn the_hosts_flags_are_kept_and_every_mount_is_read_only() {
    let script = format!(
        "{KINDS}\n{}",
        r#"
        "$BWRAP" @ "$W" /shown --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
            --symlink usr/lib64 /lib64 --ro-bind "$TOP/probe" /probe --ro-bind /proc /proc sh -c '
            /probe create /shown/new /shown/plain/new /shown/links/new /shown/exec/new \
                /shown/times/new /shown/hidden/new /shown/nested/new /shown/nested/deep/new
            /probe read /shown/links/link
            /shown/exec/true 2> /dev/null && echo ran=0 || echo ran=refused
            cut -d" " -f5,6 /proc/self/mountinfo | grep "^/shown" | sed "s/^/mount /; s/$/=/"'"#
    );
    let world = World::new();
    probe(&world);
    let run = |launcher: Launcher, how: &str| {
        let script = script.replace('@', how);
        let world = World::new();
        probe(&world);
        Ran::of(&mut launcher.on_a_host(&world, &script)).ok()
    };
    let places = [
        "",
        "plain/",
        "links/",
        "exec/",
        "times/",
        "hidden/",
        "nested/",
        "nested/deep/",
    ];
    for namespaces in NAMESPACES {
        let ran = run(Launcher::Ours, &format!("{namespaces} --ro-bind"));
        let answers = Answers::of(&ran);
        for place in places {
            answers.refused(&format!("/shown/{place}new"), &["EROFS"]);
        }
        answers.refused("/shown/links/link", &["ELOOP"]);
        answers.refused("ran", &["refused"]);
        let shown: Vec<_> = ran
            .out
            .lines()
            .filter(|l| l.starts_with("mount "))
            .collect();
        assert!(shown.len() >= places.len(), "{shown:?}");
        for mount in &shown {
            for flag in ["ro", "nosuid", "nodev"] {
                assert!(has_flag(mount, flag), "{mount} has no {flag}");
            }
        }
        let of = |name: &str| *shown.iter().find(|m| m.contains(name)).unwrap();
        assert!(has_flag(of("/exec"), "noexec"));
        assert!(has_flag(of("/times"), "noatime"));
        assert!(has_flag(of("/links"), "nosymfollow"));
    }
    // The control: shared for writing all of them can be written to, and what the distribution's
    // launcher makes read-only follows links that the host does not.
    let open = Answers::of(&run(Launcher::Ours, "--bind"));
    for place in places {
        open.worked(&format!("/shown/{place}new"));
    }
    if distribution_has_old_holes() {
        Answers::of(&run(Launcher::Distribution, "--ro-bind")).worked("/shown/links/link");
    }
}

fn has_flag(mount: &str, flag: &str) -> bool {
    let flags = mount.rsplit(' ').next().unwrap().trim_end_matches('=');
    flags.split(',').any(|one| one == flag)
}

/// In which start, if in any, the launcher fails while mounts of the host come and go.
fn first_failure(launcher: Launcher, starts: usize) -> String {
    let world = World::new();
    probe(&world);
    let script = format!(
        r#"
        mkdir -p busy/folder
        "$TOP/probe" mounts busy/folder > up & mounter=$!
        while ! grep -q up up; do kill -0 $mounter; done
        for start in $(seq {starts}); do
            "$BWRAP" --ro-bind / / --dev /dev --bind "$W" "$W" true 2> err || {{ cat err; break; }}
        done
        kill -0 $mounter
        kill $mounter"#
    );
    let mut command: Command = launcher.on_a_host(&world, &script);
    Ran::of(&mut command).ok().out
}

#[test]
fn mounts_that_come_and_go_do_not_stop_a_start() {
    if distribution_has_old_holes() {
        let failure = first_failure(Launcher::Distribution, 600);
        assert!(failure.contains("Invalid argument"), "{failure:?}");
    }
    assert_eq!(first_failure(Launcher::Ours, 100), "");
}
