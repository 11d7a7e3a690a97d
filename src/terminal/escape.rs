//! Passes terminal output on, without the sequences a hostile program could use against the person
//! at the terminal. Pure: bytes in, bytes out; what passes is decided in `verdict`.
//!
//! Two rules make it hard to trick. A sequence is held back until it is complete, and leaves whole
//! or not at all, so filter and terminal never disagree about where it ends. And what leaves is
//! always valid UTF-8 without 8-bit controls: those are rewritten to their 7-bit form and judged
//! like it, and bytes that are no text become U+FFFD, as a terminal would show them anyway.

use super::modes::Modes;
use super::verdict::{self, Csi, Osc};

const ENQ: u8 = 0x05;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;
const DEL: u8 = 0x7f;
/// First byte of an 8-bit control (U+0080 to U+009F) in UTF-8; the second is its number.
const C1_LEAD: u8 = 0xc2;
const STRING_END: &[u8] = b"\x1b\\";
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// The longest control sequence and the longest string that can pass. A palette of 256 colours
/// takes 7 KiB.
const LONGEST_CSI: usize = 256;
const LONGEST_STRING: usize = 16 << 10;
/// How much of a refused string is swallowed before its missing end is no longer waited for.
const MOST_SKIPPED: usize = 4 << 20;
/// How much text is looked at in one go.
const BLOCK: usize = 64;

/// See the module's description. Works the same however the stream is cut into calls.
#[derive(Debug, Default)]
pub struct EscapeFilter {
    state: State,
    /// The sequence so far, without its introducer; never over `LONGEST_STRING`.
    held: Vec<u8>,
    /// A character whose last bytes have not come yet.
    letter: Letter,
    /// The byte before, within a string.
    before: u8,
    skipped: usize,
    modes: Modes,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    Csi,
    /// A control sequence that is too long: everything up to its last byte is dropped.
    SkippedCsi,
    String(Kind),
    /// ESC in a string: its end if a backslash follows, otherwise the start of something else.
    StringEscape(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Osc,
    Dcs,
    /// Passed on as it comes: pictures are large, and their bytes cannot be anything else.
    Sixel,
    Skipped {
        bell_ends: bool,
    },
}

#[derive(Debug, Default)]
struct Letter {
    bytes: [u8; 4],
    len: usize,
}

impl EscapeFilter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends what may pass of `input`: never more than three times as much, plus what was held.
    pub fn filter(&mut self, input: &[u8], output: &mut Vec<u8>) {
        let mut rest = input;
        while let Some(&byte) = rest.first() {
            // A state that does not take the byte has changed the state, and the byte is seen again.
            let taken = match self.state {
                State::Text if self.letter.len == 0 => self.text(rest, output),
                State::Text => self.continue_letter(byte, output).into(),
                State::Escape => self.escape(byte, output).into(),
                State::Csi | State::SkippedCsi => self.csi(rest, output),
                State::String(kind) => self.string(kind, byte, output).into(),
                State::StringEscape(kind) => self.string_escape(kind, byte, output).into(),
            };
            rest = &rest[taken..];
        }
    }

    /// Appends what puts the terminal back as the box found it: ends what is unfinished, then
    /// undoes the modes that were switched and not switched back. To be called when the box's
    /// output ends, or pauses because the program has been stopped.
    pub fn leave(&mut self, output: &mut Vec<u8>) {
        if self.letter.len > 0 {
            self.letter.len = 0;
            output.extend_from_slice(REPLACEMENT);
        }
        match self.state {
            State::String(kind) | State::StringEscape(kind) => self.abort(kind, output),
            State::Text | State::Escape | State::Csi | State::SkippedCsi => {
                self.state = State::Text
            }
        }
        self.modes.undo(output);
    }

    /// Appends what switches the modes on again that [`EscapeFilter::leave`] undid.
    pub fn reenter(&self, output: &mut Vec<u8>) {
        self.modes.redo(output);
    }

    /// Copies text up to the next byte that needs a thought. Returns how much it took.
    fn text(&mut self, input: &[u8], output: &mut Vec<u8>) -> usize {
        let end = find_special(input);
        let mut run = &input[..end];
        while let Err(error) = str::from_utf8(run) {
            let (valid, rest) = run.split_at(error.valid_up_to());
            output.extend_from_slice(valid);
            match error.error_len() {
                Some(invalid) => {
                    output.extend_from_slice(REPLACEMENT);
                    run = &rest[invalid..];
                }
                None => {
                    self.letter.start(rest);
                    return end;
                }
            }
        }
        output.extend_from_slice(run);
        match input.get(end) {
            None => return end,
            Some(&ESC) => self.enter(State::Escape),
            Some(&C1_LEAD) => self.letter.start(&[C1_LEAD]),
            // ENQ makes a terminal type its answerback; nothing else looks like text.
            Some(_) => {}
        }
        end + 1
    }

    fn continue_letter(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        let len = self.letter.len + 1;
        self.letter.bytes[self.letter.len] = byte;
        let letter = &self.letter.bytes[..len];
        match str::from_utf8(letter) {
            Ok(_) => {
                self.letter.len = 0;
                match *letter {
                    [C1_LEAD, control @ 0x80..=0x9f] => self.eight_bit(control, output),
                    _ => output.extend_from_slice(letter),
                }
                true
            }
            Err(error) if error.error_len().is_none() => {
                self.letter.len = len;
                true
            }
            Err(_) => {
                self.letter.len = 0;
                output.extend_from_slice(REPLACEMENT);
                false
            }
        }
    }

    /// An 8-bit control is ESC and the byte 64 below.
    fn eight_bit(&mut self, control: u8, output: &mut Vec<u8>) {
        self.enter(State::Escape);
        self.escape(control - 0x40, output);
    }

    fn escape(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        match byte {
            b' '..=b'/' => {
                if self.held.len() < 4 {
                    self.held.push(byte);
                }
            }
            b'0'..=b'~' => {
                let next = match (self.held.is_empty(), byte) {
                    (true, b'[') => State::Csi,
                    (true, b']') => State::String(Kind::Osc),
                    (true, b'P') => State::String(Kind::Dcs),
                    // Start of string, privacy message, application command (kitty pictures, which
                    // can name files), and the title of screen and tmux.
                    (true, b'X' | b'^' | b'_' | b'k') => {
                        State::String(Kind::Skipped { bell_ends: false })
                    }
                    _ => {
                        self.held.push(byte);
                        if verdict::escape_passes(&self.held) {
                            self.modes.saw_escape(&self.held);
                            emit(output, b"", &self.held, b"");
                        }
                        State::Text
                    }
                };
                self.enter(next);
            }
            _ => return self.stray(byte, output),
        }
        true
    }

    fn csi(&mut self, input: &[u8], output: &mut Vec<u8>) -> usize {
        let is_inner = |byte: &&u8| matches!(byte, b' '..=b'?');
        let inner = input.iter().take_while(is_inner).count();
        if self.held.len() + inner > LONGEST_CSI {
            self.state = State::SkippedCsi;
        } else if self.state == State::Csi {
            self.held.extend_from_slice(&input[..inner]);
        }
        match input.get(inner) {
            None => inner,
            Some(last @ b'@'..=b'~') => {
                self.held.push(*last);
                let csi = Csi::parse(&self.held).filter(Csi::passes);
                if let (State::Csi, Some(csi)) = (self.state, csi) {
                    self.modes.saw_csi(&csi);
                    emit(output, b"[", &self.held, b"");
                }
                self.enter(State::Text);
                inner + 1
            }
            Some(stray) => inner + usize::from(self.stray(*stray, output)),
        }
    }

    /// A byte that belongs to no sequence, within one.
    fn stray(&mut self, byte: u8, output: &mut Vec<u8>) -> bool {
        match byte {
            ESC => self.enter(State::Escape),
            CAN | SUB => self.enter(State::Text),
            ENQ | DEL => {}
            // Terminals obey a control in the middle of a sequence at once, and go on with it.
            0..=0x1f => output.push(byte),
            _ => {
                self.enter(State::Text);
                return false;
            }
        }
        true
    }

    fn string(&mut self, kind: Kind, byte: u8, output: &mut Vec<u8>) -> bool {
        let before = std::mem::replace(&mut self.before, byte);
        match byte {
            ESC => self.state = State::StringEscape(kind),
            CAN | SUB => self.abort(kind, output),
            BEL if matches!(kind, Kind::Osc | Kind::Skipped { bell_ends: true }) => {
                self.finish(kind, &[BEL], output);
            }
            0x80..=0x9f if before == C1_LEAD => {
                if matches!(kind, Kind::Osc | Kind::Dcs) {
                    self.held.pop();
                }
                if byte == 0x9c {
                    self.finish(kind, STRING_END, output);
                } else {
                    self.abort(kind, output);
                    self.eight_bit(byte, output);
                }
            }
            _ => self.keep(kind, byte, output),
        }
        true
    }

    fn string_escape(&mut self, kind: Kind, byte: u8, output: &mut Vec<u8>) -> bool {
        if byte == b'\\' {
            self.finish(kind, STRING_END, output);
            return true;
        }
        self.abort(kind, output);
        self.enter(State::Escape);
        false
    }

    fn keep(&mut self, kind: Kind, byte: u8, output: &mut Vec<u8>) {
        match kind {
            Kind::Sixel => {
                if matches!(byte, b' '..=b'~' | b'\n' | b'\r') {
                    output.push(byte);
                }
            }
            Kind::Skipped { .. } => {
                self.skipped += 1;
                if self.skipped > MOST_SKIPPED {
                    self.enter(State::Text);
                }
            }
            Kind::Osc | Kind::Dcs if self.held.len() >= LONGEST_STRING => {
                self.enter(State::String(Kind::Skipped {
                    bell_ends: kind == Kind::Osc,
                }));
            }
            Kind::Osc => {
                self.held.push(byte);
                // The Linux console's palette commands have a fixed length instead of an end.
                if matches!(self.held[..], [b'R'] | [b'P', _, _, _, _, _, _, _]) {
                    self.enter(State::Text);
                }
            }
            Kind::Dcs => {
                self.held.push(byte);
                if byte == b'q' && verdict::opens_sixel(&self.held) {
                    emit(output, b"P", &self.held, b"");
                    self.enter(State::String(Kind::Sixel));
                }
            }
        }
    }

    fn finish(&mut self, kind: Kind, end: &[u8], output: &mut Vec<u8>) {
        match kind {
            Kind::Osc => match verdict::osc(&self.held) {
                Osc::Refused => {}
                command => {
                    self.modes.saw_osc(command, &self.held);
                    let body: &[u8] = if command == Osc::BadLink {
                        b"8;;"
                    } else {
                        &self.held
                    };
                    emit(output, b"]", body, end);
                }
            },
            Kind::Dcs if verdict::dcs_passes(&self.held) => emit(output, b"P", &self.held, end),
            Kind::Sixel => output.extend_from_slice(end),
            Kind::Dcs | Kind::Skipped { .. } => {}
        }
        self.enter(State::Text);
    }

    /// Gives a string up. Only a picture has already been seen by the terminal, and is ended.
    fn abort(&mut self, kind: Kind, output: &mut Vec<u8>) {
        if kind == Kind::Sixel {
            output.extend_from_slice(STRING_END);
        }
        self.enter(State::Text);
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.held.clear();
        self.before = 0;
        self.skipped = 0;
    }
}

impl Letter {
    fn start(&mut self, bytes: &[u8]) {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.len = bytes.len();
    }
}

fn emit(output: &mut Vec<u8>, introducer: &[u8], body: &[u8], end: &[u8]) {
    output.push(ESC);
    output.extend_from_slice(introducer);
    output.extend_from_slice(body);
    output.extend_from_slice(end);
}

/// Where the first byte lies that is not plain text, or the end.
fn find_special(input: &[u8]) -> usize {
    let special = |byte: u8, next: u8| {
        (byte == ESC) | (byte == ENQ) | ((byte == C1_LEAD) & (next & 0xe0 == 0x80))
    };
    let mut start = 0;
    // Without an early exit inside a block, the compiler compares a block in a few instructions.
    while let Some(block) = input.get(start..=start + BLOCK) {
        let pairs = block.iter().zip(&block[1..]);
        if pairs.fold(false, |any, (&byte, &next)| any | special(byte, next)) {
            break;
        }
        start += BLOCK;
    }
    let rest = &input[start..];
    let next = |at: usize| rest.get(at + 1).copied().unwrap_or(0);
    let found = (0..rest.len()).find(|&at| special(rest[at], next(at)));
    start + found.unwrap_or(rest.len())
}
