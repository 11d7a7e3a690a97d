//! cowork-linux: puts a program, usually an AI coding agent, in a box on Linux.
#![deny(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod broker;
#[cfg(target_os = "linux")]
pub mod filter;
pub mod policy;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod sys;
