//! Writing a log: one call to the kernel per record, nothing kept back in memory, never more on
//! disk than the limit. Small writes are not gathered: what a program printed just before its
//! supervisor was killed is what one wants to read most.
//!
//! A disk that is full, or fails, costs the bytes it does not take. They are counted, and the
//! count stands in the log where they are missing, as soon as that can be written.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::Path;
use std::time::SystemTime;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use super::error::LogError;
use super::files::{Access, Folder, NAMES, NEW, SEGMENTS, hold, release};
use super::record::{HEADER, Header, LARGEST, START_SIZE, Start, Stream, milliseconds};
use super::segment::{Segment, Step};
use crate::sys;

/// How much of what a session printed is kept unless somebody says otherwise.
pub const DEFAULT_LIMIT: u64 = 16 << 20;
/// Less than this in a file is not worth its name.
const SMALLEST_SEGMENT: u64 = 1 << 10;

#[derive(Debug)]
pub struct LogStore {
    folder: Folder,
    /// What is being written; none while there is no room for a file.
    segment: Option<Open>,
    /// The largest that a file becomes.
    most: u64,
    /// The number of the next file.
    next_number: u64,
    /// How many bytes of programs are or were in this log.
    position: u64,
    /// What is missing since the last record, and the reason for the first of it.
    missing: Option<(u64, Errno)>,
    lost: u64,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    salt: u64,
}

impl LogStore {
    /// Opens the log in a session's folder, to go on where it ended; the only one who writes it.
    /// All its files together stay within `limit` bytes, or 5 KiB if that is more.
    /// A disk without room is not an error: see [`LogStore::lost`].
    pub fn open(folder: &Path, limit: u64) -> Result<Self, LogError> {
        let folder = Folder::open(folder)?;
        // A file that grew beyond this would end the process with a signal.
        let largest_file = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft);
        let mut store = Self {
            folder,
            segment: None,
            // While a file begins there is one more for a moment.
            most: (limit.saturating_sub(START_SIZE as u64) / SEGMENTS as u64)
                .max(SMALLEST_SEGMENT)
                .min(largest_file),
            next_number: 1,
            position: 0,
            missing: None,
            lost: 0,
        };
        store.resume()?;
        if store.segment.is_none()
            && let Err(error) = store.start_segment(now())
        {
            let full = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];
            if !error.raw_os_error().is_some_and(|e| full.contains(&e)) {
                let path = store.folder.path(NAMES[0]);
                return Err(LogError::failed("write", &path, error));
            }
        }
        Ok(store)
    }

    /// Keeps bytes. Never fails and never waits: what cannot be kept is counted.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let milliseconds = now();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(self.largest_record().min(rest.len()));
            if let Err(error) = self.append(milliseconds, Some((stream, piece))) {
                self.lose(stream, rest.len() as u64, &error);
                return;
            }
            if stream.of_program().is_some() {
                self.position += piece.len() as u64;
            }
            rest = after;
        }
    }

    /// Puts a remark of our own among what programs print; one line without its end.
    pub fn note(&mut self, text: &str) {
        self.write(Stream::Note, text.as_bytes());
    }

    /// How many bytes of programs could not be kept since the log was opened. Not those that made
    /// room for newer ones.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// A record, with a note about what is missing before it, fits in a file several times.
    fn largest_record(&self) -> usize {
        usize::try_from(self.most / 2).map_or(LARGEST, |half| half.min(LARGEST))
    }

    fn lose(&mut self, stream: Stream, count: u64, error: &io::Error) {
        if stream.of_program().is_some() {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            let (missing, _) = self.missing.get_or_insert((0, errno));
            *missing += count;
            self.lost += count;
        }
    }

    /// Writes the note that is due, if any, and the record, as one: both are there or neither is.
    fn append(&mut self, milliseconds: u64, record: Option<(Stream, &[u8])>) -> io::Result<()> {
        let due = self
            .missing
            .map(|(count, errno)| format!("{count} bytes could not be kept: {}", errno.desc()));
        let due = due.as_ref().map(|text| (Stream::Note, text.as_bytes()));
        let records = [due, record];
        let records = || records.iter().flatten();
        let size: usize = records().map(|(_, bytes)| HEADER + bytes.len()).sum();
        let is_full = |open: &Open| open.length + size as u64 > self.most;
        if self.segment.as_ref().is_none_or(is_full) {
            self.start_segment(milliseconds)?;
        }
        let Some(open) = &mut self.segment else {
            return Err(Errno::ENOSPC.into());
        };
        let mut headers = records().map(|(stream, bytes)| {
            Header::new(*stream, milliseconds, open.salt, bytes).encode(open.salt)
        });
        let headers = [headers.next(), headers.next()];
        let parts: Vec<IoSlice<'_>> = headers
            .iter()
            .flatten()
            .zip(records())
            .flat_map(|(header, (_, bytes))| [IoSlice::new(header), IoSlice::new(bytes)])
            .collect();
        match open.append(&parts, size) {
            Ok(()) => {
                self.missing = None;
                Ok(())
            }
            Err(error) => {
                // Half a record must not stay in front of a whole one.
                if open.file.set_len(open.length).is_err() {
                    self.segment = None;
                }
                Err(error)
            }
        }
    }

    /// Looks at what is there, and goes on with `log.0` if it ends as it should.
    fn resume(&mut self) -> Result<(), LogError> {
        let mut newest: Option<(&str, Segment)> = None;
        for name in NAMES {
            let access = match name == NAMES[0] {
                true => Access::Append,
                false => Access::Read,
            };
            let Some(file) = self.folder.file(name, access)? else {
                continue;
            };
            if access == Access::Append && !hold(&file) {
                let path = self.folder.path(name);
                return Err(LogError::InUse { path });
            }
            let found = Segment::open(file).map_err(|e| self.failed("read", name, e))?;
            if let Some(found) = found
                && found.start().number >= self.next_number
            {
                self.next_number = found.start().number + 1;
                newest = Some((name, found));
            }
        }
        let Some((name, mut segment)) = newest else {
            return Ok(());
        };
        let mut is_clean = name == NAMES[0];
        loop {
            match segment.step().map_err(|e| self.failed("read", name, e))? {
                Step::Record { .. } => {}
                Step::Damaged(_) => is_clean = false,
                Step::Rest(left) => {
                    is_clean &= left == 0;
                    break;
                }
            }
        }
        self.position = segment.position();
        if is_clean && segment.offset() < self.most && self.most >= SMALLEST_SEGMENT {
            self.segment = Some(Open {
                length: segment.offset(),
                salt: segment.start().salt,
                file: segment.into_file(),
            });
            self.make_room()
                .map_err(|e| self.failed("shorten", name, e))?;
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, name: &str, error: io::Error) -> LogError {
        LogError::failed(doing, &self.folder.path(name), error)
    }

    /// Begins a file. It is complete and held before it can be seen as `log.0`, and nothing is
    /// moved before it is there: trying again and again, on a disk that is full, moves nothing.
    fn start_segment(&mut self, milliseconds: u64) -> io::Result<()> {
        if self.most < SMALLEST_SEGMENT {
            return Err(Errno::EFBIG.into());
        }
        let mut salt = [0; 8];
        sys::kernel::random(&mut salt)?;
        let start = Start {
            number: self.next_number,
            position: self.position,
            salt: u64::from_le_bytes(salt),
            milliseconds,
        };
        self.folder.remove(NEW)?;
        let mut open = Open {
            file: self.folder.create(NEW)?,
            length: 0,
            salt: start.salt,
        };
        hold(&open.file);
        let placed = open
            .append(&[IoSlice::new(&start.encode())], START_SIZE)
            .and_then(|()| self.move_up())
            .and_then(|()| self.make_room())
            .and_then(|()| self.folder.rename(NEW, NAMES[0]));
        if let Err(error) = placed {
            let _ = self.folder.remove(NEW);
            return Err(error);
        }
        self.segment = Some(open);
        self.next_number += 1;
        Ok(())
    }

    /// Makes `log.0` free: every file up to the first free name takes the next one, the oldest goes
    /// where there is none.
    fn move_up(&self) -> io::Result<()> {
        let free = NAMES
            .iter()
            .position(|name| self.folder.size(name).is_none());
        for at in (0..free.unwrap_or(SEGMENTS - 1)).rev() {
            self.folder.rename(NAMES[at], NAMES[at + 1])?;
        }
        Ok(())
    }

    /// Drops the oldest until the rest leaves room for one whole file within the limit.
    fn make_room(&self) -> io::Result<()> {
        let older = &NAMES[1..];
        let mut size: u64 = older.iter().filter_map(|name| self.folder.size(name)).sum();
        for name in older.iter().rev() {
            if size <= self.most * older.len() as u64 {
                break;
            }
            size -= self.folder.size(name).unwrap_or(0).min(size);
            self.folder.remove(name)?;
        }
        Ok(())
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        if self.missing.is_some() {
            let _ = self.append(now(), None);
        }
    }
}

impl Open {
    fn append(&mut self, parts: &[IoSlice<'_>], size: usize) -> io::Result<()> {
        let written = loop {
            match self.file.write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        if written < size {
            // The kernel tells why only when it is asked for the rest.
            let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.file.write_all(&whole[written..])?;
        }
        self.length += size as u64;
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        release(&self.file);
    }
}

fn now() -> u64 {
    milliseconds(SystemTime::now())
}
