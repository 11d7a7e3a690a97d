//! The last of what was printed, in memory, for somebody who joins a running session and wants to
//! see where it is.

use std::collections::VecDeque;

use super::record::Stream;

/// How many bytes are remembered.
const MOST: usize = 64 << 10;
/// How many changes from one stream to the other; they take memory too.
const MOST_RUNS: usize = 1024;

/// Takes no memory before something is printed.
#[derive(Debug, Default)]
pub struct Recent {
    bytes: VecDeque<u8>,
    /// Which stream so many bytes came from, oldest first.
    runs: VecDeque<(Stream, usize)>,
    has_forgotten: bool,
}

impl Recent {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(MOST)..];
        self.has_forgotten |= kept.len() < bytes.len();
        let excess = (self.bytes.len() + kept.len()).saturating_sub(MOST);
        self.forget(excess);
        match self.runs.back_mut() {
            Some((last, length)) if *last == stream => *length += kept.len(),
            _ if kept.is_empty() => {}
            _ => self.runs.push_back((stream, kept.len())),
        }
        self.bytes.extend(kept);
        if self.runs.len() > MOST_RUNS {
            self.forget(self.runs[0].1);
        }
    }

    /// What is remembered, in the order in which it came. What was cut off at the front may have
    /// been half a line or half an escape sequence, so this begins at the next whole one.
    pub fn pieces(&self) -> Vec<(Stream, Vec<u8>)> {
        let bytes = || self.bytes.iter().copied();
        let mut skipped = match self.has_forgotten {
            true => bytes()
                .zip(1..)
                .find_map(|(byte, next)| match byte {
                    b'\n' => Some(next),
                    0x1b => Some(next - 1),
                    _ => None,
                })
                .unwrap_or(0),
            false => 0,
        };
        let mut pieces = Vec::new();
        let mut at = 0;
        for (stream, length) in &self.runs {
            let from = at + skipped.min(*length);
            skipped -= from - at;
            at += length;
            if from < at {
                pieces.push((*stream, self.bytes.range(from..at).copied().collect()));
            }
        }
        pieces
    }

    fn forget(&mut self, count: usize) {
        self.has_forgotten |= count > 0;
        self.bytes.drain(..count);
        let mut left = count;
        while let Some((_, length)) = self.runs.front_mut().filter(|_| left > 0) {
            let gone = left.min(*length);
            *length -= gone;
            left -= gone;
            if *length == 0 {
                self.runs.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_keep_their_order() {
        let mut recent = Recent::new();
        for (stream, text) in [
            (Stream::Out, "a"),
            (Stream::Out, "b"),
            (Stream::Err, "c"),
            (Stream::Out, ""),
            (Stream::Err, "d"),
            (Stream::Out, "e"),
        ] {
            recent.push(stream, text.as_bytes());
        }
        let expected = [
            (Stream::Out, b"ab".to_vec()),
            (Stream::Err, b"cd".to_vec()),
            (Stream::Out, b"e".to_vec()),
        ];
        assert_eq!(recent.pieces(), expected);
    }

    #[test]
    fn what_is_old_goes_and_the_rest_begins_cleanly() {
        let mut recent = Recent::new();
        for number in 0..100_000 {
            recent.push(Stream::Out, format!("line {number}\n").as_bytes());
        }
        let pieces = recent.pieces();
        let text = String::from_utf8(pieces[0].1.clone()).unwrap();
        assert!(text.starts_with("line ") && text.ends_with("line 99999\n"));
        assert!(text.len() > MOST - 20 && text.len() <= MOST);

        recent.push(Stream::Out, &[b'x'; MOST - 4]);
        recent.push(Stream::Err, b"\x1b[1m");
        assert_eq!(recent.pieces(), [(Stream::Err, b"\x1b[1m".to_vec())]);
    }

    #[test]
    fn nothing_a_program_does_makes_it_large() {
        let mut recent = Recent::new();
        for _ in 0..200_000 {
            recent.push(Stream::Out, b"o");
            recent.push(Stream::Err, b"e");
        }
        recent.push(Stream::Out, &vec![b'x'; 10 * MOST]);
        assert_eq!(recent.bytes.len(), MOST);
        assert!(recent.bytes.capacity() <= 2 * MOST);
        assert!(recent.runs.len() <= MOST_RUNS && recent.runs.capacity() <= 2 * MOST_RUNS + 2);
    }
}
