//! Hosts on which something is missing, full, read-only or somebody else's.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "bad_input/refusal.rs"]
mod refusal;
mod support;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use refusal::{refused, said_well, tree};
use support::{Ran, World};

/// `run -q -- true`, as `cowork` of the world would start it.
fn run(world: &World) -> Command {
    let mut command = world.cowork();
    command.args(["run", "-q", "--", "true"]);
    command
}

/// A shell script in a mount namespace of its own, as root of it; `$COWORK` is the binary.
fn privately(world: &World, script: &str) -> Ran {
    let flags: &[&str] = if support::is_root() {
        &["-m", "--propagation", "private"]
    } else {
        &["-U", "-r", "-m", "--propagation", "private"]
    };
    let mut command = Command::new("unshare");
    let whole = format!("set -e\n{script}");
    command.args(flags).args(["sh", "-c", &whole]).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command
        .env("HOME", world.path("home"))
        .env("XDG_STATE_HOME", world.path("state"));
    command
        .env("STATE", world.path("state"))
        .env("COWORK", support::binary());
    Ran::of(
        command
            .current_dir(world.path(""))
            .stdin(std::process::Stdio::null()),
    )
}

#[test]
fn a_full_disk_is_named_and_nothing_half_made_stays() {
    // A room is seven files and folders, a named session eight, and the disk itself is one: each
    // number of free ones fails at another of them.
    let world = World::new();
    let rooms = (2..=7).map(|inodes| (inodes, ""));
    let named = (2..=8).map(|inodes| (inodes, "--name kept"));
    for (inodes, flags) in rooms.chain(named) {
        let ran = privately(
            &world,
            &format!(
                "mount -t tmpfs -o nr_inodes={inodes},mode=700 tmpfs $STATE
                 code=0; $COWORK run -q {flags} -- true || code=$?
                 find $STATE -mindepth 1
                 exit $code"
            ),
        );
        said_well(&ran, "cannot make the session's directory", "No space left");
        ran.complains("XDG_STATE_HOME");
    }
    assert_eq!(tree(&world.path("state")), Vec::<String>::new());
}

#[test]
fn without_proc_nothing_is_tried() {
    let world = World::new();
    let before = tree(&world.path(""));
    let ran = privately(
        &world,
        "mount -t tmpfs tmpfs /proc; exec $COWORK run -q -- true",
    );
    said_well(&ran, "look at this system", "/proc is not mounted");
    assert_eq!(tree(&world.path("")), before);
}

#[test]
fn a_read_only_home_is_named() {
    let world = World::new();
    let before = tree(&world.path(""));
    let ran = privately(
        &world,
        "mount --bind $HOME $HOME; mount -o remount,bind,ro $HOME
         unset XDG_STATE_HOME; exec $COWORK run -q -- true",
    );
    said_well(&ran, "home/.local", "Read-only file system");
    assert_eq!(tree(&world.path("")), before);
    ran.complains("XDG_STATE_HOME");
}

#[test]
fn homes_that_are_none_are_refused() {
    let world = World::new();
    let cannot = "cannot keep sessions";
    let because = "neither XDG_STATE_HOME nor HOME";
    let mut neither = run(&world);
    neither.env_remove("HOME").env_remove("XDG_STATE_HOME");
    refused(&world, &mut neither, cannot, because);
    let mut relative = run(&world);
    relative.env("HOME", "home").env("XDG_STATE_HOME", "state");
    refused(&world, &mut relative, cannot, because);
    let mut nowhere = run(&world);
    nowhere.env("XDG_STATE_HOME", "/proc/no-such");
    refused(&world, &mut nowhere, "cannot make", "No such file");
    let mut file = run(&world);
    file.env("XDG_STATE_HOME", world.write("file", ""));
    refused(&world, &mut file, "cannot make", "Not a directory");
    symlink("nowhere", world.path("dangling")).unwrap();
    let mut dangling = run(&world);
    dangling.env("XDG_STATE_HOME", world.path("dangling"));
    refused(&world, &mut dangling, "cannot make", "No such file");
}

#[test]
fn little_is_needed_of_the_environment() {
    let world = World::new();
    for missing in ["HOME", "XDG_STATE_HOME", "PATH", "LANG", "XDG_RUNTIME_DIR"] {
        Ran::of(run(&world).env_remove(missing)).ok();
    }
    let mut bare = run(&world);
    Ran::of(
        bare.env_clear()
            .env("XDG_STATE_HOME", world.path("deep/down/here")),
    )
    .ok();
    assert!(world.path("deep/down/here/cowork-linux").is_dir());
}

#[test]
fn state_that_others_can_write_is_not_used() {
    let world = World::new();
    let state = world.path("state/cowork-linux");
    let session = state.join("sessions/s");
    fs::create_dir_all(&session).unwrap();
    for folder in [&session, &state.join("sessions"), &state] {
        let open = |mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o777, 0o720] {
            open(mode);
            let mut command = world.cowork();
            command.args(["run", "-q", "--name", "s", "--", "true"]);
            let what = format!("cannot use {}", folder.display());
            refused(&world, &mut command, &what, "others can write to it");
        }
        open(0o700);
    }
    Ran::of(&mut run(&world)).ok();
}

#[test]
fn state_that_is_somebody_elses_is_not_used() {
    let world = World::new();
    let state = world.path("state/cowork-linux");
    fs::create_dir(&state).unwrap();
    if support::is_root() {
        std::os::unix::fs::chown(&state, Some(65534), None).unwrap();
        refused(
            &world,
            &mut run(&world),
            "cannot use",
            "belongs to another user",
        );
        return;
    }
    // Root's folder, seen from a namespace in which root is nobody.
    let bound = "mount --rbind /usr/share $STATE/cowork-linux; exec $COWORK run -q -- true";
    let ran = privately(&world, bound);
    said_well(&ran, "cannot use", "belongs to another user");
}

#[test]
fn state_behind_a_link_is_not_used() {
    for name in [
        "state/cowork-linux",
        "state/cowork-linux/sessions",
        "state/cowork-linux/sessions/s",
        "state/cowork-linux/sessions/s/inner",
        "state/cowork-linux/sessions/s/inner/home",
        "state/cowork-linux/sessions/s/outputs",
        "state/cowork-linux/sessions/s/tmp",
        "state/cowork-linux/sessions/s/lock",
        "state/cowork-linux/rooms",
        "state/cowork-linux/rooms/0",
        "state/cowork-linux/rooms/0/lock",
    ] {
        let world = World::new();
        let elsewhere = world.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let parent = world.path(name);
        let parent = parent.parent().unwrap();
        fs::create_dir_all(parent).unwrap();
        symlink(&elsewhere, world.path(name)).unwrap();
        let mut command = world.cowork();
        let flags: &[&str] = match name.contains("rooms") {
            true => &["run", "-q", "--", "true"],
            false => &["run", "-q", "--name", "s", "--", "true"],
        };
        refused(&world, command.args(flags), "cannot", "");
        assert!(tree(&elsewhere).is_empty(), "{name}");
    }
}

#[test]
fn state_of_the_wrong_kind_is_refused_without_waiting() {
    let lock = "state/cowork-linux/sessions/s/lock";
    let command = |world: &World| {
        let mut command = world.cowork();
        command.args(["run", "-q", "--name", "s", "--", "true"]);
        command
    };
    let world = World::new();
    fs::create_dir_all(world.path(lock).parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&world.path(lock), nix::sys::stat::Mode::S_IRWXU).unwrap();
    refused(&world, &mut command(&world), "cannot make", "");
    let world = World::new();
    world.write("state/cowork-linux/sessions", "");
    refused(
        &world,
        &mut command(&world),
        "cannot use",
        "it is not a folder",
    );
}

#[test]
fn closed_streams_are_nobodys_files() {
    let world = World::new();
    let secret = world.write("w/secret", "secret");
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", ">&- 2>&-"] {
        let mut command = Command::new("sh");
        let inside = "cat; echo out; echo err >&2; exit 3";
        command.args(["-c", &format!("exec \"$@\" {closed}"), "sh"]);
        command
            .arg(support::binary())
            .args(["run", "-q", "--name", "s", "--mount"]);
        command
            .arg(world.work())
            .args(["--", "sh", "-c", inside])
            .env_clear();
        command
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_STATE_HOME", world.path("state"));
        let ran = Ran::of(command.stdin(std::process::Stdio::null())).failed_with(3);
        let is_open = !closed.split(' ').any(|word| word == ">&-");
        assert_eq!(ran.out.contains("out"), is_open, "{closed}");
    }
    // What was written to a closed stream went nowhere, least of all into our own files.
    let files = tree(&world.path("state"));
    let grown: Vec<_> = files
        .iter()
        .filter(|line| line.contains(" 100600 "))
        // What is kept about a session has content, and none of the program's.
        .filter(|line| !line.contains("/journals/") && !line.contains("/record.json "))
        .collect();
    assert!(grown.iter().all(|line| line.ends_with(" 0 ")), "{grown:?}");
    assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
}

#[test]
fn output_that_cannot_be_written_is_said_and_fails() {
    let world = World::new();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut plan = world.cowork();
    plan.args(["run", "--dry-run"]).stdout(full());
    refused(&world, &mut plan, "print the plan", "No space left");
    // A reader that goes away is no failure.
    let line = format!(
        "set -o pipefail; {} run --dry-run | true",
        support::binary().display()
    );
    let mut gone = Command::new("bash");
    gone.args(["-c", &line]).env("HOME", world.path("home"));
    Ran::of(&mut gone).ok();
}

#[test]
fn a_full_disk_under_a_redirected_stream_is_said_and_fails() {
    let world = World::new();
    if !support::is_root() {
        // As root of a namespace with one user, the launcher could not map the box's user.
        return;
    }
    let redirect = |program: &str| {
        format!(
            "mkdir -p full; mount -t tmpfs -o size=64k tmpfs full
             code=0; $COWORK run -q -- {program} > full/out || code=$?
             exit $code"
        )
    };
    for program in ["head -c 100000 /dev/zero", "cat /dev/zero"] {
        let ran = privately(&world, &redirect(program));
        assert!(ran.code != 0 && ran.code != 125, "{ran:?}");
        ran.complains("error: cannot write standard output")
            .complains("because: No space left on device")
            .complains("help: ");
    }
}

#[test]
fn a_working_directory_that_is_gone_does_not_matter() {
    let world = World::new();
    let gone = world.path("gone");
    fs::create_dir(&gone).unwrap();
    let mut command = Command::new("sh");
    let script = "cd \"$1\" && rmdir \"$1\" && exec \"$2\" run -q -- pwd";
    command
        .args(["-c", script, "sh"])
        .arg(&gone)
        .arg(support::binary());
    command.env("HOME", world.path("home"));
    Ran::of(&mut command).ok().says("/sessions/");
    assert!(!support::exists(Path::new(&gone)));
}
