//! A first process that only collects the dead and holds what it was given to hold; and the case
//! that there is none, because the program itself is the first process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use super::child::{self, bad_news};
use super::init::Locked;
use super::program::{self, Start};
use super::trouble::{InPart, Trouble};
use super::wire::Message;
use crate::plan::{Descriptors, Part};
use crate::sys;
use crate::sys::process::{SingleThreaded, exit_now};

/// Never returns: becomes the program.
pub(super) fn become_program(locked: &Locked<'_>) -> ! {
    let used = match &locked.plan.terms.descriptors {
        Descriptors::AllBut(used) => used.as_slice(),
        Descriptors::None => &[],
    };
    sys::fds::close_on_exec(used);
    let words = program::in_the_kernels_words(&locked.plan.program, locked.start.as_deref());
    match words {
        Ok(ready) => program::run(&start(locked, &ready)),
        Err(error) => {
            let start = child::last_walls(locked.plan).start;
            let _ = locked.wire.send(&bad_news(start, &error.into()));
            exit_now(1)
        }
    }
}

fn start<'a>(locked: &'a Locked<'a>, ready: &'a program::Ready) -> Start<'a> {
    Start {
        plan: locked.plan,
        exec: 0,
        ready,
        folder: None,
        filters: [&locked.filters.every, &locked.more_filters],
        ends: &locked.ends,
        terminal: None,
        wire: &locked.wire,
        asks: None,
        wall: None,
        files: None,
        executed: None,
        steps: child::last_walls(locked.plan),
    }
}

/// Never returns: starts the program, tells how it ended, and stays until nobody is left.
pub(super) fn main(
    proof: &SingleThreaded,
    locked: &Locked<'_>,
    locks: &[PathBuf],
    hold: Option<RawFd>,
) -> ! {
    let steps = child::last_walls(locked.plan);
    let fail = |step: u32, trouble: Trouble| -> ! {
        let _ = locked.wire.send(&bad_news(step, &trouble));
        exit_now(1)
    };
    let locks = locks
        .iter()
        .map(|path| lock(path))
        .collect::<Result<Vec<_>, _>>();
    let locks = locks.unwrap_or_else(|trouble| fail(steps.start, trouble));
    // Until this process has nothing left, nobody inside may look at it.
    let alone = sys::process::hide_from_others();
    if let Err(error) = alone {
        fail(steps.capabilities, error.into());
    }
    sys::process::forget_arguments();
    if let Descriptors::AllBut(used) = &locked.plan.terms.descriptors {
        for fd in used.iter().filter(|fd| Some(**fd) != hold) {
            sys::fds::close_given(*fd);
        }
    }
    let program = match sys::process::spawn(proof, &mut || become_program(locked)) {
        Ok(pid) => Pid::from_raw(pid),
        Err(error) => fail(steps.start, Trouble::new(Part::Unshare, error)),
    };
    let mut keep = vec![locked.wire.as_fd().as_raw_fd()];
    keep.extend(hold);
    keep.extend(locks.iter().map(AsRawFd::as_raw_fd));
    let quiet = sys::fds::close_all_but(keep)
        .and_then(|()| sys::capabilities::set(0).or_else(not_allowed))
        .and_then(|()| match locked.plan.terms.dies_with_launcher {
            true => sys::process::die_with_parent().map(|()| {
                if !locked.wire.has_other_side() {
                    exit_now(1)
                }
            }),
            false => Ok(()),
        });
    if let Err(error) = quiet {
        fail(steps.capabilities, error.into());
    }
    // Callers that are told its number look at its namespaces.
    if locked.plan.namespaces.pid && locked.plan.terms.waits {
        let _ = sys::process::show_to_others();
    }
    for filter in locked.filters.every.iter().chain(&locked.more_filters) {
        if let Err(error) = sys::seccomp::load(filter) {
            fail(steps.seccomp, error.into());
        }
    }
    exit_now(collect(program, locked))
}

/// Some hosts let root change no capabilities; they are not the program's.
fn not_allowed(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EPERM) => Ok(()),
        _ => Err(error),
    }
}

/// Waits until there is nobody to wait for. The program's end is told at once: its caller goes on
/// while what it left behind lives here. The simplest calls only, as the filters are loaded.
fn collect(program: Pid, locked: &Locked<'_>) -> i32 {
    let mut code = 1;
    loop {
        let status = match sys::process::wait(-1, 0) {
            Ok((pid, status)) if pid == program.as_raw() => status,
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return code,
        };
        code = match status & 0x7f {
            0 => status >> 8 & 0xff,
            signal => 128 + signal,
        };
        // Nobody may be there to hear it.
        let _ = locked.wire.send(&Message::Ended { status });
    }
}

/// Holds a lock that others see, for as long as this process lives.
fn lock(path: &Path) -> Result<OwnedFd, Trouble> {
    let named = |trouble: Trouble| trouble.with(path.as_os_str().as_encoded_bytes());
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = nix::fcntl::open(path, flags, Mode::empty());
    let file = file.in_part(Part::Source).map_err(named)?;
    let whole = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&whole))
        .in_part(Part::Mode)
        .map_err(named)?;
    Ok(file)
}
