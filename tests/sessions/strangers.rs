//! Other users: they reach nothing, read nothing, and learn of nothing. Needs root to be two users.

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::ground::Ground;
use crate::support::{Ran, is_root};

const NOBODY: u32 = 65534;

fn open_up(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn as_nobody() -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "20",
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ]);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

#[test]
fn nobody_else_reads_or_lists_anything() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    // The way there is open, as for a home that others may enter; only our own walls are left.
    for name in ["", "state", "run"] {
        open_up(&ground.world.path(name), 0o755);
    }
    let id = ground.start(
        &["--name", "private"],
        &["sh", "-c", "echo said; exec sleep 1000"],
    );
    let paths = [
        ground.runtime(),
        ground.socket(&id),
        ground.folder(&id),
        ground.record(&id),
        ground.folder(&id).join("log.0"),
        ground.journal(&id),
        ground.world.path("state/cowork-linux"),
        ground.world.path("state/cowork-linux/sessions"),
        ground.world.path("state/cowork-linux/journals"),
    ];
    for path in paths {
        assert!(crate::support::exists(&path), "{}", path.display());
        let mut command = as_nobody();
        command
            .args(["sh", "-c", "ls \"$0\" || cat \"$0\""])
            .arg(&path);
        let ran = Ran::of(&mut command);
        assert_eq!(ran.out, "", "{}", path.display());
        assert_ne!(ran.code, 0, "{}", path.display());
    }
}

#[test]
fn a_caller_of_another_user_is_turned_away_at_the_socket_itself() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let id = ground.sleeper("s");
    let open = |ground: &Ground| {
        for name in ["", "run", "run/cowork-linux"] {
            open_up(&ground.world.path(name), 0o777);
        }
        open_up(&ground.socket("s"), 0o777);
    };
    open(&ground);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.settimeout(5)\ns.connect(sys.argv[1])\ntry:\n s.send(b'{\"ask\":\"inspect\"}')\nexcept OSError: pass\ntry:\n said=s.recv(100000)\nexcept ConnectionResetError: said=s.recv(100000)\nprint(said.decode())";
    let mut command = as_nobody();
    command
        .args(["python3", "-c", script])
        .arg(ground.socket(&id));
    let ran = Ran::of(&mut command);
    assert!(!ran.out.contains("seen"), "{ran:?}");
    assert!(ran.out.contains("somebody else's"), "{ran:?}");
    open(&ground);
    // The command refuses too, because whoever listens there is another user.
    let copy = Path::new("/var/tmp").join(format!("cowork-strangers-{}", std::process::id()));
    std::fs::copy(crate::support::binary(), &copy).unwrap();
    open_up(&copy, 0o755);
    let mut command = as_nobody();
    command.arg(&copy).args(["exec", &id, "--", "true"]);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent");
    command.env("XDG_RUNTIME_DIR", ground.world.path("run"));
    let ran = Ran::of(&mut command);
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(ran.code, 125, "{ran:?}");
    ground.exec(&id, &["true"]).ok();
}

#[test]
fn a_directory_for_sockets_that_is_not_ones_own_is_refused() {
    let ground = Ground::new();
    let real = ground.world.path("elsewhere");
    std::fs::create_dir(&real).unwrap();
    symlink(&real, ground.runtime()).unwrap();
    let ran = ground
        .try_start(&["--name", "s"], &["sleep", "1000"])
        .failed_with(125);
    ran.complains("XDG_RUNTIME_DIR");
    assert_eq!(std::fs::read_dir(&real).unwrap().count(), 0);
    std::fs::remove_file(ground.runtime()).unwrap();
    std::fs::write(ground.runtime(), "").unwrap();
    ground
        .try_start(&["--name", "s"], &["sleep", "1000"])
        .failed_with(125);
    std::fs::remove_file(ground.runtime()).unwrap();
    if is_root() {
        std::fs::create_dir(ground.runtime()).unwrap();
        chown(ground.runtime(), Some(NOBODY), None).unwrap();
        ground
            .try_start(&["--name", "s"], &["sleep", "1000"])
            .failed_with(125);
        std::fs::remove_dir(ground.runtime()).unwrap();
    }
    // Nothing of it is in the way of a session in a directory that is.
    ground.sleeper("s");
    ground.exec("s", &["true"]).ok();
}

/// Too open is put right, where it is one's own.
#[test]
fn a_directory_for_sockets_is_closed_to_others() {
    let ground = Ground::new();
    std::fs::create_dir(ground.runtime()).unwrap();
    open_up(&ground.runtime(), 0o777);
    ground.sleeper("s");
    let mode = std::fs::metadata(ground.runtime())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let mode = std::fs::metadata(ground.socket("s"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);
}

/// A stranger listens at a socket of ours: nothing is told to them.
#[test]
fn a_socket_that_a_stranger_listens_at_is_not_talked_to() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    ground.sleeper("mine");
    for name in ["", "run", "run/cowork-linux"] {
        open_up(&ground.world.path(name), 0o777);
    }
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.bind(sys.argv[1])\ns.listen(5)\nimport os\nos.chmod(sys.argv[1],0o777)\nprint('up',flush=True)\nc,_=s.accept()\nc.settimeout(5)\nprint(c.recv(10000),flush=True)";
    let mut command = as_nobody();
    command
        .args(["python3", "-c", script])
        .arg(ground.socket("trap"));
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "up\n");
    let ran = ground.say(&["exec", "-e", "TOKEN=secret", "trap", "--", "true"]);
    ran.failed_with(125).complains("somebody else's");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "b''\n");
    child.wait().unwrap();
}
