//! The folder of journals: `ID.jsonl` for a session, `ID.TIME.aside` for what was found in its
//! place and did not verify, `ID.new` while a journal is being cut.

use std::io;
use std::path::{Path, PathBuf};

use crate::policy::SessionId;

const JOURNAL: &str = "jsonl";
const ASIDE: &str = "aside";

/// Where the journal of a session lies.
pub fn path_of(folder: &Path, id: &SessionId) -> PathBuf {
    folder.join(format!("{id}.{JOURNAL}"))
}

/// Where it is written anew.
pub(super) fn new_path(folder: &Path, id: &SessionId) -> PathBuf {
    folder.join(format!("{id}.new"))
}

/// Where something goes that was found in its place at this time.
pub(super) fn aside_name(id: &SessionId, at: u64) -> String {
    format!("{id}.{at}.{ASIDE}")
}

/// Whose journal it is, by its name. An id may have dots in it, so what follows it is taken away
/// from the end.
pub(super) fn id_of(path: &Path) -> Option<SessionId> {
    let (name, ending) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let name = match (ending, name.rsplit_once('.')) {
        (ASIDE, Some((name, at))) if at.bytes().all(|byte| byte.is_ascii_digit()) => name,
        (ASIDE, _) => return None,
        _ => name,
    };
    SessionId::parse(name).ok()
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: SessionId,
    pub(super) path: PathBuf,
    pub(super) is_aside: bool,
}

/// Everything with the name of a journal. A folder that is not there has none.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Found>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(id) = id_of(&path) else { continue };
        let is_aside = path.extension().is_some_and(|ending| ending == ASIDE);
        if is_aside || path == path_of(folder, &id) {
            found.push(Found { id, path, is_aside });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The sessions that have a journal, as far as the folder can be read.
pub fn sessions(folder: &Path) -> Vec<SessionId> {
    let found = list(folder).unwrap_or_default().into_iter();
    found.filter(|it| !it.is_aside).map(|it| it.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_journal_is_is_told_by_its_name_and_no_two_share_one() {
        let folder = Path::new("/j");
        for name in [
            "a",
            "A.b",
            "a.jsonl",
            "a.new",
            "a.5",
            "a.5.aside",
            "x_y-Z.0",
        ] {
            let id = SessionId::parse(name).unwrap();
            let paths = [
                path_of(folder, &id),
                new_path(folder, &id),
                folder.join(aside_name(&id, 1700)),
            ];
            for path in paths {
                assert_eq!(id_of(&path).as_ref(), Some(&id), "{}", path.display());
            }
        }
        assert_eq!(id_of(Path::new("/j/a.b.aside")), None);
    }
}
