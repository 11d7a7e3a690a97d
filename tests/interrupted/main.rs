//! Somebody is killed at a system call: the caller, the supervisor, or the processes that change a
//! box's mounts. Whichever call it was, the commands work and tell, and nothing is left.
//!
//! `COWORK_TEST_MOMENTS` says how many calls of each operation are tried, or `all`;
//! `make interrupted-test` tries all.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod callers;
mod changing;
mod dead_disk;
mod dead_disks;
#[path = "../sessions/ground.rs"]
#[allow(dead_code)]
mod ground;
mod hanging;
mod scene;
mod supervisors;
#[path = "../support/mod.rs"]
mod support;
mod tracer;
#[path = "../killed/watch.rs"]
#[allow(dead_code)]
mod watch;
