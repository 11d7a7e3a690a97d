//! Writes an answer. Every one fits into 512 bytes, which every resolver takes in one datagram:
//! nothing is ever cut off, and nobody has to ask again over a stream.

use std::net::IpAddr;

use super::question::{Code, Extension, Header, INTERNET, Question, kind};

pub(super) const LONGEST: usize = 512;
/// What we would take as a question in a datagram, without pieces on any network.
const WE_TAKE: u16 = 1232;
/// Seconds. An address means its name for as long as the name is in use; asking again costs
/// nothing and tells us that it is, and what was pushed out of the table is known again soon.
const KEEP: u32 = 60;
/// A host can be allowed at any moment, so nobody is to remember that it was not.
const KEEP_NOTHING: u32 = 0;
/// Before the name in a packet with one question.
const OF_THE_QUESTION: [u8; 2] = [0xc0, 12];

/// Something found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Address(IpAddr),
    Pointer(String),
    /// In place of everything there is (RFC 8482).
    NotAll,
}

pub(super) struct Packet(Vec<u8>);

/// Where the header counts what follows.
#[derive(Clone, Copy)]
enum Part {
    Questions = 4,
    Answers = 6,
    Authority = 8,
    Additional = 10,
}

impl Packet {
    pub(super) fn bare(header: Header, code: Code) -> Self {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend(header.id.to_be_bytes());
        bytes.push(0x80 | header.operation << 3 | u8::from(header.recursion_desired));
        // We recurse, as far as anybody asking can tell.
        bytes.push(0x80 | u8::from(header.checking_disabled) << 4 | code as u8 & 0xf);
        bytes.extend([0; 8]);
        Self(bytes)
    }

    /// With the question, in the very letters it was asked.
    pub(super) fn repeating(question: &Question<'_>, code: Code) -> Self {
        let mut packet = Self::bare(question.header, code);
        packet.count(Part::Questions);
        packet.0.extend(question.asked);
        packet
    }

    pub(super) fn answer(&mut self, record: &Record) {
        self.count(Part::Answers);
        self.0.extend(OF_THE_QUESTION);
        match record {
            Record::Address(IpAddr::V4(address)) => self.rest(kind::A, KEEP, &address.octets()),
            Record::Address(IpAddr::V6(address)) => self.rest(kind::AAAA, KEEP, &address.octets()),
            Record::Pointer(name) => self.rest(kind::PTR, KEEP, &labels(name)),
            Record::NotAll => self.rest(kind::HINFO, KEEP, b"\x07RFC8482\x00"),
        }
    }

    /// Says how long it may be remembered that there is nothing: the root answers for it.
    pub(super) fn nothing_here(&mut self) {
        self.count(Part::Authority);
        self.0.push(0);
        let mut authority = vec![0, 0];
        for number in [1, 3600, 600, 86400, KEEP_NOTHING] {
            authority.extend(number.to_be_bytes());
        }
        self.rest(kind::SOA, KEEP_NOTHING, &authority);
    }

    /// The other side's extension, answered; and in it, why something is refused, if there is room
    /// for the words.
    pub(super) fn extension(&mut self, theirs: Extension, why: Option<(u16, String)>) {
        const WITHOUT_WORDS: usize = 11 + 6;
        let mut option = Vec::new();
        if let Some((code, words)) = why {
            let room = LONGEST.saturating_sub(self.0.len() + WITHOUT_WORDS);
            let words = cut(&words, room);
            option.extend([0, 15]);
            option.extend((words.len() as u16 + 2).to_be_bytes());
            option.extend(code.to_be_bytes());
            option.extend(words.as_bytes());
        }
        self.count(Part::Additional);
        self.0.push(0);
        self.0.extend(kind::OPT.to_be_bytes());
        self.0.extend(WE_TAKE.to_be_bytes());
        let upper_bits = u8::from(theirs.version != 0);
        self.0.extend([upper_bits, 0]);
        self.0.extend([u8::from(theirs.wants_signatures) << 7, 0]);
        self.0.extend((option.len() as u16).to_be_bytes());
        self.0.extend(option);
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }

    fn count(&mut self, part: Part) {
        self.0[part as usize + 1] += 1;
    }

    /// What follows a record's name.
    fn rest(&mut self, kind: u16, keep: u32, content: &[u8]) {
        self.0.extend(kind.to_be_bytes());
        self.0.extend(INTERNET.to_be_bytes());
        self.0.extend(keep.to_be_bytes());
        self.0.extend((content.len() as u16).to_be_bytes());
        self.0.extend(content);
    }
}

fn cut(words: &str, room: usize) -> &str {
    let mut end = room.min(words.len());
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    &words[..end]
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
