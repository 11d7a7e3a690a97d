//! Policy files as they lie on a disk: who wrote them, what they say, which of them is believed.
#![allow(clippy::unwrap_used)]

mod commands;
mod disk;
mod layers;
mod world;
