//! A box over time: its directory, its life from start to end, what came of it.

mod directory;
mod outcome;
mod remove;
mod supervise;

pub use directory::{Directory, DirectoryError, fresh_id};
pub use outcome::Outcome;
pub use supervise::{Ended, RunError, run};
