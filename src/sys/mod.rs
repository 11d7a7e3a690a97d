//! The only room with `unsafe`: one safe function per kernel call.

pub(crate) mod pipe;
pub(crate) mod tty;
