//! The steps of building a box, as data. Each one reads as a sentence in plans and in errors.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::policy::{Bytes, InsidePath};

/// What a path was when the planner looked; compared when it is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub device: u64,
    pub inode: u64,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BindMode {
    Read,
    Write,
    /// Read-only for the program itself; pid 1 writes for it and keeps guarded files as they are.
    Guarded,
}

impl fmt::Display for BindMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read only",
            Self::Write => "read and write",
            Self::Guarded => "read and write, guarded",
        })
    }
}

/// A folder that every session has on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnFolder {
    Home,
    Outputs,
    Tmp,
}

impl OwnFolder {
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Outputs => "outputs",
            Self::Tmp => "tmp",
        }
    }

    /// Where it is in the session's directory. The home lies behind a folder that is closed while
    /// programs run: no tool of the host's is to be led in there.
    pub fn path(self) -> &'static str {
        match self {
            Self::Home => "inner/home",
            Self::Outputs | Self::Tmp => self.name(),
        }
    }
}

impl fmt::Display for OwnFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Steps up to entering the new root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum BuildStep {
    MapIds,
    NewRoot,
    Folder {
        at: InsidePath,
        mode: u32,
    },
    Link {
        at: InsidePath,
        to: PathBuf,
    },
    File {
        at: InsidePath,
        content: String,
    },
    /// Host bytes copied into the box.
    Copy {
        at: InsidePath,
        content: Vec<u8>,
    },
    /// A part of the system, trusted to be what its name says.
    System {
        path: PathBuf,
        at: InsidePath,
        is_folder: bool,
    },
    /// Something of the user's: opened without following links and compared with what was seen.
    Bind {
        from: PathBuf,
        seen: Seen,
        at: InsidePath,
        mode: BindMode,
        is_folder: bool,
    },
    /// A folder of the session itself; made by us, so only its owner is checked.
    Own {
        folder: OwnFolder,
        at: InsidePath,
        guarded: bool,
    },
    /// The folder that holds the mounts: ours, so that no mount point is made in the user's.
    MountPoints {
        from: InsidePath,
        at: InsidePath,
    },
    Tmpfs {
        at: InsidePath,
        size: Bytes,
        mode: u32,
    },
    Proc {
        at: InsidePath,
    },
    Device {
        name: &'static str,
    },
    Terminals {
        at: InsidePath,
    },
    /// Hides a file behind an empty one.
    Mask {
        at: InsidePath,
    },
    EnterRoot,
}

impl BuildStep {
    pub fn is_bind(&self) -> bool {
        matches!(self, Self::Bind { .. })
    }
}

impl fmt::Display for BuildStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MapIds => f.write_str("map the user into the box"),
            Self::NewRoot => f.write_str("make an empty root"),
            Self::Folder { at, mode } => write!(f, "make the folder {at} (mode {mode:04o})"),
            Self::Link { at, to } => write!(f, "make the link {at} to {}", to.display()),
            Self::File { at, .. } => write!(f, "write {at}"),
            Self::Copy { at, .. } => write!(f, "copy {at} from the host"),
            Self::System { path, at, .. } if path == at.as_path() => {
                write!(f, "show {at} (read only)")
            }
            Self::System { path, at, .. } => {
                write!(f, "show {} at {at} (read only)", path.display())
            }
            Self::Bind { from, at, mode, .. } => {
                write!(f, "share {} at {at} ({mode})", from.display())
            }
            Self::Own {
                folder,
                at,
                guarded,
            } => {
                let guarded = if *guarded { " (guarded)" } else { "" };
                write!(f, "keep the session's {folder} at {at}{guarded}")
            }
            Self::MountPoints { at, .. } => write!(f, "make the places for mounts in {at}"),
            Self::Tmpfs { at, size, .. } => write!(f, "make an empty {at} of at most {size}"),
            Self::Proc { at } => write!(f, "show the box's own processes at {at}"),
            Self::Device { name } => write!(f, "show the device /dev/{name}"),
            Self::Terminals { at } => write!(f, "make the box's own terminals at {at}"),
            Self::Mask { at } => write!(f, "hide {at}"),
            Self::EnterRoot => f.write_str("enter the new root and drop the old one"),
        }
    }
}

/// Steps between entering the root and locking the doors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum InsideStep {
    Hostname(String),
    LoopbackUp,
    NewKeyring { required: bool },
    NoUserNamespaces,
    FreezeRoot,
    WorkingDirectory(PathBuf),
    Limit { what: Limit, value: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    CoreSize,
    OpenFiles,
    Processes,
}

impl fmt::Display for InsideStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hostname(name) => write!(f, "call the box {name}"),
            Self::LoopbackUp => f.write_str("switch on the box's own loopback"),
            Self::NewKeyring { .. } => f.write_str("start with an empty keyring"),
            Self::NoUserNamespaces => f.write_str("forbid user namespaces in the box"),
            Self::FreezeRoot => f.write_str("make the root read only"),
            Self::WorkingDirectory(path) => write!(f, "start in {}", path.display()),
            Self::Limit { what, value } => match what {
                Limit::CoreSize => write!(f, "limit memory dumps to {value} bytes"),
                Limit::OpenFiles => write!(f, "limit open files to {value} per process"),
                Limit::Processes => write!(f, "limit processes to {value}"),
            },
        }
    }
}
