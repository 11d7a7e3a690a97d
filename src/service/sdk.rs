//! Which Claude Code a profile runs. Nothing is downloaded: the app has done that, or the user.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::executable::{Unfit, check, is_in_view};
use super::folders::Sources;
use super::names::shortened;
use crate::plan::Seen;
use crate::session::{MountMode, MountWish};

/// Where programs of the session find it.
pub(super) const INSIDE: &str = "/usr/local/bin/claude";
/// Where such managers keep what they installed, below the home; `*` is a version.
const INSTALLED: [&str; 5] = [
    ".local/share/mise/installs/claude/*/claude",
    ".local/share/mise/installs/claude/*/bin/claude",
    ".asdf/installs/claude/*/bin/claude",
    ".local/share/claude/versions/*",
    ".nvm/versions/node/*/bin/claude",
];
const BREW: &str = "/home/linuxbrew/.linuxbrew/bin/claude";

/// Claude Code of one profile.
#[derive(Debug, Clone)]
pub(super) struct Sdk {
    sources: Sources,
    /// `PATH` as the helper was started with.
    search: OsString,
    told: Option<Told>,
}

/// What the app said last.
#[derive(Debug, Clone)]
struct Told {
    words: (String, String),
    path: Result<PathBuf, String>,
    checked: Option<(Stamp, Result<Program, String>)>,
}

/// A file that has not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    mode: u32,
    changed: (i64, i64),
}

/// A program that can run in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Without a link in it.
    pub(super) path: PathBuf,
    pub(super) seen: Seen,
}

impl Program {
    /// Whether sessions see it where it is; then it is run there, because it may need what lies
    /// beside it.
    pub(super) fn is_in_view(&self) -> bool {
        is_in_view(&self.path)
    }

    /// The wish to see it where the app expects it.
    pub(super) fn wish(&self) -> MountWish {
        MountWish {
            source: self.path.clone(),
            seen: self.seen,
            is_folder: false,
            mode: MountMode::Read,
            place: INSIDE.to_owned(),
            replace: true,
            despite_overlap: true,
        }
    }
}

impl Sdk {
    pub(super) fn new(sources: Sources, search: OsString) -> Self {
        Self {
            sources,
            search,
            told: None,
        }
    }

    /// `installSdk`. What is wrong with it, for a log: the call itself never fails, because
    /// sessions that do not run Claude Code need none.
    pub(super) fn install(&mut self, subpath: &str, version: &str) -> Option<String> {
        let words = (subpath.to_owned(), version.to_owned());
        let told = match self.told.take() {
            Some(told) if told.words == words && told.path.is_ok() => told.looked_at(),
            _ => Told {
                path: self.expected(subpath, version),
                words,
                checked: None,
            }
            .looked_at(),
        };
        let note = told.program().err();
        self.told = Some(told);
        note
    }

    /// The program for a session; or what is wrong, and with which file.
    pub(super) fn program(&self) -> Result<Program, String> {
        match &self.told {
            Some(told) => told.clone().looked_at().program(),
            None => self.searched(),
        }
    }

    /// Where the app put it.
    fn expected(&self, subpath: &str, version: &str) -> Result<PathBuf, String> {
        let is_one = Path::new(version).components().count() == 1
            && matches!(
                Path::new(version).components().next(),
                Some(Component::Normal(_))
            )
            && !version.contains(['/', '\0']);
        if !is_one {
            return Err(format!(
                "{} is no version of Claude Code",
                shortened(version)
            ));
        }
        let all = self.sources.candidates(subpath)?;
        let there = all.iter().find(|folder| folder.is_dir());
        let folder = there.or(all.first()).cloned().unwrap_or_default();
        Ok(folder.join(version).join("claude"))
    }

    /// The places that people and installers put it at, the likeliest first.
    fn searched(&self) -> Result<Program, String> {
        let home = &self.sources.home;
        let mut all = Vec::new();
        if let Some(data) = &self.sources.app_data {
            all.extend(newest(&data.join("claude-code-vm/*/claude")));
        }
        all.push(home.join(".local/bin/claude"));
        let folders = std::env::split_paths(&self.search).filter(|folder| folder.is_absolute());
        all.extend(folders.map(|folder| folder.join("claude")));
        for pattern in INSTALLED {
            all.extend(newest(&home.join(pattern)));
        }
        all.push(PathBuf::from(BREW));
        let mut first = None;
        for path in all {
            match check(&path) {
                Ok(program) => return Ok(program),
                Err(Unfit::Missing) => {}
                Err(Unfit::Because(why)) => {
                    first.get_or_insert_with(|| unusable(&path, &why));
                }
            }
        }
        Err(first.unwrap_or_else(|| {
            let looked = home.join(".local/bin/claude");
            format!(
                "Claude Code was not found: the app has not installed it, and it is neither at {} \
                 nor on PATH; restart the app, or install Claude Code",
                looked.display()
            )
        }))
    }
}

impl Told {
    /// Looks again if the file is not the one that was looked at.
    fn looked_at(mut self) -> Self {
        if let Ok(path) = &self.path {
            let stamp = stamp(path);
            let is_same = |(known, _): &(Stamp, _)| Some(*known) == stamp;
            if !self.checked.as_ref().is_some_and(is_same) {
                let found = stamp.map(|stamp| (stamp, check(path)));
                self.checked = found.map(|(stamp, found)| {
                    let found = found.map_err(|unfit| match unfit {
                        Unfit::Missing => missing(path),
                        Unfit::Because(why) => unusable(path, &why),
                    });
                    (stamp, found)
                });
            }
        }
        self
    }

    fn program(&self) -> Result<Program, String> {
        let path = self.path.as_ref().map_err(Clone::clone)?;
        match &self.checked {
            Some((_, found)) => found.clone(),
            None => Err(missing(path)),
        }
    }
}

fn missing(path: &Path) -> String {
    format!(
        "Claude Code is not at {}, where the app said it is; restart the app so that it downloads \
         it again",
        path.display()
    )
}

fn unusable(path: &Path, why: &str) -> String {
    format!("cannot run {} in a session, because {why}", path.display())
}

fn stamp(path: &Path) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    Some(Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        mode: found.mode(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// Files by a pattern with one `*`, the highest number first.
fn newest(pattern: &Path) -> Vec<PathBuf> {
    let parts: Vec<_> = pattern.components().collect();
    let Some(star) = parts.iter().position(|part| part.as_os_str() == "*") else {
        return Vec::new();
    };
    let folder: PathBuf = parts[..star].iter().collect();
    let rest: PathBuf = parts[star + 1..].iter().collect();
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut versions: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    versions.retain(|name| name.as_bytes().iter().any(u8::is_ascii_digit));
    versions.sort_by_cached_key(|name| std::cmp::Reverse(version(name)));
    let paths = versions
        .into_iter()
        .map(|name| match rest.as_os_str().is_empty() {
            true => folder.join(name),
            false => folder.join(name).join(&rest),
        });
    paths.collect()
}

/// `v2.1.10` is later than `2.1.9`, and `2.1.0` than `2.1.0-beta`.
fn version(name: &OsStr) -> (Vec<u64>, bool, String) {
    let text = name.to_string_lossy();
    let text = text.strip_prefix('v').unwrap_or(&text);
    let (numbers, rest) = match text.find(|c: char| !c.is_ascii_digit() && c != '.') {
        Some(end) => text.split_at(end),
        None => (text, ""),
    };
    let numbers = numbers.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.collect(), rest.is_empty(), rest.to_owned())
}
