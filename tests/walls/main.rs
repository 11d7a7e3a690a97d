//! Attacks on the walls of a box: network, terminal, system calls, environment, launcher, guards.
//!
//! Every test tries the attack three times over: without a box, where it works; in a box, where it
//! does not; and it looks from outside for traces. The ids are those of the attack catalogue.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod environment;
mod guards;
mod guards_git;
mod guards_two;
mod keeping;
mod launcher;
mod listeners;
mod missing;
mod network;
mod outside;
mod policies;
mod sockets;
mod syscalls;
mod terminal;
mod weak;
