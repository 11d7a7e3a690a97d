//! Limits of sessions, from the outside: the binary as it is called, on boxes that take whatever they
//! can get.
//!
//! On a host that delegates no cgroup the supervisor holds the limits, else the kernel does; `scene`
//! says which. What is in `bombs`, `open_files` and `view` holds both ways, and `make vm-test` runs it
//! where the kernel does. `held` and `shared_memory` are about the supervisor.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../sessions/ground.rs"]
#[allow(dead_code, unreachable_pub)]
mod ground;
#[path = "../support/mod.rs"]
mod support;

mod bombs;
mod held;
mod open_files;
mod scene;
mod shared_memory;
mod view;
