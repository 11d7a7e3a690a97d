//! What a session cannot do, whatever runs in it (I1 to I4, I8 to I10, S20).

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::ground::{Ground, mount, private, with, within};
use crate::support::Ran;

/// Runs a script where the helper is, without a box: what an attack does when nothing stops it.
fn control(ground: &Ground, script: &str, words: &[&str]) -> Ran {
    let mut command = Command::new("bash");
    ground.surround(&mut command);
    Ran::of(
        command
            .args(["-c", script, "bash"])
            .args(words)
            .stdin(Stdio::null()),
    )
}

#[test]
fn i1_nothing_of_the_host_is_read() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let key = ground.world.write("home/.ssh/id_x", "the key");
    private(key.parent().unwrap());
    let other = json!({"name": ground.other("two")});
    app.line.spawn(with(
        ground.sh("other", "echo theirs > ~/note; echo up; sleep 1000"),
        other,
    ));
    app.events.says("other", "up");
    let helper = ground.pid().to_string();
    let socket = ground.socket().display().to_string();
    let theirs = format!("/sessions/{}/note", ground.other("two"));
    let log = ground.world.path("state").display().to_string();
    let words = [key.to_str().unwrap(), &helper, &socket, &theirs, &log];
    let script = r#"
        cat "$1" && echo read key
        cat ~/.ssh/id_x && echo read home
        cat /etc/shadow && echo read shadow
        tr '\0' '\n' < /proc/$2/environ | grep -q XDG_STATE_HOME && echo read environ
        /usr/bin/python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$3" && echo read socket
        cat "$4" && echo read theirs
        ls "$5" && echo read state
        true"#;
    let outside = control(&ground, script, &words).ok();
    for what in ["key", "home", "environ", "socket", "state"] {
        assert!(
            outside.out.contains(&format!("read {what}")),
            "{what}: {outside:?}"
        );
    }
    let mut args = vec!["-c", script, "bash"];
    args.extend(words);
    let done = app.run(with(ground.sh("attack", ""), json!({"args": args})));
    assert!(!done.out.contains("read "), "{done:?}");
    assert!(!done.ok().contains("the key"));
}

#[test]
fn i2_the_walls_stand() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let script = "grep -E 'Seccomp:|NoNewPrivs|CapEff|CapBnd' /proc/self/status | tr '\\t' ' '";
    let said = app.run(ground.sh("walls", script)).ok();
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "CapBnd: 0000000000000000",
            "CapEff: 0000000000000000",
            "NoNewPrivs: 1",
            "Seccomp: 2"
        ]
    );
}

#[test]
fn i3_a_session_sees_and_ends_only_its_own() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let mut sleep = Command::new("sleep");
    ground.surround(sleep.arg("1000").stdout(Stdio::null()));
    let mut bystander = ground.launch(&mut sleep);
    let other = json!({"name": ground.other("two")});
    app.line.spawn(with(
        ground.sh("other", "echo up; read x; echo there"),
        other,
    ));
    app.line.spawn(ground.sh("own", "sleep 777"));
    app.events.says("other", "up");
    let said = app
        .run(ground.sh(
            "ps",
            "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done",
        ))
        .ok();
    assert!(
        said.contains("sleep 777") && !said.contains("sleep 1000"),
        "{said}"
    );
    assert!(said.lines().count() < 10, "{said}");
    let done = app.run(ground.sh("killer", "kill -9 -1; echo survived"));
    assert!(done.code() == 137 || done.out == "survived\n", "{done:?}");
    app.events.finished("own").ended(137, Some("SIGKILL"));
    assert!(
        bystander.child.try_wait().unwrap().is_none(),
        "it was killed"
    );
    bystander.crashes();
    app.line
        .ok("writeStdin", json!({"id": "other", "data": "\n"}));
    assert_eq!(app.events.finished("other").ok(), "up\nthere\n");
    assert_eq!(app.run(ground.sh("next", "echo next")).ok(), "next\n");
}

/// Calls that a program in a box has no business with; says which of them went through. Only those that
/// are named are made: most must never be made outside of a box.
const CALLS: &str = r#"
import ctypes, fcntl, os, pty, sys, tempfile, termios
libc = ctypes.CDLL(None, use_errno=True)
room = ctypes.create_string_buffer(256)
NEWNS, NEWUSER = 0x20000, 0x10000000
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), '')
def tiocsti():
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSTI, b'x')
calls = {
    'bpf': lambda: call(321, 0, room, 72), 'perf': lambda: call(298, room, 0, -1, -1, 0),
    'io_uring': lambda: call(425, 8, room), 'keyctl': lambda: call(250, 0, -5, 1),
    'ptrace': lambda: call(101, 16, 1, 0, 0), 'unshare': lambda: call(272, NEWNS),
    'mount': lambda: call(165, b'none', tempfile.mkdtemp(dir='.').encode(), b'tmpfs', 0, 0),
    'userfaultfd': lambda: call(323, 1), 'open_by_handle': lambda: call(304, 3, room, 0),
    'tiocsti': tiocsti, 'user': lambda: call(272, NEWUSER),
}
for name in sys.argv[1:]:
    try:
        calls[name]()
        print(name, 'done')
    except OSError as error:
        print(name, 'refused', error.errno)
"#;

#[test]
fn i4_calls_that_a_box_has_no_business_with() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let all = [
        "bpf",
        "perf",
        "io_uring",
        "keyctl",
        "ptrace",
        "unshare",
        "mount",
        "userfaultfd",
        "open_by_handle",
        "tiocsti",
        "user",
    ];
    let args = [&["-c", CALLS], &all[..]].concat();
    let program = json!({"command": "python3", "args": args});
    let said = app.run(with(ground.sh("calls", ""), program)).ok();
    let refused: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(" refused "))
        .collect();
    assert_eq!(refused.len(), all.len(), "{said}");
    // Without a box these two do work, and do nobody any harm: so the refusals are the box's.
    let outside = control(
        &ground,
        "exec /usr/bin/python3 \"$@\"",
        &["-c", CALLS, "keyctl", "user"],
    );
    assert_eq!(outside.out, "keyctl done\nuser done\n", "{outside:?}");
}

#[test]
fn i8_sockets_of_the_host_are_out_of_reach() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let name = format!("cowork-test-{}", ground.name);
    let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let bus = UnixListener::bind(ground.world.path("run/bus")).unwrap();
    let answer = |listener: UnixListener| {
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"canary");
                let _ = stream.read(&mut [0; 1]);
            }
        });
    };
    answer(hidden);
    answer(bus);
    let script = r"
import socket, sys
for place in ('\0' + sys.argv[1], sys.argv[2]):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(20)
    try:
        s.connect(place)
        print('reached', s.recv(6).decode())
    except OSError as error:
        print('refused', error.errno)
";
    let path = ground.world.path("run/bus").display().to_string();
    let outside = control(
        &ground,
        "exec /usr/bin/python3 \"$@\"",
        &["-c", script, &name, &path],
    );
    assert_eq!(
        outside.out, "reached canary\nreached canary\n",
        "{outside:?}"
    );
    let program = json!({
        "command": "python3", "args": ["-c", script, name, path],
        "additionalMounts": {"w": mount(&folder, "rw")},
    });
    let said = app.run(with(ground.sh("reach", ""), program)).ok();
    assert!(
        said.starts_with("refused ") && !said.contains("reached"),
        "{said}"
    );
    let said = app
        .run(ground.sh("env", "env; ls /run/user /run/dbus 2>/dev/null; true"))
        .ok();
    for word in [
        "DBUS_SESSION",
        "WAYLAND",
        "DISPLAY",
        "SSH_AUTH_SOCK",
        "XDG_RUNTIME_DIR",
    ] {
        assert!(!said.contains(word), "{said}");
    }
}

#[test]
fn i9_a_fork_bomb_is_held() {
    let mut ground = Ground::bare();
    ground.start(&["--pids", "60"]);
    ground.boots();
    let mut app = ground.app();
    let bomb = "b() { b | b & }; echo up; b 2>/dev/null; sleep 1000";
    app.line.spawn(ground.sh("bomb", bomb));
    app.events.says("bomb", "up");
    for _ in 0..20 {
        within(2, "a ping", || assert!(app.line.is_connected()));
    }
    assert!(
        ground.processes().len() < 200,
        "{}",
        ground.processes().len()
    );
    app.line
        .ok("kill", json!({"id": "bomb", "signal": "SIGKILL"}));
    app.events.finished("bomb");
    app.line.ok("stopVM", json!({}));
    app.line.ok("startVM", json!({}));
    assert_eq!(app.run(ground.sh("after", "echo after")).ok(), "after\n");
}

#[test]
fn i10_tmp_is_bounded() {
    let mut ground = Ground::bare();
    ground.start(&["--tmp-size", "8M"]);
    ground.boots();
    let mut app = ground.app();
    let done = app.run(ground.sh(
        "fill",
        "head -c 100000000 /dev/zero > /tmp/fill; stat -c %s /tmp/fill",
    ));
    assert!(done.err.contains("No space left on device"), "{done:?}");
    let size: u64 = done.out.trim().parse().unwrap();
    assert!(size <= 8 << 20, "{size}");
    // It is its own trouble: there is room at home, and for others.
    assert_eq!(
        app.run(ground.sh("home", "echo x > ~/x; cat ~/x")).ok(),
        "x\n"
    );
    let other = json!({"name": ground.other("two")});
    assert_eq!(
        app.run(with(
            ground.sh("other", "echo x > /tmp/x; cat /tmp/x"),
            other
        ))
        .ok(),
        "x\n"
    );
}

#[test]
fn s20_too_much_memory_is_said_to_be_so() {
    let mut ground = Ground::bare();
    ground.start(&["--memory", "128M"]);
    ground.boots();
    let mut app = ground.app();
    let hungry = "
import time
held = []
for _ in range(40):
    held.append(bytearray(10 << 20))
    time.sleep(0.02)
time.sleep(100)
";
    let program = json!({"command": "python3", "args": ["-c", hungry]});
    app.line.spawn(with(ground.sh("hungry", ""), program));
    let done = app.events.finished("hungry");
    done.ended(137, Some("SIGKILL"));
    let count = done.exit.unwrap()["oomKillCount"].as_u64().unwrap();
    assert!(count >= 1, "{count}");
    // The session is to be had again.
    assert_eq!(app.run(ground.sh("after", "echo after")).ok(), "after\n");
}
