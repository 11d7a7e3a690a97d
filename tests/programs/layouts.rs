//! Hosts that are laid out in another way: links, odd names, other filesystems.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::shop::SEARCH;
use crate::support::{Ran, World, binary, is_root};

/// Runs `setup` and then `cowork-linux run -q FLAGS` in a mount namespace of its own, in which an
/// ordinary user may mount too. `$W` is the shared folder, `$WORLD` what it lies in.
pub(crate) fn private(world: &World, setup: &str, flags: &str) -> Ran {
    // The caller's binary may lie where the namespace has something else.
    let own = world.path("cowork-linux");
    std::fs::copy(binary(), &own).unwrap();
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    let script = format!("set -e\n{setup}\nexec \"$WORLD/cowork-linux\" run -q {flags}");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env_clear()
        .env("HOME", world.path("home"))
        .env("XDG_STATE_HOME", world.path("state"))
        .env("WORLD", world.path(""))
        .env("W", world.work())
        .env("PATH", format!("{SEARCH}:/usr/sbin:/sbin"))
        .env("LANG", "C.UTF-8")
        .current_dir(world.work())
        .stdin(Stdio::null());
    Ran::of(&mut command)
}

#[test]
fn here_is_the_folder_one_stands_in_even_behind_a_link() {
    let world = World::new();
    std::fs::create_dir_all(world.work().join("real/project")).unwrap();
    symlink("real", world.work().join("link")).unwrap();
    for mount in [".", "../project", "../../link/project"] {
        let mut command = world.cowork();
        command
            .current_dir(world.work().join("link/project"))
            .env("PWD", world.work().join("link/project"))
            .args(["run", "-q", "--mount", mount, "--"])
            .args(["sh", "-ec", "pwd; echo x >> made; cd /workspace; pwd -P"]);
        let ran = Ran::of(&mut command).ok();
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines[0].ends_with("/mnt/project"), "{lines:?}");
        assert_eq!(lines[0], lines[1]);
    }
    assert_eq!(world.read("real/project/made"), "x\nx\nx\n");
}

#[test]
fn a_mount_that_is_itself_a_link_keeps_its_name() {
    let world = World::new();
    std::fs::create_dir(world.work().join("release-2024")).unwrap();
    let link = world.work().join("current");
    symlink("release-2024", &link).unwrap();
    let mut command = world.cowork();
    command.args(["run", "-q", "--mount"]).arg(&link);
    Ran::of(command.args(["--", "sh", "-ec", "pwd; echo x > made"]))
        .ok()
        .says("/mnt/current\n");
    assert_eq!(world.read("release-2024/made"), "x\n");
}

#[test]
fn odd_names_are_only_names() {
    let world = World::new();
    let names: [&[u8]; 9] = [
        b"two words",
        "\u{fc}mlaut \u{65e5}\u{672c} \u{1f980}".as_bytes(),
        b"with:colon",
        b"ends:ro",
        b"-dash",
        b"quote'\"$HOME`x`",
        b"back\\slash*?[a]",
        b"not \xff utf-8",
        b"a\ttab",
    ];
    for name in names {
        let folder = world.work().join(OsStr::from_bytes(name));
        std::fs::create_dir(&folder).unwrap();
        let mut command = world.cowork();
        command.args(["run", "-q", "--mount"]).arg(&folder);
        let ran = Ran::of(command.args([
            "--",
            "sh",
            "-ec",
            "cat made || :; pwd > made; git init -q r",
        ]))
        .ok();
        let made = std::fs::read(folder.join("made"))
            .unwrap_or_else(|error| panic!("{}: {error}; {ran:?}", folder.display()));
        assert!(made.strip_suffix(b"\n").unwrap().ends_with(name), "{ran:?}");
    }
}

#[test]
fn the_hosts_resolver_is_read_through_its_link() {
    let world = World::new();
    let setup = "mkdir -p \"$WORLD/etc\"; mount -t tmpfs tmpfs \"$WORLD/etc\"
        cp -r /etc/. \"$WORLD/etc\" 2>/dev/null || :
        mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/resolve
        echo nameserver 192.0.2.53 > /run/systemd/resolve/stub-resolv.conf
        umount /etc/resolv.conf 2>/dev/null || :
        mount --bind \"$WORLD/etc\" /etc; rm -f /etc/resolv.conf
        ln -s ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf";
    let see = |mode: &str| {
        let flags = format!("--network {mode} --mount \"$W\" -- cat /etc/resolv.conf");
        private(&world, setup, &flags).ok()
    };
    see("host").says("nameserver 192.0.2.53");
    see("none").says_not("192.0.2.53");
}

#[test]
fn a_home_on_another_filesystem_holds_sessions_and_projects() {
    let world = World::new();
    let setup = "mount -t tmpfs -o mode=0700 tmpfs \"$HOME\"; unset XDG_STATE_HOME
        mkdir -p ~/project; cd ~/project; echo before > file";
    let inside = "sh -ec 'cat file; echo after > file; cat file; git init -q r; echo x > ~/note; mv ~/note .'";
    let ran = private(&world, setup, &format!("--mount . -- {inside}")).ok();
    ran.says("before\nafter\n");
}

#[test]
fn a_system_with_folders_beside_usr_works_too() {
    let world = World::new();
    // A root of its own in which /bin and its like are folders, as before the merge.
    let setup = "root=$WORLD/root; mkdir $root; mount -t tmpfs tmpfs $root; cd $root
        for name in bin sbin lib lib64; do
            mkdir $name; [ ! -d /usr/$name ] || mount --rbind /usr/$name $name
        done
        for name in usr etc proc dev tmp var run; do mkdir $name; mount --rbind /$name $name; done
        mkdir -p \"./$WORLD\" old; mount --rbind \"$WORLD\" \"./$WORLD\"
        pivot_root . old; cd \"$W\"; umount -l /old
        test -d /bin -a ! -L /bin";
    let inside = "sh -ec 'test ! -L /bin; test ! -L /lib; echo made > made; git --version; python3 -c \"print(6*7)\"'";
    let ran = private(&world, setup, &format!("--mount . -- {inside}")).ok();
    ran.says("git version").says("42\n");
    assert_eq!(world.read("made"), "made\n");
}
