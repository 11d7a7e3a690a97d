//! What procfs gives away: settings of the kernel to root, the caller's environment to everybody,
//! and a sign for callers when an outer container does not let it be mounted.

use crate::launchers::{Answers, Launcher, distribution_has_old_holes, probe};
use crate::support::{self, Ran, World};

/// Files that root of the host may open for writing. Nothing is written to them.
const SETTINGS: [&str; 6] = [
    "sys/kernel/core_pattern",
    "sys/kernel/printk",
    "sys/kernel/modprobe",
    "sys/vm/overcommit_memory",
    "sysrq-trigger",
    "irq/default_smp_affinity",
];

/// What the distribution's launcher leaves open to root.
const OPEN: [&str; 2] = ["sys/kernel/core_pattern", "sys/kernel/printk"];

fn try_to_write(launcher: Launcher, world: &World, options: &str) -> Answers {
    let files = SETTINGS.map(|name| format!("/proc/{name}")).join(" ");
    let script = format!(r#"exec $BWRAP --ro-bind / / {options} "$TOP/probe" write {files}"#);
    Answers::of(&Ran::of(&mut launcher.by_bash(world, &script)).ok())
}

#[test]
fn settings_of_the_kernel_cannot_be_changed() {
    let world = World::new();
    probe(&world);
    for options in [
        "--proc /proc",
        "--unshare-pid --proc /proc",
        "--unshare-user --proc /proc",
        "--unshare-all --proc /proc",
        "--unshare-all --as-pid-1 --proc /proc",
        "--unshare-user --uid 0 --gid 0 --unshare-pid --proc /proc",
        "--unshare-user --uid 0 --gid 0 --unshare-pid --cap-add ALL --proc /proc",
        "--unshare-user --uid 1 --gid 1 --unshare-pid --proc /proc",
        // By another name, and twice.
        "--symlink /proc /mnt/link --unshare-pid --proc /proc --tmpfs /mnt",
        "--unshare-pid --proc /proc --proc /proc",
    ] {
        let options = options.replace("--symlink", "--tmpfs /mnt --symlink");
        let control = try_to_write(Launcher::Distribution, &world, &options);
        // Without privileges on the host there is nothing to protect.
        if support::is_root() && distribution_has_old_holes() {
            for name in OPEN {
                control.worked(&format!("/proc/{name}"));
            }
        }
        let inside = try_to_write(Launcher::Ours, &world, &options);
        for name in SETTINGS {
            let refusals = ["EROFS", "EACCES", "EPERM", "ENOENT"];
            inside.refused(&format!("/proc/{name}"), &refusals);
        }
    }
}

/// Agents' launchers look for this text, and start again without `--proc`.
#[test]
fn a_masked_procfs_is_reported_in_the_words_that_callers_look_for() {
    let script = r#"
        mount --bind /dev/null /proc/interrupts
        mount -t tmpfs -o ro tmpfs /proc/irq
        "$BWRAP" --unshare-user --unshare-pid --ro-bind / / --proc /proc true 2> err && exit 9
        cat err
        "$BWRAP" --unshare-user --unshare-pid --ro-bind / / true
        umount /proc/interrupts /proc/irq
        "$BWRAP" --unshare-user --unshare-pid --ro-bind / / --proc /proc echo mounted"#;
    for launcher in [Launcher::Distribution, Launcher::Ours] {
        let world = World::new();
        let ran = Ran::of(&mut launcher.on_a_host(&world, script)).ok();
        let text = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted\nmounted\n";
        assert_eq!(ran.out, text, "{launcher:?}");
    }
}

/// What a caller takes out of the environment is not found in that of pid 1 or of the monitor.
#[test]
fn what_was_taken_out_of_the_environment_is_gone() {
    let world = World::new();
    let look = "cat /proc/[0-9]*/environ /proc/[0-9]*/task/[0-9]*/environ; echo looked";
    for options in [
        "--clearenv --unshare-pid --proc /proc",
        "--unsetenv TOKEN --unshare-all --proc /proc",
        "--clearenv --unshare-user --proc /proc",
        "--setenv TOKEN harmless --unshare-pid --proc /proc",
    ] {
        let script = format!("exec $BWRAP --ro-bind / / {options} /bin/sh -c '{look}'");
        let shown = |launcher: Launcher| {
            let mut command = launcher.by_bash(&world, &script);
            let ran = Ran::of(command.env("TOKEN", "s3cret-of-the-caller")).ok();
            assert!(ran.out.ends_with("looked\n"), "{ran:?}");
            ran.out.contains("s3cret-of-the-caller")
        };
        // An ordinary user's monitor is out of reach by its user namespace.
        if options.contains("pid") || options.contains("all") {
            assert!(shown(Launcher::Distribution), "{options}");
        }
        assert!(!shown(Launcher::Ours), "{options}");
    }
}
