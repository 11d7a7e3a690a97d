//! What went wrong in a box, small enough to be told in one packet: which part of which step, the
//! kernel's number, and a name when only the box knows it.

use std::io;

use crate::plan::Part;

#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) part: Part,
    pub(super) error: io::Error,
    pub(super) detail: Vec<u8>,
}

impl Trouble {
    pub(super) fn new(part: Part, error: io::Error) -> Self {
        Self {
            part,
            error,
            detail: Vec::new(),
        }
    }

    pub(super) fn with(mut self, detail: &[u8]) -> Self {
        self.detail = detail.to_vec();
        self
    }

    pub(super) fn errno(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(libc::EIO)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::new(Part::Whole, error)
    }
}

impl From<nix::Error> for Trouble {
    fn from(error: nix::Error) -> Self {
        Self::new(Part::Whole, error.into())
    }
}

/// Says which part of a step an error belongs to.
pub(super) trait InPart<T> {
    fn in_part(self, part: Part) -> Result<T, Trouble>;
}

impl<T, E: Into<io::Error>> InPart<T> for Result<T, E> {
    fn in_part(self, part: Part) -> Result<T, Trouble> {
        self.map_err(|error| Trouble::new(part, error.into()))
    }
}
