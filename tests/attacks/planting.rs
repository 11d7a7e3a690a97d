//! Files that lend somebody's rights: those the host has, and those a program would leave behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::support::{self, Ran, World};
use super::{Verdicts, attacker};

/// What needs root of the host: for others it fails everywhere.
pub(super) const FOR_ROOT: [&str; 4] = [
    "block-device",
    "char-device",
    "file-capability",
    "trusted-xattr",
];
pub(super) const FOR_EVERYBODY: [&str; 11] = [
    "suid-chmod",
    "suid-fchmod",
    "sgid-fchmod",
    "suid-open",
    "suid-mknod",
    "suid-openat2",
    "suid-by-link",
    "suid-fchmodat2",
    "suid-hidden",
    "suid-tmpfile",
    "whiteout",
];

pub(super) fn control(world: &World) {
    std::fs::create_dir(world.path("free")).unwrap();
    let control = Verdicts::of(world.control("./attack plant ../free"));
    control.done(&FOR_EVERYBODY);
    if support::is_root() {
        control.done(&FOR_ROOT);
    }
}

/// Files below a folder that are devices, or lend a user's or a group's rights.
pub(super) fn planted(folder: &Path) -> String {
    let test = "( -type b -o -type c -o -type f -perm /6000 )";
    let mut find = Command::new("find");
    find.arg(folder)
        .args(test.split(' '))
        .args(["-printf", "%p %m\n"]);
    Ran::of(&mut find).ok().out
}

/// FS-17, FS-27, FS-28 in what the session keeps on the host. One way is open there: openat2's
/// mode lies behind a pointer, which no filter reads. So nobody else may reach the place.
#[test]
fn nothing_that_lends_rights_is_planted_in_home_or_outputs() {
    let world = World::new();
    attacker(&world);
    control(&world);
    let script = "mkdir ~/d ~/mnt/outputs/d; rm -f x; ./attack plant ~/d; ./attack plant ~/mnt/outputs/d; ./attack plant ~/d | sed s/:/-again:/";
    let ran = world.run(&["--name", "kept"], &["sh", "-c", script]);
    Verdicts::of(ran).all_refused_but(&["suid-openat2", "suid-openat2-again"]);
    world.open_home("kept");
    let session = world.path("state/cowork-linux/sessions/kept");
    let found = planted(&session);
    assert!(found.lines().all(|line| line.contains("/s6 ")), "{found}");
    let mode = std::fs::metadata(&session).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others can reach {}", session.display());
}

/// FS-25: root can make such a file for the test; others use one the system has. The loader
/// shows its start values only to programs that gained nothing.
#[test]
fn a_setuid_program_gains_nothing() {
    let world = World::new();
    if support::is_root() {
        let id = world.work().join("id");
        std::fs::copy("/usr/bin/id", &id).unwrap();
        std::os::unix::fs::chown(&id, Some(12345), Some(12345)).unwrap();
        std::fs::set_permissions(&id, std::fs::Permissions::from_mode(0o6755)).unwrap();
        world.control("./id").ok().says("euid=12345");
        world.sh("./id").ok().says_not("12345").says_not("euid");
    } else {
        let control = world.control("LD_SHOW_AUXV=1 /usr/bin/su --version");
        control.ok().says("su from").says_not("AT_SECURE");
    }
    let ran = world
        .sh("LD_SHOW_AUXV=1 /usr/bin/su --version; id -u; grep NoNewPrivs /proc/self/status")
        .ok();
    let uid = ran.out.lines().rev().nth(1).unwrap_or_default().to_owned();
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in ["AT_SECURE: 0", &format!("AT_EUID: {uid}"), "NoNewPrivs: 1"] {
        assert!(words.contains(wanted), "{wanted}: {ran:?}");
    }
    assert_ne!(uid, "0");
}

/// FS-26. Only root can make such a file; every set of the box's processes is empty anyway.
#[test]
fn a_program_with_file_capabilities_gains_none() {
    let world = World::new();
    let show = "grep ^Cap /proc/self/status";
    if support::is_root() {
        std::fs::copy("/usr/bin/grep", world.work().join("grep")).unwrap();
        world.control("setcap cap_net_raw+ep grep").ok();
        let as_user = "setpriv --reuid 65534 --clear-groups --bounding-set=-all,+net_raw --inh-caps=-all \
            /bin/sh -c 'exec 3<grep; exec /proc/self/fd/3 ^CapEff /proc/self/status'";
        world
            .control(as_user)
            .ok()
            .says("CapEff:\t0000000000002000");
        let ran = world.sh("./grep ^Cap /proc/self/status").ok();
        assert_eq!(ran.out.matches("0000000000000000").count(), 5, "{ran:?}");
    }
    world
        .control(show)
        .ok()
        .says_not("CapBnd:\t0000000000000000");
    let ran = world.sh(show).ok();
    assert_eq!(ran.out.matches("0000000000000000").count(), 5, "{ran:?}");
}

/// FS-16: the launcher's own file, when it belongs to the user, as in ~/.cargo/bin.
#[test]
fn the_launchers_own_program_file_is_out_of_reach() {
    let world = World::new();
    attacker(&world);
    let own = world.path("home/cowork-linux");
    let copied = Ran::of(Command::new("cp").arg(support::binary()).arg(&own));
    copied.ok();
    let before = std::fs::read(&own).unwrap();

    // Busy means: open it again once the process is gone.
    let control = "../home/cowork-linux policy show >/dev/null 2>&1; cp /bin/sleep s; ./s 20 & p=$!
        until [ \"$(readlink /proc/$p/exe)\" != \"$(readlink /proc/self/exe)\" ] && grep -q s /proc/$p/comm; do :; done
        ./attack images $p $p; kill $p";
    world.control(control).ok().says("reached");

    let boxed = |flags: &[&str], program: &[&str]| {
        let mut command = Command::new(&own);
        command
            .env_clear()
            .envs(world.cowork().get_envs().filter_map(|(k, v)| Some((k, v?))));
        command
            .args(["run", "-q"])
            .args(flags)
            .arg("--mount")
            .arg(world.work());
        Ran::of(command.arg("--").args(program))
    };
    let script =
        "./attack images 1 40; for i in 1 2 3; do echo x > /proc/1/exe; done 2>/dev/null; true";
    for flags in [&[][..], &["--nesting"]] {
        let ran = boxed(flags, &["sh", "-c", script]).ok();
        ran.says("exe 1: refused EACCES")
            .says_not("home/cowork-linux");
    }
    // A script whose interpreter is the process's own program: the launcher, just before it
    // becomes the script.
    let again = world.write("w/again", "#!/proc/self/exe\n");
    std::fs::set_permissions(&again, std::fs::Permissions::from_mode(0o755)).unwrap();
    boxed(&[], &["./again"]).failed_with(126);
    // With nesting there is no Landlock to refuse that. It stays without consequence: the file is
    // busy as long as the box lives, and no process of the box lives longer.
    assert_ne!(boxed(&["--nesting"], &["./again"]).code, 0);
    assert!(
        before == std::fs::read(&own).unwrap(),
        "the launcher was changed"
    );
}
