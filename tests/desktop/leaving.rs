//! What is left when one of them goes, or does not answer (P9 to P13).

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::client::once;
use crate::dead_disk::DeadDisk;
use crate::ground::{Ground, eventually, from_root, mount, patience, with, within};
use crate::helper::Helper;
use crate::support::{exists, is_root};

#[test]
fn p9_who_comes_back_hears_what_was_said_meanwhile() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let go = ground.folder("w");
    let script = "echo first; while ! [ -e mnt/w/go ]; do sleep 0.05; done; \
                  for i in 1 2 3; do echo line $i; done; exit 4";
    let mounts = json!({"additionalMounts": {"w": mount(&go, "ro")}});
    app.line.spawn(with(ground.sh("p", script), mounts));
    app.events.says("p", "first\n");
    drop(app);
    eventually("both connections are gone", || {
        connections(ground.pid()) == 0
    });
    std::fs::write(go.join("go"), "").unwrap();
    eventually("it has ended", || {
        let reply = once(&ground.socket(), "isProcessRunning", json!({"id": "p"}));
        reply["result"] == json!({"running": false, "exitCode": 4})
    });
    let mut back = ground.listener();
    let done = back.finished("p");
    done.ended(4, None);
    assert_eq!(done.out, "line 1\nline 2\nline 3\n");
}

/// How many sockets a process has with somebody at the other end whom it has accepted.
fn connections(pid: i32) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap();
    let accepted: Vec<&str> = table
        .lines()
        .filter(|line| line.ends_with("claude-cowork-vm.sock"))
        .filter(|line| line.split_whitespace().nth(5) == Some("03"))
        .filter_map(|line| line.split_whitespace().nth(6))
        .collect();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names
        .filter(|name| {
            let name = name.display().to_string();
            accepted
                .iter()
                .any(|inode| name == format!("socket:[{inode}]"))
        })
        .count()
}

/// Two sessions with something in them that would go on for long, and their processes.
fn two_sessions(ground: &Ground) -> crate::watch::Watch {
    let mut app = ground.app();
    app.line.spawn(ground.sh("a", "echo up; sleep 1000"));
    let other = json!({"name": ground.other("two")});
    let stubborn =
        "trap '' TERM INT HUP; setsid nohup sleep 1000 & echo up; while :; do sleep 1; done";
    app.line.spawn(with(ground.sh("b", stubborn), other));
    app.events.says("a", "up");
    app.events.says("b", "up");
    let watch = ground.boxed();
    // A supervisor, a first process and a shell of each, at least.
    assert!(watch.len() >= 6, "{}", watch.len());
    watch
}

#[test]
fn p10_the_app_dies_and_everything_goes_with_it() {
    let mut ground = Ground::booted();
    let watch = two_sessions(&ground);
    let mut helper = ground.helper.take().unwrap();
    within(15, "the end", || {
        drop(helper.app.take());
        helper.ends();
        watch.all_gone();
    });
    assert!(!exists(&ground.socket()), "the socket stayed");
    eventually("nobody is left", || ground.processes().is_empty());
}

#[test]
fn p10_the_app_dies_while_a_session_is_being_made() {
    let mut ground = Ground::booted();
    let mut line = ground.line();
    for number in 0..6 {
        let name = json!({"name": ground.other(&number.to_string())});
        line.request(
            "spawn",
            with(ground.sh(&format!("p{number}"), "sleep 1000"), name),
        );
    }
    drop(ground.helper.as_mut().unwrap().app.take());
    ground.helper.as_mut().unwrap().ends();
    eventually("nobody is left", || ground.processes().is_empty());
}

#[test]
fn p11_a_killed_helper_leaves_nobody() {
    let mut ground = Ground::booted();
    let watch = two_sessions(&ground);
    within(10, "the end", || {
        crate::watch::send(ground.pid(), Signal::SIGKILL);
        watch.all_gone();
    });
    eventually("nobody is left", || {
        ground.processes().iter().all(|pid| *pid == ground.pid())
    });
    // And the next one has no trouble with what it left.
    drop(ground.helper.take());
    ground.start(&[]);
    assert!(!ground.line().is_connected(), "a fresh one was not started");
    ground.boots();
    let mut app = ground.app();
    assert_eq!(app.run(ground.sh("a", "echo again")).ok(), "again\n");
}

#[test]
fn a_helper_that_is_asked_to_end_does() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut ground = Ground::booted();
        let watch = two_sessions(&ground);
        crate::watch::send(ground.pid(), signal);
        ground.helper.as_mut().unwrap().ends();
        watch.all_gone();
        assert!(!exists(&ground.socket()), "the socket stayed");
    }
}

#[test]
fn p12_connections_that_come_and_go_and_those_that_stay() {
    let ground = Ground::new();
    assert!(!ground.line().is_connected());
    eventually("only the socket", || connections(ground.pid()) == 0);
    let before = ground.descriptors();
    for _ in 0..200 {
        drop(UnixStream::connect(ground.socket()).unwrap());
    }
    ground.has_at_most(before, "200 are gone");
    let idle: Vec<UnixStream> = (0..1000)
        .map(|_| UnixStream::connect(ground.socket()).unwrap())
        .collect();
    within(5, "an answer beside 1000", || {
        assert!(!ground.line().is_connected());
    });
    drop(idle);
    ground.has_at_most(before, "1000 are gone");
}

#[test]
#[ignore = "a process that another test starts, with mounts of its own"]
fn with_mounts_of_its_own() {
    let ground = Ground::booted();
    let folder = ground.world.path("dead");
    std::fs::create_dir(&folder).unwrap();
    let good = ground.folder("w");
    let mut app = ground.app();
    // The session is there already, so that only the folder takes long.
    app.run(ground.sh("first", "true"));
    let disk = DeadDisk::at(&folder);
    let mut pings = ground.line();
    let mounts =
        json!({"dead": {"path": from_root(&folder), "mode": "rw"}, "w": mount(&good, "ro")});
    let script = ground.sh("p", "cat mnt/w/file");
    let request = app
        .line
        .request("spawn", with(script, json!({"additionalMounts": mounts})));
    app.line.stream.set_nonblocking(true).unwrap();
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut count = 0;
    let mut probe = [0u8; 1];
    // Until the spawn is answered.
    while nix::sys::socket::recv(
        std::os::fd::AsRawFd::as_raw_fd(&app.line.stream),
        &mut probe,
        nix::sys::socket::MsgFlags::MSG_PEEK,
    ) == Err(nix::errno::Errno::EAGAIN)
    {
        assert!(start.elapsed() < patience(), "no answer");
        let asked = Instant::now();
        assert!(pings.is_connected());
        slowest = slowest.max(asked.elapsed());
        count += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    assert!(count > 10, "it did not hang: {count}");
    assert!(slowest < Duration::from_millis(1000), "{slowest:?}");
    app.line.stream.set_nonblocking(false).unwrap();
    let reply = app.line.reply(request);
    assert_eq!(reply["result"]["failedMounts"], json!(["dead"]), "{reply}");
    assert_eq!(app.events.finished("p").ok(), "of the user\n");
    // A folder that is granted later is no different.
    let live = json!({"processId": ground.name, "subpath": from_root(&folder), "mountName": "late", "mode": "ro"});
    app.line.refused("mountPath", live);
    drop(app);
    drop(disk);
}

#[test]
fn p13_a_folder_that_does_not_answer_holds_nobody_up() {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() {
        crate::ground::eprintln("SKIPPED: /dev/fuse cannot be used here");
        return;
    }
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    let ran = command
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["leaving::with_mounts_of_its_own", "--exact", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
}

#[test]
fn a_helper_without_an_app_goes_on() {
    // As systemd starts it: with /dev/null, which ends at once and means nothing.
    let mut ground = Ground::bare();
    let mut command = ground.helping();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ground.helper = Some(Helper { child, app: None });
    ground.is_served();
    ground.boots();
    assert_eq!(ground.app().run(ground.sh("a", "echo on")).ok(), "on\n");
    crate::watch::send(ground.pid(), Signal::SIGTERM);
}

#[test]
#[ignore = "takes a minute: make desktop-test"]
fn alone_for_a_minute_where_nobody_tells_that_the_app_is_gone() {
    let mut ground = Ground::bare();
    // As a service of systemd's: its standard input is nobody's.
    let helping = ground.helping();
    let mut command = Command::new("sh");
    let words = std::iter::once(helping.get_program()).chain(helping.get_args());
    command
        .args(["-c", "exec \"$@\" </dev/null", "sh"])
        .args(words);
    ground.surround(&mut command);
    ground.start_as(&mut command);
    ground.boots();
    let mut app = ground.app();
    app.line
        .spawn(ground.sh("p", "trap '' TERM HUP; echo up; exec sleep 1000"));
    app.events.says("p", "up\n");
    let others = || {
        let mut all = ground.processes();
        all.retain(|pid| *pid != ground.pid());
        all
    };
    assert!(!others().is_empty());
    drop(app);
    let began = Instant::now();
    while !others().is_empty() && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(500));
    }
    let taken = began.elapsed().as_secs();
    assert!((55..90).contains(&taken), "{taken} s, {:?}", others());
    // The helper itself stays, for the next start of the app.
    ground.boots();
    ground.app().run(ground.sh("again", "echo again")).ok();
    // Until it is told to go.
    crate::watch::send(ground.pid(), Signal::SIGTERM);
}
