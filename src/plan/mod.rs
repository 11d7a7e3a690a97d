//! What will be done: one immutable value that everything after it only reads.
//!
//! `build` is a pure function of the policy, of the facts about the host and of the request.
//! A plan can be printed and compared; making one changes nothing anywhere.

mod asked;
mod build;
mod egress;
mod environment;
mod error;
mod etc;
mod layout;
mod local_bin;
mod lockdown;
mod places;
mod points;
mod ready;
mod show;
mod step;
mod terms;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::policy::{Guard, InsidePath, Isolation, Layer, NetMode, SessionId};

pub use asked::{AskedMode, AskedStep, Origin, OverlayWrites, Part};
pub use build::{ROOTS_STAND_IN, build};
pub use egress::{
    CLAUDE_PORT, DNS_PORT, Door, Egress, HTTP_PORT, NetworkError, OWN_V4, OWN_V6, REDIRECT_PORT,
    SOCKS_PORT,
};
pub use error::PlanError;
pub use local_bin::{HostPrograms, Programs};
pub use lockdown::{Capabilities, Landlock, LandlockRule, Lockdown, Rights, Seccomp, Tcp};
pub use points::{Point, point};
pub use ready::ReadyStep;
pub use show::{Sentences, one_line};
pub use step::{BindMode, BuildStep, Ground, InsideStep, Limit, OwnFolder, Seen};
pub use terms::{Descriptors, FirstProcess, Joins, Namespaces, Terms};

/// Everything that will happen, in the order in which it will happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// What lasts longer than one program; an argument list in others' words asks for none.
    pub session: Option<Session>,
    pub isolation: Isolation,
    pub network: NetMode,
    /// The gateway and its doors, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
    pub namespaces: Namespaces,
    pub identity: Identity,
    /// Before the new root is entered.
    pub build: Vec<BuildStep>,
    /// After it is entered, before the doors are locked.
    pub inside: Vec<InsideStep>,
    pub lock: Lockdown,
    /// After the doors are locked, before the program starts.
    pub ready: Vec<ReadyStep>,
    pub program: Program,
    pub stdio: [Stdio; 3],
    pub terms: Terms,
    pub timeout: Option<Duration>,
    /// What is weaker or other than a reader of the command line would expect.
    pub notes: Vec<String>,
}

impl Plan {
    /// Whether programs delete only what they have made in the folder that is shared here.
    pub fn keeps(&self, inside: &std::path::Path) -> bool {
        self.build.iter().any(|step| {
            matches!(step, BuildStep::Bind { at, mode: BindMode::Kept, .. } if at.as_path() == inside)
        })
    }

    /// How many files each program may have open.
    pub fn open_files(&self) -> Option<u64> {
        self.inside.iter().find_map(|step| match step {
            InsideStep::Limit {
                what: Limit::OpenFiles,
                value,
                ..
            } => Some(*value),
            _ => None,
        })
    }
}

/// Where a session lives on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    pub id: SessionId,
    pub place: Place,
    /// Whether the home is there for the next run of the same name.
    pub kept: bool,
    /// The home as the program sees it.
    pub home: InsidePath,
    /// Who owns the home on the host when that is not the caller.
    pub home_owner: Option<(u32, u32)>,
    /// Whether the home is out of reach of the caller's own tools while programs run.
    pub sealed: bool,
}

impl Session {
    /// A folder of the session as a path on the host; for sessions with a directory of their own.
    fn on_the_host(&self, folder: OwnFolder) -> PathBuf {
        let (Place::Own(directory) | Place::Room(directory)) = &self.place;
        directory.join(folder.path())
    }

    /// What all sessions share on the host.
    pub fn state_directory(&self) -> &std::path::Path {
        let (directory, up) = match &self.place {
            Place::Own(directory) => (directory, 2),
            Place::Room(rooms) => (rooms, 1),
        };
        directory.ancestors().nth(up).unwrap_or(directory)
    }
}

/// Where a session's own folders are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Place {
    /// In a directory of its own.
    Own(PathBuf),
    /// In any free one of the rooms kept here, which is left as clean as it was found.
    Room(PathBuf),
}

/// Who the program is, inside and as the host's kernel sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub host_uid: u32,
    pub host_gid: u32,
    /// The launcher is root: the maps are written from outside and owners are mapped per mount.
    pub from_root: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    #[serde(serialize_with = "show::os_strings")]
    pub argv: Vec<OsString>,
    /// What the program is told that it is called, when that is not the name it is found by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub called: Option<OsString>,
    /// Names and values; the values of passed-on variables are not printed.
    #[serde(serialize_with = "show::environment")]
    pub env: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub umask: u32,
}

/// How one of the program's three standard streams is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stdio {
    /// The caller's pipe, socket or null device, handed over as it is.
    Direct,
    /// A regular file: copied through a pipe, so that it cannot be opened again from inside.
    Copied,
    /// A terminal: the box gets one of its own.
    Terminal,
    /// Whatever it is, it stays where it is.
    Kept,
}

/// A session that goes on without its caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detachment {
    /// The box stays when its program has ended.
    pub stays: bool,
    pub terminal: bool,
    /// Whoever attaches can type.
    pub input: bool,
}

/// What is asked for beyond the policy: resolved by looking at the host, before planning.
#[derive(Debug, Clone)]
pub struct Request {
    pub id: SessionId,
    pub kept: bool,
    pub detached: Option<Detachment>,
    pub mounts: Vec<Source>,
    /// What the program on the command line needs and is not in the system's directories.
    pub needed: Vec<Needed>,
    /// Folders that come before the system's on PATH.
    pub path: Vec<PathBuf>,
    pub argv: Vec<OsString>,
    pub workdir: Option<PathBuf>,
    pub hostname: Option<String>,
    /// Variables given with `--env`; they win over the policy.
    pub env: Vec<(OsString, OsString)>,
    /// What each process carries of the limits that were asked for.
    pub limits: Vec<CarriedLimit>,
    pub whole: WholeLimits,
    pub disguise: Disguise,
}

/// What stands in the box for what stays outside.
#[derive(Debug, Clone, Default)]
pub struct Disguise {
    /// Variables that hold a stand-in for a secret.
    pub variables: Vec<(OsString, OsString)>,
    /// Whom programs are to trust, where TLS ends at the gateway.
    pub certificates: Option<String>,
    /// Where Claude's host listens.
    pub claude_port: Option<u16>,
}

/// What limits on all of a box together ask of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WholeLimits {
    /// Where programs look for their limits, when a cgroup seems to be had. Whether it is shows
    /// only when it is asked for, which a plan does not do.
    pub shown_at: Option<&'static str>,
    /// Its memory is limited.
    pub memory: bool,
}

/// A limit of each single process: what it is, and how far it can be raised later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedLimit {
    pub what: Limit,
    pub value: u64,
    pub most: u64,
}

/// A folder to share, looked at once; whoever opens it later compares.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: PathBuf,
    pub seen: Seen,
    pub place: Option<PathBuf>,
    pub name: OsString,
    pub access: crate::policy::Access,
}

/// Something outside the system's directories that the program cannot do without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Needed {
    pub path: PathBuf,
    pub seen: Seen,
    pub is_folder: bool,
    pub why: String,
    /// A link, made again rather than shown.
    pub link_to: Option<PathBuf>,
    pub access: crate::policy::Access,
}

/// What the host offers and how it is laid out. Read once, by `probe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    pub uid: u32,
    pub gid: u32,
    pub user: String,
    pub umask: u32,
    /// 0 when the kernel has no Landlock.
    pub landlock_abi: i32,
    pub seccomp_notify: bool,
    /// `/bin`, `/lib64` and their like: links on merged systems, folders on others.
    pub system: Vec<SystemEntry>,
    /// What is in /usr/local/bin, if a policy wants that to be changeable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<HostPrograms>,
    /// Entries of /etc that programs need, as found.
    pub etc: Vec<EtcEntry>,
    pub stdio: [Stdio; 3],
    pub state_directory: PathBuf,
    pub shell: PathBuf,
    /// The caller's environment.
    #[serde(skip)]
    pub env: Vec<(OsString, OsString)>,
    /// Name and address git commits are to carry.
    pub git_identity: Option<(String, String)>,
    /// Contents of the host's resolv.conf, for the host's network.
    pub resolver: String,
    /// Where its package managers get packages from, if a policy wants to know.
    pub registries: Registries,
}

/// What the bundle `registries` stands for on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Registries {
    pub rules: Vec<crate::policy::egress::Rule>,
    /// What could not be read, and what is meant and not allowed by it.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SystemEntry {
    Folder(InsidePath),
    Link { at: InsidePath, to: PathBuf },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum EtcEntry {
    /// Shown read-only.
    Shown { name: String, is_folder: bool },
    /// Small and copied.
    Copied { name: String, content: Vec<u8> },
    /// A link into the system's directories.
    Link { name: String, to: PathBuf },
}

/// What the program in the box may not change although it may write around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Guarding {
    On {
        rules: Guard,
        doors: Vec<InsidePath>,
    },
    Off(String),
}

/// A layer the policy asks for and this host lacks, and whether that was excused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub layer: Layer,
    pub because: String,
}
