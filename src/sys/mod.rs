//! The only room with `unsafe`: one safe function per kernel call.

pub(crate) mod at;
pub(crate) mod notify;
