//! The socket, who may use it, and several at once (P1 to P8).

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::client::{App, Listener};
use crate::ground::{Ground, eventually, with, within};
use crate::support::{Ran, binary, exists, is_root};

#[test]
fn p1_a_socket_of_the_user_alone() {
    let mut ground = Ground::bare();
    let parent = std::fs::metadata(ground.world.path("run")).unwrap();
    within(5, "a start", || ground.start(&[]));
    let socket = std::fs::symlink_metadata(ground.socket()).unwrap();
    assert!(socket.file_type().is_socket());
    assert!([0o600, 0o700].contains(&(socket.mode() & 0o7777)));
    let after = std::fs::metadata(ground.world.path("run")).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.ino()),
        (parent.mode(), parent.uid(), parent.ino())
    );
}

/// Sends one request as another user, and says what came back.
const STRANGER: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
body = b'{\"method\":\"isRunning\",\"id\":1}'
try:
    s.sendall(len(body).to_bytes(4, 'big') + body)
    got = s.recv(1000)
except (ConnectionResetError, BrokenPipeError):
    got = b''
print('got', len(got))
";

fn visits(user: Option<u32>, socket: &std::path::Path) -> Ran {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        let user = user.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    }
    command
        .args(["--", "/usr/bin/python3", "-c", STRANGER])
        .arg(socket);
    Ran::of(command.stdin(Stdio::null()))
}

#[test]
fn p2_another_user_is_not_heard() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let open = |path: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(ground.world.path(path), mode).unwrap();
    };
    // As if the folders and the socket were everybody's; then only the helper itself is in the way.
    for folder in ["", "run"] {
        open(folder, 0o755);
    }
    open("run/claude-cowork-vm.sock", 0o666);
    visits(None, &ground.socket()).ok().says("got 54");
    visits(Some(65_534), &ground.socket()).ok().says("got 0");
    eventually("it says so", || ground.log().contains("65534"));
    // And who is allowed still is.
    visits(None, &ground.socket()).ok().says("got 54");
}

#[test]
fn p3_a_second_one_waits_for_its_turn() {
    let mut ground = Ground::new();
    let socket = std::fs::metadata(ground.socket()).unwrap().ino();
    let mut second = ground.launch(&mut ground.helping());
    let mut line = ground.line();
    eventually("the second one waits", || waits_for_a_lock(second.pid()));
    for _ in 0..5 {
        assert!(!line.is_connected());
        assert!(!ground.line().is_connected());
    }
    assert_eq!(std::fs::metadata(ground.socket()).unwrap().ino(), socket);
    assert!(second.child.try_wait().unwrap().is_none(), "it ended");
    ground.helper.as_mut().unwrap().crashes();
    within(10, "the second one's turn", || ground.is_served());
    ground.helper = Some(second);
    ground.boots();
    let mut app = ground.app();
    assert_eq!(app.run(ground.sh("a", "echo second")).ok(), "second\n");
}

/// Whether a process of this number is asleep in the call for a lock, or knows of a lock at all.
fn waits_for_a_lock(pid: i32) -> bool {
    let folder = format!("/proc/{pid}/fd");
    let open = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.any(|name| name.display().to_string().ends_with(".lock"))
}

#[test]
fn p3_a_second_one_goes_when_its_app_goes() {
    let ground = Ground::new();
    let mut second = ground.launch(&mut ground.helping());
    eventually("the second one waits", || waits_for_a_lock(second.pid()));
    drop(second.app.take());
    second.ends();
    assert!(!ground.line().is_connected());
}

#[test]
fn p4_a_socket_without_anybody_behind_it_is_replaced() {
    let mut ground = Ground::bare();
    drop(UnixListener::bind(ground.socket()).unwrap());
    assert!(exists(&ground.socket()));
    assert!(UnixStream::connect(ground.socket()).is_err());
    ground.start(&[]);
    assert!(!ground.line().is_connected());
}

#[test]
fn p5_what_is_no_socket_is_left_alone() {
    let ground = Ground::bare();
    let elsewhere = ground.world.write("run/elsewhere", "precious");
    let says = |about: &str| {
        let mut helper = ground.launch(&mut ground.helping());
        assert!(!helper.ends().success(), "{about}");
        let log = ground.log();
        assert!(log.contains("claude-cowork-vm.sock"), "{about}: {log}");
        std::fs::remove_file(ground.world.path("log")).unwrap();
    };
    symlink(&elsewhere, ground.socket()).unwrap();
    says("a link");
    assert_eq!(std::fs::read_link(ground.socket()).unwrap(), elsewhere);
    std::fs::remove_file(ground.socket()).unwrap();

    // Even one to a socket that is served.
    let _other = UnixListener::bind(ground.world.path("run/other")).unwrap();
    symlink(ground.world.path("run/other"), ground.socket()).unwrap();
    says("a link to a socket");
    std::fs::remove_file(ground.socket()).unwrap();

    std::fs::write(ground.socket(), "precious").unwrap();
    says("a file");
    assert_eq!(
        std::fs::read_to_string(ground.socket()).unwrap(),
        "precious"
    );
    assert_eq!(std::fs::read_to_string(elsewhere).unwrap(), "precious");
}

#[test]
fn p6_every_way_to_be_called() {
    let mut ground = Ground::bare();
    let socket = ground.socket();
    let socket = socket.to_str().unwrap();
    let joined = format!("-socket={socket}");
    let longer = format!("--socket={socket}");
    let ways: [&[&str]; 7] = [
        &["helper", "-socket", socket],
        &["-socket", socket],
        &["--socket", socket],
        &[&joined],
        &["helper", &longer],
        &["/opt/x/resources/cowork-vm-service.js", "-socket", socket],
        &["cowork-vm-service.js", &joined],
    ];
    for way in ways {
        let mut command = ground.cowork();
        ground.start_as(command.args(way));
        assert!(!ground.line().is_connected(), "{way:?}");
        drop(ground.helper.take());
    }
    for name in ["cowork-linux-helper", "cowork-svc-linux"] {
        let link = ground.world.path(name);
        symlink(crate::support::binary(), &link).unwrap();
        let mut command = Command::new(link);
        ground.surround(&mut command);
        ground.start_as(command.args(["-socket", socket]));
        assert!(!ground.line().is_connected(), "{name}");
        drop(ground.helper.take());
    }
    let script = "process.exit(require('x') ? 0 : 1)";
    let mut question = ground.cowork();
    question.args(["-e", script]).stdin(Stdio::null());
    within(3, "an answer about -e", || Ran::of(&mut question).ok());
}

#[test]
fn p7_two_clients_share_what_runs() {
    let ground = Ground::booted();
    let mut one = ground.app();
    let mut two = ground.app();
    one.line
        .spawn(ground.sh("p1", "read word; echo heard $word; sleep 1000"));
    let running = two.line.ok("isProcessRunning", json!({"id": "p1"}));
    assert_eq!(running, json!({"running": true}));
    two.line
        .ok("writeStdin", json!({"id": "p1", "data": "yes\n"}));
    one.events.says("p1", "heard yes\n");
    two.events.says("p1", "heard yes\n");
    two.line
        .ok("kill", json!({"id": "p1", "signal": "SIGTERM"}));
    let (first, second) = (one.events.finished("p1"), two.events.finished("p1"));
    first.ended(143, Some("SIGTERM"));
    assert_eq!(first.exit, second.exit);
}

#[test]
fn p8_two_profiles_know_nothing_of_each_other() {
    let ground = Ground::new();
    let profile = |name: &str| {
        let root = ground.world.path("home/.config");
        json!({"userDataName": name, "userDataRoot": root})
    };
    let app = |name: &str| {
        let mut line = ground.line();
        line.ok(
            "configure",
            with(profile(name), json!({"sessionOnly": true})),
        );
        line.ok("configure", profile(name));
        let events = Listener::to(&ground.socket(), profile(name));
        App { line, events }
    };
    let (mut a, mut b) = (app("A"), app("B"));
    a.line.ok("startVM", json!({}));
    b.line.ok("startVM", json!({}));
    a.line
        .spawn(ground.sh("p", "echo of a; read word; echo $word"));
    a.events.says("p", "of a");
    assert_eq!(
        b.line.ok("isProcessRunning", json!({"id": "p"})),
        json!({"running": false})
    );
    b.line
        .refused("writeStdin", json!({"id": "p", "data": "no\n"}));
    b.line.ok("kill", json!({"id": "p"}));
    b.line.ok("stopVM", json!({}));
    assert!(!b.line.is_connected());
    assert!(a.line.is_connected());
    a.line
        .ok("writeStdin", json!({"id": "p", "data": "goes on\n"}));
    assert_eq!(a.events.finished("p").ok(), "of a\ngoes on\n");

    // The same names of a session and of a process are another session and process.
    b.line.ok("startVM", json!({}));
    assert_eq!(
        b.run(ground.sh("q", "touch ~/of-b; ls ~")).ok(),
        "mnt\nof-b\n"
    );
    assert_eq!(a.run(ground.sh("q", "ls ~")).ok(), "mnt\n");
    b.events.listen(Duration::from_millis(200));
    assert!(!b.events.knows("p"), "{:?}", b.events.of("p"));
}

/// Opens the socket and becomes the helper, as systemd does.
const OPENED_BEFORE: &str = "
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(8)
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
env = dict(os.environ, LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execve(sys.argv[2], [sys.argv[2], 'helper', '--socket', sys.argv[1]], env)
";

#[test]
fn a_socket_that_was_opened_before_is_served_and_left() {
    let mut ground = Ground::bare();
    let mut command = Command::new("/usr/bin/python3");
    ground.surround(&mut command);
    command
        .args(["-c", OPENED_BEFORE])
        .arg(ground.socket())
        .arg(binary());
    ground.start_as(&mut command);
    ground.boots();
    let mut app = ground.app();
    assert_eq!(app.run(ground.sh("a", "echo served")).ok(), "served\n");
    drop(app);
    let mut helper = ground.helper.take().unwrap();
    drop(helper.app.take());
    assert!(helper.ends().success());
    // Whoever opened it still has it.
    assert!(exists(&ground.socket()));
}
