//! Counting lines, to show the last so many of them. A line begins with the first byte that a
//! stream gets after its last line break, whatever other streams do meanwhile.

use super::record::Stream;

/// Where in the lines of a log one is. The same records give the same counts.
#[derive(Debug, Default, Clone)]
pub(super) struct Lines {
    /// How many have begun.
    begun: u64,
    /// The unfinished line of each stream of programs.
    current: [Option<u64>; 2],
}

impl Lines {
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Passes bytes, and says from where on they belong to the line `first` or to a later one.
    pub(super) fn pass(&mut self, stream: Stream, bytes: &[u8], first: u64) -> usize {
        let Some(stream) = stream.of_program() else {
            return if self.begun >= first { 0 } else { bytes.len() };
        };
        let mut from = None;
        let mut at = 0;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = self.current[stream].unwrap_or_else(|| {
                self.begun += 1;
                self.begun - 1
            });
            if line >= first {
                from.get_or_insert(at);
            }
            self.current[stream] = (!piece.ends_with(b"\n")).then_some(line);
            at += piece.len();
        }
        from.unwrap_or(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_however_it_is_cut_and_whatever_comes_between() {
        let mut lines = Lines::default();
        for (stream, bytes) in [
            (Stream::Out, "one "),
            (Stream::Err, "two\n"),
            (Stream::Note, "remark"),
            (Stream::Out, "still one\nthree"),
        ] {
            lines.pass(stream, bytes.as_bytes(), 0);
        }
        assert_eq!(lines.begun(), 3);
    }

    #[test]
    fn what_belongs_to_earlier_lines_is_passed_over() {
        let mut lines = Lines::default();
        assert_eq!(lines.pass(Stream::Out, b"0\n1\n2", 2), 4);
        assert_eq!(lines.pass(Stream::Err, b"3", 2), 0);
        let mut lines = Lines::default();
        assert_eq!(lines.pass(Stream::Out, b"0", 1), 1);
        assert_eq!(lines.pass(Stream::Note, b"n", 1), 0, "line 1 may begin");
        assert_eq!(lines.pass(Stream::Err, b"1\n", 1), 0);
        assert_eq!(lines.pass(Stream::Out, b"0\n2\n", 1), 2);
        assert_eq!(lines.pass(Stream::Out, b"", 1), 0);
    }
}
