//! `Authorization: Basic ...`: the secret is inside, in base64.

use hyper::header::HeaderValue;

use crate::egress::upstream::base64;

const SCHEME: &[u8] = b"basic ";

/// User and password, if that is what the header holds.
pub(super) fn decoded(value: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, coded) = value.as_bytes().split_at_checked(SCHEME.len())?;
    match scheme.eq_ignore_ascii_case(SCHEME) {
        true => decode(coded.trim_ascii()),
        false => None,
    }
}

pub(super) fn encoded(credentials: &[u8]) -> Vec<u8> {
    format!("Basic {}", base64(credentials)).into_bytes()
}

/// RFC 4648 with or without padding; nothing where the text is something else.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let without = text.len() - text.iter().rev().take_while(|byte| **byte == b'=').count();
    if text.len() - without > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(without * 3 / 4);
    for letters in text[..without].chunks(4) {
        let mut bits = 0u32;
        for letter in letters {
            bits = bits << 6 | sixtet(*letter)?;
        }
        // A last group of two letters holds one byte, of three two; of one none at all.
        let (shift, count) = match letters.len() {
            4 => (0, 3),
            3 => (6, 2),
            2 => (12, 1),
            _ => return None,
        };
        bytes.extend_from_slice(&(bits << shift).to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

fn sixtet(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        for length in 0..=17u8 {
            let bytes: Vec<u8> = (0..length).map(|at| at.wrapping_mul(151)).collect();
            let value = HeaderValue::from_bytes(&encoded(&bytes)).unwrap();
            assert_eq!(decoded(&value), Some(bytes));
        }
    }

    #[test]
    fn other_words_are_not_basic_credentials() {
        for text in [
            "",
            "Basic",
            "Bearer Zm9v",
            "Basic Z",
            "Basic Zm9v====",
            "Basic Zm 9v",
        ] {
            let value = HeaderValue::from_static(text);
            assert_eq!(decoded(&value), None, "{text}");
        }
        let unpadded = HeaderValue::from_static("bASIC  Zm8");
        assert_eq!(decoded(&unpadded).as_deref(), Some(&b"fo"[..]));
    }
}
