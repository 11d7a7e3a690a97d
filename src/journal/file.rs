//! Writes the journal of a running session. One write for a line: whoever is killed leaves at most
//! one torn line, and whoever comes next cuts it off and says so.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::bounds::LONGEST_LINE;
use super::chain::{self, Line};
use super::cut::cut;
use super::entry::{LATEST, What};
use super::folder::{aside_name, path_of};
use super::read::{Lines, Verdict};
use super::repeats::Repeats;
use super::unfit;
use crate::policy::SessionId;

/// How large a journal gets unless told otherwise.
pub const DEFAULT_LIMIT: u64 = 1 << 20;
/// Half of it must hold a line and a cut.
const SMALLEST: u64 = 4 * LONGEST_LINE as u64;
/// The largest limit, and more than a journal ever has.
pub(super) const LARGEST: u64 = 4 << 20;
/// How often opening is tried again because the file was replaced in the meantime.
const TRIES: usize = 5;

/// An open journal. It is locked: no second process writes to it, and readers know that the session
/// runs. Children must not inherit its descriptor past the session's end.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    id: SessionId,
    file: File,
    limit: u64,
    /// Where the next line begins.
    size: u64,
    /// Whether something stands after `size` that could not be removed.
    torn: bool,
    seq: u64,
    head: String,
    /// Entries that could not be written.
    lost: u64,
    repeats: Repeats,
}

impl Journal {
    /// Opens the journal of a session, or makes one and what is missing of its folder. A session
    /// that is started again goes on where it stopped.
    pub fn create(folder: &Path, id: &SessionId) -> io::Result<Self> {
        Self::create_within(folder, id, DEFAULT_LIMIT)
    }

    /// The same with a limit of one's own, between 256 KiB and 4 MiB.
    pub fn create_within(folder: &Path, id: &SessionId, limit: u64) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        unfit::check_folder(folder)?;
        let path = path_of(folder, id);
        let mut notes = Vec::new();
        for _ in 0..TRIES {
            let Some(file) = open_locked(&path)? else {
                continue;
            };
            let lines = Lines::of(&file, id, &mut |_| {})?;
            if let Some(why) = not_to_continue(&file, &lines)? {
                // Never continued, and never deleted: it is evidence.
                let aside = aside_name(id, now());
                std::fs::rename(&path, folder.join(&aside))?;
                notes.push(What::Aside { file: aside, why });
                continue;
            }
            let bytes = lines.tail.len() as u64;
            if bytes > 0 || (lines.end > 0 && !lines.stopped) {
                notes.push(What::Mended { bytes });
            }
            let mut journal = Self {
                folder: folder.to_owned(),
                id: id.clone(),
                file,
                limit: limit.clamp(SMALLEST, LARGEST),
                size: lines.end,
                torn: !lines.tail.is_empty(),
                seq: lines.chain.seq,
                head: lines.chain.head,
                lost: 0,
                repeats: Repeats::default(),
            };
            for note in &notes {
                // A full disk is no reason not to start; it is noted once there is room.
                let _ = journal.write(note);
            }
            return Ok(journal);
        }
        Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the journal is being replaced all the time",
        ))
    }

    /// Writes an entry. An error costs this entry only: how many were lost is written as soon as
    /// that is possible again.
    pub fn append(&mut self, what: &What) -> io::Result<()> {
        match what {
            What::Cut { .. } | What::Other(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "such an entry can only be read",
            )),
            What::Refusal { .. } => {
                let due = self.repeats.add(&what.bounded());
                self.write_all(&due)
            }
            What::Stop { .. } => {
                let flushed = self.flush();
                self.write(&what.bounded()).and(flushed)
            }
            _ => self.write(&what.bounded()),
        }
    }

    /// Writes down how often refusals happened that were only counted so far.
    pub fn flush(&mut self) -> io::Result<()> {
        let due = self.repeats.drain();
        self.write_all(&due)
    }

    /// The hash of the last line. Kept elsewhere, it shows whether all was written anew.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Every one is tried, whatever became of the one before.
    fn write_all(&mut self, list: &[What]) -> io::Result<()> {
        let mut all = Ok(());
        for what in list {
            all = all.and(self.write(what));
        }
        all
    }

    fn write(&mut self, what: &What) -> io::Result<()> {
        let written = self.catch_up().and_then(|()| self.put(what));
        if written.is_err() {
            self.lost += 1;
        }
        written
    }

    /// Removes what could not be removed before, and says what could not be said.
    fn catch_up(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.size)?;
            self.torn = false;
        }
        if self.lost > 0 {
            self.put(&What::Lost { entries: self.lost })?;
            self.lost = 0;
        }
        Ok(())
    }

    fn put(&mut self, what: &What) -> io::Result<()> {
        let line = chain::seal(self.seq + 1, now(), what, &self.head)?;
        if self.size + line.bytes.len() as u64 > self.limit {
            let keep = self.limit / 2;
            let (file, size) = cut(&self.folder, &self.id, &self.file, self.size, keep, now())?;
            (self.file, self.size) = (file, size);
        }
        self.put_line(line)
    }

    fn put_line(&mut self, line: Line) -> io::Result<()> {
        let whole = line.bytes.len();
        match self.file.write(&line.bytes) {
            Ok(length) if length == whole => {
                self.size += whole as u64;
                self.seq += 1;
                self.head = line.hash;
                Ok(())
            }
            other => {
                // Half a line must not be in the way of the next one.
                self.torn = self.file.set_len(self.size).is_err();
                other.and(Err(io::Error::new(
                    io::ErrorKind::StorageFull,
                    "there was no room for the whole entry",
                )))
            }
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.flush();
        // A session that never began leaves nothing behind.
        let path = path_of(&self.folder, &self.id);
        if self.size == 0 && !self.torn && unfit::is_at(&self.file, &path).unwrap_or(false) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The file at `path`, ours and locked; none if it was replaced while we opened it.
fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let file = unfit::open(path, &mut options)??;
    let about = file.metadata()?;
    unfit::check(&about)?;
    unfit::lock(&file)??;
    if !unfit::is_at(&file, path)? {
        return Ok(None);
    }
    // A umask of the caller's, or somebody's chmod.
    if about.mode() & 0o777 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(Some(file))
}

/// What is wrong with a journal that is there, apart from a torn end.
fn not_to_continue(file: &File, lines: &Lines) -> io::Result<Option<String>> {
    if let Err(why) = unfit::check_size(&file.metadata()?) {
        return Ok(Some(why.to_string()));
    }
    // Our own lock says nothing about whether the last run ended well.
    Ok(match lines.verdict(false) {
        Verdict::Tampered { line, why } => Some(format!("line {line}: {why}")),
        _ => None,
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = since.map_or(0, |since| since.as_millis());
    u64::try_from(time).unwrap_or(LATEST).min(LATEST)
}
