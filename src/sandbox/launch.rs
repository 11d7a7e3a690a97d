//! The launcher's side: one function that is the order of operations.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use super::child::{self, Orders};
use super::orphans;
use super::owners::{self, Unprepared};
use super::streams::{self, CallerEnds};
use super::wire::{self, Message, Wire};
use crate::plan::{InsideStep, Joins, Namespaces, Plan};
use crate::policy::Isolation;
use crate::sys::process::{self, Forked, SingleThreaded};

/// Why a box did not come to be. The sentence and the remedy are made here, where the plan is.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot start with one thread")]
    Threads(#[source] io::Error),
    #[error("cannot make the streams of the program")]
    Streams(#[source] io::Error),
    #[error("cannot create namespaces")]
    Clone(#[source] io::Error),
    #[error("cannot enter the caller's {what} namespace")]
    Join {
        what: &'static str,
        source: io::Error,
    },
    #[error("cannot {what}")]
    Step {
        what: String,
        is_bind: bool,
        is_proc: bool,
        is_start: bool,
        source: io::Error,
    },
    #[error("cannot learn how the box is doing")]
    Wire(#[source] io::Error),
}

impl LaunchError {
    pub fn help(&self) -> Option<String> {
        let code = |error: &io::Error| error.raw_os_error().unwrap_or(0);
        Some(match self {
            Self::Threads(error) if code(error) == libc::ENOENT => {
                "/proc is not mounted here; mount it: mount -t proc proc /proc".into()
            }
            Self::Clone(error)
                if matches!(code(error), libc::EPERM | libc::ENOSPC | libc::EACCES) =>
            {
                "this host blocks user namespaces; `cowork-linux doctor` names the rule, \
                 `--isolation landlock` is the weaker way without them"
                    .into()
            }
            Self::Clone(error) if code(error) == libc::ENOSYS => {
                "clone3 is refused, usually by the container around this shell; \
                 `--isolation landlock` works without it"
                    .into()
            }
            Self::Step { is_start: true, .. } => {
                "name a folder in the box, such as /workspace: --workdir DIR".into()
            }
            Self::Step { source, .. } if code(source) == libc::ESTALE => {
                "it was replaced while the box was being built; run the command again".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::ENOENT => {
                "it vanished while the box was being built; check --mount".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::EACCES => {
                "you may not read it; choose a folder of your own".into()
            }
            Self::Step {
                source,
                is_bind: true,
                ..
            } if code(source) == libc::EINVAL => {
                "its filesystem cannot map owners; as root, run as an ordinary user instead".into()
            }
            Self::Step {
                source,
                is_proc: true,
                ..
            } if code(source) == libc::EPERM => {
                "parts of /proc are covered by the container around this shell; start that \
                 container without masked paths, or use `--isolation landlock`"
                    .into()
            }
            Self::Step { source, .. } if code(source) == libc::ENOSYS => {
                "this kernel is too old for it; 5.15 is the oldest that works".into()
            }
            _ => "`cowork-linux doctor` shows what this host offers".into(),
        })
    }
}

/// A box that has been started: its first process and the line to it. Dropped before it is
/// known to have ended, it is ended and waited for.
#[derive(Debug)]
pub struct Running {
    ended: bool,
    pid: nix::unistd::Pid,
    pidfd: OwnedFd,
    wire: Wire,
    isolation: Isolation,
    /// Children of the launcher that are none of the box's.
    others: Vec<nix::unistd::Pid>,
    pub streams: CallerEnds,
}

impl Running {
    pub fn line(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }

    pub fn receive(&self) -> io::Result<Option<Message>> {
        self.wire.receive()
    }

    /// What a launcher that closes everything else has to leave open.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.pidfd.as_raw_fd(), self.wire.as_fd().as_raw_fd()]
    }

    /// The number of the box's first process.
    pub fn pid(&self) -> nix::unistd::Pid {
        self.pid
    }

    /// Lets a box go on that waits to be told.
    pub fn release(&self) -> io::Result<()> {
        self.wire.send(&Message::Go)
    }

    /// How the first process ended, when it has; waits for it.
    pub fn wait(&mut self) -> io::Result<Ended> {
        self.ended = true;
        loop {
            match process::wait(self.pid.as_raw(), 0) {
                Ok((_, status)) if libc::WIFEXITED(status) => {
                    return Ok(Ended::Exited(libc::WEXITSTATUS(status)));
                }
                Ok((_, status)) if libc::WIFSIGNALED(status) => {
                    return Ok(Ended::Killed(libc::WTERMSIG(status)));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hands a signal to the program.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.wire.send(&Message::Signal { signal })
    }

    /// Ends everything in the box at once.
    pub fn kill(&self) -> io::Result<()> {
        match self.isolation {
            Isolation::Namespaces => process::signal(self.pidfd.as_fd(), libc::SIGKILL),
            // Nobody would die with the first process; it ends the others when the program ends.
            Isolation::Landlock => self.signal(libc::SIGKILL),
        }
    }

    /// The first process has said that nothing else runs in the box. What is left of it is
    /// its own exit, and the kernel's work on that need not be waited for.
    pub fn has_ended(&mut self) {
        self.ended = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        if self.ended {
            return;
        }
        let _ = self.kill();
        let gone = || waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED);
        while gone() == Err(nix::errno::Errno::EINTR) {}
        if self.isolation == Isolation::Landlock {
            // Whoever killed the first process left the others to the launcher.
            orphans::end_children(&self.others);
        }
    }
}

/// How a first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Killed(i32),
}

/// What a session has on the host.
#[derive(Debug)]
pub struct Belongings<'a> {
    pub directory: &'a Path,
    /// Shared by all of the caller's boxes.
    pub turns: OwnedFd,
}

/// Starts a box. Read this to know what happens, and in which order.
pub fn launch(
    plan: &Plan,
    filters: &[Vec<u8>],
    belongings: Option<Belongings<'_>>,
) -> Result<Running, LaunchError> {
    let proof = SingleThreaded::prove().map_err(LaunchError::Threads)?;
    let (streams, ends) =
        streams::open(plan.stdio, plan.identity.from_root).map_err(LaunchError::Streams)?;
    let (wire, theirs) = wire::pair().map_err(LaunchError::Streams)?;
    let directory = belongings.as_ref().map(|ours| ours.directory);
    let prepared = owners::prepare(&proof, plan, directory).map_err(|trouble| match trouble {
        Unprepared::Namespace(source) => LaunchError::Clone(source),
        Unprepared::Step(step, source) => explain(plan, step as u32, source),
    })?;
    let mut others = Vec::new();
    if plan.isolation == Isolation::Landlock {
        process::adopt_orphans().map_err(LaunchError::Clone)?;
        others = orphans::children();
    }

    join(plan.terms.joins)?;
    let is_born_later = plan.terms.joins.pid.is_some() && plan.namespaces.pid;
    if is_born_later {
        process::adopt_orphans().map_err(LaunchError::Clone)?;
        wire.note_senders(true).map_err(LaunchError::Wire)?;
    }
    let namespaces = Namespaces {
        pid: plan.namespaces.pid && !is_born_later,
        ..plan.namespaces
    };
    let forked = process::clone_into(&proof, flags(namespaces)).map_err(LaunchError::Clone)?;
    let (mut pid, pidfd) = match forked {
        Forked::Child => {
            drop((streams, wire));
            child::main(
                &proof,
                Orders {
                    plan,
                    filters,
                    belongings,
                    is_born_later,
                    prepared,
                    ends,
                    wire: theirs,
                },
            )
        }
        Forked::Parent { pid, pidfd } => (pid, pidfd),
    };

    drop((ends, theirs, prepared)); // or the end of a stream would never be seen
    if is_born_later {
        pid = wait_for_birth(&wire, pid)?;
    }
    let running = Running {
        ended: false,
        pid: nix::unistd::Pid::from_raw(pid),
        pidfd,
        wire,
        isolation: plan.isolation,
        others,
        streams,
    };
    if plan.identity.from_root {
        owners::write_maps_from_outside(&plan.identity, pid)
            .map_err(|error| explain(plan, 0, error))?;
        running.wire.send(&Message::Go).map_err(LaunchError::Wire)?;
    }
    Ok(running)
}

/// The number of the process that the one just cloned leaves behind. Its exit code is the
/// kernel's number for why there is none.
fn wait_for_birth(wire: &Wire, between: i32) -> Result<i32, LaunchError> {
    use nix::sys::wait::{WaitStatus, waitpid};
    let born = wire.sender_of_here().map_err(LaunchError::Wire)?;
    wire.note_senders(false).map_err(LaunchError::Wire)?;
    let gone = waitpid(nix::unistd::Pid::from_raw(between), None);
    match (born, gone) {
        (Some(born), _) => Ok(born),
        (None, Ok(WaitStatus::Exited(_, errno))) => {
            Err(LaunchError::Clone(io::Error::from_raw_os_error(errno)))
        }
        (None, _) => Err(LaunchError::Clone(io::Error::from_raw_os_error(
            libc::ESRCH,
        ))),
    }
}

/// Enters namespaces that are there already; what is cloned after that is in them.
fn join(joins: Joins) -> Result<(), LaunchError> {
    let enter = |fd, kind, what| match fd {
        None => Ok(()),
        Some(fd) => {
            process::join_namespace(fd, kind).map_err(|source| LaunchError::Join { what, source })
        }
    };
    enter(joins.user, libc::CLONE_NEWUSER, "user")?;
    enter(joins.pid, libc::CLONE_NEWPID, "pid")
}

fn flags(namespaces: Namespaces) -> i32 {
    [
        (namespaces.user, libc::CLONE_NEWUSER),
        (namespaces.mount, libc::CLONE_NEWNS),
        (namespaces.pid, libc::CLONE_NEWPID),
        (namespaces.net, libc::CLONE_NEWNET),
        (namespaces.ipc, libc::CLONE_NEWIPC),
        (namespaces.uts, libc::CLONE_NEWUTS),
        (namespaces.cgroup, libc::CLONE_NEWCGROUP),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// Turns the number of a failed step back into its sentence.
pub fn explain(plan: &Plan, step: u32, source: io::Error) -> LaunchError {
    let at = step as usize;
    let (what, is_bind, is_proc) = match (plan.build.get(at), at.checked_sub(plan.build.len())) {
        (Some(step), _) => {
            let is_proc = matches!(step, crate::plan::BuildStep::Proc { .. });
            (step.to_string(), step.is_bind(), is_proc)
        }
        (None, Some(rest)) => match plan.inside.get(rest) {
            Some(step) => (step.to_string(), false, false),
            None => (
                child::late_step(rest - plan.inside.len()).to_owned(),
                false,
                false,
            ),
        },
        (None, None) => ("set up the box".to_owned(), false, false),
    };
    let first_inside = plan.build.len();
    let is_start = at
        .checked_sub(first_inside)
        .is_some_and(|rest| matches!(plan.inside.get(rest), Some(InsideStep::WorkingDirectory(_))));
    LaunchError::Step {
        what,
        is_start,
        is_bind,
        is_proc,
        source,
    }
}
