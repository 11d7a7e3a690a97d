//! Removes old journals. Only what is a journal of ours, verifies and is not in use goes; what was
//! tampered with or set aside is evidence and stays until a person removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::folder::{Found, id_of, list, new_path, path_of};
use super::read::{Lines, Verdict};
use super::tell::changed;
use super::unfit;

/// How many journals are kept unless told otherwise.
pub const DEFAULT_KEEP: usize = 500;

/// Keeps the newest `keep` journals and those of running sessions. How many files were removed.
pub fn prune(folder: &Path, keep: usize) -> io::Result<usize> {
    let mut journals: Vec<(SystemTime, Found)> = list(folder)?
        .into_iter()
        .filter(|found| !found.is_aside)
        .map(|found| (changed(&found.path), found))
        .collect();
    journals.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let mut removed = 0;
    for (_, found) in journals.iter().skip(keep) {
        removed += usize::from(remove(found)?);
    }
    Ok(removed + remove_unfinished(folder)?)
}

fn remove(found: &Found) -> io::Result<bool> {
    let Some(file) = take(&found.path)? else {
        return Ok(false);
    };
    let is_small = unfit::check_size(&file.metadata()?).is_ok();
    let verifies = || -> io::Result<bool> {
        let lines = Lines::of(&file, &found.id, &mut drop)?;
        Ok(matches!(
            lines.verdict(false),
            Verdict::Whole | Verdict::Torn
        ))
    };
    if !is_small || !verifies()? {
        return Ok(false);
    }
    fs::remove_file(&found.path)?;
    Ok(true)
}

/// The file, ours and locked; none for anything else. Nobody can start to use it from here on.
fn take(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    let file = match unfit::open(path, &mut options) {
        Ok(Ok(file)) => file,
        Ok(Err(_)) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let fits = unfit::check(&file.metadata()?).is_ok();
    let ours = fits && unfit::lock(&file)?.is_ok() && unfit::is_at(&file, path)?;
    Ok(ours.then_some(file))
}

/// Removes new files of writers that were killed while they cut a journal.
fn remove_unfinished(folder: &Path) -> io::Result<usize> {
    let mut removed = 0;
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let Some(id) = id_of(&path).filter(|id| path == new_path(folder, id)) else {
            continue;
        };
        // Whoever cuts holds the lock of the journal.
        let journal = path_of(folder, &id);
        let alone = take(&journal)?;
        let in_use = alone.is_none() && journal.symlink_metadata().is_ok();
        if !in_use && take(&path)?.is_some() {
            fs::remove_file(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}
