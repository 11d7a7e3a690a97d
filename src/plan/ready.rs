//! The last steps before the program, as data.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::Serialize;

/// Steps between locking the doors and starting the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ReadyStep {
    /// Waits until there is something to read, or nothing ever will be.
    WaitFor(RawFd),
    /// A filter that its maker may not have written before the box stands.
    ReadFilter(RawFd),
    /// Starts in this directory, or in the first of the others that is there, or at the top.
    Directory {
        asked: Option<PathBuf>,
        others: Vec<PathBuf>,
    },
    NewSession,
    /// What SELinux is to call the program.
    Label(OsString),
}

impl fmt::Display for ReadyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitFor(fd) => write!(f, "wait for descriptor {fd}"),
            Self::ReadFilter(fd) => {
                write!(f, "read a system call filter from descriptor {fd}")
            }
            Self::Directory {
                asked: Some(path), ..
            } => write!(f, "start in {}", path.display()),
            Self::Directory { others, .. } => {
                let others: Vec<_> = others.iter().map(|path| path.display()).collect();
                f.write_str("start in the first there is of:")?;
                others.iter().try_for_each(|path| write!(f, " {path}"))?;
                f.write_str(" /")
            }
            Self::NewSession => f.write_str("leave the caller's terminal session"),
            Self::Label(label) => write!(f, "run it as {}", label.to_string_lossy()),
        }
    }
}
