//! Keeps a journal within its limit: the newest half moves to a new file, which takes the old
//! one's name at once, so that there is a whole journal at every moment.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::bounds::LONGEST_LINE;
use super::chain::{self, Chain, seed};
use super::entry::What;
use super::folder::{new_path, path_of};
use super::read::Onward;
use super::runs::Runs;
use super::unfit;
use crate::policy::SessionId;

/// Drops whole lines from the beginning until at most `keep` of `size` bytes are left. The new
/// file, locked and in place, and its size.
pub(super) fn cut(
    folder: &Path,
    id: &SessionId,
    old: &File,
    size: u64,
    keep: u64,
    at: u64,
) -> io::Result<(File, u64)> {
    let mut chain = Chain::of(id);
    let mut runs = Runs::default();
    let mut end = 0;
    let mut input = BufReader::new(Onward(old, 0).take(size));
    let mut line = Vec::new();
    while size - end > keep {
        line.clear();
        let most = LONGEST_LINE as u64 + 1;
        let length = input.by_ref().take(most).read_until(b'\n', &mut line)?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            return Err(io::Error::other("the journal was changed by somebody else"));
        }
        end += length as u64;
        if let Some(entry) = chain.take(&line).entry {
            runs.add(&entry);
        }
    }
    let first = What::Cut {
        dropped: chain.seq,
        last: chain.head,
        run: runs.unfinished().map(|run| run.note.clone()),
    };
    let first = chain::seal(chain.seq, at, &first.bounded(), &seed(id))?;
    let path = new_path(folder, id);
    let file = fresh(&path)?;
    let done = fill(&file, &first.bytes, &mut Onward(old, end).take(size - end))
        .and_then(|()| fs::rename(&path, path_of(folder, id)));
    if let Err(error) = done {
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok((file, first.bytes.len() as u64 + size - end))
}

/// A new file of ours. What lies there is from a writer that was killed: the lock of the journal
/// is ours, so nobody is at it.
fn fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create_new(true).mode(0o600);
    let file = unfit::open(path, &mut options)??;
    unfit::lock(&file)??;
    Ok(file)
}

fn fill(file: &File, first: &[u8], rest: &mut impl Read) -> io::Result<()> {
    let mut file = file;
    file.write_all(first)?;
    io::copy(rest, &mut file)?;
    // The name must not be there before what it stands for.
    file.sync_data()
}
