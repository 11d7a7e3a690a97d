//! The only room with `unsafe`: one safe function per kernel call.
