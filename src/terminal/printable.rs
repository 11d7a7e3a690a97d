//! Names from the box in our own messages: everything that moves the cursor, hides, or turns the
//! reading direction is spelled out, so that what is read is what is there.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// `text` with control, bidi and invisible characters made visible; borrowed if it has none.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(Printable::new(text).to_string())
}

/// Shows any bytes, such as a path that is not UTF-8, the way [`printable`] shows text.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(&'a [u8]);

impl<'a> Printable<'a> {
    pub fn new(name: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self(name.as_ref().as_bytes())
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                write_visibly(f, c)?;
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn write_visibly(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        _ if is_plain(c) => f.write_char(c),
        _ if c.is_ascii() => write!(f, "\\x{:02x}", u32::from(c)),
        _ => write!(f, "\\u{{{:x}}}", u32::from(c)),
    }
}

/// Whether `c` shows as itself: not a control (Cc), not a format character (Cf, which holds the
/// bidi controls of Trojan Source), not a line separator, not a letter drawn as nothing.
fn is_plain(c: char) -> bool {
    if matches!(c, ' '..='~') {
        return true;
    }
    let invisible = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !invisible
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_escape_in_a_name_is_shown_not_obeyed() {
        assert_eq!(printable("\x1b[2J"), "\\x1b[2J");
        assert_eq!(printable("a\u{9b}2J\x7f"), "a\\u{9b}2J\\x7f");
    }

    #[test]
    fn a_name_cannot_change_its_reading_direction_or_hide_a_letter() {
        assert_eq!(printable("gpj\u{202e}exe"), "gpj\\u{202e}exe");
        assert_eq!(printable("pay\u{200b}pal"), "pay\\u{200b}pal");
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(printable("a\r\nb\tc"), "a\\r\\nb\\tc");
    }

    #[test]
    fn ordinary_names_of_any_language_are_left_alone() {
        for name in [
            "src/main.rs",
            "Übergröße",
            "日本語",
            "кот",
            "naïve café – ½",
        ] {
            assert!(matches!(printable(name), Cow::Borrowed(same) if same == name));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_numbers() {
        let name = OsStr::from_bytes(b"a\xff\x9bb");
        assert_eq!(Printable::new(name).to_string(), "a\\xff\\x9bb");
    }

    proptest! {
        #[test]
        fn nothing_shown_is_ever_a_control(bytes: Vec<u8>) {
            let shown = Printable::new(OsStr::from_bytes(&bytes)).to_string();
            prop_assert!(shown.chars().all(is_plain));
        }
    }
}
