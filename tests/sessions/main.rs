//! Sessions over time, with the real binary: started, listed, entered, watched, ended, crashed,
//! attacked. Every test has a state directory and a runtime directory of its own and leaves no
//! process behind, whether it passes or fails.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod attaching;
mod boxed_callers;
mod completing;
mod crashes;
mod damage;
mod ending;
mod entering;
mod ground;
mod holding;
mod hostile;
mod listing;
mod logging;
mod paths;
mod power_cuts;
#[path = "../on_a_terminal/pty.rs"]
mod pty;
mod quiet;
mod records;
mod refusals;
mod removing;
mod starting;
mod strangers;
mod subtrees;
#[path = "../support/mod.rs"]
mod support;
mod terminals;
mod together;
mod two_users;
mod upkeep;
mod walls;
#[path = "../killed/watch.rs"]
#[allow(dead_code)]
mod watch;
