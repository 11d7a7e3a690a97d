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
    #[error("cannot publish a port at {at}")]
    Publish {
        at: std::net::SocketAddr,
        source: io::Error,
    },
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
            Self::Publish { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("take a port from 1024 on, as in -p 8080:80".into())
            }
            Self::Publish { .. } => Some("take another port, or 0 for any that is free".into()),
            Self::Socket { .. } => {
                Some("set XDG_RUNTIME_DIR to a folder that is yours alone".into())
            }
            Self::Watch(_) => Some("run the command again; nothing of it is left".into()),
        }
    }
}
