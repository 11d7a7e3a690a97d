//! Doing it: carries a plan out. Linux, one thread, no logging, no decisions.

mod asked;
mod asked_systems;
mod child;
mod init;
mod launch;
mod lockdown;
mod mounts;
mod orphans;
mod overlay;
mod owners;
mod place;
mod program;
mod ready;
mod reaper;
mod sources;
mod streams;
mod trouble;
mod wire;

pub(crate) use child::{LATE_STEPS, late_name};
pub(crate) use launch::Ended;
pub use launch::{Belongings, LaunchError, Running, explain, launch};
pub(crate) use overlay::escaped;
pub use streams::CallerEnds;
pub use wire::Message;
