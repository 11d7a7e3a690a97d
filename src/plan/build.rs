//! Policy + facts + request -> plan. Pure; the order of this function is the order of the plan.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::PlanError;
use super::step::{BuildStep, InsideStep, Limit};
use super::{
    Detachment, Facts, FirstProcess, Guarding, Identity, Landlock, Namespaces, OwnFolder, Place,
    Plan, Program, Request, Session, Stdio, Tcp, Terms,
};
use super::{Egress, egress, environment, layout, lockdown, places};
use crate::policy::{InsidePath, Isolation, Layer, NetMode, Policy};

/// Who a box is that root starts: nobody's number on any system, so that not even a hole in
/// every wall leads to a process of the host's root or of one of its users.
pub const ROOTS_STAND_IN: u32 = 1_999_001_000;
const ROOTS_INSIDE_ID: u32 = 1000;

/// What happens when `request` is carried out under `policy` on a host with these `facts`.
pub fn build(policy: &Policy, facts: &Facts, request: &Request) -> Result<Plan, PlanError> {
    let namespaces = policy.lock.isolation == Isolation::Namespaces;
    places::can_keep(policy, facts, request)?;
    let session = session(policy, facts, request)?;
    let (build, places) = match namespaces {
        true => layout::tree(policy, facts, request, &session)?,
        false => layout::weak_tree(policy, facts, request, &session)?,
    };
    if policy.guard.enabled && !policy.files.read_only_workspace {
        places::no_overlap(request)?;
    }
    let egress = egress::decide(policy, facts).map_err(PlanError::Network)?;
    let changeable = namespaces && (request.kept || request.detached.is_some());
    let mut lock = lockdown::decide(policy, facts, &build, egress.is_some(), changeable)?;
    if changeable {
        lock.landlock.allow_more_mounts(&session);
    }
    let cwd = working_directory(request, &places, &session)?;
    let inside = inside_steps(policy, request, egress.as_ref(), &cwd, changeable)?;
    let home = (&session, places.first());
    let env = environment::variables(policy, facts, request, home, egress.as_ref());
    let stays = request.detached.is_some_and(|detached| detached.stays);
    let argv = match request.argv.is_empty() {
        true if stays => Vec::new(),
        true => vec![facts.shell.clone().into_os_string()],
        false => request.argv.clone(),
    };
    short_enough(&argv, &env)?;
    let identity = identity(policy, facts);
    Ok(Plan {
        isolation: policy.lock.isolation,
        network: policy.net.mode,
        egress,
        namespaces: own_namespaces(policy),
        terms: Terms {
            first: FirstProcess::Keeper { stays },
            announces: request.detached.is_some(),
            changeable,
            waits: identity.from_root || changeable,
            ..Terms::of_a_session(identity.from_root)
        },
        identity,
        notes: notes(policy, facts, request, &build, &lock),
        build,
        inside,
        lock,
        ready: Vec::new(),
        program: Program {
            argv,
            called: None,
            env,
            cwd,
            umask: facts.umask,
        },
        stdio: request.detached.map_or(facts.stdio, streams_of),
        timeout: policy.limits.timeout,
        session: Some(session),
    })
}

/// The kernel takes no single argument or variable of this length; found out only by the last
/// step of a launch, it would leave everything made in vain.
const LONGEST_STRING: usize = 128 << 10;

fn short_enough(argv: &[OsString], env: &[(OsString, OsString)]) -> Result<(), PlanError> {
    let too_long = |length: &usize| *length >= LONGEST_STRING;
    for (at, word) in argv.iter().enumerate() {
        if let Some(length) = Some(word.len()).filter(too_long) {
            let what = format!("word {} of the command", at + 1);
            return Err(PlanError::TooLong { what, length });
        }
    }
    for (name, value) in env {
        if let Some(length) = Some(name.len() + 1 + value.len()).filter(too_long) {
            let what = format!("the variable {}", name.to_string_lossy());
            return Err(PlanError::TooLong { what, length });
        }
    }
    Ok(())
}

/// The streams of a program that nobody sits in front of.
fn streams_of(detached: Detachment) -> [Stdio; 3] {
    match (detached.terminal, detached.input) {
        (true, _) => [Stdio::Terminal; 3],
        (false, true) => [Stdio::Copied; 3],
        (false, false) => [Stdio::Direct, Stdio::Copied, Stdio::Copied],
    }
}

fn own_namespaces(policy: &Policy) -> Namespaces {
    match policy.lock.isolation {
        Isolation::Landlock => Namespaces::NONE,
        Isolation::Namespaces => Namespaces {
            net: policy.net.mode != NetMode::Host,
            ..Namespaces::ALL
        },
    }
}

fn session(policy: &Policy, facts: &Facts, request: &Request) -> Result<Session, PlanError> {
    let (id, kept) = (request.id.clone(), request.kept);
    let own = facts.state_directory.join("sessions").join(id.as_str());
    // Without namespaces the program sees the host's paths, which must be the session's alone.
    let weak = policy.lock.isolation == Isolation::Landlock;
    let place = match kept || weak || request.detached.is_some() {
        true => Place::Own(own.clone()),
        false => Place::Room(facts.state_directory.join("rooms")),
    };
    let home = match weak {
        false => PathBuf::from("/sessions").join(id.as_str()),
        true => own.join(OwnFolder::Home.path()),
    };
    let home = InsidePath::new(home).map_err(PlanError::Path)?;
    // Git does not obey what belongs to another, so not even root can be led into a home.
    let home_owner = (facts.uid == 0 && !weak).then_some((ROOTS_STAND_IN, ROOTS_STAND_IN));
    Ok(Session {
        id,
        place,
        kept,
        home,
        home_owner,
        sealed: !weak,
    })
}

/// The numbers and the name the program sees.
pub(super) fn inside_identity(facts: &Facts) -> (u32, u32, String) {
    match facts.uid {
        0 => (ROOTS_INSIDE_ID, ROOTS_INSIDE_ID, "agent".to_owned()),
        uid => (uid, facts.gid, facts.user.clone()),
    }
}

fn identity(policy: &Policy, facts: &Facts) -> Identity {
    let weak = policy.lock.isolation == Isolation::Landlock;
    if weak || facts.uid != 0 {
        let (uid, gid) = (facts.uid, facts.gid);
        let name = facts.user.clone();
        return Identity {
            name,
            uid,
            gid,
            host_uid: uid,
            host_gid: gid,
            from_root: false,
        };
    }
    let (uid, gid, name) = inside_identity(facts);
    let (host_uid, host_gid) = (ROOTS_STAND_IN, ROOTS_STAND_IN);
    Identity {
        name,
        uid,
        gid,
        host_uid,
        host_gid,
        from_root: true,
    }
}

fn working_directory(
    request: &Request,
    places: &[InsidePath],
    session: &Session,
) -> Result<PathBuf, PlanError> {
    let first = places.first().unwrap_or(&session.home);
    match &request.workdir {
        None => Ok(first.as_path().to_owned()),
        Some(dir) => InsidePath::new(first.as_path().join(dir))
            .map(|path| path.as_path().to_owned())
            .map_err(|_| PlanError::Workdir(dir.display().to_string())),
    }
}

fn inside_steps(
    policy: &Policy,
    request: &Request,
    egress: Option<&Egress>,
    cwd: &std::path::Path,
    changeable: bool,
) -> Result<Vec<InsideStep>, PlanError> {
    let mut steps = Vec::with_capacity(11);
    let required = !policy.lock.allow_missing.contains(&Layer::Keyring);
    if policy.lock.isolation == Isolation::Namespaces {
        let name = request.hostname.as_deref().unwrap_or("cowork");
        if !is_host_name(name) {
            return Err(PlanError::Hostname(name.to_owned()));
        }
        steps.push(InsideStep::Hostname(name.to_owned()));
        match egress {
            Some(egress) => steps.extend(egress.steps(policy.net.mode)),
            None if policy.net.mode == NetMode::None && policy.net.loopback => {
                steps.push(InsideStep::LoopbackUp);
            }
            None => {}
        }
        steps.push(InsideStep::NewKeyring { required });
        if !policy.lock.nesting {
            steps.push(InsideStep::NoUserNamespaces);
        }
        // A session that can be changed may get a limit later.
        if request.whole.memory || changeable {
            steps.push(InsideStep::ShowSharedMemory);
        }
        steps.push(InsideStep::FreezeRoot);
    } else {
        steps.push(InsideStep::NewKeyring { required });
    }
    if request.whole.memory {
        steps.push(InsideStep::EndFirst);
    }
    steps.push(InsideStep::WorkingDirectory(cwd.to_owned()));
    steps.push(InsideStep::Limit {
        what: Limit::CoreSize,
        value: 0,
        most: 0,
    });
    let is_asked = |what| request.limits.iter().any(|wanted| wanted.what == what);
    for (what, value) in [
        (Limit::OpenFiles, policy.limits.open_files),
        (Limit::Processes, policy.limits.processes),
    ] {
        if let Some(value) = value.filter(|_| !is_asked(what)) {
            let most = value;
            steps.push(InsideStep::Limit { what, value, most });
        }
    }
    for wanted in &request.limits {
        steps.push(InsideStep::Limit {
            what: wanted.what,
            value: wanted.value,
            most: wanted.most,
        });
    }
    Ok(steps)
}

fn is_host_name(name: &str) -> bool {
    matches!(name.len(), 1..=63)
        && !name.starts_with('-')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// What a reader must know and could not guess.
fn notes(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    build: &[BuildStep],
    lock: &lockdown::Lockdown,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    if policy.lock.isolation == Isolation::Landlock {
        note("weaker isolation: no namespaces, so the host's processes and file names can be seen, and limits are the caller's".into());
        note("Landlock does not cover permissions, times and attributes: those of your other files can be changed, their contents cannot".into());
        note("no Unix sockets and no shared memory between programs, because the host's could not be told apart".into());
        note("if the launcher and its helper `cowork-box` are both killed, programs started in the background may live on".into());
        if facts.uid == 0 {
            note("the program runs as root, without capabilities".into());
        }
        if policy.net.mode == NetMode::None {
            note("no network at all: not even loopback inside".into());
        }
    }
    if policy.net.mode == NetMode::Host {
        note(
            "the host's network: every local service and the whole internet can be reached".into(),
        );
    }
    if let Landlock::Enforced { abi, tcp, .. } = &lock.landlock
        && *tcp == Tcp::NoListening
    {
        note(match *abi < 4 {
            true => format!("Landlock ABI {abi} on this kernel: `loopback = false` does not hold, programs can serve each other"),
            false => "`loopback = false`: programs cannot choose a port to listen on; the way to the gateway is TCP, so that is not off as a whole".to_owned(),
        });
    }
    if policy.net.mode == NetMode::Allow && !policy.net.redirect {
        note("`redirect = false`: only programs that know a proxy reach the allowed hosts".into());
    }
    if policy.lock.nesting {
        note("nesting: programs inside may make namespaces and mounts of their own; Landlock's file rules are off, its scopes stay".into());
        if let Guarding::On { .. } = lock.guarding {
            // A read-only mount of theirs and a guarded one of ours look alike, and theirs counts.
            note("nesting: in a sandbox of their own, programs can read guarded mounts and not write to them".into());
        }
    }
    if let Landlock::Excused(because) = &lock.landlock {
        note(format!("without Landlock: {because}"));
    }
    if let Landlock::Enforced { abi, .. } = &lock.landlock
        && *abi < 6
    {
        let held = match policy.net.mode {
            NetMode::None | NetMode::Allow => {
                "abstract sockets and signals are held by namespaces alone"
            }
            NetMode::Host => "the host's abstract sockets can be reached",
        };
        note(format!("Landlock ABI {abi} on this kernel: {held}"));
    }
    if let Guarding::Off(because) = &lock.guarding
        && lockdown::has_open_mount(build)
    {
        note(format!(
            "no guard on git hooks and agent settings: {because}"
        ));
    }
    for text in &facts.registries.notes {
        note(text.clone());
    }
    for needed in &request.needed {
        note(format!(
            "{} is visible: {}",
            needed.path.display(),
            needed.why
        ));
    }
    notes
}
