//! The program's own process, between its birth and the moment it becomes the program.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};

use super::lockdown;
use super::streams::BoxEnds;
use super::wire::{Message, Wire};
use crate::broker;
use crate::plan::{Landlock, Program};
use crate::sys;
use crate::sys::process::exit_now;

/// What a program is started with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) program: &'a Program,
    pub(super) ends: &'a BoxEnds,
    pub(super) terminal: Option<&'a OwnedFd>,
    /// The line to the launcher, for bad news.
    pub(super) wire: &'a Wire,
    /// Where pid 1 hears what the program wants to change in guarded mounts.
    pub(super) listen: Option<&'a Wire>,
    /// A wall that pid 1 has to stay outside of.
    pub(super) wall: Option<&'a Landlock>,
}

/// Never returns: becomes the program, or says why not.
pub(super) fn run(start: &Start<'_>) -> ! {
    let Err(failed) = become_program(start);
    let errno = failed.raw_os_error().unwrap_or(libc::EIO);
    let _ = start.wire.send(&Message::NotExecuted { errno });
    exit_now(if errno == libc::ENOENT { 127 } else { 126 })
}

fn become_program(start: &Start<'_>) -> io::Result<Infallible> {
    let program = start.program;
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
    match start.terminal {
        Some(terminal) => take_foreground(terminal)?,
        None => drop(nix::unistd::setsid()?),
    }
    sys::process::default_signals();
    sys::process::die_with_parent()?;
    start.ends.take_places(start.terminal)?;
    sys::fds::close_on_exec_from(3)?;
    umask(Mode::from_bits_truncate(program.umask));
    if let Some(wall) = start.wall {
        lockdown::landlock(wall)?;
    }
    if let Some(listen) = start.listen {
        listen.send(&Message::Listener(broker::install()?))?;
    }
    Err(execute(program, &argv, &envp))
}

/// Leads a group of its own and puts it in the foreground of pid 1's session.
fn take_foreground(terminal: &OwnedFd) -> io::Result<()> {
    let myself = nix::unistd::getpid();
    nix::unistd::setpgid(myself, myself)?;
    // Or the kernel would stop a process that reaches for the foreground from behind.
    SigSet::all().thread_block()?;
    Ok(nix::unistd::tcsetpgrp(terminal, myself)?)
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
