//! Steps in a caller's own order: what an argument list in bubblewrap's words asks for, one after
//! the other. Places are kept as they were written; whoever carries a step out resolves them
//! inside the new root.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::Serialize;

/// Where something that is shown in the box comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Origin {
    /// As written; relative to the caller's directory.
    Path(PathBuf),
    /// An open file or folder of the caller's.
    Descriptor(RawFd),
}

/// What a program may do through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AskedMode {
    Write,
    Read,
    /// Read and write, and devices are devices.
    Devices,
}

/// Where the changes to an overlay go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum OverlayWrites {
    Refused,
    /// To memory that nobody else sees.
    Hidden,
    To {
        upper: PathBuf,
        work: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum AskedStep {
    Bind {
        from: Origin,
        at: PathBuf,
        mode: AskedMode,
        /// Left out when the source does not exist.
        optional: bool,
    },
    RemountReadOnly {
        at: PathBuf,
    },
    Overlay {
        /// The first lies on top.
        lower: Vec<PathBuf>,
        writes: OverlayWrites,
        at: PathBuf,
    },
    Proc {
        at: PathBuf,
    },
    Dev {
        at: PathBuf,
    },
    Tmpfs {
        at: PathBuf,
        mode: u32,
        size: Option<u64>,
    },
    MessageQueue {
        at: PathBuf,
    },
    Folder {
        at: PathBuf,
        mode: u32,
    },
    /// A plain file with what is read from the descriptor.
    File {
        from: RawFd,
        at: PathBuf,
        mode: u32,
    },
    /// The same, in memory and mounted, so that nothing is written where it appears.
    Data {
        from: RawFd,
        at: PathBuf,
        mode: u32,
        read_only: bool,
    },
    Link {
        to: PathBuf,
        at: PathBuf,
    },
    Chmod {
        at: PathBuf,
        mode: u32,
    },
    Hostname(OsString),
}

impl fmt::Display for AskedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind {
                from,
                at,
                mode,
                optional,
            } => {
                match from {
                    Origin::Path(path) => write!(f, "show {}", path.display())?,
                    Origin::Descriptor(fd) => write!(f, "show what descriptor {fd} stands for")?,
                }
                let how = match mode {
                    AskedMode::Write => "read and write",
                    AskedMode::Read => "read only",
                    AskedMode::Devices => "read and write, with devices",
                };
                let only = if *optional { ", if it is there" } else { "" };
                write!(f, " at {} ({how}{only})", at.display())
            }
            Self::RemountReadOnly { at } => write!(f, "make {} read only", at.display()),
            Self::Overlay { lower, writes, at } => {
                let lower: Vec<_> = lower
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect();
                write!(f, "overlay {} at {}", lower.join(" on "), at.display())?;
                match writes {
                    OverlayWrites::Refused => f.write_str(" (read only)"),
                    OverlayWrites::Hidden => f.write_str(" (changes are forgotten)"),
                    OverlayWrites::To { upper, .. } => {
                        write!(f, " (changes go to {})", upper.display())
                    }
                }
            }
            Self::Proc { at } => write!(f, "show processes at {}", at.display()),
            Self::Dev { at } => write!(f, "make the usual devices at {}", at.display()),
            Self::Tmpfs { at, mode, size } => {
                write!(f, "make an empty {} (mode {mode:04o})", at.display())?;
                size.map_or(Ok(()), |size| write!(f, " of at most {size} bytes"))
            }
            Self::MessageQueue { at } => write!(f, "show message queues at {}", at.display()),
            Self::Folder { at, mode } => {
                write!(f, "make the folder {} (mode {mode:04o})", at.display())
            }
            Self::File { from, at, mode } => {
                let at = at.display();
                write!(f, "write descriptor {from} to {at} (mode {mode:04o})")
            }
            Self::Data {
                from,
                at,
                mode,
                read_only,
            } => {
                let how = if *read_only { ", read only" } else { "" };
                let at = at.display();
                write!(
                    f,
                    "show a copy of descriptor {from} at {at} (mode {mode:04o}{how})"
                )
            }
            Self::Link { to, at } => {
                write!(f, "make the link {} to {}", at.display(), to.display())
            }
            Self::Chmod { at, mode } => write!(f, "set the mode of {} to {mode:04o}", at.display()),
            Self::Hostname(name) => write!(f, "call the box {}", name.to_string_lossy()),
        }
    }
}

/// Which part of a step did not work: callers of bubblewrap match its words, and those differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Part {
    #[default]
    Whole,
    /// The source was looked for before anything was done.
    Source,
    /// The source's kind, when its turn came.
    SourceKind,
    Parents,
    Folder,
    File,
    Mount,
    /// A file of ours that something is copied to.
    Temporary,
    Mode,
    Write,
    /// What was mounted is not what the descriptor stands for.
    Swapped,
    /// There is a link, to the place in the detail.
    OtherLink,
    NotALink,
    /// The place of a remount is no place.
    Destination,
    NotMounted,
    UserMap,
    Groups,
    GroupMap,
    SwitchUser,
    SwitchGroup,
    Sysctl,
    SysctlWrite,
    Unshare,
    /// It worked, and should not have.
    StillPossible,
    /// The detail says which device or folder of several.
    Device,
    DeviceLink,
    Cover,
    Bounds,
    Ambient,
}

impl Part {
    const ALL: [Self; 29] = [
        Self::Whole,
        Self::Source,
        Self::SourceKind,
        Self::Parents,
        Self::Folder,
        Self::File,
        Self::Mount,
        Self::Temporary,
        Self::Mode,
        Self::Write,
        Self::Swapped,
        Self::OtherLink,
        Self::NotALink,
        Self::Destination,
        Self::NotMounted,
        Self::UserMap,
        Self::Groups,
        Self::GroupMap,
        Self::SwitchUser,
        Self::SwitchGroup,
        Self::Sysctl,
        Self::SysctlWrite,
        Self::Unshare,
        Self::StillPossible,
        Self::Device,
        Self::DeviceLink,
        Self::Cover,
        Self::Bounds,
        Self::Ambient,
    ];

    /// The part with this number, as it arrives from another process.
    pub fn numbered(number: u8) -> Self {
        let known = Self::ALL.iter().find(|part| **part as u8 == number);
        known.copied().unwrap_or_default()
    }
}
