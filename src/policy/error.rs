//! Why a policy cannot be used, and what to type instead.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{Key, PathError};

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot use this policy, because there is no policy called `{name}`")]
    Unknown {
        name: String,
        like: Option<&'static str>,
    },
    #[error("cannot read the policy {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the policy {}, because {why}", path.display())]
    Unfit { path: PathBuf, why: Unfit },
    #[error("cannot understand the policy {place}")]
    Syntax {
        place: String,
        source: Box<toml::de::Error>,
    },
    #[error("cannot use `{key}` in {place}, because {why}")]
    Value {
        place: String,
        key: Key,
        why: ValueError,
    },
    #[error(
        "cannot use the project's policy {}, because it may not widen the box: {}",
        path.display(),
        names(keys)
    )]
    Widens { path: PathBuf, keys: Vec<Key> },
    #[error("cannot use the policy `{0}`, because it extends itself")]
    Circle(String),
    #[error("cannot {doing} the list of trusted policies {}", path.display())]
    Trust {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot keep trust, because neither XDG_STATE_HOME nor HOME is set")]
    NoState,
    #[error("cannot trust {}, because its name is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
    #[error("cannot write the answer")]
    Write(#[from] io::Error),
}

/// What is wrong with a file before a word of it is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is a symbolic link")]
    Symlink,
    #[error("it is larger than 1 MiB")]
    TooLarge,
    #[error("it belongs to user {0}, not to you")]
    Owner(u32),
    #[error("others may write to it (mode {0:03o})")]
    Writable(u32),
    #[error("it is not UTF-8 text")]
    NotText,
    #[error("it starts with a byte order mark")]
    ByteOrderMark,
    #[error("there is a control character on line {0}")]
    Control(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("the variable {0} is not set or empty")]
    Unset(String),
    #[error("`{0}`: write ${{NAME}} for a variable and $$ for a dollar")]
    Dollar(String),
    #[error("`{0}`: only your own ~ is known; write the other's path in full")]
    Tilde(String),
    #[error("`{0}` is not UTF-8")]
    NotUtf8(String),
    #[error("it is empty")]
    Empty,
    #[error("a path has at most {0} bytes")]
    TooLong(usize),
    #[error("a mount has at most {0} colons")]
    Colons(usize),
    #[error("a project may only name a built-in filter, for trust does not cover a second file")]
    ProjectFilter,
    #[error(
        "the value of {0} stands in it; write where the value is: {0}=env:VARIABLE or {0}=file:PATH"
    )]
    SecretInFile(String),
    /// What is wrong with a word that must not be repeated.
    #[error("{0}")]
    Unsaid(String),
    #[error(transparent)]
    Path(#[from] PathError),
}

impl PolicyError {
    /// What the user can type to get further.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { name, like } => Some(match like {
                Some(like) => format!("did you mean `{like}`?"),
                None => format!(
                    "`cowork-linux policy list` shows the names; for a file write ./{}",
                    name.escape_debug()
                ),
            }),
            Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the path, or take a name from `cowork-linux policy list`".to_owned())
            }
            Self::Unfit { path, why } => {
                let path = Typed(path);
                match why {
                    Unfit::Owner(_) => Some(format!("if you trust it: chown \"$USER\" {path}")),
                    Unfit::Writable(_) => Some(format!("chmod go-w {path}")),
                    Unfit::Symlink => Some("put the file itself there".to_owned()),
                    _ => Some("name a text file of at most 1 MiB".to_owned()),
                }
            }
            Self::Syntax { .. } => {
                Some("`cowork-linux policy schema` describes every key".to_owned())
            }
            Self::Widens { path, .. } => Some(format!(
                "read it, and if you agree: cowork-linux policy trust {}",
                Typed(path)
            )),
            Self::Trust {
                doing: "read",
                path,
                ..
            } => Some(format!(
                "remove {} to forget all trust and start again",
                Typed(path)
            )),
            Self::Read { .. } => Some("name a file that you can read".to_owned()),
            Self::Value { key, .. } => Some(format!(
                "change `{key}`; `cowork-linux policy schema` describes every key"
            )),
            Self::Circle(_) => Some("take its own name out of `extends`".to_owned()),
            Self::Trust { .. } | Self::NoState => {
                Some("set XDG_STATE_HOME to a folder of your own".to_owned())
            }
            Self::NotUtf8(_) => Some("rename it".to_owned()),
            Self::Write(_) => None,
        }
    }
}

fn names(keys: &[Key]) -> String {
    keys.iter()
        .map(|key| key.name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// A path as it can be pasted into a shell, whoever chose the name.
struct Typed<'a>(&'a Path);

impl fmt::Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.display().to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,".contains(c);
        if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
            f.write_str(&text)
        } else {
            write!(f, "'{}'", text.replace('\'', r"'\''"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_can_be_pasted_whatever_the_folder_is_called() {
        let help = |path: &str| {
            let keys = vec![Key::NetMode];
            PolicyError::Widens {
                path: path.into(),
                keys,
            }
            .help()
            .unwrap()
        };
        assert!(help("/w/.cowork.toml").ends_with("trust /w/.cowork.toml"));
        assert!(help("/w; rm -rf ~/x").ends_with("trust '/w; rm -rf ~/x'"));
        assert!(help("/it's").ends_with(r"trust '/it'\''s'"));
    }
}
