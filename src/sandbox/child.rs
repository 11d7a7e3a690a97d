//! The box's side up to the lock: one function that is the order of operations. It reports a
//! failure as two numbers; the launcher owns the plan and makes the words.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};

use super::filters::Filters;
use super::init::{self, Locked};
use super::launch::Belongings;
use super::lockdown::Wall;
use super::mounts::{self, Site};
use super::network::Network;
use super::owners::Prepared;
use super::streams::BoxEnds;
use super::trouble::Trouble;
use super::wire::{Message, Wire};
use super::{box_terminal, lockdown, memory, owners, ready, reaper, rlimits};
use crate::plan::{
    BindMode, BuildStep, Capabilities, Descriptors, FirstProcess, InsideStep, Limit, Part, Plan,
};
use crate::policy::Isolation;
use crate::sys;
use crate::sys::process::SingleThreaded;

/// Everything the first process of a box is born with.
#[derive(Debug)]
pub(super) struct Orders<'a> {
    pub(super) plan: &'a Plan,
    pub(super) filters: &'a Filters,
    pub(super) belongings: Option<Belongings<'a>>,
    /// This process is in a pid namespace that was there before; the box gets one below it.
    pub(super) is_born_later: bool,
    pub(super) prepared: Prepared,
    pub(super) ends: BoxEnds,
    pub(super) wire: Wire,
}

/// What comes after the plan's own steps, numbered from their end.
const LATE: [&str; 7] = [
    "give the program a terminal",
    "drop every capability",
    "put up Landlock",
    "load the system call filter",
    "hide pid 1 from the box",
    "guard files that others run",
    "let go of the caller's open files",
];
const CAPABILITIES: usize = 1;
const LANDLOCK: usize = 2;
const SECCOMP: usize = 3;
const GUARD: usize = 5;
const LET_GO: usize = 6;

/// The numbers of the walls that the program's own process puts up.
pub(super) fn last_walls(plan: &Plan) -> LastWalls {
    let before = plan.build.len() + plan.inside.len();
    LastWalls {
        landlock: (before + LANDLOCK) as u32,
        guard: (before + GUARD) as u32,
        capabilities: (before + CAPABILITIES) as u32,
        seccomp: (before + SECCOMP) as u32,
        files: (plan.build.len() + plan.inside.iter().position(limits_files).unwrap_or(0)) as u32,
        start: (before + LATE.len() + plan.ready.len()) as u32,
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LastWalls {
    pub(super) landlock: u32,
    pub(super) guard: u32,
    pub(super) capabilities: u32,
    pub(super) seccomp: u32,
    pub(super) files: u32,
    pub(super) start: u32,
}

fn limits_files(step: &InsideStep) -> bool {
    let what = Limit::OpenFiles;
    matches!(step, InsideStep::Limit { what: other, .. } if *other == what)
}

/// How many steps come between the plan's own and those that make ready.
pub(crate) const LATE_STEPS: usize = LATE.len();

/// What one of them does.
pub(crate) fn late_name(number: usize) -> Option<&'static str> {
    LATE.get(number).copied()
}

pub(super) fn late_step(number: usize) -> &'static str {
    LATE.get(number).copied().unwrap_or("start the program")
}

/// A step of the plan that did not work.
struct Failure {
    step: usize,
    trouble: Trouble,
}

impl Failure {
    fn at(step: usize) -> impl Fn(Trouble) -> Self {
        move |trouble| Self { step, trouble }
    }
}

/// What the launcher hears of a step that did not work.
pub(super) fn bad_news(step: u32, trouble: &Trouble) -> Message {
    Message::Failed {
        step,
        part: trouble.part,
        errno: trouble.errno(),
        detail: trouble.detail.clone(),
    }
}

/// Never returns: builds the box, locks it, becomes its first process.
pub(super) fn main(proof: &SingleThreaded, orders: Orders<'_>) -> ! {
    if orders.is_born_later {
        be_born(proof, &orders.wire);
    }
    match build_and_lock(orders) {
        Ok(locked) => match &locked.plan.terms.first {
            FirstProcess::Keeper { stays } => init::main(proof, locked, *stays),
            FirstProcess::Reaper { locks, hold } => reaper::main(proof, &locked, locks, *hold),
            FirstProcess::Program => reaper::become_program(&locked),
        },
        Err((wire, failure)) => {
            let _ = wire.send(&bad_news(failure.step as u32, &failure.trouble));
            sys::process::exit_now(125)
        }
    }
}

/// Goes on in a pid namespace below the one that was joined, which takes one more birth.
fn be_born(proof: &SingleThreaded, wire: &Wire) {
    let leave = |error: io::Error| -> ! {
        sys::process::exit_now(error.raw_os_error().unwrap_or(libc::EIO))
    };
    match sys::process::fork_beside(proof) {
        Ok(true) => {
            let _ = wire.send(&Message::Here);
        }
        Ok(false) => sys::process::exit_now(0),
        Err(error) => leave(error),
    }
}

fn build_and_lock(orders: Orders<'_>) -> Result<Locked<'_>, (Wire, Failure)> {
    let Orders {
        plan,
        filters,
        belongings,
        prepared,
        ends,
        wire,
        ..
    } = orders;
    let has_group = belongings
        .as_ref()
        .is_some_and(|ours| ours.cgroup.is_some());
    let forget = belongings.as_ref().map_or(&[][..], |ours| ours.forget);
    let (directory, turns) = match belongings {
        Some(ours) => (Some(ours.directory), Some(ours.turns)),
        None => (None, None),
    };
    let mut site = Site::new(plan, directory, prepared);
    site.has_group = has_group;
    let mut terminal = None;
    let mut start = None;
    let mut more_filters = Vec::new();
    let mut network = Network::new(plan);
    let mut wall = None;
    let mut keep = site.prepared.descriptors();
    keep.extend(ends.descriptors());
    keep.push(wire.as_fd().as_raw_fd());
    keep.extend(turns.as_ref().map(AsRawFd::as_raw_fd));
    let done = (|| {
        let let_go = plan.build.len() + plan.inside.len() + LET_GO;
        if plan.terms.descriptors == Descriptors::None {
            sys::fds::close_all_but(keep).map_err(|error| Failure::at(let_go)(error.into()))?;
        }
        if !forget.is_empty() {
            let forgotten = sys::memory::forget_everywhere(forget);
            forgotten.map_err(|error| Failure::at(0)(error.into()))?;
        }
        stay_with_launcher(plan, &wire)?;
        if has_group && plan.namespaces.cgroup {
            // Only now: a namespace made at birth would begin at the launcher's group.
            let made = sys::process::unshare(libc::CLONE_NEWCGROUP);
            made.map_err(|error| Failure::at(0)(error.into()))?;
        }
        if plan.isolation == Isolation::Landlock {
            open_doors(plan, &mut site)?;
        } else {
            umask(Mode::empty());
            for (step, what) in plan.build.iter().enumerate() {
                mounts::apply(&mut site, step, what).map_err(Failure::at(step))?;
            }
        }
        for place in site.stage.iter().flat_map(|stage| &stage.loose) {
            let _ = wire.send(&Message::Loose(place.to_string_lossy().into_owned()));
        }
        let mut step = plan.build.len();
        for what in &plan.inside {
            apply(&site, &mut network, &wire, what).map_err(Failure::at(step))?;
            step += 1;
        }
        let mut late = |result: Result<(), Trouble>| {
            step += 1;
            result.map_err(Failure::at(step - 1))
        };
        let is_ours = matches!(plan.terms.first, FirstProcess::Keeper { .. });
        late(box_terminal::own_terminal(plan, &wire, &mut terminal).map_err(Trouble::from))?;
        late(give_up_privileges(plan))?;
        // Without namespaces the guarded folders are kept by Landlock alone, and pid 1 has to
        // stay outside of that wall to write for the program.
        late(
            match plan.isolation {
                // Pid 1 writes for programs, also to folders that no rule knows yet. The rules are
                // made now, so that programs only have to put them up.
                Isolation::Namespaces if plan.terms.changeable => {
                    lockdown::all_stays_inside(&plan.lock.landlock)
                        .and_then(|()| Wall::among_others(&plan.lock.landlock))
                        .map(|made| wall = made)
                }
                Isolation::Namespaces => lockdown::landlock(&plan.lock.landlock),
                Isolation::Landlock => lockdown::signals_stay_inside(&plan.lock.landlock)
                    .and_then(|()| Wall::of(&plan.lock.landlock))
                    .map(|made| wall = made),
            }
            .map_err(Trouble::from),
        )?;
        // Others' filters are made for the program: whoever runs it loads them last.
        late(match is_ours {
            true => lockdown::seccomp(&filters.every).map_err(Trouble::from),
            false => Ok(()),
        })?;
        late(match is_ours {
            true => sys::process::hide_from_others().map_err(Trouble::from),
            false => Ok(()),
        })?;
        if is_ours {
            sys::process::forget_arguments();
        }
        let before = plan.build.len() + plan.inside.len() + LATE.len();
        for (number, what) in plan.ready.iter().enumerate() {
            let failed = Failure::at(before + number);
            let proc = site.stage.as_ref().map(|stage| &stage.proc);
            ready::apply(what, proc, &mut start, &mut more_filters).map_err(failed)?;
        }
        Ok(())
    })();
    match done {
        Ok(()) => Ok(Locked {
            plan,
            filters,
            more_filters,
            start,
            ends,
            wire,
            terminal,
            doors: site.doors,
            turns,
            wall,
        }),
        Err(failure) => Err((wire, failure)),
    }
}

/// The weaker form writes to guarded folders where they are.
fn open_doors(plan: &Plan, site: &mut Site<'_>) -> Result<(), Failure> {
    for (step, what) in plan.build.iter().enumerate() {
        if let BuildStep::Own {
            at, guarded: true, ..
        } = what
        {
            let door =
                mounts::open_own(at.as_path()).map_err(|error| Failure::at(step)(error.into()))?;
            site.doors.push((at.as_path().to_owned(), door));
        }
        if let BuildStep::Bind {
            from,
            seen,
            at,
            mode: BindMode::Guarded,
            is_folder,
        } = what
        {
            let door = mounts::open_seen(from, seen, *is_folder)
                .map_err(|error| Failure::at(step)(error.into()))?;
            site.doors.push((at.as_path().to_owned(), door));
        }
    }
    Ok(())
}

/// Asks to die with the launcher, and makes sure that it has not died already.
///
/// Without a pid namespace nobody dies with this process, so it must live long enough to end the
/// rest: it hears of the launcher's death by the line between them, and adopts every orphan.
fn stay_with_launcher(plan: &Plan, wire: &Wire) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::at(0)(error.into());
    match plan.isolation {
        Isolation::Namespaces if !plan.terms.dies_with_launcher => Ok(()),
        Isolation::Namespaces => {
            sys::process::die_with_parent().and_then(|()| match wire.has_other_side() {
                true => Ok(()),
                false => sys::process::exit_now(125),
            })
        }
        Isolation::Landlock => {
            sys::process::adopt_orphans().and_then(|()| sys::process::call_oneself(c"cowork-box"))
        }
    }
    .map_err(failed)?;
    if plan.terms.waits {
        match wire.receive().map_err(failed)? {
            Some(Message::Go) => {}
            _ => sys::process::exit_now(125),
        }
    }
    Ok(())
}

/// Keeps what was asked for; nothing can be gained after this.
fn give_up_privileges(plan: &Plan) -> Result<(), Trouble> {
    sys::process::no_new_privileges()?;
    match plan.lock.capabilities {
        Capabilities::None => Ok(lockdown::drop_capabilities(plan.isolation)?),
        Capabilities::Only {
            set,
            bounding,
            changed,
        } => lockdown::limit_capabilities(set, bounding, changed),
    }
}

fn apply(
    site: &Site<'_>,
    network: &mut Network<'_>,
    wire: &Wire,
    step: &InsideStep,
) -> Result<(), Trouble> {
    match step {
        InsideStep::OwnNetwork | InsideStep::Redirect | InsideStep::Doors(_) => {
            Ok(network.apply(wire, step)?)
        }
        InsideStep::EndFirst | InsideStep::ShowSharedMemory if site.has_group => Ok(()),
        InsideStep::EndFirst => Ok(memory::end_first(site.identity)?),
        InsideStep::ShowSharedMemory => Ok(memory::show_shared(wire)?),
        InsideStep::Limit { what, value, most } => Ok(rlimits::set(site, *what, *value, *most)?),
        InsideStep::JoinUserNamespace(fd) => {
            Ok(sys::process::join_namespace(*fd, libc::CLONE_NEWUSER)?)
        }
        InsideStep::OwnUserNamespace { uid, gid, is_last } => {
            let stage = site.stage.as_ref();
            let proc = &stage.ok_or_else(|| io::Error::from(Errno::ENOENT))?.proc;
            owners::second_namespace(proc, *uid, *gid, *is_last)
        }
        InsideStep::ProveNoUserNamespaces => match sys::process::unshare(libc::CLONE_NEWUSER) {
            Ok(()) => Err(Trouble::new(Part::StillPossible, Errno::EEXIST.into())),
            Err(_) => Ok(()),
        },
        own => Ok(apply_own(own)?),
    }
}

fn apply_own(step: &InsideStep) -> io::Result<()> {
    match step {
        InsideStep::Hostname(name) => Ok(nix::unistd::sethostname(name)?),
        InsideStep::LoopbackUp => sys::net::loopback_up(),
        InsideStep::NewKeyring { required } => match sys::process::new_session_keyring() {
            // A kernel without keyrings has none to leak.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            Err(error) if *required => Err(error),
            _ => Ok(()),
        },
        InsideStep::NoUserNamespaces => std::fs::write("/proc/sys/user/max_user_namespaces", "0"),
        InsideStep::FreezeRoot => {
            let root = std::fs::File::open("/")?;
            sys::mount::freeze_mount(std::os::fd::AsFd::as_fd(&root))
        }
        InsideStep::WorkingDirectory(path) => Ok(nix::unistd::chdir(path)?),
        InsideStep::OwnNetwork
        | InsideStep::Redirect
        | InsideStep::Doors(_)
        | InsideStep::Limit { .. }
        | InsideStep::EndFirst
        | InsideStep::ShowSharedMemory
        | InsideStep::JoinUserNamespace(_)
        | InsideStep::OwnUserNamespace { .. }
        | InsideStep::ProveNoUserNamespaces => Err(Errno::ENOSYS.into()),
    }
}
