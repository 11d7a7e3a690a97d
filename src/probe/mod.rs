//! What this host offers and how it is laid out. Reads, never writes.

pub mod doctor;
mod etc;
mod git;
mod host;
mod local_bin;
mod program;
mod registries;
mod source;
mod usage;

pub use host::{facts, runtime_directory, state_directory, streams};
pub use program::{ProgramNeeds, needed_by};
pub use source::{OffLimits, SourceError, look_at, look_at_either, visible, worktree};
pub use usage::{Usage, usage_of};
