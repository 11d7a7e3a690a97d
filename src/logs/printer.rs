//! From records to the bytes for one place: exact for a pipe or a file, harmless for a terminal,
//! with the time before every line if it is wanted. Pure; whoever calls writes the bytes.

use std::io::Write as _;
use std::time::SystemTime;

use super::drawing::Drawing;
use super::record::{Record, Stream};
use crate::terminal::{EscapeFilter, printable};

/// A line that is longer is not waited for.
const LONGEST_LINE: usize = 64 << 10;

/// One for each place that is written to: streams that go to the same terminal share one.
#[derive(Debug)]
pub struct Printer {
    timestamps: bool,
    for_terminal: bool,
    /// Of the two streams of programs.
    streams: [Source; 2],
    is_in_line: bool,
}

#[derive(Debug, Default)]
struct Source {
    filter: EscapeFilter,
    drawing: Drawing,
    /// With timestamps: a line whose end has not come, and when it began.
    line: Vec<u8>,
    began: Option<SystemTime>,
    /// The beginning of the line, with its time, is out already.
    is_continued: bool,
}

impl Printer {
    /// For a terminal, bytes pass the filter that a live session's pass, and after it one that
    /// drops what needs the program to be there. With timestamps, whole lines are shown: of one
    /// that is cut into several records, the time is that of its beginning.
    pub fn new(timestamps: bool, for_terminal: bool) -> Self {
        Self {
            timestamps,
            for_terminal,
            streams: Default::default(),
            is_in_line: false,
        }
    }

    /// Appends what to write for a record.
    pub fn show(&mut self, record: &Record, output: &mut Vec<u8>) {
        let Some(stream) = record.stream.of_program() else {
            return self.note(record, output);
        };
        if !self.timestamps {
            return self.pass(stream, &record.bytes, output);
        }
        for piece in record.bytes.split_inclusive(|byte| *byte == b'\n') {
            let source = &mut self.streams[stream];
            source.began.get_or_insert(record.at);
            source.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || source.line.len() >= LONGEST_LINE {
                self.line(stream, output);
            }
        }
    }

    /// Appends what is still held back, and puts a terminal back as it was.
    pub fn finish(&mut self, output: &mut Vec<u8>) {
        for stream in [Stream::Out, Stream::Err] {
            let Some(stream) = stream.of_program() else {
                continue;
            };
            if !self.streams[stream].line.is_empty() {
                self.line(stream, output);
            }
            if self.for_terminal {
                let source = &mut self.streams[stream];
                let mut last = Vec::new();
                source.filter.leave(&mut last);
                source.drawing.keep(&last, output);
            }
        }
    }

    fn note(&mut self, record: &Record, output: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_in_line) {
            output.push(b'\n');
        }
        self.stamp(record.at, output);
        let text = String::from_utf8_lossy(&record.bytes);
        let _ = writeln!(output, "[cowork-linux: {}]", printable(&text));
    }

    /// Writes the line that a stream has so far.
    fn line(&mut self, stream: usize, output: &mut Vec<u8>) {
        let source = &mut self.streams[stream];
        let line = std::mem::take(&mut source.line);
        let is_whole = line.ends_with(b"\n");
        let began = match is_whole {
            true => source.began.take(),
            false => source.began,
        };
        let is_continued = std::mem::replace(&mut source.is_continued, !is_whole);
        if let Some(began) = began.filter(|_| !is_continued) {
            self.stamp(began, output);
        }
        self.pass(stream, &line, output);
    }

    fn stamp(&self, at: SystemTime, output: &mut Vec<u8>) {
        if self.timestamps {
            let _ = write!(output, "{} ", humantime::format_rfc3339_millis(at));
        }
    }

    fn pass(&mut self, stream: usize, bytes: &[u8], output: &mut Vec<u8>) {
        let source = &mut self.streams[stream];
        if self.for_terminal {
            let mut passed = Vec::new();
            source.filter.filter(bytes, &mut passed);
            source.drawing.keep(&passed, output);
        } else {
            output.extend_from_slice(bytes);
        }
        if let Some(last) = bytes.last() {
            self.is_in_line = *last != b'\n';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::time;
    use super::*;

    fn record(stream: Stream, seconds: u64, bytes: &[u8]) -> Record {
        Record {
            at: time(seconds * 1000),
            stream,
            bytes: bytes.to_vec(),
        }
    }

    fn printed(mut printer: Printer, records: &[Record]) -> String {
        let mut output = Vec::new();
        for record in records {
            printer.show(record, &mut output);
        }
        printer.finish(&mut output);
        String::from_utf8_lossy(&output).into_owned()
    }

    #[test]
    fn a_pipe_gets_every_byte() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut output = Vec::new();
        let mut printer = Printer::new(false, false);
        printer.show(&record(Stream::Out, 0, &bytes), &mut output);
        printer.finish(&mut output);
        assert_eq!(output, bytes);
    }

    #[test]
    fn a_line_in_parts_has_one_time_and_stays_in_one_piece() {
        let records = [
            record(Stream::Out, 1, b"one"),
            record(Stream::Err, 2, b"two\nthree"),
            record(Stream::Out, 3, b" still one\nfour\n"),
            record(Stream::Note, 4, b"a remark"),
        ];
        assert_eq!(
            printed(Printer::new(true, false), &records),
            "1970-01-01T00:00:02.000Z two\n\
             1970-01-01T00:00:01.000Z one still one\n\
             1970-01-01T00:00:03.000Z four\n\
             1970-01-01T00:00:04.000Z [cowork-linux: a remark]\n\
             1970-01-01T00:00:02.000Z three"
        );
    }

    #[test]
    fn a_line_without_end_is_not_gathered_for_ever() {
        let part = vec![b'x'; LONGEST_LINE / 2 + 1];
        let records: Vec<Record> = (0..10).map(|at| record(Stream::Out, at, &part)).collect();
        let mut printer = Printer::new(true, false);
        let mut output = Vec::new();
        for record in &records {
            printer.show(record, &mut output);
            assert!(printer.streams[0].line.len() < LONGEST_LINE);
        }
        printer.show(&record(Stream::Out, 99, b"\nnext\n"), &mut output);
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("1970-01-01T00:00:00.000Z xxx"));
        assert!(text.ends_with("x\n1970-01-01T00:01:39.000Z next\n"));
        assert_eq!(text.matches('Z').count(), 2);
    }

    #[test]
    fn a_terminal_gets_colours_and_is_left_without_them() {
        let records = [
            record(Stream::Out, 0, b"\x1b[?1000h\x1b]0;title\x07\x1b[31mr"),
            record(Stream::Out, 0, b"ed\x1b[6n\xff"),
        ];
        assert_eq!(
            printed(Printer::new(false, true), &records),
            "\x1b[31mred\u{fffd}\x1b[0m"
        );
    }

    #[test]
    fn a_note_stands_on_a_line_of_its_own_and_cannot_draw() {
        let records = [
            record(Stream::Out, 0, b"text"),
            record(Stream::Note, 0, b"re\x1b[2Jmark"),
        ];
        assert_eq!(
            printed(Printer::new(false, false), &records),
            "text\n[cowork-linux: re\\x1b[2Jmark]\n"
        );
    }
}
