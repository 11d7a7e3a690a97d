//! The launcher's side: one function that is the order of operations.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use super::change::Change;
use super::child::{self, Orders};
use super::dialer;
use super::filters::Filters;
use super::launch_error::{LaunchError, explain};
use super::live::{self, Entrance, LiveMount};
use super::open_files;
use super::orphans;
use super::owners::{self, Unprepared};
use super::streams::{self, CallerEnds};
use super::wire::{self, Errand, Message, Wire};
use crate::plan::{BindMode, Joins, Namespaces, Plan};
use crate::policy::Isolation;
use crate::sys::process::{self, Forked, SingleThreaded};

/// A box that has been started: its first process and the line to it. Dropped before it is
/// known to have ended, it is ended and waited for.
///
/// A first process may be stopped, or wait for a disk, while the line to it fills up: what does not
/// fit any more is an error, and nobody waits.
#[derive(Debug)]
pub struct Running {
    ended: bool,
    pid: nix::unistd::Pid,
    pidfd: OwnedFd,
    wire: Wire,
    /// How to get in later, for a box whose mounts may change.
    entrance: Option<Entrance>,
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

    /// Starts another program in the box.
    pub fn exec(&self, errand: Errand) -> io::Result<()> {
        self.wire.send_now(&Message::Exec(errand))
    }

    /// Hands a signal to a program that was started later.
    pub fn signal_exec(&self, exec: u32, signal: i32) -> io::Result<()> {
        self.wire.send_now(&Message::ExecSignal {
            exec,
            signal,
            subtree: false,
        })
    }

    /// The same to everything that came of it as well; SIGKILL until none of that is left.
    pub fn signal_subtree(&self, exec: u32, signal: i32) -> io::Result<()> {
        self.wire.send_now(&Message::ExecSignal {
            exec,
            signal,
            subtree: true,
        })
    }

    /// Begins to show another folder in the box.
    pub fn mount(&self, plan: &Plan, wanted: &LiveMount) -> io::Result<Change> {
        let proof = SingleThreaded::prove()?;
        live::attach(&proof, self.entrance()?, &plan.identity, wanted)
    }

    /// Begins to show it in the place of one that was shown later.
    pub fn exchange(&self, plan: &Plan, old: &LiveMount, new: &LiveMount) -> io::Result<Change> {
        let proof = SingleThreaded::prove()?;
        live::exchange(&proof, self.entrance()?, &plan.identity, old, new)
    }

    /// Begins to take a folder away that was shown later.
    pub fn unmount(&self, plan: &Plan, gone: &LiveMount, force: bool) -> io::Result<Change> {
        let proof = SingleThreaded::prove()?;
        live::detach(&proof, self.entrance()?, &plan.identity, gone, force)
    }

    fn entrance(&self) -> io::Result<&Entrance> {
        let closed = || io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        self.entrance.as_ref().ok_or_else(closed)
    }

    /// Notes what is seen in the box since now, and tells pid 1 how it is written to: through this
    /// copy, or not at all.
    pub fn has_shown(&self, mount: &mut LiveMount, trees: Vec<OwnedFd>) -> io::Result<()> {
        let mut trees = trees.into_iter();
        let shown = trees.next().ok_or(io::ErrorKind::NotFound)?;
        mount.shown = Some(open_files::mount_of(shown.as_fd())?);
        match trees.next() {
            Some(writable) => {
                mount.doors.push(open_files::mount_of(writable.as_fd())?);
                let inside = mount.place();
                let keeps = mount.mode == BindMode::Kept;
                self.wire.send_now(&Message::Door {
                    inside,
                    writable: Some(writable),
                    keeps,
                })
            }
            None => self.close_off(mount),
        }
    }

    /// Tells pid 1 that programs may delete from now on in a guarded folder, or may not any more.
    /// Nothing is mounted for that, so it holds for those who stand in it as well.
    pub fn keeps(&self, mount: &LiveMount) -> io::Result<()> {
        self.wire.send_now(&Message::Door {
            inside: mount.place(),
            writable: None,
            keeps: mount.mode == BindMode::Kept,
        })
    }

    /// Tells pid 1 that nothing is to be written at this place, whatever it lies in.
    pub fn close_off(&self, mount: &LiveMount) -> io::Result<()> {
        let inside = mount.place();
        self.wire.send_now(&Message::Wall { inside })
    }

    pub fn close_door(&self, gone: &LiveMount) -> io::Result<()> {
        let inside = gone.place();
        self.wire.send_now(&Message::NoDoor { inside })
    }

    /// A line on which connections into the box can be asked for; `dialer` has its packets. It can
    /// be handed to another process, and ends with the box.
    pub fn dialer(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = dialer::line()?;
        self.wire.send(&Message::Dialer(theirs))?;
        Ok(ours)
    }

    /// Gives programs that are started from now on another limit of open files.
    pub fn limit_open_files(&self, most: u64) -> io::Result<()> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.wire.send(&Message::OpenFiles(most))
    }

    /// Asks a box that stays to end.
    pub fn stop(&self) -> io::Result<()> {
        self.wire.send_now(&Message::Stop)
    }

    /// Hands a signal to the program.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.wire.send_now(&Message::Signal { signal })
    }

    /// Ends everything in the box at once.
    pub fn kill(&self) -> io::Result<()> {
        match self.isolation {
            Isolation::Namespaces => process::signal(self.pidfd.as_fd(), libc::SIGKILL),
            // Nobody would die with the first process; it ends the others when the program ends.
            // One that does not even listen leaves them to the launcher.
            Isolation::Landlock => self
                .signal(libc::SIGKILL)
                .or_else(|_| process::signal(self.pidfd.as_fd(), libc::SIGKILL)),
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
    /// Texts that the launcher knows and the box must not, nor its first process.
    pub forget: &'a [Vec<u8>],
    /// The control group the box is born in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// Starts a box. Read this to know what happens, and in which order.
pub fn launch(
    plan: &Plan,
    filters: &Filters,
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
    let group = belongings.as_ref().and_then(|ours| ours.cgroup);
    let namespaces = Namespaces {
        cgroup: namespaces.cgroup && group.is_none(),
        ..namespaces
    };
    let forked =
        process::clone_into_group(&proof, flags(namespaces), group).map_err(LaunchError::Clone)?;
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
        entrance: None,
        isolation: plan.isolation,
        others,
        streams,
    };
    let mut running = running;
    if plan.terms.changeable {
        let entrance = Entrance::of(pid).map_err(LaunchError::Clone)?;
        running.entrance = Some(entrance);
    }
    if plan.identity.from_root {
        owners::write_maps_from_outside(&plan.identity, pid)
            .map_err(|error| explain(plan, 0, error))?;
    }
    if plan.identity.from_root || plan.terms.changeable {
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
