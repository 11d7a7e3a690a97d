//! A box over time: its directory, its life from start to end, what came of it.

mod directory;
mod made;
mod outcome;
mod remove;
mod rooms;
mod supervise;

pub use directory::{Directory, DirectoryError, fresh_id};
pub use outcome::Outcome;
pub use supervise::{Ended, RunError, run};

/// Opens what the caller left closed of 0, 1 and 2; the first thing a process does.
pub fn open_standard_streams() -> std::io::Result<()> {
    crate::sys::fds::open_standard_descriptors()
}
