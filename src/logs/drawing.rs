//! What the terminal's filter lets pass, without what only makes sense while the program is there:
//! questions, whose answers would be typed into the reader's shell, and modes of the keyboard, the
//! mouse and the screen. Colours, moves, erasing, links and characters for drawing stay.
//!
//! Reads the output of [`EscapeFilter`](crate::terminal::EscapeFilter), in which every sequence is
//! whole, in its 7-bit form, and within one call; only a picture comes in parts.

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

#[derive(Debug, Default)]
pub(super) struct Drawing {
    /// Within a string that ends with `ESC \` and is not shown.
    in_string: bool,
}

impl Drawing {
    pub(super) fn keep(&mut self, input: &[u8], output: &mut Vec<u8>) {
        let mut rest = input;
        while !rest.is_empty() {
            let text = rest.iter().position(|byte| *byte == ESC);
            let (before, sequence) = rest.split_at(text.unwrap_or(rest.len()));
            if !self.in_string {
                output.extend_from_slice(before);
            }
            let length = self.length(sequence);
            let (sequence, after) = sequence.split_at(length.min(sequence.len()));
            if !self.in_string && is_drawing(sequence) {
                output.extend_from_slice(sequence);
            }
            self.in_string = match sequence {
                [] => self.in_string,
                [ESC, b'P', ..] => true,
                _ => false,
            };
            rest = after;
        }
    }

    /// How long the sequence at the front is. Of a device string that is its introducer only.
    fn length(&self, sequence: &[u8]) -> usize {
        let from = |start: usize, is_last: fn(&u8) -> bool| {
            let end = sequence.iter().skip(start).position(is_last);
            end.map_or(sequence.len(), |end| start + end + 1)
        };
        match sequence {
            [ESC, b'[', ..] => from(2, |byte| matches!(byte, b'@'..=b'~')),
            [ESC, b']', ..] => match sequence[2..].iter().position(|b| matches!(*b, ESC | BEL)) {
                Some(end) if sequence[2 + end] == BEL => 2 + end + 1,
                Some(end) => 2 + end + 2,
                None => sequence.len(),
            },
            [ESC, b'P', ..] => 2,
            [ESC, ..] => from(1, |byte| !matches!(byte, b' '..=b'/')),
            _ => 0,
        }
    }
}

fn is_drawing(sequence: &[u8]) -> bool {
    match sequence {
        [ESC, b'[', parameters @ .., last] => {
            let plain = parameters.iter().all(|byte| matches!(byte, b'0'..=b';'));
            plain && b"@ABCDEFGHIJKLMPSTXZ`abdefmrsu".contains(last)
        }
        [ESC, b']', b'8', b';', ..] => true,
        // Save and restore, lines up and down, sets of characters.
        [ESC, b'7' | b'8' | b'D' | b'E' | b'M'] => true,
        [ESC, b'('..=b'+', .., b'0'..=b'~'] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::EscapeFilter;
    use proptest::prelude::*;

    fn shown(input: &[u8], pieces: usize) -> Vec<u8> {
        let (mut filter, mut drawing) = (EscapeFilter::new(), Drawing::default());
        let mut output = Vec::new();
        for piece in input.chunks(pieces) {
            let mut passed = Vec::new();
            filter.filter(piece, &mut passed);
            drawing.keep(&passed, &mut output);
        }
        output
    }

    #[track_caller]
    fn becomes(input: &str, expected: &str) {
        for pieces in [1, 2, 3, 1000] {
            let output = String::from_utf8(shown(input.as_bytes(), pieces)).unwrap();
            assert_eq!(output, expected, "in pieces of {pieces}");
        }
    }

    #[test]
    fn colours_moves_links_and_boxes_stay() {
        for drawn in [
            "plain ünïcode\r\n\ttext\x08\x07",
            "\x1b[1;38;5;12mred\x1b[0m\x1b[2K\x1b[3A\x1b[10;20Hx\x1b[2J",
            "\x1b]8;;https://example.org\x1b\\x\x1b]8;;\x07y",
            "\x1b(0lqk\x1b(B\x1b7\x1b8\x1bM",
        ] {
            becomes(drawn, drawn);
        }
    }

    #[test]
    fn questions_are_not_asked_again() {
        for question in [
            "\x1b[c",
            "\x1b[>c",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[18t",
            "\x1b[?u",
            "\x1b[>q",
            "\x1bZ",
            "\x1b[x",
            "\x1b[?2026$p",
            "\x1b[?4m",
            "\x1b]11;?\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\u{9b}c",
            "\x05",
        ] {
            becomes(&format!("a{question}b"), "ab");
        }
    }

    #[test]
    fn modes_of_a_program_that_is_gone_are_not_entered() {
        for mode in [
            "\x1b[?1049h",
            "\x1b[?1000;1006h",
            "\x1b[?2004h",
            "\x1b[?25l",
            "\x1b[>1u",
            "\x1b[4h",
            "\x1b=",
            "\x1bc",
            "\x1b[2 q",
            "\x1b]4;1;rgb:0/0/0\x07",
            "\x1b]52;c;eA==\x07",
            "\x1bP0;1q#0~-\x1b\\",
            "\x1bPq#0~-\n#0\u{9c}",
        ] {
            becomes(&format!("a{mode}b"), "ab");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_drawing_is_left_of_anything(
            words in proptest::collection::vec(prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..4),
                "[\x1b\u{9b}\u{90}\u{9d}]?[\\[\\]P(?;>0-9$ ]{0,4}[a-z@-_\\\\]?".prop_map(String::into_bytes),
            ], 0..20),
            pieces in 1usize..9,
        ) {
            let output = shown(&words.concat(), pieces);
            let text = String::from_utf8(output.clone()).unwrap();
            let is_eight_bit_control = |c: char| c.is_control() && !c.is_ascii();
            prop_assert!(!text.contains(is_eight_bit_control));
            for (at, _) in text.match_indices('\x1b') {
                let sequence = &output[at..];
                if sequence.starts_with(b"\x1b\\") && text[..at].contains("\x1b]8;") {
                    continue;
                }
                let length = Drawing::default().length(sequence);
                prop_assert!(is_drawing(&sequence[..length]), "{text:?}");
            }
            let mut again = Vec::new();
            Drawing::default().keep(&output, &mut again);
            prop_assert_eq!(again, output, "filtering twice changes nothing");
        }
    }
}
