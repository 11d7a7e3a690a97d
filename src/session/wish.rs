//! What is wished of a supervisor by those who talk to it.

use crate::limits::Wanted;
use crate::policy::egress::HostPattern;
use crate::sandbox::LiveMount;

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
    Mount(usize, LiveMount),
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
