//! Reading one file of a log, record by record, with a window of fixed size over it. Knows nothing
//! of the other files; what is wrong with this one is told, never guessed at.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{self, HEADER, Header, LARGEST, START_SIZE, Start, Stream};

const WINDOW: usize = 2 * (HEADER + LARGEST);

#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    start: Start,
    /// Bytes of the file from `at` on.
    window: Vec<u8>,
    /// Where the window lies, which is where the next record begins.
    at: u64,
    /// How far into the window everything has been told.
    taken: usize,
    /// How many bytes of programs have been passed.
    passed: u64,
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Record {
        stream: Stream,
        milliseconds: u64,
        bytes: Vec<u8>,
    },
    /// So many bytes are not what was written; reading goes on behind them.
    Damaged(u64),
    /// No whole record is there. So many bytes are left, of one being written or cut short.
    Rest(u64),
}

/// What lies at one place.
enum Found {
    Record(Header, Stream),
    /// The header can be trusted and says how long this is, but it cannot be shown.
    Unusable(usize),
    NoHeader,
    TooShort(u64),
}

impl Segment {
    /// None if the file does not begin like one of a log.
    pub(super) fn open(file: File) -> io::Result<Option<Self>> {
        let mut first = [0; START_SIZE];
        let mut filled = 0;
        while filled < first.len() {
            match read_at(&file, &mut first[filled..], filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(Start::decode(&first[..filled]).map(|start| Self {
            file,
            start,
            window: Vec::new(),
            at: START_SIZE as u64,
            taken: 0,
            passed: 0,
        }))
    }

    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Where the next record begins.
    pub(super) fn offset(&self) -> u64 {
        self.at + self.taken as u64
    }

    /// How many bytes programs had printed into the log up to here.
    pub(super) fn position(&self) -> u64 {
        self.start.position + self.passed
    }

    pub(super) fn step(&mut self) -> io::Result<Step> {
        let mut found = self.look()?;
        if !matches!(found, Found::Record(..)) {
            // A writer may have taken back half a record, and the window may be half old.
            self.forget();
            found = self.look()?;
        }
        match found {
            Found::Record(header, stream) => {
                let bytes = self.unread()[HEADER..HEADER + header.length].to_vec();
                self.taken += HEADER + header.length;
                if stream.of_program().is_some() {
                    self.passed += header.length as u64;
                }
                Ok(Step::Record {
                    stream,
                    milliseconds: header.milliseconds,
                    bytes,
                })
            }
            Found::Unusable(length) => {
                self.taken += HEADER + length;
                self.passed += length as u64;
                Ok(Step::Damaged(length as u64))
            }
            Found::NoHeader => self.search(),
            Found::TooShort(left) => Ok(Step::Rest(left)),
        }
    }

    fn look(&mut self) -> io::Result<Found> {
        self.fill(HEADER)?;
        let Some(header) = Header::decode(self.unread(), self.start.salt) else {
            return Ok(match self.unread().len() {
                left @ 0..HEADER => Found::TooShort(left as u64),
                _ => Found::NoHeader,
            });
        };
        let whole = HEADER + header.length;
        self.fill(whole)?;
        let Some(bytes) = self.unread().get(HEADER..whole) else {
            return Ok(Found::TooShort(self.unread().len() as u64));
        };
        Ok(match header.stream() {
            Some(stream) if header.fits(self.start.salt, bytes) => Found::Record(header, stream),
            _ => Found::Unusable(header.length),
        })
    }

    /// Looks for the next header behind something at least as long that is none. Without one
    /// everything up to the end is left, and the place stays: it may be the beginning of something.
    fn search(&mut self) -> io::Result<Step> {
        let from = self.offset();
        loop {
            let unread = self.unread();
            let mut next = 1;
            while let Some(at) = record::find_magic(unread, next) {
                if Header::decode(&unread[at..], self.start.salt).is_some() {
                    self.taken += at;
                    return Ok(Step::Damaged(self.offset() - from));
                }
                if unread.len() - at < HEADER {
                    break;
                }
                next = at + 1;
            }
            // What is too short to be a header may be the first part of one.
            self.taken += unread.len() - (HEADER - 1);
            if !self.fill(HEADER)? {
                let left = self.offset() + self.unread().len() as u64 - from;
                self.window.clear();
                (self.at, self.taken) = (from, 0);
                return Ok(Step::Rest(left));
            }
            // The byte at the front has not been looked at yet, unlike that of the first round.
            if Header::decode(self.unread(), self.start.salt).is_some() {
                return Ok(Step::Damaged(self.offset() - from));
            }
        }
    }

    fn unread(&self) -> &[u8] {
        &self.window[self.taken..]
    }

    fn forget(&mut self) {
        self.at = self.offset();
        self.window.clear();
        self.taken = 0;
    }

    /// Has at least so many bytes to look at, unless the file ends before: then it says false.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        if self.unread().len() >= wanted {
            return Ok(true);
        }
        self.at = self.offset();
        self.window.drain(..self.taken);
        self.taken = 0;
        let mut have = self.window.len();
        self.window.resize(WINDOW, 0);
        let mut outcome = Ok(());
        while have < wanted {
            match read_at(&self.file, &mut self.window[have..], self.at + have as u64) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.window.truncate(have);
        outcome.map(|()| have >= wanted)
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
