//! Pid 1 of the box: starts the program, reaps, passes signals on, tells the launcher. Locked
//! down like the program itself; holds nothing of the host but the line to the launcher.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::streams::BoxEnds;
use super::wire::{Message, Wire};
use crate::plan::{Plan, Program};
use crate::sys;
use crate::sys::process::{SingleThreaded, exit_now};

/// A finished and locked box, about to run its program.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    pub(super) plan: &'a Plan,
    pub(super) ends: BoxEnds,
    pub(super) wire: Wire,
    pub(super) terminal: Option<OwnedFd>,
    pub(super) doors: Vec<(PathBuf, OwnedFd)>,
}

/// Never returns: when the program ends, so does the box.
pub(super) fn main(proof: &SingleThreaded, locked: Locked<'_>) -> ! {
    let status = start_and_wait(proof, locked).unwrap_or(125 << 8);
    exit_now(status >> 8 & 0xff)
}

fn start_and_wait(proof: &SingleThreaded, locked: Locked<'_>) -> io::Result<i32> {
    let Locked {
        plan,
        ends,
        wire,
        terminal,
        doors,
    } = locked;
    let children = watch_children()?;
    let main = match sys::process::fork(proof)? {
        None => run_program(&plan.program, &ends, terminal.as_ref(), &wire),
        Some(pid) => Pid::from_raw(pid),
    };
    drop(ends); // or readers of the program's output would wait for ever
    let _ = &doors;
    loop {
        let mut waiting = [
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
            PollFd::new(wire.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut waiting, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let ready = |index: usize| waiting[index].any().unwrap_or(false);
        if ready(0) {
            let _ = children.read_signal();
            if let Some(status) = reap(main, &wire)? {
                end_the_rest();
                wire.send(&Message::Ended { status })?;
                return Ok(status);
            }
        }
        if ready(1) {
            match wire.receive()? {
                Some(Message::Signal { signal }) => hand_on(main, signal),
                Some(_) => {}
                None => exit_now(125), // the launcher is gone: so is everything here
            }
        }
    }
}

fn watch_children() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(SignalFd::with_flags(
        &set,
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )?)
}

/// Collects whoever ended; the wait status when it was the program itself.
fn reap(main: Pid, wire: &Wire) -> io::Result<Option<i32>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == main => return Ok(Some(code << 8)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                return Ok(Some(signal as i32));
            }
            Ok(WaitStatus::Stopped(pid, signal)) if pid == main => {
                wire.send(&Message::Stopped {
                    signal: signal as i32,
                })?;
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends what the program left behind before the launcher hears that it is over.
fn end_the_rest() {
    let everyone = Pid::from_raw(-1);
    while !matches!(
        waitpid(None, Some(WaitPidFlag::WNOHANG)),
        Err(Errno::ECHILD)
    ) {
        let _ = nix::sys::signal::kill(everyone, Signal::SIGKILL);
        let _ = waitpid(None, None);
    }
}

/// What a terminal would send to the foreground goes to the program's group, the rest to it.
fn hand_on(main: Pid, signal: i32) {
    let Ok(signal) = Signal::try_from(signal) else {
        return;
    };
    let group = matches!(
        signal,
        Signal::SIGINT
            | Signal::SIGQUIT
            | Signal::SIGHUP
            | Signal::SIGTSTP
            | Signal::SIGCONT
            | Signal::SIGWINCH
    );
    let sent = match group {
        true => nix::sys::signal::kill(Pid::from_raw(-main.as_raw()), signal),
        false => Err(Errno::ESRCH),
    };
    // A program that is only just being started leads no group yet.
    if sent == Err(Errno::ESRCH) {
        let _ = nix::sys::signal::kill(main, signal);
    }
}

/// The program's own process: takes its streams and becomes the program.
fn run_program(program: &Program, ends: &BoxEnds, terminal: Option<&OwnedFd>, wire: &Wire) -> ! {
    let failed = match become_program(program, ends, terminal) {
        Err(error) => error,
        Ok(never) => match never {},
    };
    let errno = failed.raw_os_error().unwrap_or(libc::EIO);
    let _ = wire.send(&Message::NotExecuted { errno });
    exit_now(if errno == libc::ENOENT { 127 } else { 126 })
}

fn become_program(
    program: &Program,
    ends: &BoxEnds,
    terminal: Option<&OwnedFd>,
) -> io::Result<std::convert::Infallible> {
    sys::process::default_signals();
    nix::unistd::setsid()?;
    if let Some(terminal) = terminal {
        sys::fds::make_controlling_terminal(terminal.as_fd())?;
    }
    ends.take_places(terminal)?;
    sys::fds::close_on_exec_from(3)?;
    umask(Mode::from_bits_truncate(program.umask));
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let argv: Vec<_> = program
        .argv
        .iter()
        .map(|word| text(word.as_bytes()))
        .collect::<Result<_, _>>()?;
    let envp: Vec<_> = program
        .env
        .iter()
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<_, _>>()?;
    Err(execute(program, &argv, &envp))
}

/// Tries the name as a path, or in every folder of PATH, as a shell would.
fn execute(program: &Program, argv: &[CString], envp: &[CString]) -> io::Error {
    let Some(name) = program.argv.first() else {
        return io::Error::from_raw_os_error(libc::ENOENT);
    };
    if name.as_bytes().contains(&b'/') {
        return execute_file(Path::new(name), argv, envp);
    }
    let mut result = io::Error::from_raw_os_error(libc::ENOENT);
    let path = program
        .env
        .iter()
        .find(|(key, _)| key == "PATH")
        .map(|(_, value)| value);
    for folder in path.map(std::env::split_paths).into_iter().flatten() {
        let error = execute_file(&folder.join(name), argv, envp);
        if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) {
            result = error;
        }
    }
    result
}

fn execute_file(path: &Path, argv: &[CString], envp: &[CString]) -> io::Error {
    let Ok(file) = CString::new(path.as_os_str().as_bytes()) else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let error = sys::process::exec(&file, argv, envp);
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return error;
    }
    // A script without a first line: shells run it themselves, so do we.
    let mut words = vec![c"sh".to_owned(), file];
    words.extend(argv.iter().skip(1).cloned());
    sys::process::exec(&c"/bin/sh".to_owned(), &words, envp)
}
