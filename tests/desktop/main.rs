//! Claude Desktop's side of the helper: the conformance cases of its protocol, by their numbers, against
//! the real binary on a real socket, then a day of work, real Claude Code, and those who mean harm.
//!
//! Every test has a helper, a home and a session of its own and leaves no process, no mount and no folder
//! behind, whether it passes or fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod claude;
mod client;
mod day;
#[path = "../interrupted/dead_disk.rs"]
#[allow(dead_code)]
mod dead_disk;
mod egress;
mod framing;
mod ground;
mod helper;
mod hostile;
mod input;
mod installing;
mod isolation;
mod leaving;
mod lifecycle;
mod live;
mod mounts;
mod output;
mod peers;
mod places;
mod planted;
mod reading;
mod spawning;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;
mod traversal;
#[path = "../killed/watch.rs"]
#[allow(dead_code)]
mod watch;
#[path = "../egress/world.rs"]
#[allow(dead_code)]
mod world;
