//! How lines hang together. A line is a JSON object whose last field is `hash`: the SHA-256 of the
//! hash before it and of the line up to that field. One hash thus answers for the line itself, the
//! last one included, and for everything before it.
//!
//! The first line goes on from a hash of the session's id, so that a journal cannot be passed off
//! as another session's. A `cut` stands first as well; the line after it goes on from the hash of
//! the last line that was dropped.
//!
//! 32 of the 64 hex digits are kept. That is still 2^128 tries to find another line for a given
//! hash, and nobody would try: who may write the file may as well compute the hashes anew.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::entry::{self, Entry, What};
use crate::policy::SessionId;

const DIGITS: usize = 32;
pub(super) const HASH_FIELD: &str = ",\"hash\":\"";
/// From the comma before `hash` to the brace.
pub(super) const ENDING: usize = HASH_FIELD.len() + DIGITS + 2;

/// A line ready to be written, with its newline.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: String,
}

/// What the first line of a session's journal goes on from.
pub(super) fn seed(id: &SessionId) -> String {
    link("cowork-linux journal of ", id.as_str().as_bytes())
}

fn link(before: &str, body: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(before)
        .chain_update(body)
        .finalize();
    let mut hex = String::with_capacity(DIGITS);
    for byte in digest.iter().take(DIGITS / 2) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

pub(super) fn seal(seq: u64, at: u64, what: &What, before: &str) -> io::Result<Line> {
    #[derive(Serialize)]
    struct Body<'a> {
        seq: u64,
        at: u64,
        #[serde(flatten)]
        what: &'a What,
    }
    let mut bytes = serde_json::to_vec(&Body { seq, at, what })?;
    // The brace; the hash comes before it.
    bytes.pop();
    let hash = link(before, &bytes);
    bytes.extend_from_slice(format!("{HASH_FIELD}{hash}\"}}\n").as_bytes());
    Ok(Line { bytes, hash })
}

/// Goes along the lines of a journal.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    seed: String,
    /// What the next line must go on from.
    pub(super) head: String,
    pub(super) seq: u64,
    pub(super) lines: usize,
}

/// A line that was looked at: what it says if it can be read, what is wrong with it if anything.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) entry: Option<Entry>,
    pub(super) wrong: Option<&'static str>,
}

impl Chain {
    pub(super) fn of(id: &SessionId) -> Self {
        Self {
            seed: seed(id),
            head: seed(id),
            seq: 0,
            lines: 0,
        }
    }

    /// Looks at the next line, given without its newline, and goes on from what it says of itself.
    pub(super) fn take(&mut self, line: &[u8]) -> Taken {
        self.lines += 1;
        let Some(entry) = entry::parse(line) else {
            return Taken {
                entry: None,
                wrong: Some("it is not an entry"),
            };
        };
        let (follows, before, next) = match &entry.what {
            What::Cut { dropped, last, .. } => (*dropped, &self.seed, last),
            _ => (self.seq + 1, &self.head, &entry.hash),
        };
        let wrong = if matches!(entry.what, What::Cut { .. }) && self.lines > 1 {
            Some("it is a cut, which only a first line can be")
        } else if entry.seq != follows {
            Some("entries before it are missing, or it was moved")
        } else if !is_sealed(line, before, &entry.hash) {
            Some("it was changed, or the line before it was")
        } else {
            None
        };
        self.head = next.clone();
        self.seq = entry.seq;
        Taken {
            entry: Some(entry),
            wrong,
        }
    }
}

fn is_sealed(line: &[u8], before: &str, hash: &str) -> bool {
    let Some((body, ending)) = line
        .len()
        .checked_sub(ENDING)
        .map(|length| line.split_at(length))
    else {
        return false;
    };
    ending == format!("{HASH_FIELD}{hash}\"}}").as_bytes() && link(before, body) == hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmount(place: &str) -> What {
        What::Unmount {
            place: place.to_owned(),
        }
    }

    fn without_newline(line: &Line) -> &[u8] {
        line.bytes.strip_suffix(b"\n").unwrap()
    }

    #[test]
    fn a_line_is_json_and_its_hash_can_be_computed_by_hand() {
        let id = SessionId::parse("a").unwrap();
        let line = seal(1, 2, &unmount("/x"), &seed(&id)).unwrap();
        let text = String::from_utf8(line.bytes.clone()).unwrap();
        let body = r#"{"seq":1,"at":2,"what":"unmount","place":"/x""#;
        assert_eq!(text, format!("{body},\"hash\":\"{}\"}}\n", line.hash));
        let by_hand = Sha256::digest(format!("{}{body}", seed(&id)));
        assert_eq!(line.hash[..2], format!("{:02x}", by_hand[0]));
        assert_eq!(line.hash.len(), DIGITS);
    }

    #[test]
    fn lines_follow_each_other_and_only_each_other() {
        let id = SessionId::parse("a").unwrap();
        let first = seal(1, 2, &unmount("/x"), &seed(&id)).unwrap();
        let second = seal(2, 2, &unmount("/y"), &first.hash).unwrap();
        let mut chain = Chain::of(&id);
        assert_eq!(chain.take(without_newline(&first)).wrong, None);
        let after_first = chain.clone();
        assert_eq!(chain.take(without_newline(&second)).wrong, None);
        assert_eq!(chain.head, second.hash);

        let says = |mut chain: Chain, line: &Line| {
            let taken = chain.take(without_newline(line));
            assert!(taken.entry.is_some());
            taken.wrong.unwrap_or("nothing")
        };
        assert!(says(Chain::of(&id), &second).contains("missing"));
        let other = SessionId::parse("b").unwrap();
        assert!(says(Chain::of(&other), &first).contains("changed"));
        let stranger = seal(2, 2, &unmount("/y"), &seed(&id)).unwrap();
        assert!(says(after_first.clone(), &stranger).contains("changed"));
        let cut = What::Cut {
            dropped: 2,
            last: first.hash.clone(),
            run: None,
        };
        let cut = seal(2, 2, &cut, &seed(&id)).unwrap();
        assert!(says(after_first, &cut).contains("cut"));
    }
}
