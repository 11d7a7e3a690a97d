//! Doing it: carries a plan out. Linux, one thread, no logging, no decisions.

mod child;
mod init;
mod launch;
mod lockdown;
mod mounts;
mod orphans;
mod owners;
mod program;
mod streams;
mod wire;

pub use launch::{LaunchError, Running, explain, launch};
pub use streams::CallerEnds;
pub use wire::Message;
