//! What this host offers and how it is laid out. Reads, never writes.

pub mod doctor;
mod etc;
mod git;
mod host;
mod program;
mod source;

pub use host::{facts, state_directory};
pub use program::{ProgramNeeds, needed_by};
pub use source::{OffLimits, SourceError, look_at, visible, worktree};
