//! How a run ended, and the one place where that becomes an exit code.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Exited(u8),
    Killed(i32),
    TimedOut,
    /// Whoever held it open is gone.
    LetGo,
    /// A limit ended it; the sentence says which.
    OverLimit(String),
    /// The program could not be started; the number is the kernel's reason.
    NotExecuted(i32),
}

impl Outcome {
    /// From what wait(2) reports: the exit code in the second byte, or a signal in the first.
    pub(super) fn from_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exited((status >> 8 & 0xff) as u8),
            signal => Self::Killed(signal),
        }
    }

    /// The number wait(2) would give for it.
    pub(super) fn status(&self) -> i32 {
        match self {
            Self::Killed(signal) => *signal,
            other => i32::from(other.exit_code()) << 8,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exited(code) => *code,
            Self::Killed(signal) => 128u8.saturating_add(*signal as u8),
            Self::TimedOut => 124,
            Self::OverLimit(_) | Self::LetGo => 137,
            Self::NotExecuted(libc::ENOENT | libc::ENOTDIR) => 127,
            Self::NotExecuted(_) => 126,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_ones_shells_know() {
        assert_eq!(Outcome::from_status(3 << 8).exit_code(), 3);
        assert_eq!(Outcome::from_status(9).exit_code(), 137);
        assert_eq!(Outcome::TimedOut.exit_code(), 124);
        assert_eq!(Outcome::NotExecuted(libc::ENOENT).exit_code(), 127);
        assert_eq!(Outcome::NotExecuted(libc::EACCES).exit_code(), 126);
    }
}
