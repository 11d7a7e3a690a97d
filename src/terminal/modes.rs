//! What the box's output has switched on in the caller's terminal, and the bytes that switch it off.
//! A full-screen program that is killed or stopped does not clean up; this does it in its place,
//! and only for what was really switched.

use super::verdict::{Csi, Osc};

/// Private modes and whether they are usually set, in the order in which they are undone.
const PRIVATE: &[(u16, bool)] = &[
    (2026, false), // synchronised update: while set, nothing is drawn
    (9, false),    // mouse, in all its forms
    (1000, false),
    (1001, false),
    (1002, false),
    (1003, false),
    (1005, false),
    (1006, false),
    (1015, false),
    (1016, false),
    (1004, false), // focus
    (2004, false), // bracketed paste
    (2031, false), // change of colour scheme
    (2048, false), // change of size
    (9001, false), // keys in the form of Windows
    (1, false),    // cursor keys
    (5, false),    // reverse video
    (6, false),    // origin
    (66, false),   // keypad
    (7, true),     // wrapping
    (25, true),    // cursor
];

/// Alternate screens, undone after the rest, because terminals keep some of the rest per screen.
const SCREENS: [u16; 3] = [47, 1047, 1049];

/// How many kitty keyboard settings are remembered per screen; terminals keep fewer.
const KEYBOARDS: usize = 16;

#[derive(Debug, Default, Clone)]
pub(super) struct Modes {
    /// Bit n: `PRIVATE[n]` is not as usual.
    private: u32,
    screen: Option<u16>,
    /// Kitty keyboard settings pushed on the main and on the alternate screen.
    keyboards: [Vec<u16>; 2],
    keyboard_set: bool,
    modified_keys: bool,
    style: bool,
    region: bool,
    insert: bool,
    charset: bool,
    keypad: bool,
    shape: bool,
    link: bool,
    progress: bool,
    /// Numbers of the commands that give the changed colours back.
    colours: Vec<u16>,
}

impl Modes {
    pub(super) fn saw_csi(&mut self, csi: &Csi<'_>) {
        let first = || csi.numbers().next().flatten().unwrap_or(0);
        match (csi.prefix, csi.intermediate, csi.last) {
            (b'?', 0, b'h' | b'l') => {
                csi.numbers()
                    .flatten()
                    .for_each(|mode| self.private(mode, csi.last == b'h'));
            }
            (0, 0, b'h' | b'l') if first() == 4 => self.insert = csi.last == b'h',
            (0, 0, b'm') => self.style = !matches!(csi.parameters, b"" | b"0"),
            (0, 0, b'r') => self.region = !csi.parameters.is_empty(),
            (0, b' ', b'q') => self.shape = first() != 0,
            (b'>', 0, b'm') => self.modified_keys = csi.parameters.len() > 1,
            (b'>', 0, b'u') => {
                let keyboards = self.keyboards();
                if keyboards.len() < KEYBOARDS {
                    keyboards.push(first());
                }
            }
            (b'<', 0, b'u') => {
                let keyboards = self.keyboards();
                keyboards.truncate(keyboards.len().saturating_sub(first().max(1).into()));
            }
            (b'=', 0, b'u') => self.keyboard_set = first() != 0,
            _ => {}
        }
    }

    pub(super) fn saw_escape(&mut self, body: &[u8]) {
        match body {
            b"c" => *self = Self::default(),
            b"=" => self.keypad = true,
            b">" => self.keypad = false,
            b"n" | b"o" | b"|" | b"}" | b"~" => self.charset = true,
            [b'(', set] => self.charset = *set != b'B',
            [b'('..=b'/', ..] => self.charset = true,
            _ => {}
        }
    }

    pub(super) fn saw_osc(&mut self, command: Osc, body: &[u8]) {
        match command {
            Osc::Link(open) => self.link = open,
            Osc::BadLink => self.link = false,
            Osc::Progress(shown) => self.progress = shown,
            Osc::Colour(number @ 100..) => self.colours.retain(|reset| *reset != number),
            Osc::Colour(number)
                if !body.ends_with(b"?") && !self.colours.contains(&(number + 100)) =>
            {
                self.colours.push(number + 100);
            }
            Osc::Colour(_) | Osc::Prompt | Osc::Refused => {}
        }
    }

    /// Writes what puts everything back as it usually is.
    pub(super) fn undo(&self, out: &mut Vec<u8>) {
        for (_, mode, usual) in self.unusual() {
            set_private(out, mode, usual);
        }
        let rest: [(bool, &[u8]); 10] = [
            (self.modified_keys, b"\x1b[>4m"),
            (self.keyboard_set, b"\x1b[=0u"),
            (self.insert, b"\x1b[4l"),
            (self.keypad, b"\x1b>"),
            (self.shape, b"\x1b[0 q"),
            (self.link, b"\x1b]8;;\x1b\\"),
            (self.progress, b"\x1b]9;4;0\x1b\\"),
            // Taking a scroll region away moves the cursor home; it is wanted where it was.
            (self.region, b"\x1b7\x1b[r\x1b8"),
            (self.charset, b"\x0f\x1b(B"),
            (self.style, b"\x1b[0m"),
        ];
        rest.iter()
            .filter(|(set, _)| *set)
            .for_each(|(_, bytes)| out.extend_from_slice(bytes));
        for number in &self.colours {
            out.extend_from_slice(format!("\x1b]{number}\x1b\\").as_bytes());
        }
        let [main, alternate] = &self.keyboards;
        pop_keyboards(out, alternate.len());
        if let Some(screen) = self.screen {
            set_private(out, screen, false);
        }
        pop_keyboards(out, main.len());
    }

    /// Writes what a program needs that goes on after [`Modes::undo`]; it draws the rest itself.
    pub(super) fn redo(&self, out: &mut Vec<u8>) {
        let [main, alternate] = &self.keyboards;
        push_keyboards(out, main);
        if let Some(screen) = self.screen {
            set_private(out, screen, true);
        }
        push_keyboards(out, alternate);
        for (_, mode, usual) in self.unusual().filter(|(_, mode, _)| *mode != 2026) {
            set_private(out, mode, !usual);
        }
        if self.keypad {
            out.extend_from_slice(b"\x1b=");
        }
    }

    fn private(&mut self, mode: u16, set: bool) {
        if SCREENS.contains(&mode) {
            self.screen = set.then_some(mode);
            return;
        }
        if let Some(at) = PRIVATE.iter().position(|(known, _)| *known == mode) {
            let bit = 1 << at;
            self.private = if set == PRIVATE[at].1 {
                self.private & !bit
            } else {
                self.private | bit
            };
        }
    }

    fn unusual(&self) -> impl Iterator<Item = (usize, u16, bool)> + '_ {
        let known = PRIVATE
            .iter()
            .enumerate()
            .map(|(at, (mode, usual))| (at, *mode, *usual));
        known.filter(|(at, ..)| self.private & (1 << at) != 0)
    }

    fn keyboards(&mut self) -> &mut Vec<u16> {
        &mut self.keyboards[usize::from(self.screen.is_some())]
    }
}

fn set_private(out: &mut Vec<u8>, mode: u16, set: bool) {
    let last = if set { 'h' } else { 'l' };
    out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes());
}

fn pop_keyboards(out: &mut Vec<u8>, count: usize) {
    if count > 0 {
        out.extend_from_slice(format!("\x1b[<{count}u").as_bytes());
    }
}

fn push_keyboards(out: &mut Vec<u8>, settings: &[u16]) {
    for flags in settings {
        out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
    }
}
