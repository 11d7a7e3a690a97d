//! Journals as files: what is written is read, what was changed shows, what is hostile is met
//! calmly, and a crash costs at most a line.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod crash;
mod ground;
mod hostile;
mod pruning;
mod tampering;
mod telling;
mod writing;
