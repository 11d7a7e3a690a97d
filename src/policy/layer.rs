//! Built-in < user < named on the command line < project < flags, key by key.
//!
//! The project's file came with somebody's repository: until the user trusts it, it may only tighten.

use std::fmt;
use std::path::{Path, PathBuf};

use super::expand::{Environment, Paths};
use super::key::{Key, Origin, Origins};
use super::read::{Links, policy_text};
use super::stack::Stack;
use super::{Policy, PolicyError, PolicyFile, builtin};

/// What a project's policy is called.
pub const PROJECT_FILE: &str = ".cowork.toml";

/// Everything that has a say.
pub struct Sources<'a> {
    /// A built-in name, or the path of a file: whatever has a `/` or ends in `.toml`.
    pub profile: Option<&'a str>,
    /// Where to look for `.cowork.toml`.
    pub project_dir: Option<&'a Path>,
    /// What the command line says key by key.
    pub flags: PolicyFile,
    pub env: Environment<'a>,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("profile", &self.profile)
            .field("project_dir", &self.project_dir)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub policy: Policy,
    pub origins: Origins,
    /// The files that were read, in the order of the layers.
    pub files: Vec<PathBuf>,
}

pub fn resolve(sources: &Sources<'_>) -> Result<Resolved, PolicyError> {
    let mut stack = Stack::new();
    let mut files = Vec::new();
    if let Some(folder) = super::xdg_folder("XDG_CONFIG_HOME", ".config", sources.env) {
        let path = folder.join("policy.toml");
        if let Some(text) = policy_text(&path, Links::Follow)? {
            stack.lay_file(Origin::User(path.clone()), &path, &text, sources.env)?;
            files.push(path);
        }
    }
    match sources.profile {
        Some(file) if file.contains('/') || file.ends_with(".toml") => {
            let path = absolute(Path::new(file))?;
            let text = existing(&path, Links::Follow)?;
            stack.lay_file(Origin::Named(path.clone()), &path, &text, sources.env)?;
            files.push(path);
        }
        Some(name) => stack.lay_named(builtin::find(name)?)?,
        None => {}
    }
    if let Some(folder) = sources.project_dir
        && let Some((path, text)) = project_policy(folder)?
    {
        stack.lay_project(&path, &text, sources.env)?;
        files.push(path);
    }
    if sources.flags != PolicyFile::default() {
        stack.lay(Origin::Flags, &sources.flags, Paths::AsGiven)?;
    }
    Ok(Resolved {
        policy: stack.policy,
        origins: stack.origins,
        files,
    })
}

/// A folder's own policy, if it has one: where it is and what it says.
fn project_policy(folder: &Path) -> Result<Option<(PathBuf, String)>, PolicyError> {
    let path = folder.join(PROJECT_FILE);
    match policy_text(&path, Links::Refuse)? {
        Some(text) => Ok(Some((absolute(&path)?, text))),
        None => Ok(None),
    }
}

/// A policy file that was read and found sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub path: PathBuf,
    pub text: String,
    /// The keys by which it allows more than `default` does.
    pub wider: Vec<Key>,
}

/// Reads one file as it would be read at launch, with nothing but its parents below it.
pub fn check(path: &Path, env: Environment<'_>) -> Result<Checked, PolicyError> {
    let path = absolute(path)?;
    let (links, origin) = if path.file_name().is_some_and(|name| name == PROJECT_FILE) {
        (Links::Refuse, Origin::Project(path.clone()))
    } else {
        (Links::Follow, Origin::Named(path.clone()))
    };
    let text = existing(&path, links)?;
    let mut stack = Stack::new();
    let before = stack.policy.clone();
    stack.lay_file(origin, &path, &text, env)?;
    let wider = stack.policy.wider_than(&before);
    Ok(Checked { path, text, wider })
}

fn existing(path: &Path, links: Links) -> Result<String, PolicyError> {
    policy_text(path, links)?.ok_or_else(|| PolicyError::Read {
        path: path.to_owned(),
        source: nix::errno::Errno::ENOENT.into(),
    })
}

fn absolute(path: &Path) -> Result<PathBuf, PolicyError> {
    std::path::absolute(path).map_err(|source| PolicyError::Read {
        path: path.to_owned(),
        source,
    })
}
