//! What every refusal has in common: exit code 125, one sentence each for what, because and help,
//! and a world in which nothing has changed.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::{Ran, World};

/// Everything below a folder: name, kind and mode, size of files, target of links.
pub fn tree(top: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(top, &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.symlink_metadata().unwrap();
        let size = if kind.is_dir() { 0 } else { kind.len() };
        let target = std::fs::read_link(&path).unwrap_or_default();
        found.push(format!(
            "{} {:o} {} {size} {}",
            path.display(),
            kind.permissions().mode(),
            kind.uid(),
            target.display()
        ));
        if kind.is_dir() {
            walk(&path, found);
        }
    }
}

/// Runs it and expects a refusal that says these things about what and why.
#[track_caller]
pub fn refused(world: &World, command: &mut Command, what: &str, because: &str) -> Ran {
    let before = tree(&world.path(""));
    let ran = Ran::of(command);
    said_well(&ran, what, because);
    assert_eq!(tree(&world.path("")), before, "something was left behind");
    ran
}

#[track_caller]
pub fn said_well(ran: &Ran, what: &str, because: &str) {
    let Ran { code, out, err } = ran;
    assert_eq!(*code, 125, "out: {out}\nerr: {err}");
    assert_eq!(out, "", "err: {err}");
    let lines: Vec<&str> = err.lines().collect();
    let starts = |prefix: &str| lines.iter().filter(|line| line.starts_with(prefix)).count();
    assert!(lines[0].starts_with("error: cannot "), "{err}");
    for part in ["error: ", "  because: ", "  help: "] {
        assert_eq!(starts(part), 1, "`{part}` in: {err}");
    }
    assert!(lines[0].contains(what), "no `{what}` in: {err}");
    let why = err.split("  because: ").nth(1).unwrap();
    let (why, help) = why.split_once("\n  help: ").unwrap();
    assert!(why.contains(because), "no `{because}` in: {why}");
    assert!(help.trim().len() > 5, "{err}");
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(!err.contains(raw), "{err:?}");
    assert!(
        !err.contains("os error") && !err.contains("panicked"),
        "{err}"
    );
}
