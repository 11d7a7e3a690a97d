//! The journal of a session: what happened in it, one line of JSON after the other, each bound to
//! the one before it by a hash; and the words made from it.
//!
//! It shows that a line was changed, removed, moved or put in between, and that the end is missing.
//! It cannot show that somebody who may write the file wrote all of it anew, hashes included, or
//! took away whole runs from its end: for that the last hash would have to be kept elsewhere
//! ([`Journal::head`], [`Reading::head`]).
//!
//! Nothing here is synced to the disk line by line: a crash of the process loses nothing, a power
//! cut may lose the newest lines.
//!
//! Strings may come from programs in the box. They are kept as they were, only shorter: whoever
//! prints them makes them printable first.

mod asked;
mod bounds;
mod calls;
mod chain;
mod cut;
mod entry;
mod file;
mod folder;
mod prune;
mod read;
mod repeats;
mod runs;
mod tell;
mod torn;
mod unfit;
mod when;
mod why;

pub use bounds::words;
pub use entry::{Entry, Exit, MountNote, RefusalKind, RunNote, What};
pub use file::{DEFAULT_LIMIT, Journal};
pub use folder::{path_of, sessions};
pub use prune::{DEFAULT_KEEP, prune};
pub use read::{Reading, Verdict, read};
pub use tell::{BY_USER, Filter, Past, Statistics, history, statistics, verify};
pub use unfit::Unfit;
pub use when::{WhenError, ago, since, stamp};
pub use why::why;
