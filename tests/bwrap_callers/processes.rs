//! sandbox-runtime's own business with processes: which bwrap it runs, how commands end, and what
//! its second wall, the helper that loads a system call filter, adds.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::caller::Caller;
use crate::runtime::Runtime;
use crate::support::{Ran, exists, is_root};
use crate::visit::{Visit, WAIT};
use crate::watch::{children, send, until_closed};

#[test]
fn the_command_runs_below_our_binary() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let visit = Visit::in_folder(&runtime.caller.world.work());
    let mut command = runtime.command(&runtime.settings(), WAIT);
    let (way, ran) = visit.of(&mut command);
    ran.ok();
    way.leads_through(&runtime.caller.bwrap());
}

#[test]
fn no_other_bwrap_is_taken_when_the_first_one_fails() {
    let caller = Caller::new().with_a_bwrap_that_fails();
    let Some(runtime) = Runtime::of(caller) else {
        return;
    };
    runtime.sh("echo made > made").failed_with(1);
    assert!(!exists(&runtime.caller.world.work().join("made")));
}

#[test]
fn exit_codes_and_signals_are_passed_on() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    for (script, code) in [
        ("true", 0),
        ("exit 42", 42),
        ("no-such-program", 127),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
    ] {
        assert_eq!(runtime.sh(script).code, code, "{script}");
    }
}

#[test]
fn output_and_input_pass_through() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let input = runtime.caller.world.write("input", "a line\n");
    let script = "read -r line; echo \"got $line\"; echo complaint >&2";
    let mut command = runtime.command(&runtime.settings(), script);
    let ran = Ran::of(command.stdin(std::fs::File::open(input).unwrap()));
    let ran = ran.ok().complains("complaint");
    assert_eq!(ran.out, "got a line\n");
}

/// srt ends the shell between it and bwrap; what bwrap started must go with that shell.
#[test]
fn nothing_goes_on_when_the_caller_is_ended() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    // Whoever is left keeps the pipe open.
    let script = "(setsid sleep 60 &) ; echo here > arrived; exec sleep 60";
    let visit = Visit::in_folder(&runtime.caller.world.work());
    let mut command = runtime.command(&runtime.settings(), script);
    let quiet = command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut started = quiet.spawn().unwrap();
    assert!(visit.is_inside(&started));
    let srt = children(started.id() as i32);
    assert_eq!(srt.len(), 1, "{srt:?}");
    send(srt[0], Signal::SIGTERM);
    let out = OwnedFd::from(started.stdout.take().unwrap());
    assert_eq!(until_closed(out, Duration::from_secs(30)), "");
    started.wait().unwrap();
}

#[test]
fn other_processes_are_neither_seen_nor_reached() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let mut bystander = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let look = format!("ls -d /proc/{0}/ && kill -0 {0}", bystander.id());
    runtime.caller.control(&look).ok();
    let ran = runtime.sh(&look);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(runtime.sh("echo $$").ok().out, "2\n");
    // The helper makes process namespaces and a /proc of its own, which it can as an ordinary user
    // only while nothing in the /proc that bwrap made is covered.
    if !is_root() {
        let first = runtime.sh("cat /proc/1/comm").ok();
        assert_eq!(first.out, "apply-seccomp\n");
    }
}

const UNIX_SOCKET: &str = "python3 -c 'import socket; socket.socket(socket.AF_UNIX)'";

#[test]
fn the_helper_refuses_unix_sockets_and_mounts() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    runtime.caller.control(UNIX_SOCKET).ok();
    runtime
        .sh(UNIX_SOCKET)
        .failed_with(1)
        .complains("Operation not permitted");
    // It has namespaces of its own within those that bwrap made, and one filter.
    let filtered = "grep -E '^(Seccomp|Seccomp_filters|NoNewPrivs):' /proc/self/status";
    let ran = runtime.sh(filtered).ok();
    ran.says("NoNewPrivs:\t1").says("Seccomp:\t2");
    let mount = "unshare --user --map-root-user --mount true";
    runtime.caller.control(mount).ok();
    assert_ne!(runtime.sh(mount).code, 0);
}

#[test]
fn without_the_helper_bwrap_keeps_namespaces_away() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let mut settings = runtime.settings();
    settings["network"]["allowAllUnixSockets"] = json!(true);
    runtime.run(&settings, UNIX_SOCKET).ok();
    let namespace = "unshare --user true";
    runtime.caller.control(namespace).ok();
    runtime.run(&settings, namespace).failed_with(1);
    // A filter of bwrap's caller is not there, and no right of root's is either.
    let rights = "grep -E '^(CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status";
    let ran = runtime.run(&settings, rights).ok();
    for line in ran.out.lines() {
        assert!(line.ends_with(":\t0000000000000000"), "{}", ran.out);
    }
    assert_eq!(ran.out.lines().count(), 4);
}

#[test]
fn the_weaker_mode_for_containers_works_too() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let mut settings = runtime.settings();
    settings["enableWeakerNestedSandbox"] = json!(true);
    let outside = runtime.caller.outside();
    let script = format!("echo made > made; touch {}/made", outside.display());
    runtime.run(&settings, &script).failed_with(1);
    assert!(exists(&runtime.caller.world.work().join("made")));
    assert!(!exists(&outside.join("made")));
}
