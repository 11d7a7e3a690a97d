//! cowork-linux: puts a program, usually an AI coding agent, in a box on Linux.
//!
//! This list is the map of the house; ARCHITECTURE.md walks through it.
#![deny(unsafe_code)]

/// Pid 1's hands: changes guarded mounts for the programs in the box.
#[cfg(target_os = "linux")]
pub mod broker;
/// bubblewrap's command line.
#[cfg(target_os = "linux")]
pub mod bwrap;
/// The words of the command line.
pub mod cli;
/// The gateway between a box and the network.
#[cfg(target_os = "linux")]
pub mod egress;
/// Seccomp: profiles, their compiler, and the built-in programs.
#[cfg(target_os = "linux")]
pub mod filter;
/// What happened in a session, written so that changes show.
#[cfg(target_os = "linux")]
pub mod journal;
/// How much of the host a running box may use.
#[cfg(target_os = "linux")]
pub mod limits;
/// What the programs of a session print, kept on disk.
#[cfg(target_os = "linux")]
pub mod logs;
/// What will be done, as data.
pub mod plan;
/// What is wanted.
pub mod policy;
/// What the host offers.
#[cfg(target_os = "linux")]
pub mod probe;
/// How an error reaches a person.
pub mod report;
/// Doing it.
#[cfg(target_os = "linux")]
pub mod sandbox;
/// Claude Desktop's helper.
#[cfg(target_os = "linux")]
pub mod service;
/// A box over time.
#[cfg(target_os = "linux")]
pub mod session;
/// The kernel's calls, and the only `unsafe`.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
/// Between the caller's terminal and the box's.
#[cfg(target_os = "linux")]
pub mod terminal;

#[cfg(target_os = "linux")]
pub use sys::heap::Heap;
