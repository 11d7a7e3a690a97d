//! What callers rely on, and a replacement has to do just the same.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use crate::launchers::{Launcher, has, tree};
use crate::support::{Ran, World, exists};

const BOTH: [Launcher; 2] = [Launcher::Distribution, Launcher::Ours];

/// Hiding a file that does not exist leaves an empty one on the host. Callers know, and clean up.
#[test]
fn hiding_a_missing_file_leaves_an_empty_one() {
    for launcher in BOTH {
        let world = World::new();
        let work = world.work().display().to_string();
        let missing = format!("{work}/missing");
        let base = ["--ro-bind", "/", "/", "--bind", &work, &work];
        let mut arguments = base.to_vec();
        arguments.extend(["--ro-bind", "/dev/null", &missing, "true"]);
        launcher.run(&world, &arguments).ok();
        let left = std::fs::symlink_metadata(&missing).unwrap();
        assert!(left.is_file());
        assert_eq!(
            (left.len(), left.mode() & 0o7777),
            (0, 0o444),
            "{launcher:?}"
        );
        assert_eq!(tree(&world.work()).len(), 2);
    }
}

/// A lock is a shared record lock for as long as the sandbox lives, and it is the sandbox that
/// holds it: not whoever started it.
#[test]
fn a_lock_file_is_held_until_the_sandbox_ends() {
    let try_lock = "import fcntl, sys\nf = open(sys.argv[1], 'r+')\n\
        try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: print('locked')\n\
        else: print('free')";
    let state = |path: &str| {
        let mut python = std::process::Command::new("/usr/bin/python3");
        Ran::of(python.args(["-c", try_lock, path])).ok().out
    };
    for launcher in BOTH {
        for options in [&["--unshare-pid"][..], &[], &["--unshare-all"]] {
            let world = World::new();
            let lock = world.write("w/lock", "").display().to_string();
            assert_eq!(state(&lock), "free\n");
            let mut command = launcher.command(&world);
            command.args(["--bind", "/", "/", "--lock-file", &lock]);
            command.args(options);
            // The lock may come a moment after the command, so that one waits for it.
            let wait = "while [ \"$(python3 -c \"$0\" \"$1\")\" = free ]; do :; done; echo up; read line; exit 0";
            command.args(["sh", "-c", wait, try_lock, &lock]);
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut up = [0; 3];
            child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
            assert_eq!(state(&lock), "locked\n", "{launcher:?} {options:?}");
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while state(&lock) != "free\n" {
                assert!(std::time::Instant::now() < deadline, "{launcher:?}");
            }
        }
    }
}

/// A descriptor to synchronize on stays open for as long as somebody lives in the sandbox, though
/// the command does not have it.
#[test]
fn a_sync_descriptor_is_open_until_the_sandbox_ends() {
    for launcher in BOTH {
        let world = World::new();
        let (mut end, held) = std::io::pipe().unwrap();
        // A process stays behind when the command has ended.
        let script = r#"exec 5>&1 >/dev/null
            exec $BWRAP --ro-bind / / --dev /dev --unshare-pid --sync-fd 5 sh -c \
                '(echo kept >&5) 2> /dev/null; (read line < fifo; exit 0) & exit 0'"#;
        let fifo = world.path("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut command = launcher.by_bash(&world, script);
        let mut child = command.stdout(held).spawn().unwrap();
        drop(command);
        assert!(child.wait().unwrap().success());
        // The command is gone, the one it left is not: nothing to read, and no end.
        nix::fcntl::fcntl(
            &end,
            nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK),
        )
        .unwrap();
        let mut byte = [0];
        let early = end.read(&mut byte).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "{launcher:?}");
        nix::fcntl::fcntl(
            &end,
            nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()),
        )
        .unwrap();
        std::fs::write(&fifo, "go\n").unwrap();
        assert_eq!(end.read(&mut byte).unwrap(), 0, "{launcher:?}");
        assert!(exists(&fifo));
    }
}

/// Agents' launchers look for this text as well, and start again with the host's network. What the
/// kernel refuses is made up by strace.
#[test]
fn a_loopback_that_stays_down_is_reported_in_the_words_that_callers_look_for() {
    if !has("strace") {
        return;
    }
    // Each raises the interface in its own way.
    for (launcher, call) in [
        (Launcher::Distribution, "sendto"),
        (Launcher::Ours, "ioctl"),
    ] {
        let world = World::new();
        let started = launcher.command(&world);
        let mut strace = std::process::Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-e"]);
        strace.arg(format!("inject={call}:error=EPERM"));
        strace.arg(started.get_program()).args(started.get_args());
        strace.args(["--unshare-net", "--ro-bind", "/", "/", "echo", "ran"]);
        Ran::of(&mut strace)
            .failed_with(1)
            .says_not("ran")
            .complains("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted");
    }
}
