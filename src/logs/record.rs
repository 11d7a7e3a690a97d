//! One record: what it is, what its header looks like, how damage to it shows.
//!
//! ```text
//! magic 1 | kind 1 | length 4 | unix milliseconds 8 | check of the bytes 4 | check of the header 4 | bytes
//! ```
//!
//! Numbers are little-endian. Both checks start from a number that every file draws at random and
//! that no program in the box can know: bytes a program prints are never taken for a record, even
//! when a damaged file is searched for the next one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const HEADER: usize = 22;
/// The most bytes a record holds.
pub(super) const LARGEST: usize = 32 << 10;
const MAGIC: u8 = 0xc7;
/// The first record of a file, which says which file it is.
const START: u8 = 3;
const START_BYTES: usize = 24;
pub(super) const START_SIZE: usize = HEADER + START_BYTES;
/// The last millisecond that a date with four digits for the year can name.
const LAST_MILLISECOND: u64 = 253_402_300_799_999;

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stream {
    /// Not printed by a program: a remark about the log itself.
    Note = 0,
    Out = 1,
    Err = 2,
}

impl Stream {
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Note),
            1 => Some(Self::Out),
            2 => Some(Self::Err),
            _ => None,
        }
    }

    /// Its place among the two that programs write to.
    pub(super) fn of_program(self) -> Option<usize> {
        match self {
            Self::Note => None,
            Self::Out => Some(0),
            Self::Err => Some(1),
        }
    }
}

/// Bytes that were printed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at: SystemTime,
    pub stream: Stream,
    /// Exactly as printed. UTF-8 for a note, without a line break.
    pub bytes: Vec<u8>,
}

/// The time as records hold it.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(LAST_MILLISECOND)
}

pub(super) fn time(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds.min(LAST_MILLISECOND))
}

/// A header as it stands before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    kind: u8,
    pub(super) length: usize,
    pub(super) milliseconds: u64,
    check: u32,
}

impl Header {
    pub(super) fn new(stream: Stream, milliseconds: u64, salt: u64, bytes: &[u8]) -> Self {
        Self::of_kind(stream as u8, milliseconds, salt, bytes)
    }

    fn of_kind(kind: u8, milliseconds: u64, salt: u64, bytes: &[u8]) -> Self {
        Self {
            kind,
            length: bytes.len(),
            milliseconds,
            check: check(salt, bytes),
        }
    }

    pub(super) fn encode(&self, salt: u64) -> [u8; HEADER] {
        let mut encoded = [0; HEADER];
        encoded[0] = MAGIC;
        encoded[1] = self.kind;
        encoded[2..6].copy_from_slice(&(self.length as u32).to_le_bytes());
        encoded[6..14].copy_from_slice(&self.milliseconds.to_le_bytes());
        encoded[14..18].copy_from_slice(&self.check.to_le_bytes());
        let own = check(salt, &encoded[..18]);
        encoded[18..].copy_from_slice(&own.to_le_bytes());
        encoded
    }

    /// None if this is not a header of this file, whole and undamaged.
    pub(super) fn decode(encoded: &[u8], salt: u64) -> Option<Self> {
        let encoded = encoded.first_chunk::<HEADER>()?;
        if encoded[0] != MAGIC || check(salt, &encoded[..18]) != number(&encoded[18..22]) as u32 {
            return None;
        }
        let length = number(&encoded[2..6]) as usize;
        (length <= LARGEST).then_some(Self {
            kind: encoded[1],
            length,
            milliseconds: number(&encoded[6..14]),
            check: number(&encoded[14..18]) as u32,
        })
    }

    /// Where its bytes came from; none for a kind that this version does not know.
    pub(super) fn stream(&self) -> Option<Stream> {
        Stream::from_number(self.kind)
    }

    pub(super) fn fits(&self, salt: u64, bytes: &[u8]) -> bool {
        self.length == bytes.len() && self.check == check(salt, bytes)
    }
}

/// Where a header could begin, at or after `from`.
pub(super) fn find_magic(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter()
        .position(|byte| *byte == MAGIC)
        .map(|at| from + at)
}

/// The first record of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    /// Counts the files of a log from 1 on: names move, numbers stay.
    pub(super) number: u64,
    /// How many bytes programs had printed into this log before this file.
    pub(super) position: u64,
    pub(super) salt: u64,
    pub(super) milliseconds: u64,
}

impl Start {
    pub(super) fn encode(&self) -> [u8; START_SIZE] {
        let mut bytes = [0; START_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..].copy_from_slice(&self.salt.to_le_bytes());
        let header = Header::of_kind(START, self.milliseconds, 0, &bytes);
        let mut encoded = [0; START_SIZE];
        encoded[..HEADER].copy_from_slice(&header.encode(0));
        encoded[HEADER..].copy_from_slice(&bytes);
        encoded
    }

    pub(super) fn decode(encoded: &[u8]) -> Option<Self> {
        let header = Header::decode(encoded, 0)?;
        let bytes = encoded.get(HEADER..START_SIZE)?;
        let start = Self {
            number: number(&bytes[..8]),
            position: number(&bytes[8..16]),
            salt: number(&bytes[16..]),
            milliseconds: header.milliseconds,
        };
        // Far from where counting on would overflow.
        let counts = start.number.max(start.position) < 1 << 62;
        (header.kind == START && header.fits(0, bytes) && counts).then_some(start)
    }
}

/// Up to eight little-endian bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Tells damage, not malice: eight bytes at a time are multiplied in, so that a flood costs little.
fn check(salt: u64, bytes: &[u8]) -> u32 {
    const ODD: u64 = 0xa24b_1c6d_93e7_5f0b;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(ODD).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(salt ^ ODD, bytes.len() as u64);
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    sum = mix(mix(sum, number(rest)), salt);
    (sum ^ sum >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zeros_and_noise_are_no_records() {
        for salt in [0, 1, u64::MAX] {
            assert_eq!(Header::decode(&[0; HEADER], salt), None);
            assert_eq!(Header::decode(&[MAGIC; HEADER], salt), None);
            assert!(!Header::new(Stream::Out, 0, salt, b"text").fits(salt, &[0; 4]));
        }
        assert_eq!(Start::decode(&[0; START_SIZE]), None);
    }

    #[test]
    fn a_record_of_one_file_is_none_of_another() {
        let header = Header::new(Stream::Out, 7, 1, b"text");
        assert_eq!(Header::decode(&header.encode(1), 1), Some(header));
        assert_eq!(Header::decode(&header.encode(1), 2), None);
        assert!(header.fits(1, b"text") && !header.fits(2, b"text"));
    }

    #[test]
    fn a_file_that_counts_beyond_all_bounds_is_not_believed() {
        let mut start = Start {
            number: 1,
            position: 2,
            salt: 3,
            milliseconds: 4,
        };
        assert_eq!(Start::decode(&start.encode()), Some(start));
        start.position = u64::MAX;
        assert_eq!(Start::decode(&start.encode()), None);
    }

    #[test]
    fn a_time_no_calendar_holds_is_the_last_one_that_it_does() {
        assert_eq!(time(u64::MAX), time(LAST_MILLISECOND));
        assert_eq!(milliseconds(time(12345)), 12345);
    }

    proptest! {
        #[test]
        fn every_changed_bit_shows(
            bytes in proptest::collection::vec(any::<u8>(), 1..100),
            salt: u64,
            milliseconds: u64,
            bit: proptest::sample::Index,
        ) {
            let header = Header::new(Stream::Err, milliseconds, salt, &bytes);
            let mut whole = header.encode(salt).to_vec();
            whole.extend_from_slice(&bytes);
            let bit = bit.index(whole.len() * 8);
            whole[bit / 8] ^= 1 << (bit % 8);
            let intact = Header::decode(&whole, salt)
                .is_some_and(|header| header.fits(salt, &whole[HEADER..]));
            prop_assert!(!intact);
        }
    }
}
