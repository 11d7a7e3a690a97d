//! Variables as they are given on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::run::Refusal;

/// `K=V`, or `K` to pass the caller's value on.
pub(super) fn variable(given: &OsStr) -> Result<(OsString, OsString), Refusal> {
    let bytes = given.as_bytes();
    let name_of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (name_of(&bytes[..at]), name_of(&bytes[at + 1..])),
        None => {
            let unset = || Refusal::Unset(given.to_string_lossy().into_owned());
            (given.to_owned(), std::env::var_os(given).ok_or_else(unset)?)
        }
    };
    if name.is_empty() {
        return Err(Refusal::Flag {
            flag: "env",
            why: "a variable needs a name".into(),
        });
    }
    Ok((name, value))
}
