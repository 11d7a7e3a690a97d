//! Limits on a running box: by a control group of its own where one is to be had, by looking at
//! it from outside where not. Used by the one process that watches over a session.
//!
//! It measures and judges; ending a box is done when it is asked for, never by itself.

mod base;
mod census;
mod changing;
mod choose;
mod dbus;
mod family;
mod folders;
mod ground;
mod group;
mod holder;
mod idle;
mod io_devices;
mod memory;
mod pace;
mod pulse;
mod rlimits;
mod running;
pub mod scope;
mod system_v;
mod tree;
mod watch;
mod words;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use choose::{Prospect, foresee, remove_left_overs};
pub use dbus::Address;
pub use ground::Ground;
pub use holder::{Holder, choose, supervise};
pub use rlimits::{Rlimit, rlimits};

/// What a box may use; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes, of all processes together, files in memory included.
    pub memory: Option<u64>,
    /// Thousandths of a processor.
    pub milli_cpus: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Bytes in the session's own folders on disk.
    pub disk: Option<u64>,
    /// Bytes per second, to and from the disks of those folders.
    pub io: Option<u64>,
    /// Files that one process may have open.
    pub files: Option<u64>,
    /// How long nothing may happen.
    pub idle: Option<Duration>,
}

/// The least that a box can live with, and that can be told from a slip of the finger.
const LEAST: [(Limit, u64); 6] = [
    (Limit::Memory, 4 << 20),
    (Limit::Cpus, 10),
    (Limit::Pids, 2),
    (Limit::Disk, 1 << 20),
    (Limit::Io, 4 << 10),
    // Shells keep some at numbers above ten.
    (Limit::Files, 16),
];

impl Wanted {
    /// Whether a box can live with these, and this process can give them.
    pub fn check(&self) -> Result<(), LimitError> {
        for (limit, least) in LEAST {
            if self.value(limit).is_some_and(|value| value < least) {
                let least = limit.say(least);
                return Err(LimitError::TooSmall { limit, least });
            }
        }
        let most = rlimits::open_files_at_most();
        match self.files.filter(|wanted| *wanted > most) {
            Some(wanted) => Err(LimitError::NotOurs { wanted, most }),
            None => Ok(()),
        }
    }

    fn value(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Memory => self.memory,
            Limit::Cpus => self.milli_cpus,
            Limit::Pids => self.pids,
            Limit::Disk => self.disk,
            Limit::Io => self.io,
            Limit::Files => self.files,
            Limit::Idle => self.idle.map(|idle| idle.as_millis() as u64),
            Limit::DiskFiles => None,
        }
    }

    /// What was asked for, with each value in words.
    pub fn in_words(&self) -> Vec<(Limit, String)> {
        let all = Limit::ASKED.into_iter();
        all.filter_map(|limit| Some((limit, limit.say(self.value(limit)?))))
            .collect()
    }

    /// These, and what was wanted before where nothing is said.
    pub fn or(&self, before: &Self) -> Self {
        Self {
            memory: self.memory.or(before.memory),
            milli_cpus: self.milli_cpus.or(before.milli_cpus),
            pids: self.pids.or(before.pids),
            disk: self.disk.or(before.disk),
            io: self.io.or(before.io),
            files: self.files.or(before.files),
            idle: self.idle.or(before.idle),
        }
    }

    /// Whether each process carries all of it by itself, and nobody has to look at the box.
    pub fn is_carried(&self) -> bool {
        let rest = Self {
            files: None,
            ..*self
        };
        rest == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    Memory,
    Cpus,
    Pids,
    Disk,
    /// Files and folders on disk, however small: they are limited together with their size.
    DiskFiles,
    Io,
    /// Open files of one process.
    Files,
    Idle,
}

impl Limit {
    /// Those that can be asked for, each by a flag of its name.
    const ASKED: [Self; 7] = [
        Self::Memory,
        Self::Cpus,
        Self::Pids,
        Self::Disk,
        Self::Io,
        Self::Files,
        Self::Idle,
    ];

    /// A value of this limit in words.
    fn say(self, value: u64) -> String {
        match self {
            Self::Memory | Self::Disk => words::size(value),
            Self::Io => format!("{} per second", words::size(value)),
            Self::Cpus => {
                let text = format!("{}.{:03}", value / 1000, value % 1000);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Self::Pids | Self::Files | Self::DiskFiles => value.to_string(),
            Self::Idle => humantime::format_duration(Duration::from_millis(value)).to_string(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
            Self::Disk | Self::DiskFiles => "disk",
            Self::Io => "io",
            Self::Files => "files",
            Self::Idle => "idle",
        })
    }
}

/// Who holds the limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// The kernel, but for those it has no controller for here.
    Cgroup { path: PathBuf, without: Vec<Limit> },
    /// The session's supervisor, and why it is not the kernel.
    Supervision { because: String },
}

impl Way {
    /// Whether these limits can be held at all.
    fn serves(&self, wanted: &Wanted) -> Result<(), LimitError> {
        match self {
            Self::Supervision { because } if wanted.io.is_some() => {
                Err(LimitError::NoCgroup(because.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup { path, .. } => write!(f, "by the cgroup {}", path.display()),
            Self::Supervision { because } => write!(f, "by supervision, because {because}"),
        }
    }
}

/// How a box is doing with respect to its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    /// The kernel met a limit and held it: it refused something or ended one process. The box
    /// goes on.
    Held {
        limit: Limit,
        what: String,
    },
    /// The box is over a limit, and something has to be done about it.
    Over {
        limit: Limit,
        what: String,
        action: Action,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It goes on taking what it must not have, even when it is stopped.
    Kill,
    /// Stopped it takes no more, and the user can raise the limit and let it go on.
    Freeze,
}

/// What a box uses at about one instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory: u64,
    pub cpu_time: Duration,
    pub pids: u64,
    /// As of the last count; none before the first.
    pub disk: Option<u64>,
    pub files: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("cannot limit {limit} that far, because less than {least} is of no use")]
    TooSmall { limit: Limit, least: String },
    #[error("cannot allow {wanted} open files, because this process may have {most} itself")]
    NotOurs { wanted: u64, most: u64 },
    #[error("cannot allow {wanted} open files, because the box was started with at most {most}")]
    BeyondStart { wanted: u64, most: u64 },
    #[error("cannot limit disk traffic, because that takes a cgroup and {0}")]
    NoCgroup(String),
    #[error("cannot limit {limit} to {wanted}, because the box uses {used} now")]
    InUse {
        limit: Limit,
        wanted: String,
        used: String,
    },
    #[error("cannot set the limits of the box")]
    Set(#[source] io::Error),
    #[error("cannot find the processes of the box")]
    Lost(#[source] io::Error),
}

impl LimitError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::TooSmall { limit, least } => format!("give at least {least}: --{limit}"),
            Self::NotOurs { most, .. } => {
                format!("give at most that, or raise your own limit first: --files {most}")
            }
            Self::BeyondStart { most, .. } => {
                format!("give at most that, or start another session: --files {most}")
            }
            Self::NoCgroup(_) => "leave out --io, or run it in a systemd user session".into(),
            Self::InUse { limit, .. } => {
                format!("end something in it first, or choose a larger --{limit}")
            }
            Self::Set(_) => "`cowork-linux doctor` shows what this host offers".into(),
            Self::Lost(_) => "the box may have ended meanwhile".into(),
        })
    }
}

/// What has to be mounted in a box so that programs see the limits they live under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Where programs look.
    pub at: &'static str,
    pub filesystem: &'static str,
    /// The box must have entered a cgroup namespace of its own after it was born in its group,
    /// or it would see where that group lies on the host.
    pub needs_own_cgroup_namespace: bool,
    pub is_read_only: bool,
}

/// The view of a box that has a control group.
pub const VIEW: View = View {
    at: "/sys/fs/cgroup",
    filesystem: "cgroup2",
    needs_own_cgroup_namespace: true,
    is_read_only: true,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_nobody_can_live_with_are_refused_by_name() {
        let wanted = Wanted {
            memory: Some(512),
            ..Wanted::default()
        };
        let error = wanted.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot limit memory that far, because less than 4 MiB is of no use"
        );
        assert_eq!(error.help().unwrap(), "give at least 4 MiB: --memory");
        assert!(Wanted::default().check().is_ok());
    }

    #[test]
    fn open_files_are_neither_too_few_nor_more_than_there_are() {
        let files = |files| Wanted {
            files: Some(files),
            ..Wanted::default()
        };
        assert!(files(0).check().is_err());
        assert!(files(16).check().is_ok());
        let error = files(u64::MAX).check().unwrap_err();
        assert!(error.to_string().contains("may have"), "{error}");
        assert!(files(64).is_carried() && !files(64).or(&idle()).is_carried());
    }

    fn idle() -> Wanted {
        Wanted {
            idle: Some(Duration::from_millis(1500)),
            milli_cpus: Some(1500),
            ..Wanted::default()
        }
    }

    #[test]
    fn values_are_said_as_people_say_them() {
        let wanted = Wanted {
            memory: Some(512 << 20),
            ..idle()
        };
        let said: Vec<String> = wanted
            .in_words()
            .iter()
            .map(|(limit, value)| format!("{limit} {value}"))
            .collect();
        assert_eq!(said, ["memory 512 MiB", "cpus 1.5", "idle 1s 500ms"]);
        assert_eq!(Limit::Cpus.say(2000), "2");
        assert_eq!(Limit::Cpus.say(10), "0.01");
    }
}
