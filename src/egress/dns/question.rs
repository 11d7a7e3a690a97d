//! Reads one question of the Domain Name System, and nothing else of what a packet may hold.
//!
//! By hand, because this is all that is read of it: whatever is not a plain question for one name
//! is turned away before anybody has to understand it.

/// More than any question needs, with room for options.
pub(super) const LONGEST: usize = 4 << 10;
const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
/// Beside the question itself; a resolver's own has one.
const MOST_RECORDS: u16 = 8;

/// An answer's code, as RFC 1035 numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Fine = 0,
    Malformed = 1,
    NoSuchName = 3,
    NotImplemented = 4,
    Refused = 5,
    /// A later version of the extension; the upper bits travel in the extension itself.
    BadVersion = 16,
}

pub(super) mod kind {
    pub(in super::super) const A: u16 = 1;
    pub(in super::super) const SOA: u16 = 6;
    pub(in super::super) const PTR: u16 = 12;
    pub(in super::super) const HINFO: u16 = 13;
    pub(in super::super) const AAAA: u16 = 28;
    pub(in super::super) const OPT: u16 = 41;
    pub(in super::super) const ANY: u16 = 255;
    /// Whole zones, keys and the like.
    pub(in super::super) const ABOUT_ANSWERS: std::ops::RangeInclusive<u16> = 128..=254;
}
pub(super) const INTERNET: u16 = 1;

/// What an answer repeats of a question's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u16,
    pub(super) operation: u8,
    pub(super) recursion_desired: bool,
    pub(super) checking_disabled: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question<'a> {
    pub(super) header: Header,
    /// The name, the kind and the class as they were sent.
    pub(super) asked: &'a [u8],
    /// In lower case, without a dot at the end. None if it has bytes that no host's name has.
    pub(super) name: Option<String>,
    pub(super) kind: u16,
    pub(super) class: u16,
    pub(super) extension: Option<Extension>,
}

/// EDNS, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) version: u8,
    pub(super) wants_signatures: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard<'a> {
    /// Too short to be answered, or an answer itself: answering those is how loops begin.
    Nothing,
    Wrong(Header, Code),
    Question(Question<'a>),
}

pub(super) fn hear(packet: &[u8]) -> Heard<'_> {
    let [a, b, c, d, counts @ ..] = packet else {
        return Heard::Nothing;
    };
    if packet.len() < HEADER || c & 0x80 != 0 {
        return Heard::Nothing;
    }
    let header = Header {
        id: u16::from_be_bytes([*a, *b]),
        operation: c >> 3 & 0xf,
        recursion_desired: c & 1 != 0,
        checking_disabled: d & 0x10 != 0,
    };
    if header.operation != 0 {
        return Heard::Wrong(header, Code::NotImplemented);
    }
    let counts = [0, 2, 4, 6].map(|at| u16::from_be_bytes([counts[at], counts[at + 1]]));
    let question = match (packet.len(), counts) {
        (..=LONGEST, [1, 0, 0, more]) => question(header, &packet[HEADER..], more),
        _ => None,
    };
    question.map_or(Heard::Wrong(header, Code::Malformed), Heard::Question)
}

fn question(header: Header, packet: &[u8], more: u16) -> Option<Question<'_>> {
    let mut rest = packet;
    let name = name(&mut rest)?;
    let kind = number(&mut rest)?;
    let class = number(&mut rest)?;
    let asked = packet.get(..packet.len() - rest.len())?;
    Some(Question {
        header,
        asked,
        name,
        kind,
        class,
        extension: extension(rest, more)?,
    })
}

/// The name at the front. It cannot point elsewhere: nothing but the header comes before it.
fn name(rest: &mut &[u8]) -> Option<Option<String>> {
    let mut text = String::new();
    let mut is_host = true;
    let mut length = 1;
    loop {
        let (size, after) = rest.split_first()?;
        *rest = after;
        if *size == 0 {
            return Some(is_host.then_some(text));
        }
        length += usize::from(*size) + 1;
        if *size > 63 || length > LONGEST_NAME {
            return None;
        }
        let label = take(rest, usize::from(*size))?;
        // A dot within a label is no dot between labels.
        is_host &= label
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(
            label
                .iter()
                .map(|byte| char::from(byte.to_ascii_lowercase())),
        );
    }
}

/// Finds the extension among what follows the question, and that it is followed by nothing.
fn extension(mut rest: &[u8], more: u16) -> Option<Option<Extension>> {
    let mut found = None;
    if more > MOST_RECORDS {
        return None;
    }
    for _ in 0..more {
        let is_root = rest.first() == Some(&0);
        skip_name(&mut rest)?;
        let kind = number(&mut rest)?;
        let _size_of_answers = number(&mut rest)?;
        let flags = take(&mut rest, 4)?;
        let length = number(&mut rest)?;
        take(&mut rest, usize::from(length))?;
        if kind != kind::OPT {
            continue;
        }
        let extension = Extension {
            version: flags[1],
            wants_signatures: flags[2] & 0x80 != 0,
        };
        if !is_root || found.replace(extension).is_some() {
            return None;
        }
    }
    rest.is_empty().then_some(found)
}

/// Past a name that nobody reads; a pointer ends it, wherever it points to.
fn skip_name(rest: &mut &[u8]) -> Option<()> {
    loop {
        match take(rest, 1)? {
            [0] => return Some(()),
            [size @ 1..=63] => take(rest, usize::from(*size))?,
            [0xc0..=0xff] => return take(rest, 1).map(drop),
            _ => return None,
        };
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (piece, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(piece)
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    let two = take(rest, 2)?;
    Some(u16::from_be_bytes([two[0], two[1]]))
}
