//! The words of our own command line.

pub mod policy;
