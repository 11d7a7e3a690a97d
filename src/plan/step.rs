//! The steps of building a box, as data. Each one reads as a sentence in plans and in errors.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::Serialize;

use super::asked::AskedStep;
use super::egress::Door;
use super::local_bin::Programs;
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
    /// Guarded, and programs delete only what they have made themselves.
    Kept,
}

impl BindMode {
    /// Whether pid 1 writes for the program.
    pub fn is_guarded(self) -> bool {
        matches!(self, Self::Guarded | Self::Kept)
    }

    /// As it is said on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "ro",
            Self::Write | Self::Guarded => "rw",
            Self::Kept => "keep",
        }
    }
}

impl fmt::Display for BindMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read only",
            Self::Write => "read and write",
            Self::Guarded => "read and write, guarded",
            Self::Kept => {
                "read and write, guarded, and nothing is deleted but what it makes itself"
            }
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

/// What holds for every step in others' words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ground {
    /// The mount namespace is as privileged as the caller's: nothing may spread there.
    pub cut_off: bool,
    /// The caller is the machine's root, whom files in /proc/sys obey.
    pub from_root: bool,
    /// The box has processes of its own to show.
    pub own_processes: bool,
    /// The caller relies on no wall: a mount that cannot be restricted is shown as it is.
    pub lenient: bool,
    /// The terminal that the program's output goes to.
    pub console: Option<PathBuf>,
    /// What SELinux is to call files in memory.
    pub label: Option<OsString>,
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
    /// A folder of programs that can change while the box runs.
    Programs(Programs),
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
    /// The box's own control group, when it is born in one.
    OwnLimits {
        at: InsidePath,
    },
    /// Hides a file behind an empty one.
    Mask {
        at: InsidePath,
    },
    /// Takes on these numbers in a user namespace that was there before.
    SwitchIds {
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// Switches on the loopback before anything else is done.
    LoopbackFirst,
    /// Maps the caller to these numbers, in the order in which callers expect failures.
    MapCaller {
        uid: u32,
        gid: u32,
    },
    /// An empty root that others' steps fill, on ground that is never seen from inside.
    Stage(Ground),
    /// A step that was asked for in others' words.
    Asked(AskedStep),
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
            Self::Programs(programs) => programs.fmt(f),
            Self::MountPoints { at, .. } => write!(f, "make the places for mounts in {at}"),
            Self::Tmpfs { at, size, .. } => write!(f, "make an empty {at} of at most {size}"),
            Self::Proc { at } => write!(f, "show the box's own processes at {at}"),
            Self::Device { name } => write!(f, "show the device /dev/{name}"),
            Self::Terminals { at } => write!(f, "make the box's own terminals at {at}"),
            Self::OwnLimits { at } => write!(
                f,
                "show the box's own limits at {at} (read only), if it gets a cgroup"
            ),
            Self::Mask { at } => write!(f, "hide {at}"),
            Self::SwitchIds { uid, gid } => {
                let ids = [
                    uid.map(|id| format!("user {id}")),
                    gid.map(|id| format!("group {id}")),
                ];
                let ids: Vec<_> = ids.into_iter().flatten().collect();
                write!(f, "become {}", ids.join(" and "))
            }
            Self::LoopbackFirst => f.write_str("switch on the box's own loopback"),
            Self::MapCaller { uid, gid } => {
                write!(f, "map the caller to user {uid} and group {gid}")
            }
            Self::Stage(_) => f.write_str("look for every source, then make an empty root"),
            Self::Asked(step) => step.fmt(f),
            Self::EnterRoot => f.write_str("enter the new root and drop the old one"),
        }
    }
}

/// Steps between entering the root and locking the doors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum InsideStep {
    Hostname(String),
    LoopbackUp,
    /// Switches on the loopback, gives the box an address and leads every other one to it.
    OwnNetwork,
    /// Leads TCP connections to any other address to the gateway.
    Redirect,
    /// Makes the gateway's listeners and hands them out of the box.
    Doors(Vec<Door>),
    NewKeyring {
        required: bool,
    },
    NoUserNamespaces,
    /// Without a cgroup: the host's kernel ends this box first when memory runs out.
    EndFirst,
    /// Without a cgroup: what the box keeps in memory that no process answers for can be counted
    /// from outside.
    ShowSharedMemory,
    FreezeRoot,
    WorkingDirectory(PathBuf),
    Limit {
        what: Limit,
        value: u64,
        /// How far it can be raised while the box runs.
        most: u64,
    },
    /// Enters a user namespace of the caller's.
    JoinUserNamespace(RawFd),
    /// A second user namespace, in which the wanted numbers stand for those of the first.
    OwnUserNamespace {
        uid: (u32, u32),
        gid: (u32, u32),
        /// The last one that can be made.
        is_last: bool,
    },
    /// Makes sure that no user namespace can be made.
    ProveNoUserNamespaces,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    CoreSize,
    OpenFiles,
    Processes,
    /// Memory that is not a file's.
    Data,
    FileSize,
    CpuSeconds,
}

impl fmt::Display for InsideStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hostname(name) => write!(f, "call the box {name}"),
            Self::LoopbackUp => f.write_str("switch on the box's own loopback"),
            Self::OwnNetwork => {
                f.write_str("switch on the box's own loopback and lead every address to it")
            }
            Self::Redirect => {
                f.write_str("redirect TCP connections to all but the box itself to the gateway")
            }
            Self::Doors(doors) if doors.is_empty() => {
                f.write_str("tell the gateway that the box has its network")
            }
            Self::Doors(doors) => {
                let doors: Vec<_> = doors.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "give the gateway its doors in the box: {}",
                    doors.join(", ")
                )
            }
            Self::NewKeyring { .. } => f.write_str("start with an empty keyring"),
            Self::NoUserNamespaces => f.write_str("forbid user namespaces in the box"),
            Self::EndFirst => f.write_str(
                "without a cgroup: be the first to be ended when the host runs out of memory",
            ),
            Self::ShowSharedMemory => {
                f.write_str("without a cgroup: let System V's shared memory be counted")
            }
            Self::FreezeRoot => f.write_str("make the root read only"),
            Self::WorkingDirectory(path) => write!(f, "start in {}", path.display()),
            Self::Limit { what, value, .. } => match what {
                Limit::CoreSize => write!(f, "limit memory dumps to {value} bytes"),
                Limit::OpenFiles => write!(f, "limit open files to {value} per process"),
                Limit::Processes => write!(f, "limit processes to {value}"),
                Limit::Data => write!(f, "limit memory to {value} bytes per process"),
                Limit::FileSize => write!(f, "limit files to {value} bytes"),
                Limit::CpuSeconds => write!(f, "limit processor time to {value} s per process"),
            },
            Self::JoinUserNamespace(fd) => {
                write!(f, "enter the user namespace behind descriptor {fd}")
            }
            Self::OwnUserNamespace {
                uid, gid, is_last, ..
            } => {
                write!(
                    f,
                    "make a second user namespace as user {} and group {}",
                    uid.0, gid.0
                )?;
                f.write_str(if *is_last { ", the last one" } else { "" })
            }
            Self::ProveNoUserNamespaces => {
                f.write_str("make sure that no user namespace can be made")
            }
        }
    }
}
