//! The value of a secret: never printed, and wiped when it is no longer needed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::policy::egress::SecretSpec;

pub(super) struct Value(Vec<u8>);

impl Value {
    /// The value, if it can stand in a header as it is.
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, &'static str> {
        let value = Self(bytes);
        match std::str::from_utf8(&value.0) {
            Ok(text) => SecretSpec::check_value(text).map(|()| value),
            Err(_) => Err("its value is no text"),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fill(0);
        // Somebody could be looking, as far as the compiler knows.
        std::hint::black_box(&self.0);
    }
}

/// A file with nothing but the secret in it; the line break that editors put at the end is none
/// of it.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Large enough never to move, which would leave a copy behind.
    let mut bytes = Vec::with_capacity(2 * SecretSpec::LONGEST_VALUE);
    // Two bytes more than may be, so that too much is seen, and no more however large the file.
    File::open(path)?
        .take(SecretSpec::LONGEST_VALUE as u64 + 2)
        .read_to_end(&mut bytes)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes)
}
