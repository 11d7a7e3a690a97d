//! A program as those who want it started say it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::plan::Program;
use crate::sandbox;

/// A program to be started in a session.
#[derive(Debug, Default)]
pub struct Words {
    pub argv: Vec<OsString>,
    /// Beyond the session's own.
    pub env: Vec<(OsString, OsString)>,
    /// Empty where the session's own program started.
    pub folder: PathBuf,
}

impl Words {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        sandbox::to_bytes(&Program {
            argv: self.argv.clone(),
            called: None,
            env: self.env.clone(),
            cwd: self.folder.clone(),
            umask: 0,
        })
    }
}
