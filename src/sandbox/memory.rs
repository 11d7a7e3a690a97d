//! What a box does for a limit on its memory that no control group holds: it goes before others do,
//! and hides nothing from whoever counts.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;

use super::wire::{Message, Wire};
use crate::plan::Identity;
use crate::sys::process;

/// Of a thousand: as if it used half of the host's memory more than it does.
const SCORE: &str = "500";
/// Memory in these stays when those who asked for it are gone.
const TABLES: [&str; 3] = [
    "/proc/sysvipc/shm",
    "/proc/sysvipc/sem",
    "/proc/sysvipc/msg",
];

/// Makes the host's kernel choose this box before others when memory runs out. Programs inherit it.
/// One could take it back for itself; it is a word to the kernel and no wall.
pub(super) fn end_first(identity: &Identity) -> io::Result<()> {
    // A process that has changed its number cannot write to its own files in /proc.
    if identity.from_root {
        process::show_to_others()?;
    }
    let written = fs::write("/proc/self/oom_score_adj", SCORE);
    if identity.from_root {
        process::hide_from_others()?;
    }
    written
}

/// Hands out the kernel's tables of this ipc namespace: whoever reads such a file sees the
/// namespace of the process that opened it.
pub(super) fn show_shared(wire: &Wire) -> io::Result<()> {
    let mut tables = Vec::with_capacity(TABLES.len());
    for table in TABLES {
        match File::open(table) {
            Ok(table) => tables.push(OwnedFd::from(table)),
            // A kernel without them has no such memory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    wire.send(&Message::SharedMemory(tables))
}
