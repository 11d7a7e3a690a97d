//! Programs that call bubblewrap, with this binary as the `bwrap` they find: sandbox-runtime, and
//! Claude Code with its own sandbox on. What they promise holds, and what they run works.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)]
#[path = "../programs/shop.rs"]
mod shop;

#[allow(dead_code)]
#[path = "../killed/watch.rs"]
mod watch;

mod caller;
mod claude;
mod files;
mod network;
mod processes;
mod programs;
mod runtime;
mod visit;
