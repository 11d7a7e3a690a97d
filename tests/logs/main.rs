//! What programs print, kept and read back: to the byte, within bounds, whatever happens.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod broken;
mod exact;
mod live;
mod pumping;
mod shop;
