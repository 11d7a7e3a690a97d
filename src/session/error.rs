//! Why a session did not start, or was lost sight of.

use std::io;

use super::directory::DirectoryError;
use crate::limits::LimitError;
use crate::logs::LogError;
use crate::sandbox::LaunchError;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("cannot limit disk traffic, because that takes a cgroup and {0}")]
    NoIoLimit(String),
    #[error("cannot listen for commands in {path}")]
    Socket { path: String, source: io::Error },
    #[error("cannot watch over the box")]
    Watch(#[from] io::Error),
}

impl RunError {
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Directory(error) => error.help(),
            Self::Launch(error) => error.help(),
            Self::Log(error) => error.help(),
            Self::Limit(error) => error.help(),
            Self::NoIoLimit(_) => {
                Some("leave out --io, or run it in a systemd user session".into())
            }
            Self::Socket { .. } => {
                Some("set XDG_RUNTIME_DIR to a folder that is yours alone".into())
            }
            Self::Watch(_) => Some("run the command again; nothing of it is left".into()),
        }
    }
}
