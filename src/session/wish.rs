//! What is wished of a supervisor by those who talk to it.

use std::path::PathBuf;

use super::talk::MountMode;
use crate::egress::Unsaid;
use crate::limits::Wanted;
use crate::plan::{Seen, Source};
use crate::policy::egress::{HostPattern, Rules};
use crate::sandbox::LiveMount;

/// A folder or file of the host's that is to be shown in a box that runs.
#[derive(Debug, Clone)]
pub struct MountWish {
    /// An absolute path without a link in it, and what was there when it was looked at.
    pub source: PathBuf,
    pub seen: Seen,
    pub is_folder: bool,
    pub mode: MountMode,
    /// A name below the folder of mounts, of several parts if need be, or an absolute place.
    pub place: String,
    /// What was mounted there while it ran is exchanged; otherwise it is in the way.
    pub replace: bool,
    /// Also when the source overlaps with what is shared already.
    pub despite_overlap: bool,
}

impl MountWish {
    /// The folder that was looked at, at this place if it is free.
    pub fn new(source: &Source, place: &str) -> Self {
        Self {
            source: source.path.clone(),
            seen: source.seen,
            is_folder: true,
            mode: source.access.into(),
            place: place.to_owned(),
            replace: false,
            despite_overlap: false,
        }
    }
}

/// What a request asks of the supervisor itself.
#[derive(Debug)]
pub(super) enum Wish {
    /// Tell this client what there is to see.
    Inspect(usize),
    Stop {
        grace_ms: u64,
    },
    Signal(usize, i32),
    /// What somebody attached typed.
    Input(Vec<u8>),
    Resize {
        rows: u16,
        columns: u16,
    },
    Attach(usize),
    Mount {
        client: usize,
        mount: LiveMount,
        replace: bool,
    },
    Unmount {
        client: usize,
        name: String,
        force: bool,
    },
    Host {
        client: usize,
        pattern: HostPattern,
        allow: bool,
    },
    Rules {
        client: usize,
        rules: Rules,
    },
    Secret {
        client: usize,
        name: String,
        value: Unsaid,
    },
    Limit(usize, Wanted),
    Pause {
        client: usize,
        paused: bool,
    },
    /// A program was started, for the journal.
    Executed {
        exec: u32,
        program: Vec<String>,
    },
}
