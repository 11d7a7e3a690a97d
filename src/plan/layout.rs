//! Where everything lies in the box: the root, the session's home, the mounts below it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::PlanError;
use super::etc;
use super::local_bin;
use super::places::places;
use super::step::{BindMode, BuildStep, OwnFolder};
use super::{Facts, LandlockRule, Needed, Request, Rights, Session, Source, SystemEntry};
use crate::policy::{Access, Bytes, InsidePath, NetMode, Policy};

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const SHARED_MEMORY: Bytes = Bytes(256 << 20);
/// Where the mount points are made before they are shown below the home.
pub(super) const MOUNT_POINTS: &str = "/sessions/.mnt";

/// Collects steps and makes every parent folder exactly once.
struct Steps {
    steps: Vec<BuildStep>,
    folders: BTreeSet<PathBuf>,
}

impl Steps {
    fn folder(&mut self, at: &InsidePath, mode: u32) {
        self.parents(at);
        if self.folders.insert(at.as_path().to_owned()) {
            self.steps.push(BuildStep::Folder {
                at: at.clone(),
                mode,
            });
        }
    }

    fn parents(&mut self, at: &InsidePath) {
        let missing: Vec<&Path> = at
            .as_path()
            .ancestors()
            .skip(1)
            .take_while(|up| *up != Path::new("/") && !self.folders.contains(*up))
            .collect();
        for up in missing.into_iter().rev() {
            self.folders.insert(up.to_owned());
            if let Ok(at) = InsidePath::new(up) {
                self.steps.push(BuildStep::Folder { at, mode: 0o755 });
            }
        }
    }

    /// Whether a step so far has put the host's own there, or a folder with it.
    fn shows(&self, wanted: &InsidePath, as_mode: BindMode) -> bool {
        self.steps.iter().any(|step| match step {
            BuildStep::System { path, at, .. } => path == at.as_path() && wanted.starts_with(at),
            BuildStep::Bind { at, mode, .. } => {
                wanted.starts_with(at) && (as_mode == BindMode::Read || *mode == as_mode)
            }
            _ => false,
        })
    }

    fn link(&mut self, at: &'static str, to: impl Into<PathBuf>) {
        let at = InsidePath::fixed(at);
        self.parents(&at);
        self.steps.push(BuildStep::Link { at, to: to.into() });
    }
}

/// The steps that build the box's file tree, and where each mount ended up.
pub(super) fn tree(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    session: &Session,
) -> Result<(Vec<BuildStep>, Vec<InsidePath>), PlanError> {
    let places = places(policy, request, session)?;
    let mut all = Steps {
        steps: vec![BuildStep::MapIds, BuildStep::NewRoot],
        folders: BTreeSet::new(),
    };
    system(&mut all, facts);
    etc::steps(policy, facts, request, session, &mut all.steps);
    devices(&mut all);
    all.folder(&InsidePath::fixed("/proc"), 0o755);
    all.steps.push(BuildStep::Proc {
        at: InsidePath::fixed("/proc"),
    });
    if !policy.lock.nesting {
        // A masked file below /proc would keep a nested sandbox from mounting one of its own.
        // The kernel's command line names disks; the key list names every key of the user's.
        for name in ["/proc/cmdline", "/proc/keys"] {
            all.steps.push(BuildStep::Mask {
                at: InsidePath::fixed(name),
            });
        }
    }
    let tmp = InsidePath::fixed("/tmp");
    all.folder(&tmp, 0o755);
    all.steps.push(BuildStep::Tmpfs {
        at: tmp,
        size: policy.files.tmp_size,
        mode: 0o1777,
    });
    all.folder(&InsidePath::fixed("/run"), 0o755);
    all.link("/var/tmp", "/tmp");
    if let Some(found) = &facts.programs {
        let programs = local_bin::programs(found);
        all.folder(&programs.host, 0o755);
        all.steps.push(BuildStep::Programs(programs));
    }
    if policy.net.mode == NetMode::Host {
        all.folder(&InsidePath::fixed("/run/systemd"), 0o755);
    }
    if let Some(at) = request.whole.shown_at {
        let at = InsidePath::fixed(at);
        all.folder(&at, 0o755);
        all.steps.push(BuildStep::OwnLimits { at });
    }
    let outputs = policy.files.own_outputs;
    let outputs = outputs.then(|| guards(policy, facts));
    home(&mut all, session, &places, outputs);
    for needed in &request.needed {
        let at = InsidePath::new(below_tmp(&needed.path)).map_err(PlanError::Path)?;
        let mode = mode(policy, facts, needed.access);
        if !all.shows(&at, mode) {
            visible(&mut all, needed, at, mode);
        }
    }
    for (source, at) in request.mounts.iter().zip(&places) {
        if !at.starts_with(&session.home) {
            all.folder(at, 0o755);
        }
        all.steps.push(share(policy, facts, source, at));
    }
    let first = places.first().unwrap_or(&session.home);
    all.link("/workspace", first.as_path());
    all.steps.push(BuildStep::EnterRoot);
    Ok((all.steps, places))
}

/// How what was asked for is given under this policy.
fn mode(policy: &Policy, facts: &Facts, access: Access) -> BindMode {
    match access {
        Access::Read => BindMode::Read,
        Access::Keep | Access::Write if policy.files.read_only_workspace => BindMode::Read,
        // Whether it can be held is looked at before.
        Access::Keep => BindMode::Kept,
        Access::Write if guards(policy, facts) => BindMode::Guarded,
        Access::Write => BindMode::Write,
    }
}

/// Whether what programs may write to is to be guarded, and can be.
fn guards(policy: &Policy, facts: &Facts) -> bool {
    policy.guard.enabled && facts.seccomp_notify
}

fn share(policy: &Policy, facts: &Facts, source: &Source, at: &InsidePath) -> BuildStep {
    let mode = mode(policy, facts, source.access);
    let (from, seen) = (source.path.clone(), source.seen);
    BuildStep::Bind {
        from,
        seen,
        at: at.clone(),
        mode,
        is_folder: true,
    }
}

fn system(all: &mut Steps, facts: &Facts) {
    for entry in &facts.system {
        match entry {
            SystemEntry::Folder(at) => {
                all.folder(at, 0o755);
                let path = at.as_path().to_owned();
                all.steps.push(BuildStep::System {
                    path,
                    at: at.clone(),
                    is_folder: true,
                });
            }
            SystemEntry::Link { at, to } => {
                all.steps.push(BuildStep::Link {
                    at: at.clone(),
                    to: to.clone(),
                });
            }
        }
    }
}

fn devices(all: &mut Steps) {
    all.folder(&InsidePath::fixed("/dev"), 0o755);
    for name in DEVICES {
        all.steps.push(BuildStep::Device { name });
    }
    for (at, to) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/ptmx", "pts/ptmx"),
    ] {
        all.link(at, to);
    }
    let pts = InsidePath::fixed("/dev/pts");
    all.folder(&pts, 0o755);
    all.steps.push(BuildStep::Terminals { at: pts });
    let shm = InsidePath::fixed("/dev/shm");
    all.folder(&shm, 0o755);
    all.steps.push(BuildStep::Tmpfs {
        at: shm,
        size: SHARED_MEMORY,
        mode: 0o1777,
    });
}

/// `outputs` says whether there are outputs, and whether they are guarded.
fn home(all: &mut Steps, session: &Session, places: &[InsidePath], outputs: Option<bool>) {
    all.folder(&session.home, 0o755);
    // The mount points lie on our own root and are shown below the home as one read-only
    // folder: nothing is ever created in a directory the program could have prepared.
    let staging = InsidePath::fixed(MOUNT_POINTS);
    all.folder(&staging, 0o755);
    let below = session.home.as_path().join("mnt");
    let own = below.join("outputs");
    let names: Vec<&Path> = places
        .iter()
        .map(InsidePath::as_path)
        .chain(outputs.map(|_| own.as_path()))
        .filter_map(|at| at.strip_prefix(&below).ok())
        .collect();
    for name in names {
        if let Ok(at) = InsidePath::new(staging.as_path().join(name)) {
            all.folder(&at, 0o755);
        }
    }
    let ours = |folder, at, guarded| BuildStep::Own {
        folder,
        at,
        guarded,
    };
    all.steps
        .push(ours(OwnFolder::Home, session.home.clone(), false));
    if let Ok(at) = InsidePath::new(&below) {
        all.steps.push(BuildStep::MountPoints { from: staging, at });
    }
    if let (Some(guarded), Ok(at)) = (outputs, InsidePath::new(&own)) {
        all.steps.push(ours(OwnFolder::Outputs, at, guarded));
    }
}

fn visible(all: &mut Steps, needed: &Needed, at: InsidePath, mode: BindMode) {
    if let Some(to) = &needed.link_to {
        all.parents(&at);
        all.steps.push(BuildStep::Link { at, to: to.clone() });
        return;
    }
    if needed.is_folder {
        all.folder(&at, 0o755);
    } else {
        all.parents(&at);
        all.steps.push(BuildStep::File {
            at: at.clone(),
            content: String::new(),
        });
    }
    all.steps.push(BuildStep::Bind {
        from: needed.path.clone(),
        seen: needed.seen,
        at,
        mode,
        is_folder: needed.is_folder,
    });
}

/// In the box /var/tmp is a link to /tmp: what lies below it on the host goes below the other.
fn below_tmp(path: &Path) -> PathBuf {
    let rest = path.strip_prefix("/var/tmp").ok();
    rest.map_or_else(|| path.to_owned(), |rest| Path::new("/tmp").join(rest))
}

/// The weaker form has no tree of its own: the same paths as on the host, named one by one.
pub(super) fn weak_tree(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    session: &Session,
) -> Result<(Vec<BuildStep>, Vec<InsidePath>), PlanError> {
    let mut steps = Vec::new();
    for entry in &facts.system {
        let (SystemEntry::Folder(at) | SystemEntry::Link { at, .. }) = entry;
        let path = at.as_path().to_owned();
        steps.push(BuildStep::System {
            path,
            at: at.clone(),
            is_folder: true,
        });
    }
    for at in etc::weak_paths(facts) {
        steps.push(BuildStep::System {
            path: at.as_path().to_owned(),
            at,
            is_folder: true,
        });
    }
    for name in DEVICES {
        steps.push(BuildStep::Device { name });
    }
    steps.push(BuildStep::Proc {
        at: InsidePath::fixed("/proc"),
    });
    for folder in [OwnFolder::Home, OwnFolder::Outputs, OwnFolder::Tmp] {
        if folder == OwnFolder::Outputs && !policy.files.own_outputs {
            continue;
        }
        let at = session.on_the_host(folder);
        let at = InsidePath::new(at).map_err(PlanError::Path)?;
        let guarded = folder == OwnFolder::Outputs && guards(policy, facts);
        steps.push(BuildStep::Own {
            folder,
            at,
            guarded,
        });
    }
    let mut places = Vec::new();
    for needed in &request.needed {
        let at = InsidePath::new(&needed.path).map_err(PlanError::Path)?;
        let (from, seen, is_folder) = (needed.path.clone(), needed.seen, needed.is_folder);
        steps.push(BuildStep::Bind {
            from,
            seen,
            at,
            mode: BindMode::Read,
            is_folder,
        });
    }
    for source in &request.mounts {
        if let Some(place) = &source.place {
            return Err(PlanError::NoPlaces(place.display().to_string()));
        }
        let at = InsidePath::new(&source.path).map_err(PlanError::Path)?;
        steps.push(share(policy, facts, source, &at));
        places.push(at);
    }
    Ok((steps, places))
}

/// What the weaker form allows, step by step.
pub(super) fn weak_rules(build: &[BuildStep]) -> Vec<LandlockRule> {
    build
        .iter()
        .filter_map(|step| {
            let (path, rights) = match step {
                BuildStep::System { at, .. } => (at.clone(), Rights::Read),
                BuildStep::Device { name } => (
                    InsidePath::new(Path::new("/dev").join(name)).ok()?,
                    Rights::Use,
                ),
                // Never to be written: for root these are the host's own settings.
                BuildStep::Proc { at } => (at.clone(), Rights::Read),
                BuildStep::Own {
                    at, guarded: false, ..
                }
                | BuildStep::Bind {
                    at,
                    mode: BindMode::Write,
                    ..
                } => (at.clone(), Rights::Write),
                BuildStep::Own { at, .. } | BuildStep::Bind { at, .. } => {
                    (at.clone(), Rights::Read)
                }
                _ => return None,
            };
            Some(LandlockRule { path, rights })
        })
        .collect()
}
