//! Tries something in a child that is gone on return, so that nothing of it stays with this
//! process or the host.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::sys::process::{self, Forked, SingleThreaded};

/// Longer than any of these takes on the slowest machine; a hung one must not hang the doctor.
const LIMIT: Duration = Duration::from_secs(5);

/// What came of it.
#[derive(Debug)]
pub(super) enum Tried {
    Worked(i32),
    /// Which of its stages did not work; 0 is the making of the child.
    Failed {
        stage: u32,
        error: io::Error,
    },
}

/// What a child does: a number to hand back, or the stage it failed at.
pub(super) type Work<'a> = &'a dyn Fn() -> Result<i32, (u32, io::Error)>;

/// Does the work in a child in the given new namespaces.
pub(super) fn attempt(proof: &SingleThreaded, namespaces: i32, work: Work<'_>) -> Tried {
    start(proof, namespaces, work).unwrap_or_else(|error| Tried::Failed { stage: 0, error })
}

fn start(proof: &SingleThreaded, namespaces: i32, work: Work<'_>) -> io::Result<Tried> {
    let (answer, mut told) = io::pipe()?;
    // A plain fork is not filtered where clone3 is.
    let pid = match namespaces {
        0 => process::fork(proof)?,
        _ => match process::clone_into(proof, namespaces)? {
            Forked::Child => None,
            Forked::Parent { pid, .. } => Some(pid),
        },
    };
    let Some(pid) = pid else {
        let _ = process::die_with_parent();
        let (stage, number) = match work() {
            Ok(number) => (0, number),
            Err((stage, error)) => (stage.max(1), error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let _ = told.write_all(&[stage.to_ne_bytes(), number.to_ne_bytes()].concat());
        process::exit_now(0)
    };
    drop(told); // or the end of the pipe would never be seen
    let pid = Pid::from_raw(pid);
    let tried = listen(answer);
    if tried.is_err() {
        let _ = kill(pid, Signal::SIGKILL);
    }
    while waitpid(pid, None) == Err(nix::errno::Errno::EINTR) {}
    tried
}

fn listen(mut answer: PipeReader) -> io::Result<Tried> {
    let deadline = Instant::now() + LIMIT;
    if !readable(&answer, deadline)? {
        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    let mut bytes = [[0u8; 4]; 2];
    answer
        .read_exact(bytes.as_flattened_mut())
        .map_err(|_| io::Error::from_raw_os_error(libc::ECHILD))?;
    let (stage, number) = (u32::from_ne_bytes(bytes[0]), i32::from_ne_bytes(bytes[1]));
    Ok(match stage {
        0 => Tried::Worked(number),
        stage => Tried::Failed {
            stage,
            error: io::Error::from_raw_os_error(number),
        },
    })
}

/// Waits until there is something to read, or the end of it; false when the time is up.
pub(super) fn readable(from: &impl AsFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut wanted = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wanted, left) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(ready) => return Ok(ready > 0),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
