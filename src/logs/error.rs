//! Why a log cannot be used, and what to type instead.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {doing} the log {}", path.display())]
    Failed {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot use the log {}, because {why}", path.display())]
    Unfit { path: PathBuf, why: Unfit },
    #[error("cannot write the log {}, because another process is writing it", path.display())]
    InUse { path: PathBuf },
}

/// What is wrong with a file or folder before a byte of it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is a symbolic link")]
    Symlink,
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is not a folder")]
    NotAFolder,
    #[error("it belongs to user {0}, not to you")]
    Owner(u32),
    #[error("others may write to it (mode {0:03o})")]
    Writable(u32),
    #[error("it has another name somewhere else (a hard link)")]
    Linked,
}

impl LogError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Unfit {
                path,
                why: Unfit::Writable(_),
            } => format!("take that away from them: chmod go-w {}", path.display()),
            Self::Unfit { path, .. } => format!(
                "no session puts such a thing there: look at it, then move it away: mv {0} {0}.odd",
                path.display()
            ),
            Self::InUse { .. } => "end the session that runs in this folder first".into(),
            Self::Failed { source, .. } => match source.raw_os_error() {
                Some(libc::ENOENT) => "see which sessions there are: cowork-linux ls".into(),
                Some(libc::EACCES | libc::EPERM) => {
                    "run it as the user who owns the session".into()
                }
                Some(libc::EMFILE | libc::ENFILE) => {
                    "too many files are open; close some, or raise the limit: ulimit -n".into()
                }
                _ => "look at the disk: dmesg, df".into(),
            },
        })
    }

    pub(super) fn failed(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Failed {
            doing,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn unfit(path: &Path, why: Unfit) -> Self {
        Self::Unfit {
            path: path.to_owned(),
            why,
        }
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> Self {
        let kind = match &error {
            LogError::Failed { source, .. } => source.kind(),
            LogError::Unfit { .. } => io::ErrorKind::PermissionDenied,
            LogError::InUse { .. } => io::ErrorKind::ResourceBusy,
        };
        Self::new(kind, error)
    }
}
