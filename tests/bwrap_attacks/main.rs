//! Attacks on the drop-in for bubblewrap. Each is shown to work with the bubblewrap that the
//! distribution ships (or, where that one resists, without any sandbox), is made against ours, and
//! is judged from outside.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../killed/watch.rs"]
#[allow(dead_code)]
mod watch;

mod descriptors;
mod destinations;
mod dying;
mod extras;
mod first_moments;
mod growth;
mod host_mounts;
mod launchers;
mod own_binary;
mod procfs;
mod promises;
mod rights;
mod scene;
mod swapping;
