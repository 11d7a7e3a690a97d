//! Where sessions are on this host. None of these folders is trusted because it is there: one that
//! is a link, or somebody else's, is told of and neither read nor cleared up.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::policy::SessionId;

#[derive(Debug, Clone)]
pub struct Places {
    pub state: PathBuf,
    pub runtime: PathBuf,
}

/// A folder that should be this user's own and is not.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path}, because {why}")]
pub struct NotOwn {
    pub path: String,
    pub why: &'static str,
}

impl NotOwn {
    pub fn help(&self) -> Option<String> {
        Some("move it away; nothing in it was touched".into())
    }
}

impl Places {
    fn sessions(&self) -> PathBuf {
        self.state.join("sessions")
    }

    pub(super) fn folder(&self, id: &SessionId) -> PathBuf {
        self.sessions().join(id.as_str())
    }

    /// A session's socket, whether it is there or not.
    pub(super) fn own_socket(&self, id: &SessionId) -> Result<PathBuf, NotOwn> {
        own_or_none(&self.runtime)?;
        Ok(self.runtime.join(format!("{id}.sock")))
    }

    /// Whether a session has a socket to be talked to at.
    pub fn is_listening(&self, id: &SessionId) -> bool {
        let socket = self.own_socket(id);
        socket.is_ok_and(|socket| socket.symlink_metadata().is_ok())
    }

    /// A session's folder, whether it is there or not, after looking at the way to it.
    pub fn own_folder(&self, id: &SessionId) -> Result<PathBuf, NotOwn> {
        let folder = self.folder(id);
        for level in [&self.state, &self.sessions(), &folder] {
            own_or_none(level)?;
        }
        Ok(folder)
    }

    /// Where journals are kept.
    pub fn journals(&self) -> Result<PathBuf, NotOwn> {
        let folder = self.state.join("journals");
        own_or_none(&self.state)?;
        own_or_none(&folder)?;
        Ok(folder)
    }

    /// Where the sessions of apps are, which the helper keeps apart from the user's own: by profile.
    pub fn of_apps(&self) -> Vec<Self> {
        let apart = self.state.join("desktop");
        if own_or_none(&self.state).is_err() || own_or_none(&apart).is_err() {
            return Vec::new();
        }
        let below = |path: &Path, name: &str| path.join("desktop").join(name).join("cowork-linux");
        let profiles = names(&apart).into_iter().map(|name| Self {
            state: below(&self.state, &name),
            runtime: below(&self.runtime, &name),
        });
        profiles.collect()
    }

    /// What is wrong with the folders that all sessions share.
    pub fn troubles(&self) -> Vec<NotOwn> {
        let journals = self.state.join("journals");
        let shared = [&self.state, &self.sessions(), &journals, &self.runtime];
        shared
            .into_iter()
            .filter_map(|path| trouble(path))
            .collect()
    }

    /// The names of what sessions left behind.
    pub(super) fn left_behind(&self) -> Vec<String> {
        match own_or_none(&self.state) {
            Ok(()) => names(&self.sessions()),
            Err(_) => Vec::new(),
        }
    }

    /// The names of those that have a socket.
    pub(super) fn listening(&self) -> Vec<String> {
        let names = names(&self.runtime).into_iter();
        names
            .filter_map(|name| name.strip_suffix(".sock").map(str::to_owned))
            .collect()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let list = own_or_none(folder)
        .ok()
        .and_then(|()| fs::read_dir(folder).ok());
    let entries = list.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn trouble(path: &Path) -> Option<NotOwn> {
    let denied = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
    match own_or_none(path) {
        Ok(()) if fs::read_dir(path).is_err_and(|error| denied(&error)) => Some(NotOwn {
            path: path.display().to_string(),
            why: "it cannot be read",
        }),
        Ok(()) => None,
        Err(error) => Some(error),
    }
}

/// What is not there is nobody else's.
fn own_or_none(path: &Path) -> Result<(), NotOwn> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let why = match () {
        () if found.is_symlink() => "it is a symbolic link",
        () if !found.is_dir() => "it is not a folder",
        () if found.uid() != nix::unistd::getuid().as_raw() => "it belongs to another user",
        () => return Ok(()),
    };
    let path = path.display().to_string();
    Err(NotOwn { path, why })
}
