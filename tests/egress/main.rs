//! `--network allow` from end to end: real programs in a real box, in a world of networks that the
//! tests make for themselves.
//!
//! An attack is made without a box first, where it works, and what arrived is read from the servers
//! it was aimed at, never from what the attacker says. The ids are those of the attack catalogue.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod claude;
mod clients;
mod controls;
mod doors;
mod ground;
mod knock;
mod live;
mod load;
mod name_attacks;
mod network_attacks;
mod proxy_attacks;
mod request_attacks;
mod secrets;
mod socket_attacks;
mod tls_attacks;
mod world;
