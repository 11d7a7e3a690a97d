//! What stands behind an option: how many words, and what they may be.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use super::args::{Stop, Warning};
use super::numbers;
use super::options::{Reader, Rest};
use crate::report::without_number;

/// Words of the command line and of `--args` together.
pub(super) const MOST_WORDS: usize = 9000;
const LARGEST_TMPFS: u64 = u64::MAX >> 1;

impl Reader<'_> {
    pub(super) fn die(&self, text: impl Into<String>) -> Stop {
        Stop::Die {
            text: text.into(),
            prefix: self.asked.level_prefix,
        }
    }

    pub(super) fn last_counts(&mut self, name: &str, again: bool) {
        if again {
            self.warnings.push(Warning {
                text: format!("Only the last {name} option will take effect"),
                prefix: self.asked.level_prefix,
            });
        }
    }

    pub(super) fn count(&mut self, words: usize) -> Result<(), Stop> {
        self.words = self.words.saturating_add(words);
        if self.words > MOST_WORDS {
            let text = format!("Exceeded maximum number of arguments {MOST_WORDS}");
            return Err(self.die(text));
        }
        Ok(())
    }

    pub(super) fn values<'w, const N: usize>(
        &self,
        name: &str,
        rest: &mut Rest<'w>,
    ) -> Result<[&'w OsStr; N], Stop> {
        let Some((values, after)) = rest.split_first_chunk::<N>() else {
            let many = match N {
                1 => "an argument",
                2 => "two arguments",
                _ => "three arguments",
            };
            return Err(self.die(format!("{name} takes {many}")));
        };
        *rest = after;
        Ok(*values)
    }

    /// The same for the few options that count it when they complain.
    pub(super) fn one_value<'w>(&self, name: &str, rest: &mut Rest<'w>) -> Result<&'w OsStr, Stop> {
        rest.split_off_first()
            .copied()
            .ok_or_else(|| self.die(format!("{name} takes one argument")))
    }

    pub(super) fn fd(&self, text: &OsStr) -> Result<RawFd, Stop> {
        numbers::plain(text.as_bytes())
            .ok_or_else(|| self.die(format!("Invalid fd: {}", text.to_string_lossy())))
    }

    pub(super) fn id(&self, what: &str, text: &OsStr) -> Result<u32, Stop> {
        numbers::plain(text.as_bytes())
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| self.die(format!("Invalid {what}: {}", text.to_string_lossy())))
    }

    pub(super) fn octal(&self, name: &str, text: &OsStr) -> Result<u32, Stop> {
        numbers::mode(text.as_bytes())
            .ok_or_else(|| self.die(format!("{name} takes an octal argument <= 07777")))
    }

    pub(super) fn tmpfs_size(&self, text: &OsStr) -> Result<u64, Stop> {
        if self.size.is_some() {
            return Err(self.die("--size given twice for the same action"));
        }
        match numbers::size(text.as_bytes()) {
            None => Err(self.die("--size takes a non-zero number of bytes")),
            Some(size) if size > LARGEST_TMPFS => {
                Err(self.die(format!("--size (for tmpfs) is limited to {LARGEST_TMPFS}")))
            }
            Some(size) => Ok(size),
        }
    }

    pub(super) fn known_capabilities(&self) -> u64 {
        u64::MAX >> (63 - self.start.last_capability.min(63))
    }

    pub(super) fn capabilities(&self, text: &OsStr) -> Result<u64, Stop> {
        if text.eq_ignore_ascii_case("ALL") {
            return Ok(u64::MAX);
        }
        numbers::capability(text.as_bytes())
            .map(|capability| 1 << capability)
            .ok_or_else(|| self.die(format!("unknown cap: {}", text.to_string_lossy())))
    }

    /// Whether a label means anything is for the kernel to say.
    pub(super) fn label(&self, text: &OsStr) -> Result<OsString, Stop> {
        match self.start.labels {
            true => Ok(text.to_owned()),
            false => Err(self.die("labeling not supported on this system")),
        }
    }

    pub(super) fn contents(&mut self, fd: RawFd, complaint: &str) -> Result<Vec<u8>, Stop> {
        self.descriptors.read(fd).map_err(|error| {
            let why = without_number(&error.to_string());
            self.die(format!("{complaint}: {why}"))
        })
    }

    pub(super) fn set_variable(&mut self, name: &OsStr, value: &OsStr) -> Result<(), Stop> {
        if !is_variable(name) {
            return Err(self.die("setenv failed"));
        }
        match self.asked.env.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value.to_owned(),
            None => self.asked.env.push((name.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    pub(super) fn remove_variable(&mut self, name: &OsStr) -> Result<(), Stop> {
        if !is_variable(name) {
            return Err(self.die("unsetenv failed"));
        }
        self.asked.env.retain(|(known, _)| known != name);
        Ok(())
    }
}

/// What C's library takes for the name of a variable.
fn is_variable(name: &OsStr) -> bool {
    !name.is_empty() && !name.as_bytes().contains(&b'=')
}

/// Words that end in a NUL; the last one need not. No more than it takes to see that there are too
/// many.
pub(super) fn split(data: &[u8]) -> Vec<&OsStr> {
    data.split_inclusive(|b| *b == 0)
        .map(|word| OsStr::from_bytes(word.strip_suffix(b"\0").unwrap_or(word)))
        .take(MOST_WORDS + 1)
        .collect()
}
