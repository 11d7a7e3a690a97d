//! Where something can be mounted in a box that runs: below the folder of mounts, in the folder of
//! programs, and wherever a mount could have been put at the start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::layout::MOUNT_POINTS;
use super::places::elsewhere;
use super::{BuildStep, OwnFolder, Plan};
use crate::policy::InsidePath;

/// The longest name in a folder, and the longest path, that the kernel takes.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4095;
const LONGEST_TEXT: usize = 4096;

/// A place for a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    pub at: InsidePath,
    /// The folder of ours that it lies in and that places can be made in: a mount of its own. Of
    /// these programs can write to `/tmp` alone.
    pub ground: InsidePath,
    /// The nearest folder above it that was there from the start and stays.
    pub lasting: InsidePath,
    /// What is there in the folder of programs when nothing is mounted.
    pub link: Option<PathBuf>,
    /// It is in the folder of programs.
    pub is_program: bool,
}

/// The place that is meant: a name below the folder of mounts, or an absolute path. Or why it
/// cannot be one.
pub fn point(plan: &Plan, text: &str) -> Result<Point, String> {
    let session = plan.session.as_ref().filter(|_| plan.terms.changeable);
    let mounts = session.and_then(|session| session.home.join("mnt").ok());
    let mounts = mounts.ok_or("only sessions with a name or in the background can change")?;
    let at = named(&mounts, text).map_err(|why| {
        let shown: String = text.chars().take(LONGEST_NAME).collect();
        format!("`{shown}` cannot be the name of a mount: {why}")
    })?;
    let own = plan.build.iter().find_map(|step| match step {
        BuildStep::Own {
            folder: OwnFolder::Outputs,
            at,
            ..
        } => Some(at),
        _ => None,
    });
    if own.is_some_and(|outputs| at.starts_with(outputs)) {
        return Err(format!(
            "`{text}` cannot be the name of a mount: the session's own outputs are there"
        ));
    }
    let programs = plan.build.iter().find_map(|step| match step {
        BuildStep::Programs(programs) => Some(programs),
        _ => None,
    });
    let tmp = InsidePath::fixed("/tmp");
    let is_program = programs.is_some_and(|it| at.as_path().parent() == Some(it.at.as_path()));
    let (ground, link) = match programs.filter(|_| is_program) {
        Some(programs) => (programs.covers.clone(), programs.link_at(&at).cloned()),
        None if at != mounts && at.starts_with(&mounts) => (mounts.clone(), None),
        // A file tree that the host has there may be wanted at the same place.
        None if at != tmp && at.starts_with(&tmp) => (tmp, None),
        None => (not_reserved(&at, programs.is_some())?, None),
    };
    let lasting = lasting(plan, &mounts, &ground, &at);
    Ok(Point {
        at,
        ground,
        lasting,
        link,
        is_program,
    })
}

/// Reads a name strictly: what could be meant in two ways is not taken in any.
fn named(mounts: &InsidePath, text: &str) -> Result<InsidePath, String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("it has more than {LONGEST_TEXT} bytes"));
    }
    let (below, names) = match text.strip_prefix('/') {
        Some(names) => (Path::new("/"), names),
        None => (mounts.as_path(), text),
    };
    for name in names.split('/') {
        match name {
            "" => return Err("a part of it is empty".to_owned()),
            "." | ".." => return Err(format!("`{name}` in it is not a name")),
            _ if name.contains('\0') => return Err("it contains a NUL byte".to_owned()),
            _ if name.len() > LONGEST_NAME => {
                return Err(format!("a part of it has more than {LONGEST_NAME} bytes"));
            }
            _ => {}
        }
    }
    let whole = below.join(names);
    if whole.as_os_str().len() > LONGEST_PATH {
        return Err("its path in the box would be longer than the kernel takes".to_owned());
    }
    InsidePath::new(whole).map_err(|error| error.to_string())
}

/// The box's root, for a place that does not belong to the box itself.
fn not_reserved(at: &InsidePath, has_programs: bool) -> Result<InsidePath, String> {
    elsewhere(at.as_path()).map_err(|_| {
        let is_local = at.as_path().starts_with("/usr/local/bin");
        match (is_local, has_programs) {
            (true, false) => format!(
                "{at} is the host's own here; a session whose policy has \
                 `changeable-programs = true` takes programs there"
            ),
            (true, true) => "programs lie in /usr/local/bin itself, not deeper".to_owned(),
            (false, _) => {
                format!("{at} belongs to the box itself; mount it by a name, which is below mnt")
            }
        }
    })?;
    Ok(InsidePath::fixed("/"))
}

/// The nearest folder above a place that the plan makes itself.
fn lasting(plan: &Plan, mounts: &InsidePath, ground: &InsidePath, at: &InsidePath) -> InsidePath {
    let made: BTreeSet<&InsidePath> = plan
        .build
        .iter()
        .filter_map(|step| match step {
            BuildStep::Folder { at, .. } => Some(at),
            _ => None,
        })
        .collect();
    let is_made = |path: &Path| {
        // Below the folder of mounts places are made where that comes from.
        let from = match path.strip_prefix(mounts.as_path()) {
            Ok(below) => Path::new(MOUNT_POINTS).join(below),
            Err(_) => path.to_owned(),
        };
        InsidePath::new(from).is_ok_and(|from| made.contains(&from))
    };
    let above = at.as_path().ancestors().skip(1);
    let mut above = above.take_while(|up| *up != ground.as_path());
    let nearest = above.find(|up| is_made(up)).map(InsidePath::new);
    nearest
        .and_then(Result::ok)
        .unwrap_or_else(|| ground.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<String, String> {
        named(&InsidePath::fixed("/sessions/a/mnt"), text).map(|at| at.to_string())
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let long = "x".repeat(255);
        for name in [
            ".claude/skills",
            "a b",
            "it's \"x\"",
            "$(x)",
            "new\nline",
            "\u{1f984}/i\u{307}",
            "...",
            &long,
        ] {
            assert_eq!(at(name), Ok(format!("/sessions/a/mnt/{name}")));
        }
        assert_eq!(at("/data/x"), Ok("/data/x".to_owned()));
    }

    #[test]
    fn names_that_climb_or_mean_nothing_are_refused() {
        let long = "x".repeat(256);
        let deep = "x/".repeat(2040) + "x";
        for name in [
            "", "/", "..", "../x", "a/../b", "a//b", "a/", "/a/", ".", "a/./b", "a\0b", &long,
            &deep,
        ] {
            assert!(at(name).is_err(), "{name:?}");
        }
        let just = "x/".repeat(2039) + "y";
        assert_eq!(just.len(), 4079);
        assert!(at(&just).is_ok());
    }
}
