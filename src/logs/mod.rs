//! What the programs of a session print, kept on disk: exact to the byte, never more than a limit,
//! readable while it is written and after everybody has been killed.
//!
//! A log is up to four files, `log.0` (being written) to `log.3` (the oldest), each a list of
//! records. Whoever writes makes one call per record and keeps nothing in memory, so that what was
//! written outlives its writer; whoever reads trusts nothing but what a record's own check says.
//! Nothing here waits for a disk that is full, and nothing here ends a session.

mod drawing;
mod error;
mod files;
mod lines;
mod printer;
mod pump;
mod reader;
mod recent;
mod record;
mod segment;
mod store;
mod walk;
mod watch;

pub use error::{LogError, Unfit};
pub use printer::Printer;
pub use pump::{Heard, Pump};
pub use reader::{Follow, Reader, Records, is_being_written};
pub use recent::Recent;
pub use record::{Record, Stream};
pub use store::{DEFAULT_LIMIT, LogStore};
pub use watch::Watch;
