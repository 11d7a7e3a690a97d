//! What of the host can be read, and what of it can be written by name.

use std::os::unix::fs::PermissionsExt;

use super::support::{self, Ran, World, exists};
use super::{attacker, run_after};

const SECRET: &str = "S3CRET-of-the-user";

/// FS-01, FS-04: plainly, through /proc, and through every process that can be seen.
#[test]
fn a_secret_of_the_home_is_not_there_by_any_path() {
    let world = World::new();
    let key = world.write("home/.ssh/id", SECRET);
    let key = key.display();
    let script = format!(
        "try() {{ cat \"$1\" 2>/dev/null && echo \" by $1\"; }}
        try {key}; try /proc/self/root{key}; try /proc/thread-self/root{key}
        try /../..{key}; try /dev/fd/../root{key}
        try /proc/self/cwd/../home/.ssh/id; try ../home/.ssh/id; try ../../../../../..{key}
        for p in /proc/[0-9]*; do try $p/root{key}; try $p/cwd/../home/.ssh/id; done; true"
    );
    let control = world.control(&script).ok();
    assert!(control.out.matches(SECRET).count() >= 5, "{control:?}");
    world.sh(&script).ok().says_not("S3CRET");
    world
        .sh(&format!("ls {key}"))
        .failed_with(2)
        .complains("No such file");
}

/// FS-02, FS-03, NS-55: not even what everybody, or a group of the caller's, may read and write.
#[test]
fn files_elsewhere_are_neither_read_nor_written() {
    let world = World::new();
    let elsewhere = tempfile::Builder::new()
        .prefix("cowork-attack-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let file = elsewhere.path().join("shared");
    std::fs::write(&file, SECRET).unwrap();
    for (path, mode) in [(elsewhere.path(), 0o777), (&file, 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let shown = file.display();
    let script = format!("cat {shown}; echo more >> {shown}; echo x > {shown}.new");
    world.control(&script).ok().says(SECRET);
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("more\n"));
    std::fs::write(&file, SECRET).unwrap();
    std::fs::remove_file(elsewhere.path().join("shared.new")).unwrap();

    world.sh(&script).says_not("S3CRET");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), SECRET);
    assert!(!exists(&elsewhere.path().join("shared.new")));
}

/// FS-01 for root, who may read everything: the box it starts may not. Nobody else has a control.
#[test]
fn what_only_root_may_read_stays_closed_in_roots_box() {
    let world = World::new();
    let script = "for f in /etc/shadow /etc/gshadow /etc/sudoers /root/.bashrc /root/.profile \
        /etc/ssl/private/. /var/lib/dpkg/status /boot/.; do
            head -c1 \"$f\" >/dev/null 2>&1 && echo \"read $f\"; ls \"$f\" 2>/dev/null; done; true";
    if support::is_root() {
        world.control(script).ok().says("read /etc/shadow");
        // Another user's file in the shared folder: root reads it outside, its box must not.
        let other = world.write("w/other", SECRET);
        std::os::unix::fs::chown(&other, Some(12345), Some(12345)).unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
        world.control("cat other").ok().says(SECRET);
        world.sh("cat other").failed_with(1).says_not("S3CRET");
        world.sh("echo x > other; chmod 666 other; chown $(id -u) other; true");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), SECRET);
    }
    let ran = world.sh(script).ok();
    assert_eq!(ran.out, "", "{ran:?}");
    // Whatever is not for everybody is not for the box, though root started it.
    let closed = "find /usr /etc -xdev ! -perm -004 ! -type l -readable ! -user $(id -u) 2>/dev/null | head -3";
    let ran = world.sh(closed).ok();
    assert_eq!(ran.out, "", "{ran:?}");
}

/// FS-12: an open folder is a way past every path check.
#[test]
fn a_descriptor_left_open_by_the_caller_does_not_come_along() {
    let world = World::new();
    world.write("home/.ssh/id", SECRET);
    let attack = attacker(&world);
    let open = "exec 9<.ssh 8</ 7<>.ssh/id";
    let control = format!("cd ../home; {open}; {} descriptors id", attack.display());
    world.control(&control).ok().says(SECRET);
    run_after(&world, open, &["./attack", "descriptors", "id"])
        .ok()
        .says("descriptors: 0");
}

/// FS-13
#[test]
fn the_callers_working_directory_does_not_come_along() {
    let world = World::new();
    world.write("home/private/x", SECRET);
    world
        .control("cd ../home/private && cat ./x")
        .ok()
        .says(SECRET);
    let ran = run_after(
        &world,
        "cd private",
        &["sh", "-c", "pwd; cat ./x private/x $OLDPWD/x"],
    );
    ran.failed_with(1).says("/mnt/w\n").says_not("S3CRET");
}

/// FS-18: the host's devices.
#[test]
fn no_device_of_the_host_is_there_but_the_harmless_ones() {
    let world = World::new();
    let host = world.control("ls /dev | wc -l").ok();
    assert!(host.out.trim().parse::<u32>().unwrap() > 13, "{host:?}");
    let ran = world.sh("ls /dev | tr '\\n' ' '").ok();
    let known = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ";
    assert_eq!(ran.out, known);
    let script = "for d in kvm fuse net/tun loop-control vda sda vsock vhost-vsock uinput mem kmsg port hpet; do
        (: < /dev/$d) 2>/dev/null && echo open $d; done; ls /dev/pts";
    world.sh(script).ok().says_not("open").says("ptmx");
}

/// FS-19 to FS-23. Opening is the whole attack; nothing is written even where it works, so the
/// control is safe. It needs root: nobody else may open these anywhere.
#[test]
fn the_kernels_switches_cannot_be_opened_for_writing() {
    let world = World::new();
    let script = "for f in sys/kernel/core_pattern sys/kernel/printk_ratelimit_burst sys/kernel/modprobe \
        sys/kernel/hotplug sys/vm/overcommit_memory sys/fs/suid_dumpable sys/user/max_user_namespaces \
        sys/net/ipv4/ip_forward sys/kernel/hostname sysrq-trigger kmsg mtrr \
        irq/0/smp_affinity 1/oom_score_adj 1/uid_map 1/mem kcore; do
            (: >> /proc/$f) 2>/dev/null && echo open $f; done
        (: >> /dev/kmsg) 2>/dev/null && echo open kmsg
        for f in $(find /sys -maxdepth 3 -type f 2>/dev/null | head -50); do
            (: >> $f) 2>/dev/null && echo open $f; done; true";
    if support::is_root() {
        world
            .control(script)
            .ok()
            .says("open sys/kernel/core_pattern");
    }
    let before = std::fs::read("/proc/sys/kernel/core_pattern").unwrap();
    let ran = world.sh(script).ok();
    assert_eq!(ran.out, "", "{ran:?}");
    assert_eq!(
        std::fs::read("/proc/sys/kernel/core_pattern").unwrap(),
        before
    );
    world.sh("ls -d /sys").failed_with(2);
}

/// FS-22: what tells where the kernel lies, or what it was started with.
#[test]
fn the_kernels_secrets_are_masked_or_zero() {
    let world = World::new();
    let script = "cat /proc/cmdline /proc/keys
        for f in kcore kmsg timer_list slabinfo vmallocinfo pagetypeinfo kpageflags sched_debug; do
            head -c1 /proc/$f >/dev/null 2>&1 && echo read $f; done
        cut -c1-16 /proc/kallsyms | grep -v '^0*$' | head -1
        cut -d: -f1 /proc/iomem | tr -d ' 0-' | grep . | head -1; true";
    let control = world.control(script).ok();
    assert_ne!(control.out, "", "the host's command line at least");
    let ran = world.sh(script).ok();
    assert_eq!(ran.out, "", "{ran:?}");
}

/// FS-30, IP-04: files for everybody are private to the box, in both directions.
#[test]
fn temporary_places_are_the_boxs_own() {
    let world = World::new();
    let name = format!("cowork-attack-{}", std::process::id());
    let places: Vec<_> = ["/tmp", "/var/tmp", "/dev/shm"]
        .iter()
        .map(|p| format!("{p}/{name}"))
        .collect();
    for place in &places {
        std::fs::write(place, SECRET).unwrap();
    }
    let read = format!("cat {}", places.join(" "));
    let control = world.control(&read).ok();
    let ran = world.sh(&format!(
        "{read}; for d in /tmp /var/tmp /dev/shm; do echo inside > $d/{name}; done; cat {}",
        places.join(" ")
    ));
    let run = world.sh(&format!("echo x > /run/{name}"));
    let after: Vec<_> = places
        .iter()
        .map(|p| std::fs::read_to_string(p).unwrap())
        .collect();
    for place in &places {
        std::fs::remove_file(place).unwrap();
    }
    assert_eq!(control.out.matches(SECRET).count(), 3);
    ran.ok().says("inside").says_not("S3CRET");
    run.failed_with(2).complains("Read-only");
    assert_eq!(after, [SECRET; 3]);
    assert!(!exists(std::path::Path::new(&format!("/run/{name}"))));
}

/// FS-31: links that a repository ships.
#[test]
fn links_in_the_shared_folder_lead_nowhere_on_the_host() {
    let world = World::new();
    let key = world.write("home/.ssh/id", SECRET);
    let links = [
        ("file", key.display().to_string()),
        ("folder", world.path("home").display().to_string()),
        ("up", "../home/.ssh/id".to_owned()),
        (
            "far-up",
            format!("../../../../../../../..{}", key.display()),
        ),
        ("root", format!("/proc/self/root{}", key.display())),
        ("one", format!("/proc/1/root{}", key.display())),
        ("parent", "..".to_owned()),
    ];
    for (name, to) in &links {
        std::os::unix::fs::symlink(to, world.work().join(name)).unwrap();
    }
    let script = "for l in file folder/.ssh/id up far-up root one parent/home/.ssh/id; do cat $l; done 2>/dev/null; true";
    let control = world.control(script).ok();
    assert!(control.out.matches(SECRET).count() >= 5, "{control:?}");
    world.sh(script).ok().says_not("S3CRET");
    // Nor do they carry writes out.
    world.sh("echo evil > file; echo evil > up; echo evil > folder/made; true");
    assert_eq!(std::fs::read_to_string(&key).unwrap(), SECRET);
    assert!(!exists(&world.path("home/made")));
}

/// FS-67: host paths of the mounts are seen in mountinfo, as the manual says; but nothing more of
/// the host is mounted, nothing is shared with it, and only the named places can be written to.
/// A look at the box and no attack, so there is no control.
#[test]
fn every_mount_is_private_and_without_setuid_and_few_are_writable() {
    let world = World::new();
    assert!(
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .count()
            > 1
    );
    let ran = world.sh("cat /proc/self/mountinfo").ok();
    for line in ran.out.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let (at, flags) = (words[4], words[5]);
        assert_eq!(words[6], "-", "shared: {line}");
        assert!(flags.contains("nosuid"), "{line}");
        let device = at.starts_with("/dev/") || at.starts_with("/proc/");
        assert!(flags.contains("nodev") || device, "{line}");
        let writable = device || at == "/proc" || at == "/tmp" || at.starts_with("/sessions/");
        assert!(flags.starts_with("ro,") || writable, "{line}");
    }
    world.sh("for d in / /usr /etc /bin /sessions /sessions/*/mnt /dev /run /var; do (: > $d/x) 2>/dev/null && echo made $d; done; true")
        .ok()
        .says_not("made");
}

/// IP-52: sockets of the desktop.
#[test]
fn the_runtime_directory_of_the_desktop_is_absent() {
    let world = World::new();
    let runtime = world.path("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let _wayland = std::os::unix::net::UnixListener::bind(runtime.join("wayland-0")).unwrap();
    let script = "ls $XDG_RUNTIME_DIR/ /run/user/*/ /tmp/.X11-unix/ 2>/dev/null; env";
    let control = format!(
        "XDG_RUNTIME_DIR={} sh -c 'ls $XDG_RUNTIME_DIR'",
        runtime.display()
    );
    world.control(&control).ok().says("wayland-0");
    let mut command = world.cowork();
    command
        .env("XDG_RUNTIME_DIR", &runtime)
        .env("WAYLAND_DISPLAY", "wayland-0");
    command
        .args(["run", "-q", "--mount"])
        .arg(world.work())
        .args(["--", "sh", "-c", script]);
    Ran::of(&mut command)
        .ok()
        .says_not("wayland")
        .says_not("XDG_RUNTIME");
}
