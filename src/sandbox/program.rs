//! The program's own process, between its birth and the moment it becomes the program.

use std::ffi::{CString, OsStr};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};

use super::child::{LastWalls, bad_news};
use super::lockdown::Wall;
use super::rlimits;
use super::streams::BoxEnds;
use super::trouble::Trouble;
use super::wire::{Message, Wire};
use crate::broker;
use crate::plan::{Capabilities, Descriptors, FirstProcess, Part, Plan, Program};
use crate::sys;
use crate::sys::process::{Words, exit_now};

/// What a program is started with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) plan: &'a Plan,
    /// The number it goes by; the first program is 0.
    pub(super) exec: u32,
    pub(super) ready: &'a Ready,
    /// Where it starts, when that is not where its parent is.
    pub(super) folder: Option<&'a Path>,
    /// Filters that this process loads itself, last of all.
    pub(super) filters: [&'a [Vec<u8>]; 2],
    pub(super) ends: &'a BoxEnds,
    pub(super) terminal: Option<&'a OwnedFd>,
    /// The line to the launcher, for bad news.
    pub(super) wire: &'a Wire,
    /// A filter that asks pid 1, and where pid 1 waits for its listener.
    pub(super) asks: Option<(&'a [u8], &'a Wire)>,
    /// A wall that pid 1 has to stay outside of.
    pub(super) wall: Option<&'a Wall>,
    /// How many files it may have open, where that is not for its parent to say.
    pub(super) files: Option<u64>,
    /// Read by the parent, whose memory this is: it was left for the program's.
    pub(super) executed: Option<&'a AtomicBool>,
    /// What to call the walls in bad news.
    pub(super) steps: LastWalls,
}

impl Start<'_> {
    /// A wall that does not stand is no matter of the program's: there is no box.
    fn must_stand<T, E: Into<Trouble>>(&self, step: u32, wall: Result<T, E>) -> T {
        wall.unwrap_or_else(|error| {
            let _ = self.wire.send(&bad_news(step, &error.into()));
            exit_now(125)
        })
    }
}

/// Never returns: becomes the program, or says why not.
pub(super) fn run(start: &Start<'_>) -> ! {
    start.must_stand(start.steps.start, get_ready(start));
    if let Some(Err(error)) = start.folder.map(nix::unistd::chdir) {
        not_executed(start, error as i32, true);
    }
    for filter in start.filters.into_iter().flatten() {
        start.must_stand(start.steps.seccomp, sys::seccomp::load(filter));
    }
    if start.plan.terms.announces && !matches!(start.plan.terms.first, FirstProcess::Keeper { .. })
    {
        let _ = start.wire.send(&Message::Starting);
    }
    let note = |is_so| {
        start
            .executed
            .inspect(|it| it.store(is_so, Ordering::Relaxed))
    };
    note(true);
    let failed = execute(start.ready);
    note(false);
    not_executed(start, failed.raw_os_error().unwrap_or(libc::EIO), false)
}

fn not_executed(start: &Start<'_>, errno: i32, in_folder: bool) -> ! {
    let _ = start.wire.send(&Message::NotExecuted {
        exec: start.exec,
        errno,
        in_folder,
    });
    exit_now(match (&start.plan.terms.first, errno) {
        (FirstProcess::Keeper { .. }, libc::ENOENT) => 127,
        (FirstProcess::Keeper { .. }, _) => 126,
        _ => 1,
    })
}

/// The program's words, as the kernel wants them. Made before the last filter, because what it
/// forbids may be needed to get memory, and by the parent, whose memory it is.
#[derive(Debug)]
pub(super) struct Ready {
    /// Where the program may be, in the order of trying.
    files: Vec<CString>,
    argv: Words,
    envp: Words,
}

fn get_ready(start: &Start<'_>) -> io::Result<()> {
    let plan = start.plan;
    let is_ours = matches!(plan.terms.first, FirstProcess::Keeper { .. });
    match start.terminal {
        // The first program shares pid 1's session, a later one has its own.
        Some(terminal) if start.exec > 0 => {
            nix::unistd::setsid()?;
            sys::fds::make_controlling_terminal(std::os::fd::AsFd::as_fd(terminal))?;
        }
        Some(terminal) => take_foreground(terminal)?,
        None if is_ours => drop(nix::unistd::setsid()?),
        None => {}
    }
    match is_ours {
        true => sys::process::default_signals(),
        false => sys::process::callers_signals(),
    }
    if plan.terms.dies_with_launcher {
        sys::process::die_with_parent()?;
        if !is_ours && !start.wire.has_other_side() {
            exit_now(1);
        }
    }
    start.ends.take_places(start.terminal)?;
    if plan.terms.descriptors == Descriptors::None {
        sys::fds::close_on_exec_from(3)?;
    }
    umask(Mode::from_bits_truncate(plan.program.umask));
    if let Capabilities::Only { set, .. } = plan.lock.capabilities {
        let failed = |(capability, error)| Trouble::new(Part::Ambient, error).with(&[capability]);
        let handed_on = sys::capabilities::hand_on(set).map_err(failed);
        start.must_stand(start.steps.capabilities, handed_on);
    }
    if let Some(wall) = start.wall {
        start.must_stand(start.steps.landlock, wall.put_up());
    }
    if let Some((filter, hearer)) = start.asks {
        let listener = start.must_stand(start.steps.guard, broker::install(filter));
        hearer.send(&Message::Listener(listener))?;
    }
    // Last: what this process opens itself has higher numbers than a program's files.
    if let Some(files) = start.files {
        start.must_stand(start.steps.files, rlimits::limit_files(files));
    }
    Ok(())
}

/// `directory` is where it starts, when the program is to be told.
pub(super) fn in_the_kernels_words(
    program: &Program,
    directory: Option<&Path>,
) -> io::Result<Ready> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
    let name = program.argv.first().map(|word| word.as_os_str());
    let name = name.unwrap_or_default();
    let called = program.called.as_deref().unwrap_or(name);
    let words =
        std::iter::once(called).chain(program.argv.iter().skip(1).map(|word| word.as_os_str()));
    let argv: Vec<_> = words
        .map(|word| text(word.as_bytes()))
        .collect::<Result<_, _>>()?;
    let mut envp = Vec::with_capacity(program.env.len() + 1);
    let mut told = directory;
    for (key, value) in &program.env {
        let value = match key == "PWD" {
            true => told.take().map_or(value.as_os_str(), Path::as_os_str),
            false => value,
        };
        envp.push(text(&[key.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    if let Some(path) = told {
        envp.push(text(&[b"PWD=", path.as_os_str().as_bytes()].concat())?);
    }
    let files = candidates(program, name);
    let files: Vec<_> = files
        .iter()
        .map(|file| text(file.as_os_str().as_bytes()))
        .collect::<Result<_, _>>()?;
    Ok(Ready {
        files,
        argv: Words::new(argv),
        envp: Words::new(envp),
    })
}

/// The name as a path, or in every folder of PATH, as a shell would look for it.
fn candidates(program: &Program, name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(name)];
    }
    if name.is_empty() {
        return Vec::new();
    }
    let path = program.env.iter().find(|(key, _)| key == "PATH");
    // What the C library takes when there is none; a session always has one.
    let path = path.map_or(OsStr::new("/bin:/usr/bin"), |(_, value)| value.as_os_str());
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .collect()
}

/// Leads a group of its own and puts it in the foreground of pid 1's session.
fn take_foreground(terminal: &OwnedFd) -> io::Result<()> {
    let myself = nix::unistd::getpid();
    nix::unistd::setpgid(myself, myself)?;
    // Or the kernel would stop a process that reaches for the foreground from behind.
    SigSet::all().thread_block()?;
    Ok(nix::unistd::tcsetpgrp(terminal, myself)?)
}

/// Tries one file after the other; the error is that of the last one that was there at all.
fn execute(ready: &Ready) -> io::Error {
    let mut result = io::Error::from_raw_os_error(libc::ENOENT);
    for file in &ready.files {
        let error = execute_file(file, ready);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) if ready.files.len() > 1 => {}
            Some(libc::EACCES) if ready.files.len() > 1 => result = error,
            _ => return error,
        }
    }
    result
}

/// Whether this is no text, by what shells go by: a program of another machine is no script.
fn is_binary(file: &CString) -> bool {
    let mut start = [0u8; 80];
    let read = std::fs::File::open(Path::new(OsStr::from_bytes(file.as_bytes())))
        .and_then(|mut file| file.read(&mut start));
    let line = start[..read.unwrap_or(0)]
        .split(|byte| *byte == b'\n')
        .next();
    line.is_some_and(|line| line.contains(&0))
}

fn execute_file(file: &CString, ready: &Ready) -> io::Error {
    let error = sys::process::exec(file, &ready.argv, &ready.envp);
    if error.raw_os_error() != Some(libc::ENOEXEC) || is_binary(file) {
        return error;
    }
    // A script without a first line: shells run it themselves, so do we.
    let mut words = vec![c"/bin/sh".to_owned(), file.clone()];
    words.extend(ready.argv.texts().iter().skip(1).cloned());
    sys::process::exec(&c"/bin/sh".to_owned(), &Words::new(words), &ready.envp)
}
