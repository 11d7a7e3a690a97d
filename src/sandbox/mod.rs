//! Doing it: carries a plan out. Linux, one thread, no logging, no decisions.

mod asked;
mod asked_systems;
mod box_terminal;
mod change;
mod child;
mod dialer;
mod execs;
mod filters;
mod init;
mod kin;
mod launch;
mod launch_error;
mod live;
mod lockdown;
mod memory;
mod mounts;
mod network;
mod open_files;
mod orphans;
mod overlay;
mod owners;
mod place;
mod points;
mod program;
mod ready;
mod reaper;
mod rlimits;
mod sources;
mod streams;
mod subtree;
mod trouble;
mod wire;

pub use crate::broker::RefusedCall;
pub use change::{Change, Changed};
pub(crate) use child::{LATE_STEPS, late_name};
pub use filters::Filters;
pub(crate) use launch::Ended;
pub use launch::{Belongings, Running, launch};
pub use launch_error::{LaunchError, explain};
pub use live::LiveMount;
pub use network::Listeners;
pub(crate) use overlay::escaped;
pub use streams::CallerEnds;
pub use wire::{Errand, Message};

pub(crate) use execs::{from_bytes, read_words, to_bytes};
