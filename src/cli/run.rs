//! `run`: flags -> policy -> plan -> box. Looking at the host is `probe`, deciding is `plan`,
//! doing is `session`; this only carries values from one to the next.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::NOT_STARTED;
use super::filters::{FilterSource, filters};
use super::flags::{Id, Parsed};
use super::gateway::{self, Unequipped};
use super::limits;
use super::reach;
use super::shown;
use super::variables;
use crate::limits::Wanted;
use crate::plan::{self, Detachment, Disguise, Plan, PlanError, Request, Sentences};
use crate::policy::{
    Bytes, Isolation, Layer, MountSpec, NetMode, PathError, Policy, PolicyError, PolicyFile,
    SessionId, Sources,
};
use crate::probe::{self, OffLimits, SourceError};
use crate::report::{self, Help};
use crate::session::{self, Detached, DirectoryError, HeldOpen, Manner, Outfit, RunError};
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
    #[error(transparent)]
    Unequipped(#[from] Unequipped),
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
    #[error("cannot set up the network, because {0}")]
    Unreachable(String),
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
            Self::Unequipped(error) => error.help(),
            Self::Flag { .. } => Some("`cowork-linux run --help` shows every flag".into()),
            Self::Mount(..) => Some("write --mount SRC[:DST][:ro|keep|rw]".into()),
            Self::Unset(name) => Some(format!("give it a value: --env {name}=VALUE")),
            Self::NoState => Some("set HOME, or XDG_STATE_HOME to a folder of your own".into()),
            Self::Detach(_) => Some("run it without --detach".into()),
            Self::Show(_) => Some("let standard output lead somewhere that takes it".into()),
            Self::NoProc => Some("mount it: mount -t proc proc /proc".into()),
            Self::Unreachable(_) => Some("allow the host: --allow-host HOST".into()),
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
    held_open: Option<HeldOpen>,
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
    match read(parsed).and_then(carry_out) {
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
    reach::settle(&mut options.policy.net).map_err(wrong)?;
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

fn wrong((flag, why): reach::Wrong) -> Refusal {
    Refusal::Flag { flag, why }
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
        Id::Files => limit(options, "files", &value)?,
        Id::Idle => limit(options, "idle", &value)?,
        Id::Detach => options.detach = true,
        Id::Keep => options.detachment.stays = true,
        Id::Tty => options.detachment.terminal = true,
        Id::Interactive => options.detachment.input = true,
        Id::WhileOpen => {
            let number = text("while-open")?;
            let held = number
                .parse()
                .map_err(|_| format!("`{number}` is not the number of a descriptor"))
                .and_then(HeldOpen::by);
            options.held_open = Some(held.map_err(|why| bad("while-open", why))?);
        }
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
        of_network => {
            let flag = of_network.long();
            reach::set(&mut policy.net, of_network, &text(flag)?).map_err(|why| bad(flag, why))?;
        }
    }
    Ok(())
}

fn limit(options: &mut Options, flag: &'static str, value: &OsStr) -> Result<(), Refusal> {
    limits::set(&mut options.limits, flag, &value.to_string_lossy())
        .map_err(|why| Refusal::Flag { flag, why })
}

fn carry_out(mut options: Options) -> Result<u8, Refusal> {
    let held_open = options.held_open.take();
    let options = &options;
    if options.verbose > 1 {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing::Level::DEBUG)
            .init();
    }
    options.limits.check().map_err(RunError::from)?;
    let (plan, outfit) = plan(options)?;
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
        outfit,
        runtime: runtime.ok_or(Refusal::NoState)?,
        detached: None,
        held_open,
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
            Detached::Caller(code) => return Ok(shown::id(&plan, options.json, code)),
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

fn plan(options: &Options) -> Result<(Plan, Outfit), Refusal> {
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
    let mut policy = crate::policy::resolve(&sources)?.policy;
    reach::check(&options.policy.net, &policy).map_err(wrong)?;
    reach::find_proxy(&mut policy, &env).map_err(wrong)?;
    for spec in &policy.files.mounts {
        mounts.push(probe::look_at(spec, &off_limits)?);
    }
    let facts = probe::facts(&policy, state);
    let rules = policy.net.rules(&facts.registries.rules);
    if let Some(why) = policy.net.without_use(&rules) {
        return Err(Refusal::Unreachable(why));
    }
    let mut request = request(options, &policy, &facts, mounts)?;
    let mut outfit = Outfit::default();
    if policy.net.mode == NetMode::Allow {
        (outfit, request.disguise) = gateway::equip(&policy.net)?;
    }
    Ok((plan::build(&policy, &facts, &request)?, outfit))
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
        env.push(variables::variable(given)?);
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
        limits: limits::carried(&options.limits, &policy.lock),
        whole: limits::whole(&options.limits),
        disguise: Disguise::default(),
    })
}
