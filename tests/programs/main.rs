//! Real programs in a real box, as root and as an ordinary user: what a sandbox must not break.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod claude;
mod compilers;
mod git;
mod homes;
mod layouts;
mod nested;
mod node;
mod python;
mod shop;
mod tools;
