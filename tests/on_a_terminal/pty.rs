//! A terminal of the test's own, with the binary as the leader of a session on it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::support::{World, binary};

/// Much longer than anything takes; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Terminal {
    master: File,
    /// Kept open, so that the terminal outlives the program and can be looked at.
    pub slave: OwnedFd,
    before: Termios,
    child: Option<Child>,
    /// Everything shown so far, and how much of it a test has asked for.
    seen: Vec<u8>,
    read: usize,
}

impl Terminal {
    pub fn new() -> Self {
        let size = Winsize {
            ws_row: 33,
            ws_col: 77,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(Some(&size), None).unwrap();
        fcntl(
            &pair.master,
            FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
        )
        .unwrap();
        fcntl(
            &pair.slave,
            FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
        )
        .unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        Self {
            master: pair.master.into(),
            slave: pair.slave,
            before,
            child: None,
            seen: Vec::new(),
            read: 0,
        }
    }

    /// `run -q FLAGS -- PROGRAM` with this terminal for everything.
    pub fn run(world: &World, flags: &[&str], program: &[&str]) -> Self {
        let mut line = vec![binary().to_str().unwrap().to_owned()];
        line.extend(["run", "-q"].map(str::to_owned));
        line.extend(flags.iter().map(|word| (*word).to_owned()));
        line.push("--".to_owned());
        line.extend(program.iter().map(|word| (*word).to_owned()));
        Self::start(world, &line)
    }

    /// The same for a shell script in the box.
    pub fn sh(world: &World, script: &str) -> Self {
        Self::run(world, &[], &["sh", "-c", script])
    }

    /// Any command line outside of a box; `$COWORK` is the binary.
    pub fn start<S: AsRef<std::ffi::OsStr>>(world: &World, line: &[S]) -> Self {
        let mut terminal = Self::new();
        let slave = || Stdio::from(terminal.slave.try_clone().unwrap());
        let mut command = Command::new("setsid");
        command.arg("-c").args(line).env_clear();
        command.envs([("TERM", "xterm"), ("PATH", "/usr/local/bin:/usr/bin:/bin")]);
        command
            .env("HOME", world.path("home"))
            .env("XDG_STATE_HOME", world.path("state"));
        command
            .env("COWORK", binary())
            .env("PS1", "prompt> ")
            .current_dir(world.path(""));
        let child = command
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        terminal.child = Some(child);
        terminal
    }

    /// `setsid` becomes the command it starts, so this is the launcher.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.as_ref().unwrap().id() as i32)
    }

    pub fn send(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn write(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text is shown, after whatever was waited for before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let new = &self.seen[self.read..];
            let at = new
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = at {
                self.read += at + text.len();
                return;
            }
            assert!(self.look(deadline), "no `{text}` in {:?}", self.text());
        }
    }

    /// Reads what the terminal shows; false when nothing came in time.
    fn look(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, PollTimeout::try_from(left).unwrap()) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return true,
            Err(error) => panic!("poll: {error}"),
        }
        let mut piece = [0u8; 4096];
        let count = self.master.read(&mut piece).unwrap();
        self.seen.extend_from_slice(&piece[..count]);
        true
    }

    /// The exit code; everything shown until then can be asked for afterwards.
    #[track_caller]
    pub fn exit_code(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        let mut child = self.child.take().unwrap();
        let status = loop {
            // Somebody must read, or a program that says much would never end.
            self.look(Instant::now() + Duration::from_millis(5));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("does not end: {:?}", self.text());
            }
        };
        while self.look(Instant::now()) {}
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        status
            .code()
            .or(signal.map(|number| 1000 + number))
            .unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Waits until the launcher has stopped itself, as a shell would.
    #[track_caller]
    pub fn stopped(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        loop {
            match waitpid(self.pid(), Some(flags)).unwrap() {
                WaitStatus::Stopped(..) => return,
                WaitStatus::StillAlive => {}
                other => panic!("{other:?}: {:?}", self.text()),
            }
            self.look(Instant::now() + Duration::from_millis(5));
            assert!(Instant::now() < deadline, "not stopped: {:?}", self.text());
        }
    }

    pub fn is_raw(&self) -> bool {
        let now = tcgetattr(&self.slave).unwrap();
        !now.local_flags.contains(LocalFlags::ICANON)
    }

    /// Exactly the settings from before anything was started.
    #[track_caller]
    pub fn is_as_before(&self) {
        let now = tcgetattr(&self.slave).unwrap();
        assert_eq!(format!("{now:?}"), format!("{:?}", self.before));
    }

    /// What a shell would now read as typed.
    pub fn typed(&self) -> String {
        fcntl(&self.slave, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut bytes = [0u8; 4096];
        let count = nix::unistd::read(&self.slave, &mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows, "cols", &columns]);
        stty.stdin(self.slave.try_clone().unwrap());
        assert!(stty.status().unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
