//! Seccomp filters: profiles in OCI form, their compiler, and the built-in ones as ready bytes.
//! Nothing here loads a filter.

mod assemble;
mod cache;
mod compile;
mod document;
mod heard;
mod names;
mod profile;

use std::borrow::Cow;
use std::fmt;

pub use cache::{compiled, compiled_heard};
pub use compile::compile;
pub use heard::{Heard, REFUSAL, compile_guard, guard, is_heard};
pub use names::{Number, name_of, number};
pub use profile::{Comparison, Condition, Profile, Rule, Verdict};

/// The kernel takes no longer program (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A processor architecture a filter can be made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The architecture this program was built for, where we have filters for it.
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// What the kernel puts in `seccomp_data.arch` (`AUDIT_ARCH_*`).
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One instruction of a filter, the kernel's `sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

impl Instruction {
    pub const SIZE: usize = 8;

    fn encode(self) -> [u8; Self::SIZE] {
        let [c0, c1] = self.code.to_le_bytes();
        let [k0, k1, k2, k3] = self.k.to_le_bytes();
        [c0, c1, self.jt, self.jf, k0, k1, k2, k3]
    }

    fn decode(bytes: [u8; Self::SIZE]) -> Self {
        let [c0, c1, jt, jf, k0, k1, k2, k3] = bytes;
        Self {
            code: u16::from_le_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_le_bytes([k0, k1, k2, k3]),
        }
    }
}

/// A program ready to load, and the architecture it was made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    arch: Arch,
    program: Cow<'static, [u8]>,
}

impl Filter {
    /// Takes bytes compiled earlier: from a cache, or handed over by a caller.
    ///
    /// Only the length is checked here; the kernel checks each instruction when it loads them.
    pub fn from_bytes(
        arch: Arch,
        program: impl Into<Cow<'static, [u8]>>,
    ) -> Result<Self, FilterError> {
        let program = program.into();
        let whole = program.len().is_multiple_of(Instruction::SIZE);
        let count = program.len() / Instruction::SIZE;
        if !whole || count == 0 || count > MAX_INSTRUCTIONS {
            return Err(FilterError::NotAProgram {
                bytes: program.len(),
            });
        }
        Ok(Self { arch, program })
    }

    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The program as it lies in memory, for a file or a descriptor.
    pub fn bytes(&self) -> &[u8] {
        &self.program
    }

    /// The program piece by piece; `len()` of the iterator is the number of instructions.
    pub fn instructions(&self) -> impl ExactSizeIterator<Item = Instruction> + '_ {
        let (pieces, _) = self.program.as_chunks::<{ Instruction::SIZE }>();
        pieces.iter().map(|piece| Instruction::decode(*piece))
    }
}

macro_rules! built_in {
    ($($name:literal),+; $($derived:literal),+) => {
        const NAMES: &[&str] = &[$($name),+];

        fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../../seccomp/", $name, ".json"))),)+
                _ => None,
            }
        }

        #[cfg(target_arch = "x86_64")]
        fn program(name: &str) -> Option<&'static [u8]> {
            match name {
                $($name => Some(include_bytes!(
                    concat!("../../seccomp/compiled/", $name, ".x86_64.bpf")
                )),)+
                $($derived => Some(include_bytes!(
                    concat!("../../seccomp/compiled/", $derived, ".x86_64.bpf")
                )),)+
                _ => None,
            }
        }

        #[cfg(target_arch = "aarch64")]
        fn program(name: &str) -> Option<&'static [u8]> {
            match name {
                $($name => Some(include_bytes!(
                    concat!("../../seccomp/compiled/", $name, ".aarch64.bpf")
                )),)+
                $($derived => Some(include_bytes!(
                    concat!("../../seccomp/compiled/", $derived, ".aarch64.bpf")
                )),)+
                _ => None,
            }
        }
    };
}

built_in!(
    "default", "nested", "debug", "no-inet", "no-host", "gateway";
    "guard", "default.every", "default.program", "nested.every", "nested.program", "debug.every",
    "debug.program"
);

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn program(_: &str) -> Option<&'static [u8]> {
    None
}

fn builtin_bytes(name: &str) -> Option<Filter> {
    Some(Filter {
        arch: Arch::native()?,
        program: Cow::Borrowed(program(name)?),
    })
}

/// The names `builtin` knows.
pub fn builtin_names() -> &'static [&'static str] {
    NAMES
}

/// A built-in filter for this machine: bytes from the executable, no work at all.
pub fn builtin(name: &str) -> Option<Filter> {
    NAMES.contains(&name).then(|| builtin_bytes(name))?
}

/// The JSON a built-in filter was compiled from.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    text(name)
}

/// Why a profile is no good.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("cannot read the seccomp profile")]
    Json(#[source] serde_json::Error),
    #[error("the seccomp profile has no defaultAction")]
    NoDefault,
    #[error("no built-in seccomp profile is named `{name}` (there are: {})", NAMES.join(", "))]
    UnknownBase { name: String },
    #[error("no system call is named `{name}`")]
    UnknownCall { name: String },
    #[error("no architecture is named `{name}`")]
    UnknownArch { name: String },
    #[error("the seccomp profile is not meant for {arch}")]
    WrongArch { arch: Arch },
    #[error("a rule names no system call")]
    NoNames,
    #[error("the errno {errno} of {place} is not between 1 and 4095")]
    ErrnoRange { place: String, errno: u32 },
    #[error("{place} has an errno, but its action does not return one")]
    ErrnoUnused { place: String },
    #[error("a condition on `{name}` {why}")]
    Condition { name: String, why: &'static str },
    #[error("`{name}` has the same rule twice")]
    Duplicate { name: String },
    #[error("`{name}` has two rules with the same conditions and different actions")]
    Contradiction { name: String },
    #[error("a rule for `{name}` is never reached: an earlier one without conditions decides")]
    Unreachable { name: String },
    #[error("the seccomp profile makes {count} instructions; the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong { count: usize },
    #[error("{bytes} bytes are not a seccomp program")]
    NotAProgram { bytes: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_name_has_text_and_program() {
        for name in builtin_names() {
            assert!(builtin_text(name).is_some(), "{name}");
            assert_eq!(builtin(name).is_some(), Arch::native().is_some(), "{name}");
        }
        assert_eq!(builtin("nosuch"), None);
    }

    #[test]
    fn an_instruction_survives_encoding() {
        let one = Instruction {
            code: 0x35,
            jt: 7,
            jf: 255,
            k: 0x4000_0000,
        };
        assert_eq!(Instruction::decode(one.encode()), one);
    }

    #[test]
    fn bytes_that_are_no_program_are_refused() {
        for length in [0, 7, 9, 8 * (MAX_INSTRUCTIONS + 1)] {
            let refused = Filter::from_bytes(Arch::X86_64, vec![0; length]);
            assert!(refused.is_err(), "{length}");
        }
        let taken = Filter::from_bytes(Arch::X86_64, vec![0; 16]).unwrap();
        assert_eq!(taken.instructions().len(), 2);
    }
}
