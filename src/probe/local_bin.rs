//! What is in the folder of the programs that an administrator put on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::plan::HostPrograms;
use crate::policy::InsidePath;

/// More than anybody has there.
const MOST: usize = 16 << 10;

/// Looks below `root`. Nothing where there is no `/usr`, or so much in it that something is odd.
pub(super) fn look(root: &Path) -> Option<HostPrograms> {
    // A link on the way leads to where the box has nothing.
    let places = ["/usr/local/bin", "/usr/local", "/usr"].map(InsidePath::fixed);
    let is_folder = |place: &&InsidePath| {
        place.as_path().ancestors().all(|up| {
            let up = up.strip_prefix("/").unwrap_or(up);
            std::fs::symlink_metadata(root.join(up)).is_ok_and(|found| found.is_dir())
        })
    };
    let folder = places.iter().find(is_folder)?;
    let listed = std::fs::read_dir(root.join(folder.relative())).ok()?;
    let mut entries: Vec<(OsString, Option<PathBuf>)> = listed
        .flatten()
        .take(MOST + 1)
        .map(|entry| (entry.file_name(), std::fs::read_link(entry.path()).ok()))
        .collect();
    entries.sort();
    (entries.len() <= MOST).then(|| HostPrograms {
        folder: folder.clone(),
        entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_nearest_folder_that_is_one_is_looked_at() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(look(root.path()), None);
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        symlink("../var/local", root.path().join("usr/local")).unwrap();
        std::fs::create_dir_all(root.path().join("var/local/bin")).unwrap();
        let found = look(root.path()).unwrap();
        assert_eq!(found.folder, InsidePath::fixed("/usr"));
        let local = ("local".into(), Some("../var/local".into()));
        assert_eq!(found.entries, [("bin".into(), None), local]);
        std::fs::remove_file(root.path().join("usr/local")).unwrap();
        std::fs::create_dir_all(root.path().join("usr/local/bin")).unwrap();
        std::fs::write(root.path().join("usr/local/bin/tool"), "").unwrap();
        let found = look(root.path()).unwrap();
        assert_eq!(found.folder, InsidePath::fixed("/usr/local/bin"));
        assert_eq!(found.entries, [("tool".into(), None)]);
    }
}
