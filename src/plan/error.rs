//! Why there is no plan, and what to type instead.

use super::NetworkError;
use crate::policy::{InsidePath, Layer, PathError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("cannot plan the box")]
    Path(#[source] PathError),
    #[error("cannot put a mount at {at}, because {by} is there already")]
    PlaceTaken { at: InsidePath, by: String },
    #[error(
        "cannot share both {one} and {other}, because what is written through one would go past the guard of the other"
    )]
    Overlap { one: String, other: String },
    #[error("cannot keep programs from deleting in {path}, because {because}")]
    Keep { path: String, because: String },
    #[error("cannot start without the layer `{layer}`, because {because}")]
    MissingLayer { layer: Layer, because: String },
    #[error("cannot start with `--isolation landlock`, because this kernel has no Landlock")]
    NothingLeft,
    #[error(
        "cannot put a mount at {0} with `--isolation landlock`, because nothing is moved there"
    )]
    NoPlaces(String),
    #[error(transparent)]
    Network(NetworkError),
    #[error("cannot start in {0}, because that is not an absolute path in the box")]
    Workdir(String),
    #[error(
        "cannot pass {what} to the program, because it has {length} bytes and a program can get \
         less than 128 KiB in one piece"
    )]
    TooLong { what: String, length: usize },
    #[error("cannot call the box `{0}`, because a host name has 1 to 63 of a-z, A-Z, 0-9 and `-`")]
    Hostname(String),
}

impl PlanError {
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Path(_) => {
                "check the paths given with --mount, --workdir and in the policy".into()
            }
            Self::Overlap { .. } => {
                "share only the outer one, or share both read-only: --mount SRC:ro".into()
            }
            Self::Keep { path, .. } => {
                format!("share it so that they may, or may only read: --mount {path}:rw or :ro")
            }
            Self::PlaceTaken { .. } => "give one of them another name: --mount SRC:NAME".into(),
            Self::MissingLayer { layer, .. } => {
                format!(
                    "`--allow-missing {layer}` starts without it; `cowork-linux doctor` says what else is missing"
                )
            }
            Self::NothingLeft => "use a kernel from 5.13 on with Landlock enabled".into(),
            Self::Network(error) => error.help(),
            Self::NoPlaces(_) => "leave the place out: --mount SRC[:MODE]".into(),
            Self::Workdir(_) => "write a path such as /workspace or /tmp".into(),
            Self::TooLong { .. } => "put it into a file and pass the file's name".into(),
            Self::Hostname(_) => "for example: --hostname box".into(),
        })
    }
}
