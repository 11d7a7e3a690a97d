//! Limits on boxes that really run: what they stop, what they leave alone, what they cost.
//!
//! Most tests hold a box without a control group, as on a host that delegates none. Those in
//! `cgroup` need one that does; `make vm-test` boots it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod bus;
mod cgroup;
mod cost;
mod disk;
mod ground;
mod memory;
mod pausing;
mod processes;
