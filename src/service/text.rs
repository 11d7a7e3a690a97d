//! A program's bytes as text: characters that are cut in two by a read are put together again, and
//! what is no text is replaced, one sign for each fault.

use std::borrow::Cow;

/// What is put in the place of bytes that are no text.
const NOT_TEXT: char = '\u{fffd}';

/// One stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The beginning of a character, at most three bytes.
    held: Vec<u8>,
}

impl Decoder {
    /// Bytes that have to stand before the next ones that are read.
    pub(super) fn held(&self) -> &[u8] {
        &self.held
    }

    /// The text of these bytes, the held ones at their beginning.
    pub(super) fn decode<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, str> {
        self.held.clear();
        if let Ok(text) = std::str::from_utf8(bytes) {
            return Cow::Borrowed(text);
        }
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let odd = chunk.invalid();
            let is_last = chunks.peek().is_none();
            match odd {
                [] => {}
                odd if is_last && is_beginning(odd) => self.held.extend_from_slice(odd),
                _ => text.push(NOT_TEXT),
            }
        }
        Cow::Owned(text)
    }

    /// What is left when nothing more comes.
    pub(super) fn finish(&mut self) -> Option<&'static str> {
        let any = !self.held.is_empty();
        self.held.clear();
        any.then_some("\u{fffd}")
    }
}

/// Whether more bytes could make a character of these.
fn is_beginning(odd: &[u8]) -> bool {
    std::str::from_utf8(odd).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out when the bytes are read in pieces of this size.
    fn in_pieces(bytes: &[u8], size: usize) -> String {
        let mut decoder = Decoder::default();
        let mut out = String::new();
        for piece in bytes.chunks(size) {
            let whole = [decoder.held(), piece].concat();
            out.push_str(&decoder.decode(&whole));
        }
        out.push_str(decoder.finish().unwrap_or_default());
        out
    }

    #[test]
    fn characters_survive_every_cut() {
        let text = "plain, \u{e9}, \u{20ac}, \u{1f980}, \u{0}\u{1b}[1m\r\n";
        for size in 1..text.len() {
            assert_eq!(in_pieces(text.as_bytes(), size), text);
        }
    }

    #[test]
    fn faults_are_replaced_the_same_way_however_they_are_cut() {
        for bytes in [
            &b"\xff\xfeA\x80"[..],
            b"\xe2\x82",
            b"\xe2A",
            b"\xf0\x9f\xa6",
            b"\xed\xa0\x80",
            b"\xc0\xaf.",
        ] {
            let whole = String::from_utf8_lossy(bytes);
            for size in 1..=bytes.len() {
                assert_eq!(in_pieces(bytes, size), whole, "{bytes:?} by {size}");
            }
        }
        assert_eq!(in_pieces(b"\xff\xfeA\x80", 4), "\u{fffd}\u{fffd}A\u{fffd}");
    }
}
