//! Going through the files of a log in the order in which they were written, while they are
//! written, renamed and dropped. What is missing or damaged becomes a note in its place.

use std::collections::VecDeque;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::LogError;
use super::files::{Access, Folder, NAMES, is_held};
use super::record::{Record, Stream, milliseconds, time};
use super::segment::{Segment, Step};

/// A place in a log: the number of a file, and an offset in it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) offset: u64,
}

#[derive(Debug)]
pub(super) struct Walk<'a> {
    folder: &'a Folder,
    /// The number of the first file wanted, or 0 for the oldest there is.
    from: u64,
    /// Where to stop, if not at what is written last.
    until: Option<Place>,
    /// The file being read; none before there is one.
    segment: Option<Segment>,
    /// The file after it, once there is one: then nothing more is written to this one.
    successor: Option<Segment>,
    has_begun: bool,
    /// Nobody was writing this file any more when its unfinished end was seen.
    is_abandoned: bool,
    has_told_rest: bool,
    /// The time of the record before.
    milliseconds: u64,
    notes: VecDeque<Record>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(folder: &'a Folder, from: u64, until: Option<Place>) -> Self {
        Self {
            folder,
            from,
            until,
            segment: None,
            successor: None,
            has_begun: false,
            is_abandoned: false,
            has_told_rest: false,
            milliseconds: 0,
            notes: VecDeque::new(),
        }
    }

    /// The next record, with where it begins; none when there is none now.
    pub(super) fn next(&mut self) -> Result<Option<(Place, Record)>, LogError> {
        loop {
            if self.segment.is_none() {
                self.enter_first()?;
            }
            let place = self.place();
            if let Some(note) = self.notes.pop_front() {
                return Ok(Some((place, note)));
            }
            if self.until.is_some_and(|until| place >= until) {
                return Ok(None);
            }
            let Some(segment) = &mut self.segment else {
                return Ok(None);
            };
            match segment.step() {
                Ok(Step::Record {
                    stream,
                    milliseconds,
                    bytes,
                }) => {
                    self.milliseconds = milliseconds;
                    self.is_abandoned = false;
                    let at = time(milliseconds);
                    return Ok(Some((place, Record { at, stream, bytes })));
                }
                Ok(Step::Damaged(count)) => {
                    self.remark(format!("{count} bytes here are damaged and not shown"));
                }
                Ok(Step::Rest(left)) => {
                    if !self.goes_on_after(left)? {
                        return Ok(None);
                    }
                }
                Err(error) => {
                    return Err(LogError::failed("read", &self.folder.path("log"), error));
                }
            }
        }
    }

    pub(super) fn folder(&self) -> &Folder {
        self.folder
    }

    /// Goes no further than what has been written up to now.
    pub(super) fn stop_here(&mut self) -> Result<(), LogError> {
        self.until = Some(end(self.folder)?);
        Ok(())
    }

    fn place(&self) -> Place {
        let place = |segment: &Segment| Place {
            number: segment.start().number,
            offset: segment.offset(),
        };
        self.segment.as_ref().map(place).unwrap_or_default()
    }

    fn enter_first(&mut self) -> Result<(), LogError> {
        if !self.has_begun && self.from == 0 {
            for (name, size, changed) in unreadable(self.folder)? {
                self.milliseconds = changed;
                self.remark(match size {
                    0 => format!("{name} is empty: what it held is lost, as in a power cut"),
                    _ => format!("{name} is not a log, or damaged: {size} bytes are not shown"),
                });
            }
        }
        self.has_begun = true;
        self.segment = oldest_from(self.folder, self.from)?;
        if let Some(start) = self.segment.as_ref().map(|segment| *segment.start()) {
            self.milliseconds = start.milliseconds;
            if self.from == 0 && start.position > 0 {
                self.remark(format!(
                    "{} bytes before this made room for newer ones",
                    start.position
                ));
            }
        }
        Ok(())
    }

    /// No whole record is left in this file now, only so many bytes. Whether to look again.
    fn goes_on_after(&mut self, left: u64) -> Result<bool, LogError> {
        let Some(segment) = &self.segment else {
            return Ok(false);
        };
        let (number, position) = (segment.start().number, segment.position());
        if self.successor.is_none() && !self.folder.is(NAMES[0], segment.file()) {
            self.successor = oldest_from(self.folder, number + 1)?;
            if self.successor.is_some() {
                // More may have been written here before there was one.
                return Ok(true);
            }
        }
        if let Some(next) = self.successor.take() {
            self.tell_rest(left);
            let missing = next.start().position.saturating_sub(position);
            if next.start().number > number + 1 && missing > 0 {
                self.milliseconds = next.start().milliseconds;
                self.remark(format!(
                    "{missing} bytes made room for newer ones before they could be read"
                ));
            }
            self.segment = Some(next);
            self.is_abandoned = false;
            self.has_told_rest = false;
            return Ok(true);
        }
        if left == 0 || self.has_told_rest || is_held(segment.file()) {
            return Ok(false);
        }
        match self.is_abandoned {
            true => self.tell_rest(left),
            // The last thing its writer did may have been to complete it.
            false => self.is_abandoned = true,
        }
        Ok(true)
    }

    fn tell_rest(&mut self, left: u64) {
        if left > 0 && !self.has_told_rest {
            self.remark(format!(
                "{left} bytes here are the beginning of something that was never written whole"
            ));
        }
        self.has_told_rest = true;
    }

    fn remark(&mut self, text: String) {
        self.notes.push_back(Record {
            at: time(self.milliseconds),
            stream: Stream::Note,
            bytes: text.into_bytes(),
        });
    }
}

/// Where what is written now will be found; nothing lies behind it.
pub(super) fn end(folder: &Folder) -> Result<Place, LogError> {
    let mut end = Place::default();
    for name in NAMES {
        if let Some(segment) = open(folder, name)? {
            let size = segment.file().metadata().map(|meta| meta.len());
            end = end.max(Place {
                number: segment.start().number,
                offset: size.map_err(|e| failed(folder, name, e))?,
            });
        }
    }
    Ok(end)
}

/// The file with the smallest number from this one on. Files move from name to name in the
/// direction in which they are looked at, so that none slips by.
fn oldest_from(folder: &Folder, number: u64) -> Result<Option<Segment>, LogError> {
    let mut oldest: Option<Segment> = None;
    for name in NAMES {
        if let Some(found) = open(folder, name)? {
            let found_number = found.start().number;
            let is_older = |oldest: &Segment| found_number < oldest.start().number;
            if found_number >= number && oldest.as_ref().is_none_or(is_older) {
                oldest = Some(found);
            }
        }
    }
    Ok(oldest)
}

/// Names, sizes and times of the files that do not begin like one of a log.
fn unreadable(folder: &Folder) -> Result<Vec<(&'static str, u64, u64)>, LogError> {
    let mut found = Vec::new();
    for name in NAMES {
        let Some(file) = folder.file(name, Access::Read)? else {
            continue;
        };
        let meta = file.metadata().map_err(|e| failed(folder, name, e))?;
        let is_log = Segment::open(file).map_err(|e| failed(folder, name, e))?;
        if is_log.is_none() {
            let changed = meta.modified().unwrap_or(UNIX_EPOCH);
            found.push((
                name,
                meta.len(),
                milliseconds(changed.min(SystemTime::now())),
            ));
        }
    }
    Ok(found)
}

fn open(folder: &Folder, name: &str) -> Result<Option<Segment>, LogError> {
    match folder.file(name, Access::Read)? {
        Some(file) => Segment::open(file).map_err(|e| failed(folder, name, e)),
        None => Ok(None),
    }
}

fn failed(folder: &Folder, name: &str, error: io::Error) -> LogError {
    LogError::failed("read", &folder.path(name), error)
}
