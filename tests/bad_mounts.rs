//! Folders that are none, that hold too much, or that are to go where they cannot.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "bad_input/refusal.rs"]
mod refusal;
mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;

use refusal::refused;
use support::{Ran, World};

/// `run -q` with these flags, and `true` as the command.
fn run<S: AsRef<OsStr>>(world: &World, flags: &[S]) -> Command {
    let mut command = world.cowork();
    command.args(["run", "-q"]).args(flags).args(["--", "true"]);
    command
}

/// `run -q --mount SPEC -- true`.
fn mount(world: &World, spec: impl AsRef<OsStr>) -> Command {
    run(world, &[OsStr::new("--mount"), spec.as_ref()])
}

#[test]
fn what_is_not_a_folder_cannot_be_mounted() {
    let world = World::new();
    let file = world.write("file", "");
    let _socket = UnixListener::bind(world.path("socket")).unwrap();
    nix::unistd::mkfifo(&world.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("b", world.path("a")).unwrap();
    symlink("a", world.path("b")).unwrap();
    symlink("nowhere", world.path("dangling")).unwrap();
    let below = file.join("below");
    let long = "y".repeat(300);
    for (name, because) in [
        ("missing", "No such file"),
        ("dangling", "No such file"),
        ("file", "it is a file"),
        ("socket", "it is a socket"),
        ("fifo", "it is a FIFO"),
        ("a", "its links lead in a circle"),
        (below.to_str().unwrap(), "Not a directory"),
        ("/dev/null", "it is a device"),
        (long.as_str(), "name too long"),
    ] {
        refused(&world, &mut mount(&world, name), "cannot mount", because);
    }
    for (text, because) in [
        ("", "is empty"),
        (":", "is empty"),
        ("w::ro", "is empty"),
        ("w:overlay", "not available yet"),
        ("w:x:rwd", "not available yet"),
    ] {
        refused(&world, &mut mount(&world, text), "--mount", because);
    }
}

#[test]
fn a_folder_that_cannot_be_read_is_not_mounted() {
    use std::os::unix::fs::PermissionsExt;
    if support::is_root() {
        return; // root can read everything
    }
    let world = World::new();
    let closed = world.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    refused(
        &world,
        &mut mount(&world, &closed),
        "cannot mount",
        "Permission denied",
    );
}

#[test]
fn folders_that_hold_more_than_a_project_are_not_mounted() {
    let world = World::new();
    let home = world.path("home");
    for name in [".ssh", ".gnupg/private", ".aws", ".config/gcloud"] {
        fs::create_dir_all(home.join(name)).unwrap();
    }
    symlink(&home, world.path("link-to-home")).unwrap();
    let keys = home.join(".ssh");
    let deep = home.join(".gnupg/private");
    let cloud = home.join(".config/gcloud");
    let state = world.path("state/cowork-linux");
    fs::create_dir(&state).unwrap();
    let sessions = state.join("sessions");
    fs::create_dir(&sessions).unwrap();
    let outside = world.path("");
    let state_home = world.path("state");
    for (path, because) in [
        (home.as_path(), "your whole home"),
        (&world.path("link-to-home"), "your whole home"),
        (&outside, "your whole home"),
        (&keys, "keys"),
        (&deep, "keys"),
        (&cloud, "keys"),
        (&state, "sessions keep their state"),
        (&sessions, "sessions keep their state"),
        (&state_home, "the state of all sessions"),
    ] {
        refused(&world, &mut mount(&world, path), "cannot mount", because);
    }
    for path in [
        "/",
        "/proc",
        "/sys",
        "/dev",
        "/etc",
        "/usr",
        "/bin",
        "/run",
        "/proc/self",
    ] {
        refused(
            &world,
            &mut mount(&world, path),
            "cannot mount",
            "that is a",
        );
    }
    let mut homeless = mount(&world, &state_home);
    homeless.env_remove("HOME");
    refused(
        &world,
        &mut homeless,
        "cannot mount",
        "the state of all sessions",
    );
}

#[test]
fn links_through_descriptors_are_not_followed() {
    let world = World::new();
    for path in [
        "/proc/self/fd/0",
        "/dev/fd/0",
        "/dev/stdin",
        "/proc/self/cwd",
    ] {
        let mut command = mount(&world, format!("{path}:w"));
        command.stdin(File::open(world.work()).unwrap());
        refused(
            &world,
            &mut command,
            "cannot mount",
            "its links lead in a circle",
        )
        .complains("/proc");
    }
}

#[test]
fn two_mounts_cannot_share_a_place_and_none_can_be_the_boxs_own() {
    let world = World::new();
    fs::create_dir_all(world.path("other/w")).unwrap();
    fs::create_dir(world.path("outputs")).unwrap();
    for (mounts, what, because) in [
        (&["w", "other/w"][..], "put a mount at", "is there already"),
        (&["w", "w"], "put a mount at", "is there already"),
        (&["w:a", "other:a"], "put a mount at", "is there already"),
        (&["w:a", "other:a/b"], "put a mount at", "is there already"),
        (&["w:a/b", "other:a"], "put a mount at", "is there already"),
        (
            &["w:/opt/a", "other:/opt/a/b"],
            "put a mount at",
            "is there already",
        ),
        (&["w:outputs"], "put a mount at", "outputs is there already"),
        (
            &["w:outputs/x"],
            "put a mount at",
            "outputs is there already",
        ),
        (
            &["w:./outputs"],
            "put a mount at",
            "outputs is there already",
        ),
        (&["outputs"], "put a mount at", "outputs is there already"),
        (&["w:."], "put a mount at", "is there already"),
        (&["w:../x"], "plan the box", "contains `..`"),
        (&["w:a/../../x"], "plan the box", "contains `..`"),
        (&["w:/opt/../etc"], "plan the box", "contains `..`"),
        (&["w:/"], "plan the box", "belongs to the box"),
        (&["w:/usr/x"], "plan the box", "belongs to the box"),
        (&["w:/etc"], "plan the box", "belongs to the box"),
        (&["w:/proc/1"], "plan the box", "belongs to the box"),
        (&["w:/dev/shm/x"], "plan the box", "belongs to the box"),
        (
            &["w:/sessions/x/mnt/y"],
            "plan the box",
            "belongs to the box",
        ),
        (&["w:/workspace"], "plan the box", "belongs to the box"),
    ] {
        let flags: Vec<_> = mounts.iter().flat_map(|spec| ["--mount", spec]).collect();
        refused(&world, &mut run(&world, &flags), what, because);
    }
}

#[test]
fn odd_names_are_mounted_and_hostile_ones_reach_no_terminal() {
    let world = World::new();
    for name in [
        "a b",
        "ü",
        "-x",
        "a:b",
        "new\nline",
        "\u{1b}[2J",
        "$(id)",
        "'\"",
    ] {
        fs::create_dir(world.path(name)).unwrap();
        Ran::of(&mut mount(&world, world.path(name))).ok();
    }
    let bytes = OsStr::from_bytes(b"not-\xff-utf8");
    fs::create_dir(world.path("").join(bytes)).unwrap();
    Ran::of(&mut mount(&world, world.path("").join(bytes))).ok();
    let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J";
    refused(
        &world,
        &mut mount(&world, hostile),
        "cannot mount",
        "No such file",
    );
    refused(
        &world,
        &mut run(&world, &["--profile", hostile]),
        "policy",
        "",
    );
    refused(
        &world,
        &mut run(&world, &["--network", hostile]),
        "--network",
        "",
    );
    refused(&world, &mut run(&world, &[hostile]), "command line", "");
}
