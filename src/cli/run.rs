//! `run`: flags -> policy -> plan -> box. Looking at the host is `probe`, deciding is `plan`,
//! doing is `session`; this only carries values from one to the next.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::NOT_STARTED;
use super::filters::{FilterSource, filters};
use super::flags::{Id, Parsed};
use super::limits;
use super::shown;
use crate::limits::Wanted;
use crate::plan::{self, CarriedLimit, Detachment, Plan, PlanError, Request, Sentences};
use crate::policy::{
    Bytes, Isolation, Layer, Lock, MountSpec, NetMode, PathError, Policy, PolicyError, PolicyFile,
    SessionId, Sources,
};
use crate::probe::{self, OffLimits, SourceError};
use crate::report::{self, Help};
use crate::session::{self, Detached, DirectoryError, Manner, RunError};
use crate::terminal::printable;

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("cannot read --{flag}, because {why}")]
    Flag { flag: &'static str, why: String },
    #[error("cannot read --mount {0}")]
    Mount(String, #[source] PathError),
    #[error("cannot pass {0} on, because it is not set")]
    Unset(String),
    #[error("cannot keep sessions, because neither XDG_STATE_HOME nor HOME is set")]
    NoState,
    #[error("cannot look at this system, because /proc is not mounted")]
    NoProc,
    #[error("cannot go to the background")]
    Detach(#[source] std::io::Error),
    #[error("cannot print the plan")]
    Show(#[source] std::io::Error),
    #[error("cannot use the system call filter {0}")]
    Filter(String, #[source] FilterSource),
}

impl Help for Refusal {
    fn help(&self) -> Option<String> {
        match self {
            Self::Policy(error) => error.help(),
            Self::Source(error) => error.help(),
            Self::Plan(error) => error.help(),
            Self::Run(error) => error.help(),
            Self::Directory(error) => error.help(),
            Self::Flag { .. } => Some("`cowork-linux run --help` shows every flag".into()),
            Self::Mount(..) => Some("write --mount SRC[:DST][:ro|rw]".into()),
            Self::Unset(name) => Some(format!("give it a value: --env {name}=VALUE")),
            Self::NoState => Some("set HOME, or XDG_STATE_HOME to a folder of your own".into()),
            Self::Detach(_) => Some("run it without --detach".into()),
            Self::Show(_) => Some("let standard output lead somewhere that takes it".into()),
            Self::NoProc => Some("mount it: mount -t proc proc /proc".into()),
            Self::Filter(..) => {
                Some("name a built-in filter, or the path of an OCI seccomp profile".into())
            }
        }
    }
}

/// The flags, read.
#[derive(Debug, Default)]
struct Options {
    mounts: Vec<OsString>,
    name: Option<SessionId>,
    detach: bool,
    detachment: Detachment,
    limits: Wanted,
    profile: Option<String>,
    env: Vec<OsString>,
    workdir: Option<PathBuf>,
    hostname: Option<String>,
    policy: PolicyFile,
    dry_run: bool,
    json: bool,
    quiet: bool,
    verbose: u8,
    command: Vec<OsString>,
}

pub(super) fn run(parsed: Parsed) -> ExitCode {
    match read(parsed).and_then(|options| carry_out(&options)) {
        Ok(code) => ExitCode::from(code),
        Err(refusal) => {
            report::print(&refusal);
            ExitCode::from(NOT_STARTED)
        }
    }
}

fn read(parsed: Parsed) -> Result<Options, Refusal> {
    let mut options = Options {
        command: parsed.command,
        ..Options::default()
    };
    for (id, value) in parsed.flags {
        read_flag(&mut options, id, value)?;
    }
    let alone = [
        (options.detachment.stays, "keep"),
        (options.detachment.terminal, "tty"),
        (options.detachment.input, "interactive"),
    ];
    match alone
        .into_iter()
        .find(|(given, _)| *given && !options.detach)
    {
        Some((_, flag)) => Err(Refusal::Flag {
            flag,
            why: "it is for sessions in the background: add --detach".into(),
        }),
        None => Ok(options),
    }
}

fn read_flag(options: &mut Options, id: Id, value: OsString) -> Result<(), Refusal> {
    let bad = |flag: &'static str, why: String| Refusal::Flag { flag, why };
    let text = |flag| {
        let not_text = |_| bad(flag, "its value is not UTF-8 text".into());
        value.clone().into_string().map_err(not_text)
    };
    let policy = &mut options.policy;
    match id {
        Id::Mount => options.mounts.push(value),
        Id::Env => options.env.push(value),
        Id::Workdir => options.workdir = Some(value.into()),
        Id::Hostname => options.hostname = Some(text("hostname")?),
        Id::Memory => limit(options, "memory", &value)?,
        Id::Cpus => limit(options, "cpus", &value)?,
        Id::Pids => limit(options, "pids", &value)?,
        Id::Disk => limit(options, "disk", &value)?,
        Id::Io => limit(options, "io", &value)?,
        Id::Idle => limit(options, "idle", &value)?,
        Id::Detach => options.detach = true,
        Id::Keep => options.detachment.stays = true,
        Id::Tty => options.detachment.terminal = true,
        Id::Interactive => options.detachment.input = true,
        Id::Profile => options.profile = Some(text("profile")?),
        Id::Name => {
            let name = text("name")?;
            options.name =
                Some(SessionId::parse(&name).map_err(|error| bad("name", error.to_string()))?);
        }
        Id::TmpSize => {
            let size = Bytes::parse(&text("tmp-size")?).map_err(|why| bad("tmp-size", why))?;
            policy.files.tmp_size = Some(size);
        }
        Id::Timeout => {
            let time = crate::policy::time(&text("timeout")?).map_err(|why| bad("timeout", why))?;
            policy.limits.timeout = Some(time);
        }
        Id::Network => {
            policy.net.mode = Some(match text("network")?.as_str() {
                "none" => NetMode::None,
                "host" => NetMode::Host,
                "allow" => {
                    let why = "`allow` is not supported yet; use none or host";
                    return Err(bad("network", why.into()));
                }
                other => return Err(bad("network", format!("`{other}` is not none or host"))),
            });
        }
        Id::Isolation => {
            policy.lock.isolation = Some(match text("isolation")?.as_str() {
                "namespaces" => Isolation::Namespaces,
                "landlock" => Isolation::Landlock,
                other => {
                    let why = format!("`{other}` is not namespaces or landlock");
                    return Err(bad("isolation", why));
                }
            });
        }
        Id::AllowMissing => {
            let name = text("allow-missing")?;
            let known = Layer::ALL.map(Layer::name).join(", ");
            let layer = Layer::parse(&name).ok_or_else(|| {
                bad(
                    "allow-missing",
                    format!("`{name}` is not a layer; there are {known}"),
                )
            })?;
            policy
                .lock
                .allow_missing
                .get_or_insert_default()
                .insert(layer);
        }
        Id::Seccomp => policy.lock.seccomp = Some(text("seccomp")?),
        Id::Nesting => policy.lock.nesting = Some(true),
        Id::ReadOnlyWorkspace => policy.files.read_only_workspace = Some(true),
        Id::DryRun => options.dry_run = true,
        Id::Json => options.json = true,
        Id::Quiet => options.quiet = true,
        Id::Verbose => options.verbose += 1,
    }
    Ok(())
}

fn limit(options: &mut Options, flag: &'static str, value: &OsStr) -> Result<(), Refusal> {
    limits::set(&mut options.limits, flag, &value.to_string_lossy())
        .map_err(|why| Refusal::Flag { flag, why })
}

fn carry_out(options: &Options) -> Result<u8, Refusal> {
    if options.verbose > 1 {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing::Level::DEBUG)
            .init();
    }
    let plan = plan(options)?;
    if options.dry_run {
        shown::plan(&plan, options.json).map_err(Refusal::Show)?;
        return Ok(0);
    }
    if options.verbose > 0 {
        for line in Sentences(&plan).to_string().lines() {
            report::say(&printable(line));
        }
    } else if !options.quiet {
        report::say(&printable(&plan::one_line(&plan)));
        for note in plan
            .notes
            .iter()
            .filter(|_| plan.isolation == Isolation::Landlock)
        {
            report::say(&format!("note: {}", printable(note)));
        }
    }
    let filters = filters(&plan).map_err(|(name, error)| Refusal::Filter(name, error))?;
    tracing::debug!(filters = filters.every.len(), "launching");
    let runtime = probe::runtime_directory(&|name: &str| std::env::var_os(name));
    let mut manner = Manner {
        runtime: runtime.ok_or(Refusal::NoState)?,
        detached: None,
        journals: plan
            .session
            .as_ref()
            .map(|session| session.state_directory().join("journals"))
            .unwrap_or_default(),
        limits: options.limits,
        say: (!options.quiet).then_some(say_note),
    };
    if options.detach {
        match session::detach().map_err(Refusal::Detach)? {
            Detached::Caller(code) => return Ok(say_id(&plan, options, code)),
            Detached::Supervisor(told) => manner.detached = Some(told),
        }
    }
    let ended = session::run(&plan, &filters, manner)?;
    tracing::debug!(outcome = ?ended.outcome, "ended");
    shown::end(&plan, &ended, options.json, options.quiet);
    let code = ended.outcome.exit_code();
    // A program that ended well before its last words were lost does not know of it.
    Ok(if ended.lost.is_empty() {
        code
    } else {
        code.max(1)
    })
}

fn say_note(note: &str) {
    report::say(&format!("note: {}", printable(note)));
}

/// The supervisor has said what there was to say; this is for scripts.
fn say_id(plan: &Plan, options: &Options, code: u8) -> u8 {
    if let (Some(session), 0) = (&plan.session, code) {
        let id = session.id.as_str();
        let text = match options.json {
            true => format!("{}\n", serde_json::json!({ "session": id })),
            false => format!("{id}\n"),
        };
        let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    }
    code
}

fn plan(options: &Options) -> Result<Plan, Refusal> {
    if !Path::new("/proc/self/fd").exists() {
        return Err(Refusal::NoProc);
    }
    let env = |name: &str| std::env::var_os(name);
    let state = probe::state_directory(&env).ok_or(Refusal::NoState)?;
    let home = env("HOME").map(PathBuf::from);
    let off_limits = OffLimits::new(&state, home);
    let mut mounts = Vec::with_capacity(options.mounts.len());
    for text in &options.mounts {
        let spec = MountSpec::parse(text, |path| path.symlink_metadata().is_ok())
            .map_err(|error| Refusal::Mount(text.to_string_lossy().into_owned(), error))?;
        mounts.push(probe::look_at(&spec, &off_limits)?);
    }
    let project_dir = mounts.first().map(|source| source.path.as_path());
    let sources = Sources {
        profile: options.profile.as_deref(),
        project_dir,
        flags: options.policy.clone(),
        env: &env,
    };
    let policy = crate::policy::resolve(&sources)?.policy;
    for spec in &policy.files.mounts {
        mounts.push(probe::look_at(spec, &off_limits)?);
    }
    let facts = probe::facts(&policy, state);
    let request = request(options, &policy, &facts, mounts)?;
    Ok(plan::build(&policy, &facts, &request)?)
}

fn request(
    options: &Options,
    policy: &Policy,
    facts: &plan::Facts,
    mounts: Vec<plan::Source>,
) -> Result<Request, Refusal> {
    let (id, kept) = match &options.name {
        Some(name) => (name.clone(), true),
        None => (session::fresh_id()?, false),
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
    let program = options
        .command
        .first()
        .cloned()
        .unwrap_or_else(|| facts.shell.clone().into());
    let needs = probe::needed_by(&program, &search, home.as_deref());
    let mut env = needs.env;
    for given in &options.env {
        env.push(variable(given)?);
    }
    let mut needed = needs.visible;
    needed.extend(mounts.iter().filter_map(probe::worktree));
    for path in &policy.files.visible {
        needed.push(probe::visible(path)?);
    }
    Ok(Request {
        id,
        kept: kept || options.detach,
        detached: options.detach.then_some(options.detachment),
        mounts,
        needed,
        path: needs.path,
        argv: options.command.clone(),
        workdir: options.workdir.clone(),
        hostname: options.hostname.clone(),
        env,
        limits: carried(&options.limits, &policy.lock),
    })
}

/// What each process carries of the limits.
fn carried(wanted: &Wanted, lock: &Lock) -> Vec<CarriedLimit> {
    let has_namespace = lock.isolation == Isolation::Namespaces;
    let carried = crate::limits::rlimits(wanted, has_namespace).into_iter();
    let carried = carried.map(|limit| CarriedLimit {
        what: limit.what,
        value: limit.soft,
        most: limit.hard,
    });
    carried.collect()
}

/// `K=V`, or `K` to pass the caller's value on.
pub(super) fn variable(given: &OsStr) -> Result<(OsString, OsString), Refusal> {
    let bytes = given.as_bytes();
    let name_of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (name_of(&bytes[..at]), name_of(&bytes[at + 1..])),
        None => {
            let unset = || Refusal::Unset(given.to_string_lossy().into_owned());
            (given.to_owned(), std::env::var_os(given).ok_or_else(unset)?)
        }
    };
    if name.is_empty() {
        return Err(Refusal::Flag {
            flag: "env",
            why: "a variable needs a name".into(),
        });
    }
    Ok((name, value))
}
