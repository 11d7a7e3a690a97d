//! How a session is led, beyond what its plan says.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::holder::HeldOpen;
use super::network::Outfit;
use crate::limits::Wanted;

#[derive(Debug)]
pub struct Manner {
    /// Where its socket is.
    pub runtime: PathBuf,
    /// Set when nobody waits for it: what is told here when the program has started.
    pub detached: Option<OwnedFd>,
    /// Set when the box is to end with whoever holds the other end of this.
    pub held_open: Option<HeldOpen>,
    /// Where journals are kept.
    pub journals: PathBuf,
    pub limits: Wanted,
    /// What the gateway needs and no plan holds.
    pub outfit: Outfit,
    /// Where it is said that something is weaker than it sounds.
    pub say: Option<fn(&str)>,
}
