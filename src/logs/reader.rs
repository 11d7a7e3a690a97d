//! Reading a log: all of it, from a time on, its last lines, and what is still to come. Holds one
//! record in memory and one or two files open, however large the log is.

use std::path::Path;
use std::time::{Duration, SystemTime};

use super::error::LogError;
use super::files::{Access, Folder, NAMES, SEGMENTS, is_held};
use super::lines::Lines;
use super::record::Record;
use super::walk::{self, Place, Walk};
use super::watch::Watch;

/// How long one waits before asking again whether the session has ended, when nothing happens in
/// its folder.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A log, opened to be read; its writer never notices.
#[derive(Debug)]
pub struct Reader {
    folder: Folder,
}

impl Reader {
    /// Opens the log in a session's folder. A folder without one is a log without records.
    pub fn open(folder: &Path) -> Result<Self, LogError> {
        let folder = Folder::open(folder)?;
        for name in NAMES {
            folder.file(name, Access::Read)?;
        }
        Ok(Self { folder })
    }

    /// What has been written up to now: only what was printed at `since` or later, and of that only
    /// the last so many lines. What is missing or damaged is told by notes.
    pub fn records(
        &self,
        since: Option<SystemTime>,
        tail_lines: Option<usize>,
    ) -> Result<Records<'_>, LogError> {
        let end = walk::end(&self.folder)?;
        self.begin(since, tail_lines, end, Some(end))
    }

    /// The same, and then what comes, for as long as `is_over` says no. It is asked whenever
    /// everything has been shown, when something happens in the folder, and every second; what was
    /// written before it said yes is still shown.
    pub fn follow<F: FnMut() -> bool>(
        &self,
        since: Option<SystemTime>,
        tail_lines: Option<usize>,
        is_over: F,
    ) -> Result<Follow<'_, F>, LogError> {
        let watch = Watch::new(&self.folder);
        let end = walk::end(&self.folder)?;
        Ok(Follow {
            records: self.begin(since, tail_lines, end, None)?,
            watch,
            is_over,
            was_told: false,
        })
    }

    fn begin(
        &self,
        since: Option<SystemTime>,
        tail_lines: Option<usize>,
        end: Place,
        until: Option<Place>,
    ) -> Result<Records<'_>, LogError> {
        let tail = match tail_lines {
            Some(count) => Some(Tail::find(&self.folder, since, count as u64, end)?),
            None => None,
        };
        let from = tail.as_ref().map_or(0, Tail::first_file);
        Ok(Records {
            walk: Walk::new(&self.folder, from, until),
            since,
            tail,
            has_failed: false,
        })
    }
}

/// Whether a supervisor writes the log in this folder now. One that was killed does not.
pub fn is_being_written(folder: &Path) -> bool {
    let first = Folder::open(folder).and_then(|folder| folder.file(NAMES[0], Access::Read));
    matches!(first, Ok(Some(file)) if is_held(&file))
}

/// Which lines are the last ones.
#[derive(Debug)]
struct Tail {
    /// The first line to show.
    first: u64,
    /// Up to here lines are passed over; everything behind is news.
    end: Place,
    /// How the lines stood at the beginning of each file.
    files: Vec<(u64, Lines)>,
    /// How they stand now, and in which file.
    lines: Lines,
    number: u64,
}

impl Tail {
    /// Reads everything once to count: keeping the lines would take memory, reading takes little
    /// time.
    fn find(
        folder: &Folder,
        since: Option<SystemTime>,
        count: u64,
        end: Place,
    ) -> Result<Self, LogError> {
        let mut files: Vec<(u64, Lines)> = Vec::new();
        let mut lines = Lines::default();
        let mut walk = Walk::new(folder, 0, Some(end));
        while let Some((place, record)) = walk.next()? {
            if files
                .last()
                .is_none_or(|(number, _)| *number < place.number)
            {
                // Older ones are gone by now: somebody prints faster than this reads.
                if files.len() == SEGMENTS {
                    files.remove(0);
                }
                files.push((place.number, lines.clone()));
            }
            if since.is_none_or(|since| record.at >= since) {
                lines.pass(record.stream, &record.bytes, 0);
            }
        }
        Ok(Self {
            first: lines.begun().saturating_sub(count),
            end,
            files,
            lines: Lines::default(),
            number: 0,
        })
    }

    /// The file in which the first line begins, or 0 when everything is to be shown.
    fn first_file(&self) -> u64 {
        let before = |(_, lines): &&(u64, Lines)| lines.begun() <= self.first;
        match self.files.iter().rfind(before) {
            Some((number, _)) if self.first > 0 => *number,
            _ => 0,
        }
    }

    /// Where in these bytes the lines to show begin.
    fn cut(&mut self, place: Place, record: &Record) -> usize {
        if place >= self.end {
            return 0;
        }
        if place.number != self.number {
            self.number = place.number;
            if let Some((_, lines)) = self.files.iter().find(|(n, _)| *n == place.number) {
                self.lines = lines.clone();
            }
        }
        self.lines.pass(record.stream, &record.bytes, self.first)
    }
}

/// The records of a log; see [`Reader::records`].
#[derive(Debug)]
pub struct Records<'a> {
    walk: Walk<'a>,
    since: Option<SystemTime>,
    tail: Option<Tail>,
    /// An error is told once.
    has_failed: bool,
}

impl Records<'_> {
    fn next_now(&mut self) -> Result<Option<Record>, LogError> {
        while let Some((place, mut record)) = self.walk.next()? {
            if self.since.is_some_and(|since| record.at < since) {
                continue;
            }
            let cut = match &mut self.tail {
                Some(tail) => tail.cut(place, &record),
                None => 0,
            };
            record.bytes.drain(..cut);
            if !record.bytes.is_empty() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_now().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}

/// The records of a log, those to come included; see [`Reader::follow`].
#[derive(Debug)]
pub struct Follow<'a, F> {
    records: Records<'a>,
    watch: Watch,
    is_over: F,
    was_told: bool,
}

impl<F: FnMut() -> bool> Follow<'_, F> {
    fn ask_or_wait(&mut self) -> Result<(), LogError> {
        self.was_told = (self.is_over)();
        if self.was_told {
            return self.records.walk.stop_here();
        }
        let path = || self.records.walk.folder().path("");
        self.watch
            .wait(ASK_AGAIN)
            .map_err(|e| LogError::failed("watch", &path(), e))
    }
}

impl<F: FnMut() -> bool> Iterator for Follow<'_, F> {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.records.next() {
                return Some(next);
            }
            if self.was_told || self.records.has_failed {
                return None;
            }
            if let Err(error) = self.ask_or_wait() {
                self.records.has_failed = true;
                return Some(Err(error));
            }
        }
    }
}
