//! Reads a journal and says whether it is what was written. Files of any size, kind and content
//! are met with bounded memory and time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde::Serialize;

use super::bounds::LONGEST_LINE;
use super::chain::Chain;
use super::entry::{Entry, What};
use super::file::LARGEST;
use super::folder::id_of;
use super::torn::is_torn;
use super::unfit::{self, Unfit};
use crate::policy::SessionId;

/// How often a file is opened anew that was replaced in the meantime.
const TRIES: usize = 5;

/// Whether a journal is what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    Whole,
    /// The end is missing, in the middle of a line or before a stop: the supervisor was killed, or
    /// somebody shortened the file.
    Torn,
    Tampered {
        /// Counted from 1.
        line: usize,
        why: String,
    },
    /// Not a journal of this user's, whatever is in it.
    Foreign {
        why: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Torn => f.write_str("torn: its end is missing, as after a crash"),
            Self::Tampered { line, why } => write!(f, "tampered with at line {line}: {why}"),
            Self::Foreign { why } => write!(f, "not a journal of yours: {why}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// All that can be read, also past a line that was tampered with.
    pub entries: Vec<Entry>,
    pub verdict: Verdict,
    /// Whether a supervisor has it open.
    pub running: bool,
    /// The hash of the last line. Kept elsewhere, it shows whether all was written anew.
    pub head: String,
}

/// Reads the journal at `path`, whose name says which session it belongs to.
pub fn read(path: &Path) -> io::Result<Reading> {
    let mut entries = Vec::new();
    let scan = scan(path, &mut |entry| entries.push(entry))?;
    Ok(Reading {
        entries,
        verdict: scan.verdict,
        running: scan.running,
        head: scan.head,
    })
}

/// What a journal is, apart from its entries.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) verdict: Verdict,
    pub(super) running: bool,
    head: String,
}

impl Scan {
    fn foreign(why: &Unfit) -> Self {
        Self::not_read(why.to_string())
    }

    /// Of a journal that the disk does not give back.
    pub(super) fn unreadable(error: &io::Error) -> Self {
        Self::not_read(format!("it cannot be read ({error})"))
    }

    fn not_read(why: String) -> Self {
        Self {
            verdict: Verdict::Foreign { why },
            running: false,
            head: String::new(),
        }
    }
}

/// Goes through the entries of the journal at `path` without keeping them.
pub(super) fn scan(path: &Path, each: &mut dyn FnMut(Entry)) -> io::Result<Scan> {
    let Some(id) = id_of(path) else {
        // What is not there is an error whatever its name.
        path.symlink_metadata()?;
        return Ok(Scan::foreign(&Unfit::Name));
    };
    for _ in 0..TRIES {
        let file = match unfit::open(path, OpenOptions::new().read(true))? {
            Ok(file) => file,
            Err(why) => return Ok(Scan::foreign(&why)),
        };
        let before = unfit::is_locked(&file);
        let about = file.metadata()?;
        if about.nlink() == 0 {
            // Cut just now: the new one is the journal.
            continue;
        }
        if let Err(why) = unfit::check(&about).and_then(|()| unfit::check_size(&about)) {
            return Ok(Scan::foreign(&why));
        }
        let lines = Lines::of(&file, &id, each)?;
        // A session may have started or ended while we were reading.
        let running = before || unfit::is_locked(&file);
        return Ok(Scan {
            verdict: lines.verdict(running),
            running,
            head: lines.chain.head,
        });
    }
    Err(io::Error::new(
        io::ErrorKind::Interrupted,
        "the journal is being replaced all the time",
    ))
}

/// Reads a file from a place on, whatever others do to its position.
#[derive(Debug)]
pub(super) struct Onward<'a>(pub(super) &'a File, pub(super) u64);

impl Read for Onward<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read_at(buffer, self.1)?;
        self.1 += length as u64;
        Ok(length)
    }
}

/// What was found along the lines of a file.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) chain: Chain,
    /// The first line that is not what was written, and why.
    wrong: Option<(usize, &'static str)>,
    /// Where the whole lines end.
    pub(super) end: u64,
    /// What stands after them.
    pub(super) tail: Vec<u8>,
    /// Whether the last entry is a stop.
    pub(super) stopped: bool,
}

impl Lines {
    pub(super) fn of(file: &File, id: &SessionId, each: &mut dyn FnMut(Entry)) -> io::Result<Self> {
        let mut input = BufReader::new(Onward(file, 0).take(LARGEST));
        let mut found = Self {
            chain: Chain::of(id),
            wrong: None,
            end: 0,
            tail: Vec::new(),
            stopped: false,
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            let most = LONGEST_LINE as u64 + 1;
            let length = input.by_ref().take(most).read_until(b'\n', &mut line)? as u64;
            if line.pop_if(|byte| *byte == b'\n').is_some() {
                found.end += length;
                found.take(&line, each);
            } else if length == most {
                found.chain.lines += 1;
                found.is_wrong("it is longer than any entry");
                return Ok(found);
            } else {
                found.tail = line;
                return Ok(found);
            }
        }
    }

    fn take(&mut self, line: &[u8], each: &mut dyn FnMut(Entry)) {
        let taken = self.chain.take(line);
        if let Some(why) = taken.wrong {
            self.is_wrong(why);
        }
        if let Some(entry) = taken.entry {
            self.stopped = matches!(entry.what, What::Stop { .. });
            each(entry);
        }
    }

    fn is_wrong(&mut self, why: &'static str) {
        self.wrong.get_or_insert((self.chain.lines, why));
    }

    pub(super) fn verdict(&self, running: bool) -> Verdict {
        let tampered = |line, why: &str| Verdict::Tampered {
            line,
            why: why.to_owned(),
        };
        let rest = !self.tail.is_empty();
        match self.wrong {
            Some((line, why)) => tampered(line, why),
            None if rest && !is_torn(&self.tail, &self.chain) => {
                tampered(self.chain.lines + 1, "it is not the beginning of an entry")
            }
            // What the writer has not finished yet is not torn.
            None if running => Verdict::Whole,
            None if rest || !self.stopped => Verdict::Torn,
            None => Verdict::Whole,
        }
    }
}
