//! Why a secret cannot be used.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot use the secret {name}, because the variable {variable} is not set here")]
    NotSet {
        name: String,
        variable: String,
        host: String,
    },
    #[error("cannot use the secret {name}, because {} cannot be read", path.display())]
    Unreadable {
        name: String,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot use the secret {name}, because {why}")]
    Unfit { name: String, why: &'static str },
    #[error("cannot use the secret {name}, because `{header}` is no header that may be set")]
    Header { name: String, header: String },
    #[error("cannot make a stand-in for a secret, because the kernel gave no random bytes")]
    NoRandomness,
}

impl SecretError {
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NotSet {
                name,
                variable,
                host,
            } => Some(format!(
                "set {variable}, or name a file: --secret {name}=file:PATH@{host}"
            )),
            Self::Unreadable { .. } | Self::NoRandomness => None,
            Self::Unfit { .. } => {
                Some("the value must be one line, as it would stand in a header".to_owned())
            }
            Self::Header { .. } => {
                Some("name a header such as x-api-key or authorization".to_owned())
            }
        }
    }
}
