//! Which complete escape sequences may reach the caller's terminal. Pure. Everything is an
//! allow-list: a sequence nobody has thought about does not pass.
//!
//! What is kept out: reading or writing the clipboard, titles and their reports (which come back as
//! typed input), moving windows, notifications, files by name, printers, key programming, reading
//! the screen, other character codings, and pass-through wrappers of terminals inside terminals.

/// A control sequence `ESC [ prefix parameters intermediate final`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Csi<'a> {
    /// One of `<=>?`, or 0.
    pub prefix: u8,
    pub parameters: &'a [u8],
    /// One of space to `/`, or 0.
    pub intermediate: u8,
    pub last: u8,
}

impl<'a> Csi<'a> {
    /// Takes the bytes after `ESC [`; None if they are not of the standard's shape.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (&last, rest) = body.split_last()?;
        let (prefix, rest) = match rest {
            [prefix @ b'<'..=b'?', rest @ ..] => (*prefix, rest),
            _ => (0, rest),
        };
        let (intermediate, parameters) = match rest {
            [parameters @ .., intermediate @ b' '..=b'/'] => (*intermediate, parameters),
            _ => (0, rest),
        };
        let plain = parameters.iter().all(|b| matches!(b, b'0'..=b';'));
        plain.then_some(Self {
            prefix,
            parameters,
            intermediate,
            last,
        })
    }

    /// The parameters as numbers, 0 where left out; None for one that no mode or count can be.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Option<u16>> + use<'a> {
        self.parameters
            .split(|b| *b == b';')
            .map(|digits| match digits {
                [] => Some(0),
                _ => str::from_utf8(digits).ok()?.parse().ok(),
            })
    }

    pub(super) fn passes(&self) -> bool {
        match (self.prefix, self.intermediate) {
            (0, 0) => self.plain_passes(),
            (b'?', 0) => match self.last {
                b'h' | b'l' => self
                    .numbers()
                    .all(|mode| mode.is_some_and(harmless_private_mode)),
                last => b"JKSWcmnrsu".contains(&last),
            },
            // Not `t` and `T`, which choose how titles are reported.
            (b'>', 0) => b"cfmnpqsu".contains(&self.last),
            (b'=', 0) => b"cu".contains(&self.last),
            (b'<', 0) => self.last == b'u',
            (0, b' ') => b"@Aq".contains(&self.last),
            (0, b'!') => self.last == b'p',
            // Not `p`, which can switch to 8-bit controls.
            (0, b'"') => self.last == b'q',
            // Not `y`, which changes what a screen checksum covers.
            (0, b'#') => b"PQRpq{}".contains(&self.last),
            // Not `|` (resizes), nor `w` and `u` (reports).
            (0, b'$') => b"prtvxz{".contains(&self.last),
            (b'?', b'$') => self.last == b'p',
            (0, b'\'') => b"}~".contains(&self.last),
            // Not `y`: a checksum of a rectangle reads the screen, one cell at a time. Not `z`: macros.
            (0, b'*') => self.last == b'x',
            _ => false,
        }
    }

    fn plain_passes(&self) -> bool {
        match self.last {
            // Sizes only; the other numbers move, resize, or report titles into the input.
            b't' => matches!(self.parameters, b"14" | b"14;2" | b"16" | b"18" | b"19"),
            // Mode 2 locks the keyboard: no ^C any more.
            b'h' | b'l' => self
                .numbers()
                .all(|mode| mode.is_some_and(|mode| mode != 2)),
            last => b"@ABCDEFGHIJKLMPSTXZ`abcdefgjkmnqrsux".contains(&last),
        }
    }
}

/// Mode 2 is another terminal (VT52) with another grammar, which would make this filter read
/// something else than the terminal does; 5522 turns pasting into clipboard requests.
fn harmless_private_mode(mode: u16) -> bool {
    !matches!(mode, 2 | 5522)
}

/// A short escape: the bytes after ESC, intermediates and final.
pub(super) fn escape_passes(body: &[u8]) -> bool {
    match body {
        // Saves, restores, tabs, line moves, shifts, keypad, identify, reset, string end.
        [one] => b"6789<=>DEHMNOZ\\clmno|}~".contains(one),
        [b'#', last] => b"34568".contains(last),
        // Character sets for drawing. Never `%`, which leaves UTF-8: then the inner bytes of any
        // letter could be controls. Never space, which asks for 8-bit answers.
        [b'('..=b'+' | b'-'..=b'/', b'0'..=b'~'] => true,
        [b'('..=b'+' | b'-'..=b'/', b' '..=b'/', b'0'..=b'~'] => true,
        _ => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Osc {
    /// Sets, resets or asks for colours; the number says which.
    Colour(u16),
    /// Opens a link if true, closes it if false.
    Link(bool),
    Prompt,
    /// Shows progress in the task bar if true, takes it away if false.
    Progress(bool),
    /// A link to somewhere a click must not lead: the one before must not reach over its text.
    BadLink,
    Refused,
}

/// Links are cut where VTE cuts them.
const LONGEST_LINK: usize = 2083;

/// Judges an operating system command by the bytes between `ESC ]` and its end.
pub(super) fn osc(body: &[u8]) -> Osc {
    let (number, rest) = match body.iter().position(|b| *b == b';') {
        Some(at) => (&body[..at], &body[at + 1..]),
        None => (body, &body[body.len()..]),
    };
    match number {
        b"4" | b"10" | b"11" | b"12" | b"17" | b"19" => colour(number, rest, !rest.is_empty()),
        b"104" | b"110" | b"111" | b"112" | b"117" | b"119" => colour(number, rest, true),
        b"8" => link(rest),
        b"9" => progress(rest),
        b"133" if prompt_mark(rest) => Osc::Prompt,
        _ => Osc::Refused,
    }
}

fn colour(number: &[u8], rest: &[u8], complete: bool) -> Osc {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b" #%,-./:;?".contains(b);
    match str::from_utf8(number)
        .ok()
        .and_then(|digits| digits.parse().ok())
    {
        Some(number) if complete && rest.iter().all(plain) => Osc::Colour(number),
        _ => Osc::Refused,
    }
}

fn link(rest: &[u8]) -> Osc {
    let Some(at) = rest.iter().position(|b| *b == b';') else {
        return Osc::BadLink;
    };
    let (options, target) = (&rest[..at], &rest[at + 1..]);
    let starts = |scheme: &[u8]| {
        target
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let clean = options.iter().chain(target).all(u8::is_ascii_graphic);
    if !clean || rest.len() > LONGEST_LINK {
        Osc::BadLink
    } else if target.is_empty() {
        Osc::Link(false)
    } else if starts(b"http://") || starts(b"https://") || starts(b"mailto:") {
        Osc::Link(true)
    } else {
        Osc::BadLink
    }
}

/// `9;4;state;percent`. Any other 9 is a notification or, on ConEmu, runs a macro.
fn progress(rest: &[u8]) -> Osc {
    match rest {
        b"4;0" | b"4;0;" | b"4;0;0" => Osc::Progress(false),
        [b'4', b';', numbers @ ..]
            if (1..=5).contains(&numbers.len())
                && numbers.iter().all(|b| b.is_ascii_digit() || *b == b';') =>
        {
            Osc::Progress(true)
        }
        _ => Osc::Refused,
    }
}

/// Marks of a shell's prompt, without the form that tells the terminal a command line.
fn prompt_mark(rest: &[u8]) -> bool {
    let [b'A'..=b'D' | b'I' | b'L' | b'N' | b'P', options @ ..] = rest else {
        return false;
    };
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_=;.-".contains(b);
    (options.is_empty() || options[0] == b';')
        && options.len() <= 256
        && options.iter().all(plain)
        && !options
            .windows(7)
            .any(|word| word.eq_ignore_ascii_case(b"cmdline"))
}

/// Whether a device control string may pass, by the bytes between `ESC P` and its end.
///
/// Questions pass only if the answer cannot hold words of the asker's choosing: terminals have
/// echoed a bad DECRQSS back as typed input (CVE-2008-2383). Pictures are [`opens_sixel`].
pub(super) fn dcs_passes(body: &[u8]) -> bool {
    match body {
        [b'$', b'q', setting @ ..] => {
            matches!(setting, b"m" | b"r" | b"s" | b" q" | b"\"q" | b"\"p")
        }
        [b'+', b'q', names @ ..] => {
            (1..=1024).contains(&names.len())
                && names.iter().all(|b| b.is_ascii_hexdigit() || *b == b';')
        }
        b"=1s" | b"=2s" => true,
        _ => false,
    }
}

/// Whether a device control string that starts like this is a sixel picture: numbers and `q`.
pub(super) fn opens_sixel(start: &[u8]) -> bool {
    matches!(start, [numbers @ .., b'q'] if numbers.len() <= 32
        && numbers.iter().all(|b| b.is_ascii_digit() || *b == b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csi(body: &str) -> bool {
        Csi::parse(body.as_bytes()).is_some_and(|csi| csi.passes())
    }

    #[test]
    fn programs_may_draw() {
        for body in [
            "m",
            "1;31m",
            "38:2::1:2:3m",
            "H",
            "2J",
            "?25l",
            "?1049h",
            "?1000;1006h",
            "?2004h",
            ">1u",
            "<u",
            "=5;1u",
            "?u",
            "6n",
            "c",
            ">c",
            ">q",
            "2 q",
            "?2026$p",
            ">4;2m",
            "!p",
            "1;20r",
            "18t",
            "14t",
            "16t",
            "19t",
            "3g",
            "4h",
        ] {
            assert!(csi(body), "{body} should pass");
        }
    }

    #[test]
    fn programs_may_not_ask_for_what_comes_back_as_typing_or_seize_the_window() {
        for body in [
            "20t",
            "21t",
            "t",
            "3;0;0t",
            "8;10;10t",
            "22;0t",
            ">2t",
            "5i",
            "?5i",
            "2h",
            "?2l",
            "?25;2l",
            "?5522h",
            "1;1;1;1;1;1*y",
            "61\"p",
            "80$|",
            "4;1y",
            "12]",
            "1;2p",
            "?4294967298h",
            "1#y",
            "14;21t",
            ";21t",
            "1?2h",
            "1 $q",
        ] {
            assert!(!csi(body), "{body} should not pass");
        }
    }

    #[test]
    fn links_lead_to_the_web_or_to_a_letter_only() {
        assert_eq!(osc(b"8;;https://example.org/a;b"), Osc::Link(true));
        assert_eq!(osc(b"8;id=1;MAILTO:a@example.org"), Osc::Link(true));
        assert_eq!(osc(b"8;;"), Osc::Link(false));
        for bad in [
            "8;;file:///etc/passwd",
            "8;;javascript:x",
            "8",
            "8;;http://a b",
            "8;;x-man:ls",
        ] {
            assert_eq!(osc(bad.as_bytes()), Osc::BadLink, "{bad}");
        }
    }

    #[test]
    fn colours_prompts_and_progress_pass_but_no_other_command() {
        assert_eq!(osc(b"11;?"), Osc::Colour(11));
        assert_eq!(osc(b"104"), Osc::Colour(104));
        assert_eq!(osc(b"133;D;0"), Osc::Prompt);
        assert_eq!(osc(b"9;4;1;50"), Osc::Progress(true));
        for bad in [
            "52;c;eA==",
            "0;t",
            "1;t",
            "2;t",
            "",
            ";",
            "l",
            "9;hello",
            "9;40",
            "777;notify;a",
            "1337;File=",
            "50;f",
            "5522;x",
            "5113;x",
            "7;file://h/",
            "51;[\"call\"]",
            "011;?",
            "11;\x01",
            "10",
            "133;C;cmdline=ls",
            "99;;x",
            "633;A",
            "P1234567",
        ] {
            assert_eq!(osc(bad.as_bytes()), Osc::Refused, "{bad}");
        }
    }

    #[test]
    fn device_strings_pass_only_if_their_answer_is_not_the_askers_words() {
        for good in ["$qm", "$q q", "+q544e;436f", "=1s"] {
            assert!(dcs_passes(good.as_bytes()), "{good}");
        }
        for bad in [
            "$qrm -rf",
            "+qls\n",
            "+q",
            "tmux;x",
            "@kitty-cmd{}",
            "1;1|17/41",
            "+p4142",
            "1!z41",
        ] {
            assert!(!dcs_passes(bad.as_bytes()), "{bad}");
        }
        assert!(opens_sixel(b"0;1;0q") && opens_sixel(b"q") && !opens_sixel(b"$q"));
    }

    #[test]
    fn no_escape_leaves_utf8_behind() {
        assert!(escape_passes(b"(0") && escape_passes(b"7") && escape_passes(b"c"));
        assert!(!escape_passes(b"%@") && !escape_passes(b" G") && !escape_passes(b"!x"));
    }
}
