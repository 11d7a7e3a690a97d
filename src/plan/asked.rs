//! Steps in a caller's own order: what an argument list in bubblewrap's words asks for, one after
//! the other. Places are kept as they were written; whoever carries a step out resolves them
//! inside the new root.

use std::ffi::OsString;
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
