//! Namespaces and mounts from inside, and calls that have no business in a box.

use super::support::{self, World};
use super::{Verdicts, attacker};

/// Attacks that any user can make where nothing stops them, with namespaces of their own.
const FOR_EVERYBODY: [&str; 22] = [
    "remount",
    "set-attributes",
    "unmount",
    "bind",
    "open-tree",
    "tmpfs",
    "fsopen",
    "move-mount",
    "chroot",
    "pivot",
    "overlay",
    "sysfs",
    "cgroup2",
    "unshare-user",
    "unshare-any",
    "clone-user",
    "clone3-user",
    "setns",
    "setns-pidfd",
    "namespace-owner",
    "namespace-parent",
    "hostname",
];
/// Attacks that need root of the host: for others they fail everywhere.
const FOR_ROOT: [&str; 4] = ["tracefs", "debugfs", "setgroups", "setuid-0"];

fn host_mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// FS-05 to FS-10, FS-24, FS-32, FS-69, NS-01 to NS-05, NS-07, NS-50, NS-52, NS-54.
#[test]
fn nothing_is_mounted_and_no_namespace_is_made_or_joined() {
    let world = World::new();
    attacker(&world);
    std::fs::create_dir(world.work().join("d")).unwrap();
    let control = Verdicts::of(world.control("./attack namespaces d"));
    control.done(&FOR_EVERYBODY);
    if support::is_root() {
        control.done(&FOR_ROOT);
    }
    let (mounts, host) = (host_mounts(), nix::unistd::gethostname().unwrap());

    for place in ["d", "~/d", "/tmp/d"] {
        let script = format!("mkdir -p {place}; ./attack namespaces {place}");
        Verdicts::of(world.sh(&script)).all_refused_but(&[]);
    }
    assert_eq!(host_mounts(), mounts);
    assert_eq!(nix::unistd::gethostname().unwrap(), host);
}

/// NS-51, and the same attacks once more: no wall stands only because another one does. The
/// control is that of the test before.
#[test]
fn without_the_call_filter_the_other_walls_hold() {
    let world = World::new();
    attacker(&world);
    let mounts = host_mounts();
    let flags = ["--seccomp", "none", "--allow-missing", "seccomp"];
    let script = "mkdir ~/d; ./attack namespaces ~/d; ./attack global ~/d";
    let inside = Verdicts::of(world.run(&flags, &["sh", "-c", script]));
    // Asking who owns a namespace, or for a socket of the box's own empty network, harms nobody.
    inside.all_refused_but(&["namespace-owner", "netfilter"]);
    for name in ["unshare-user", "clone-user", "clone3-user"] {
        assert_eq!(inside.0[name], "refused ENOSPC");
    }
    assert_eq!(host_mounts(), mounts);
}

/// NS-05, NS-51, NS-56. No control: on a host without walls these would change it for good.
#[test]
fn the_clock_and_the_limits_of_the_kernel_stay() {
    let world = World::new();
    attacker(&world);
    let limit = std::fs::read("/proc/sys/user/max_user_namespaces").unwrap();
    Verdicts::of(world.sh("mkdir ~/d; ./attack global ~/d")).all_refused_but(&[]);
    assert_eq!(
        std::fs::read("/proc/sys/user/max_user_namespaces").unwrap(),
        limit
    );
}

/// FS-11, FS-63, FS-66, FS-68, FS-70, PR-09.
#[test]
fn calls_that_reach_around_the_walls_are_refused() {
    let world = World::new();
    attacker(&world);
    std::fs::create_dir(world.work().join("d")).unwrap();
    let control = Verdicts::of(world.control("./attack calls d"));
    // Kernel crypto is not built into every kernel, listmount and file-setattr are young.
    control.done(&[
        "name-to-handle",
        "fanotify",
        "file-flags",
        "file-flags-wide",
        "personality-aslr",
        "personality-exec",
    ]);
    if support::is_root() {
        control.done(&["open-by-handle", "immutable"]);
    }
    for place in ["~/d", "/tmp/d"] {
        let script = format!("mkdir {place}; ./attack calls {place}");
        Verdicts::of(world.sh(&script)).all_refused_but(&[]);
    }
}

/// NS-04, NS-53: other namespaces have no name inside, and cgroups show no way up.
#[test]
fn the_box_cannot_name_what_is_above_it() {
    let world = World::new();
    let script = "for n in user mnt pid net ipc uts cgroup; do readlink /proc/1/ns/$n; readlink /proc/self/ns/$n; done; true";
    let control = world
        .control("for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done")
        .ok();
    let inside = world.sh(script).ok();
    assert_eq!(control.out.lines().count(), 7);
    assert_eq!(inside.out.lines().count(), 7, "pid 1 is closed: {inside:?}");
    for line in control.out.lines() {
        assert!(!inside.out.contains(line), "shared: {line}");
    }
    let cgroups =
        world.sh("cut -d: -f3 /proc/self/cgroup | sort -u; grep cgroup /proc/mounts; ls -d /sys");
    assert_eq!(cgroups.out, "/\n");
}
