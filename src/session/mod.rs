//! A box over time: its directory, its life from start to end, what came of it.

mod answers;
mod attach;
mod backlog;
mod changes;
mod client;
mod control;
mod conversation;
mod detach;
mod diary;
mod directory;
mod doors;
mod errands;
mod error;
mod forget;
mod front;
mod holder;
mod idlers;
mod limits;
mod listening;
mod made;
mod manner;
mod network;
mod obstacles;
mod outcome;
mod outputs;
mod peer;
mod places;
mod record;
mod refusals;
mod registry;
mod remove;
mod requests;
mod rooms;
mod signals;
mod socket;
mod supervise;
mod talk;
mod upkeep;
mod waiting;
mod whose;
mod wish;
mod words;

pub use attach::Left;
pub use client::{AskError, Call};
pub use conversation::{Conversation, NotRun};
pub use detach::{Detached, detach};
pub use directory::{Directory, DirectoryError, fresh_id};
pub use error::RunError;
pub use forget::{RemoveError, remove};
pub use holder::HeldOpen;
pub use manner::Manner;
pub use network::{Outfit, RefusedHost};
pub use outcome::Outcome;
pub use places::{NotOwn, Places};
pub use record::{Process, Record, RecordedMount, now};
pub use refusals::Refused;
pub use registry::{FindError, Known, State};
pub use supervise::{Ended, run};
pub use talk::{MountMode, Seen, SeenExec};
pub use upkeep::{Disposable, Size, UpkeepError};
pub use wish::MountWish;
pub use words::Words;

/// Opens what the caller left closed of 0, 1 and 2; the first thing a process does.
pub fn open_standard_streams() -> std::io::Result<()> {
    crate::sys::fds::open_standard_descriptors()
}
