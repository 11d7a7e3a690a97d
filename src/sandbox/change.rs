//! A change to the mounts of a box that runs, made by a process of its own. A folder on a disk or a
//! network that is gone may never answer: whoever waits for it must not be the supervisor, and what
//! waits must hold nothing of the supervisor's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getpid, getppid};

use super::wire::{self, Message, Wire};
use crate::plan::Part;
use crate::sys;
use crate::sys::process::{self, Forked, SingleThreaded};

/// How long a process that was killed is waited for when nobody wants its answer any more.
const LAST_BREATH_MS: u16 = 1000;

/// A change that was begun. Dropped before it has ended, it is ended.
#[derive(Debug)]
pub struct Change {
    pid: i32,
    process: OwnedFd,
    wire: Wire,
    is_collected: bool,
}

/// What came of a change.
#[derive(Debug)]
pub enum Changed {
    /// With the mount that is seen, and the writable copy of a guarded one, for pid 1.
    Done(Vec<OwnedFd>),
    /// Everything is as it was before. `in_box` says where it went wrong: there, or with the
    /// folder that was to be shown.
    Failed { error: io::Error, in_box: bool },
    /// Its process was killed. If it had begun `in_box`, nobody knows how far it had come.
    Vanished { in_box: bool },
}

impl Change {
    /// Starts a process for the job, which has nothing open but what is to be kept for it. It says
    /// `Go` on the line before it changes anything in the box.
    pub(super) fn begin(
        proof: &SingleThreaded,
        keep: &[RawFd],
        job: impl FnOnce(&Wire) -> io::Result<Vec<OwnedFd>>,
    ) -> io::Result<Self> {
        let (ours, theirs) = wire::pair()?;
        let parent = getpid();
        match process::clone_into(proof, 0)? {
            Forked::Child => {
                let keep = [keep, &[theirs.as_fd().as_raw_fd()]].concat();
                let done = stand_alone(parent, keep).and_then(|()| job(&theirs));
                let _ = theirs.send(&match done {
                    Ok(trees) => Message::Trees(trees),
                    Err(error) => Message::Failed {
                        step: 0,
                        part: Part::Whole,
                        errno: error.raw_os_error().unwrap_or(libc::EIO),
                        detail: Vec::new(),
                    },
                });
                process::exit_now(0)
            }
            Forked::Parent { pid, pidfd } => Ok(Self {
                pid,
                process: pidfd,
                wire: ours,
                is_collected: false,
            }),
        }
    }

    /// Readable when it has ended.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Ends it wherever it is.
    pub fn kill(&self) {
        let _ = process::signal(self.process.as_fd(), libc::SIGKILL);
    }

    /// What came of it, once it has ended.
    pub fn result(&mut self) -> Option<Changed> {
        if !self.ends_within(PollTimeout::ZERO) {
            return None;
        }
        self.collect();
        // Only those who are dead had the other end: this waits for nobody.
        let mut said = self.wire.receive();
        let in_box = matches!(said, Ok(Some(Message::Go)));
        if in_box {
            said = self.wire.receive();
        }
        Some(match said {
            Ok(Some(Message::Trees(trees))) => Changed::Done(trees),
            Ok(Some(Message::Failed { errno, .. })) => Changed::Failed {
                error: io::Error::from_raw_os_error(errno),
                in_box,
            },
            _ => Changed::Vanished { in_box },
        })
    }

    fn ends_within(&self, time: PollTimeout) -> bool {
        let mut waiting = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut waiting, time), Ok(1))
    }

    fn collect(&mut self) {
        let gone = process::wait(self.pid, libc::WNOHANG);
        self.is_collected = !matches!(gone, Ok((0, _)));
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.is_collected {
            self.kill();
            let _ = self.ends_within(PollTimeout::from(LAST_BREATH_MS));
            self.collect();
        }
    }
}

/// Lets go of everything that is the parent's, its lock and its lines above all, and dies with it.
pub(super) fn stand_alone(parent: Pid, keep: Vec<RawFd>) -> io::Result<()> {
    sys::fds::close_all_but(keep)?;
    sys::fds::put_null_at(&[0, 1, 2])?;
    die_with(parent)
}

/// To be said again after every change of identity, which the kernel takes for a reason to forget.
pub(super) fn die_with(parent: Pid) -> io::Result<()> {
    process::die_with_parent()?;
    match getppid() == parent {
        true => Ok(()),
        // It died before this was said.
        false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}
