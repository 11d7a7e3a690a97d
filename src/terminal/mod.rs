//! Between the caller's terminal and the box's: a relay that carries bytes both ways, and a filter
//! that keeps a hostile program from using the caller's terminal against the caller. Runs in the
//! launcher, outside the box, on one thread; never hands a descriptor of the caller's inward.

mod copy;
mod escape;
mod keeper;
mod modes;
mod outer;
mod printable;
mod relay;
mod stream;
mod verdict;

pub use crate::sys::tty::Size;
pub use copy::FileCopy;
pub use escape::EscapeFilter;
pub use keeper::Keeper;
pub use outer::OuterTerminal;
pub use printable::{Printable, printable};
pub use relay::Relay;
