//! D-Bus on the wire: values are laid out at multiples of their size from the start of a message.

/// What may be asked of a peer: a message of ours is small, and one of theirs should be.
pub(super) const LONGEST: usize = 1 << 20;
const FIXED: usize = 16;

/// Lays out values in the order of this machine's little end; callers know the types.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn align(&mut self, to: usize) {
        let end = self.bytes.len().next_multiple_of(to);
        self.bytes.resize(end, 0);
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn number(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn truth(&mut self, value: bool) {
        self.number(value.into());
    }

    /// A text or the path of an object: both look alike.
    pub(crate) fn text(&mut self, value: &str) {
        self.number(value.len() as u32);
        self.bytes.extend(value.as_bytes());
        self.byte(0);
    }

    pub(crate) fn signature(&mut self, value: &str) {
        self.byte(value.len() as u8);
        self.bytes.extend(value.as_bytes());
        self.byte(0);
    }

    /// A list whose entries start at multiples of `to`; the gap before the first is not counted
    /// as part of it.
    pub(crate) fn list(&mut self, to: usize, entries: impl FnOnce(&mut Self)) {
        self.number(0);
        let length_at = self.bytes.len() - 4;
        self.align(to);
        let start = self.bytes.len();
        entries(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The start of a structure.
    pub(crate) fn structure(&mut self) {
        self.align(8);
    }

    /// A value that carries its own type.
    pub(crate) fn variant(&mut self, signature: &str, value: impl FnOnce(&mut Self)) {
        self.signature(signature);
        value(self);
    }
}

/// Reads values of either byte order; everything that does not fit is `None`.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
}

impl<'a> Reader<'a> {
    fn align(&mut self, to: usize) -> Option<()> {
        self.at = self.at.checked_next_multiple_of(to)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn number(&mut self) -> Option<u32> {
        self.align(4)?;
        let bytes: [u8; 4] = self.take(4)?.try_into().ok()?;
        Some(match self.is_big {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        })
    }

    fn ended_text(&mut self, length: usize) -> Option<&'a str> {
        let text = self.take(length)?;
        (self.byte()? == 0).then_some(())?;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        self.ended_text(length as usize)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let length = self.byte()?;
        self.ended_text(length.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Return,
    Error,
    Signal,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Call,
            2 => Self::Return,
            3 => Self::Error,
            4 => Self::Signal,
            _ => return None,
        })
    }
}

/// A question to another program on the bus.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) to: &'a str,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    pub(crate) signature: &'a str,
}

impl Call<'_> {
    /// The whole message, with this number to know its answer by.
    pub(crate) fn message(&self, serial: u32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut content = Writer::default();
        body(&mut content);
        let mut message = Writer::default();
        for byte in [b'l', 1, 0, 1] {
            message.byte(byte);
        }
        message.number(content.bytes.len() as u32);
        message.number(serial);
        message.list(8, |fields| {
            for (code, kind, value) in [
                (1, "o", self.path),
                (2, "s", self.interface),
                (3, "s", self.member),
                (6, "s", self.to),
            ] {
                fields.structure();
                fields.byte(code);
                fields.variant(kind, |field| field.text(value));
            }
            if !self.signature.is_empty() {
                fields.structure();
                fields.byte(8);
                fields.variant("g", |field| field.signature(self.signature));
            }
        });
        message.align(8);
        message.bytes.extend(content.bytes);
        message.bytes
    }
}

/// A message that came in, as far as it matters here.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: Option<Kind>,
    pub(crate) answers: Option<u32>,
    pub(crate) member: String,
    pub(crate) error: String,
    bytes: Vec<u8>,
    body_at: usize,
    is_big: bool,
}

impl Message {
    /// How long the message is that starts with these bytes; `None` as long as that cannot be
    /// told. Nonsense is an error.
    pub(super) fn length(start: &[u8]) -> Result<Option<usize>, &'static str> {
        let Some(fixed) = start.get(..FIXED) else {
            return Ok(None);
        };
        let is_big = match fixed[0] {
            b'l' => false,
            b'B' => true,
            _ => return Err("it speaks something else than D-Bus"),
        };
        let number = |at| {
            let mut reader = Reader {
                bytes: fixed,
                at,
                is_big,
            };
            reader.number().unwrap_or(u32::MAX) as usize
        };
        let (body, fields) = (number(4), number(12));
        match fields.checked_next_multiple_of(8) {
            Some(fields) if fields <= LONGEST && body <= LONGEST => Ok(Some(FIXED + fields + body)),
            _ => Err("it sent a message that is too long"),
        }
    }

    /// Takes a whole message apart.
    pub(super) fn read(bytes: Vec<u8>) -> Option<Self> {
        let is_big = *bytes.first()? == b'B';
        let mut reader = Reader {
            bytes: &bytes,
            at: 4,
            is_big,
        };
        let body = reader.number()? as usize;
        reader.number()?;
        let fields_end = FIXED.checked_add(reader.number()? as usize)?;
        let (mut answers, mut member, mut error) = (None, String::new(), String::new());
        while reader.at < fields_end {
            reader.align(8)?;
            let code = reader.byte()?;
            match (code, reader.signature()?) {
                (5 | 9, "u") => {
                    let number = reader.number()?;
                    answers = if code == 5 { Some(number) } else { answers };
                }
                (_, "s" | "o") => {
                    let text = reader.text()?;
                    match code {
                        3 => text.clone_into(&mut member),
                        4 => text.clone_into(&mut error),
                        _ => {}
                    }
                }
                (_, "g") => drop(reader.signature()?),
                _ => return None,
            }
        }
        let body_at = bytes.len().checked_sub(body)?;
        Some(Self {
            kind: Kind::from_number(bytes[1]),
            answers,
            member,
            error,
            body_at,
            is_big,
            bytes,
        })
    }

    /// The values it carries.
    pub(crate) fn body(&self) -> Reader<'_> {
        Reader {
            bytes: &self.bytes[self.body_at..],
            at: 0,
            is_big: self.is_big,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_call() -> Call<'static> {
        Call {
            to: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
        }
    }

    #[test]
    fn a_message_is_as_long_as_it_says_and_ends_on_its_body() {
        let call = Call {
            signature: "s",
            ..a_call()
        };
        let bytes = call.message(7, |body| body.text("abc"));
        assert_eq!(Message::length(&bytes), Ok(Some(bytes.len())));
        assert_eq!(&bytes[..4], b"l\x01\x00\x01");
        assert!(bytes.ends_with(b"\x03\0\0\0abc\0"));
        let read = Message::read(bytes).unwrap();
        assert_eq!(read.kind, Some(Kind::Call));
        assert_eq!(read.member, "Hello");
        assert_eq!(read.body().text(), Some("abc"));
    }

    #[test]
    fn the_other_byte_order_is_read_too() {
        // An answer to number 3 that carries the text "hi", as a big-endian peer sends it.
        let mut bytes = b"B\x02\x01\x01\0\0\0\x07\0\0\0\x09\0\0\0\x0f".to_vec();
        bytes.extend(b"\x05\x01u\0\0\0\0\x03\x08\x01g\0\x01s\0\0");
        bytes.extend(b"\0\0\0\x02hi\0");
        assert_eq!(Message::length(&bytes), Ok(Some(bytes.len())));
        let read = Message::read(bytes).unwrap();
        assert_eq!((read.kind, read.answers), (Some(Kind::Return), Some(3)));
        assert_eq!(read.body().text(), Some("hi"));
    }

    #[test]
    fn lists_of_structures_do_not_count_the_gap_before_the_first() {
        let mut writer = Writer::default();
        writer.list(8, |list| {
            list.structure();
            list.byte(1);
        });
        assert_eq!(writer.bytes, [1, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn nonsense_is_refused_and_never_read_beyond() {
        assert!(Message::length(b"HTTP/1.1 400 Bad").is_err());
        let huge = b"l\x02\0\x01\xff\xff\xff\x7f\x01\0\0\0\0\0\0\0";
        assert!(Message::length(huge).is_err());
        let whole = Call {
            signature: "s",
            ..a_call()
        }
        .message(1, |body| body.text("x"));
        for end in 0..whole.len() {
            if let Some(read) = Message::read(whole[..end].to_vec()) {
                let _ = read.body().text();
            }
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] = 0xff;
            if let Some(read) = Message::read(bad) {
                let _ = read.body().text();
            }
        }
    }
}
