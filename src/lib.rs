//! cowork-linux: puts a program, usually an AI coding agent, in a box on Linux.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod broker;
pub mod cli;
#[cfg(target_os = "linux")]
pub mod filter;
pub mod plan;
pub mod policy;
#[cfg(target_os = "linux")]
pub mod probe;
pub mod report;
#[cfg(target_os = "linux")]
pub mod sandbox;
#[cfg(target_os = "linux")]
pub mod session;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
#[cfg(target_os = "linux")]
pub use sys::heap::Heap;
#[cfg(target_os = "linux")]
pub mod terminal;
