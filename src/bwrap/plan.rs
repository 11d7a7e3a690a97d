//! An argument list -> a plan. Pure: everything known about the caller is in `Surroundings`.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use super::args::{Asked, Limited};
use crate::plan::{
    AskedMode, AskedStep, BuildStep, Capabilities, Descriptors, FirstProcess, Ground, Guarding,
    Identity, InsideStep, Joins, Landlock, LandlockRule, Limit, Lockdown, Namespaces, Origin,
    OverlayWrites, Plan, Program, ReadyStep, Rights, Seccomp, Stdio, Tcp, Terms,
};
use crate::policy::{InsidePath, Isolation, NetMode};

/// Who calls, from where, on what kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) umask: u32,
    /// The caller's directory as the caller calls it.
    pub(crate) directory: Option<PathBuf>,
    /// The terminal behind standard output.
    pub(crate) console: Option<PathBuf>,
    pub(crate) has_user_namespaces: bool,
    pub(crate) has_cgroup_namespaces: bool,
    /// 0 when the kernel has no Landlock.
    pub(crate) landlock_abi: i32,
}

/// Walls beyond what was asked for in bubblewrap's own words.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walls {
    pub(crate) landlock: bool,
    pub(crate) filters: usize,
    pub(crate) limits: Vec<(Limit, u64)>,
    pub(crate) timeout: Option<Duration>,
}

pub(crate) fn plan(asked: &Asked, here: &Surroundings, walls: &Walls) -> Plan {
    let namespaces = namespaces(asked, here);
    let ids = Ids::of(asked, here);
    let build = build(asked, here, namespaces, &ids);
    Plan {
        session: None,
        isolation: Isolation::Namespaces,
        egress: None,
        network: match namespaces.net {
            true => NetMode::None,
            false => NetMode::Host,
        },
        namespaces,
        identity: Identity {
            name: "the caller".to_owned(),
            uid: ids.uid,
            gid: ids.gid,
            host_uid: here.uid,
            host_gid: here.gid,
            from_root: false,
        },
        inside: inside(asked, namespaces, &ids, walls),
        lock: Lockdown {
            capabilities: Capabilities::Only {
                set: asked.capabilities,
                bounding: namespaces.user || asked.userns.is_some(),
                changed: here.uid != 0 || asked.capabilities_changed,
            },
            landlock: landlock(asked, here, walls),
            seccomp: Seccomp::Given(walls.filters + asked.seccomp.len()),
            guarding: Guarding::Off("not asked for".to_owned()),
        },
        build,
        ready: ready(asked, here),
        program: Program {
            argv: asked.command.clone(),
            called: asked.argv0.clone(),
            env: asked.env.clone(),
            cwd: PathBuf::from("/"),
            umask: here.umask,
        },
        stdio: [Stdio::Kept; 3],
        terms: terms(asked, namespaces),
        timeout: walls.timeout,
        notes: Vec::new(),
    }
}

/// The numbers inside: at the end, and while the box is being built.
struct Ids {
    uid: u32,
    gid: u32,
    /// Terminals can be made only where there is a root, so the caller is that for a while.
    first_uid: u32,
    first_gid: u32,
}

impl Ids {
    fn of(asked: &Asked, here: &Surroundings) -> Self {
        let (uid, gid) = (asked.uid.unwrap_or(here.uid), asked.gid.unwrap_or(here.gid));
        let (first_uid, first_gid) = match asked.needs_terminals {
            true => (0, 0),
            false => (uid, gid),
        };
        Self {
            uid,
            gid,
            first_uid,
            first_gid,
        }
    }
}

fn namespaces(asked: &Asked, here: &Surroundings) -> Namespaces {
    let unshare = &asked.unshare;
    Namespaces {
        user: unshare.user
            || (here.uid != 0 && asked.userns.is_none())
            || (unshare.user_try && here.has_user_namespaces),
        mount: true,
        pid: unshare.pid,
        net: unshare.net,
        ipc: unshare.ipc,
        uts: unshare.uts,
        cgroup: unshare.cgroup || (unshare.cgroup_try && here.has_cgroup_namespaces),
    }
}

fn build(asked: &Asked, here: &Surroundings, namespaces: Namespaces, ids: &Ids) -> Vec<BuildStep> {
    let mut steps = Vec::with_capacity(asked.steps.len() + 5);
    let other = |wanted: u32, real: u32| (wanted != real).then_some(wanted);
    if asked.userns.is_some() {
        steps.push(BuildStep::SwitchIds {
            uid: other(ids.uid, here.uid),
            gid: other(ids.gid, here.gid),
        });
    }
    if namespaces.net {
        steps.push(BuildStep::LoopbackFirst);
    }
    if namespaces.user && asked.userns_block_fd.is_none() {
        steps.push(BuildStep::MapCaller {
            uid: ids.first_uid,
            gid: ids.first_gid,
        });
    }
    steps.push(BuildStep::Stage(Ground {
        cut_off: !namespaces.user,
        from_root: here.uid == 0,
        own_processes: namespaces.pid || asked.pidns.is_some(),
        lenient: asked.not_a_security_boundary,
        console: here.console.clone(),
        label: asked.file_label.clone(),
    }));
    steps.extend(asked.steps.iter().cloned().map(BuildStep::Asked));
    steps.push(BuildStep::EnterRoot);
    steps
}

fn inside(asked: &Asked, namespaces: Namespaces, ids: &Ids, walls: &Walls) -> Vec<InsideStep> {
    let mut steps = Vec::new();
    if let Some(fd) = asked.userns2 {
        steps.push(InsideStep::JoinUserNamespace(fd));
    }
    let other_ids = (ids.first_uid, ids.first_gid) != (ids.uid, ids.gid);
    let is_mapped_here = namespaces.user && asked.userns_block_fd.is_none();
    if is_mapped_here && (other_ids || asked.disable_userns) {
        steps.push(InsideStep::OwnUserNamespace {
            uid: (ids.uid, ids.first_uid),
            gid: (ids.gid, ids.first_gid),
            is_last: asked.disable_userns,
        });
    }
    if asked.disable_userns || asked.assert_userns_disabled {
        steps.push(InsideStep::ProveNoUserNamespaces);
    }
    let limits = walls.limits.iter().copied();
    let asked = asked
        .extras
        .limits
        .iter()
        .map(|(what, value)| (limit_of(*what), *value));
    steps.extend(limits.chain(asked).map(|(what, value)| InsideStep::Limit {
        what,
        value,
        most: value,
    }));
    steps
}

fn limit_of(what: Limited) -> Limit {
    match what {
        Limited::Memory => Limit::Data,
        Limited::Processes => Limit::Processes,
        Limited::OpenFiles => Limit::OpenFiles,
        Limited::FileSize => Limit::FileSize,
        Limited::CpuSeconds => Limit::CpuSeconds,
    }
}

fn ready(asked: &Asked, here: &Surroundings) -> Vec<ReadyStep> {
    let home = asked.env.iter().find(|(name, _)| name == "HOME");
    let home = home.map(|(_, value)| PathBuf::from(value));
    let others = here.directory.iter().cloned().chain(home).collect();
    let mut steps = Vec::new();
    steps.extend(asked.block_fd.map(ReadyStep::WaitFor));
    steps.extend(asked.seccomp_fd.map(ReadyStep::ReadFilter));
    steps.push(ReadyStep::Directory {
        asked: asked.chdir.clone().map(PathBuf::from),
        others,
    });
    steps.extend(asked.new_session.then_some(ReadyStep::NewSession));
    steps.extend(asked.exec_label.clone().map(ReadyStep::Label));
    steps
}

fn terms(asked: &Asked, namespaces: Namespaces) -> Terms {
    let is_held = !asked.lock_files.is_empty() || asked.sync_fd.is_some();
    let first = match !asked.as_pid_1 && (namespaces.pid || is_held) {
        true => FirstProcess::Reaper {
            locks: asked.lock_files.clone(),
            hold: asked.sync_fd,
        },
        false => FirstProcess::Program,
    };
    let told = [
        asked.info_fd,
        asked.json_status_fd,
        asked.userns_block_fd,
        asked.userns2,
    ];
    Terms {
        joins: Joins {
            user: asked.userns,
            pid: asked.pidns,
        },
        first,
        descriptors: Descriptors::AllBut(used(asked)),
        dies_with_launcher: asked.die_with_parent,
        waits: told.iter().any(Option::is_some),
        announces: asked.json_status_fd.is_some(),
        changeable: false,
    }
}

/// The caller's descriptors that are for us and not for the program.
pub(super) fn used(asked: &Asked) -> Vec<RawFd> {
    let steps = asked.steps.iter().filter_map(|step| match step {
        AskedStep::Bind {
            from: Origin::Descriptor(fd),
            ..
        } => Some(*fd),
        AskedStep::File { from, .. } | AskedStep::Data { from, .. } => Some(*from),
        _ => None,
    });
    let options = [
        asked.userns,
        asked.userns2,
        asked.pidns,
        asked.sync_fd.filter(|_| !asked.as_pid_1),
        asked.block_fd,
        asked.userns_block_fd,
        asked.info_fd,
        asked.json_status_fd,
        asked.seccomp_fd,
    ];
    steps.chain(options.into_iter().flatten()).collect()
}

/// The rules say what the mounts say: what can be written through them, and nothing else.
fn landlock(asked: &Asked, here: &Surroundings, walls: &Walls) -> Landlock {
    if !walls.landlock {
        return Landlock::Excused("not asked for".to_owned());
    }
    let mut files = Vec::new();
    let mut rule = |at: &std::path::Path, rights| {
        let top = std::path::Path::new("/");
        if let Ok(path) = InsidePath::new(top.join(at)) {
            files.push(LandlockRule { path, rights });
        }
    };
    // Without anything mounted there, the top is memory of the box's own.
    let top = asked.steps.iter().any(is_over_the_top);
    let rights = if top { Rights::Read } else { Rights::Write };
    rule(std::path::Path::new("/"), rights);
    for step in &asked.steps {
        match step {
            AskedStep::Bind {
                at,
                mode: AskedMode::Write | AskedMode::Devices,
                ..
            }
            | AskedStep::Tmpfs { at, .. }
            | AskedStep::MessageQueue { at }
            | AskedStep::Data {
                at,
                read_only: false,
                ..
            } => rule(at, Rights::Write),
            AskedStep::Overlay { at, writes, .. } if *writes != OverlayWrites::Refused => {
                rule(at, Rights::Write);
            }
            AskedStep::Dev { at } => rule(at, Rights::Write),
            AskedStep::Proc { at } => rule(at, Rights::Use),
            _ => {}
        }
    }
    Landlock::Enforced {
        abi: here.landlock_abi,
        files,
        tcp: Tcp::Free,
    }
}

fn is_over_the_top(step: &AskedStep) -> bool {
    match step {
        AskedStep::Bind { at, .. }
        | AskedStep::Overlay { at, .. }
        | AskedStep::Tmpfs { at, .. } => at
            .components()
            .all(|part| part == std::path::Component::RootDir),
        _ => false,
    }
}
