//! Numbers as C's library reads them, because bubblewrap leaves that to it: blanks and a sign may
//! stand in front, what does not fit is cut off in its own ways, and callers may lean on any of it.

use super::args::Limited;
use crate::policy::Bytes;

const CAPABILITIES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];
/// As many as fit in the two words of the kernel's interface, known or not.
const CAPABILITY_BITS: u64 = 64;
const HIGHEST_MODE: u64 = 0o7777;

/// What the digits at the start of a text say.
struct Number<'t> {
    negative: bool,
    /// Nothing if it does not fit in 64 bits.
    amount: Option<u64>,
    rest: &'t [u8],
}

/// `strtol` and its relatives, up to the point where they differ. Nothing where there is no digit.
fn number(text: &[u8], base: u32) -> Option<Number<'_>> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|b| blank(b)).count()..];
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let value = |b: &u8| char::from(*b).to_digit(base).map(u64::from);
    let count = digits.iter().map_while(value).count();
    if count == 0 {
        return None;
    }
    let amount = digits.iter().map_while(value).try_fold(0u64, |sum, digit| {
        sum.checked_mul(u64::from(base))?.checked_add(digit)
    });
    Some(Number {
        negative,
        amount,
        rest: &digits[count..],
    })
}

/// The same with the base told by the prefix, for texts that are known to start with a digit.
fn prefixed(text: &[u8]) -> Option<Number<'_>> {
    match text {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => number(&text[2..], 16),
        [b'0', ..] => number(text, 8),
        _ => number(text, 10),
    }
}

/// A descriptor, user or group. C reads a long and keeps its lower half, so 2^32 is 0.
pub(super) fn plain(text: &[u8]) -> Option<i32> {
    let number = number(text, 10).filter(|number| number.rest.is_empty())?;
    let amount = number.amount.unwrap_or(u64::MAX);
    let long = match (i64::try_from(amount), number.negative) {
        (Ok(amount), false) => amount,
        (Ok(amount), true) => -amount,
        (Err(_), false) => i64::MAX,
        (Err(_), true) => i64::MIN,
    };
    let kept = long as i32;
    (kept >= 0).then_some(kept)
}

/// Permissions, in octal.
pub(super) fn mode(text: &[u8]) -> Option<u32> {
    let number = number(text, 8).filter(|number| number.rest.is_empty())?;
    let mode = match number.amount {
        None => return None,
        // An unsigned number with a minus sign goes round.
        Some(amount) if number.negative => amount.wrapping_neg(),
        Some(amount) => amount,
    };
    (mode <= HIGHEST_MODE).then_some(mode as u32)
}

/// A number of bytes above zero: decimal, octal or hexadecimal.
pub(super) fn size(text: &[u8]) -> Option<u64> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    prefixed(text)
        .filter(|number| number.rest.is_empty())?
        .amount
        .filter(|size| *size != 0)
}

/// As libcap reads one: `cap_` and a name in either case, or a number. It looks no further than
/// the end of either, so what follows is not an error.
pub(super) fn capability(text: &[u8]) -> Option<u8> {
    if text.first()?.is_ascii_digit() {
        let number = prefixed(text)?.amount?;
        return u8::try_from(number)
            .ok()
            .filter(|_| number < CAPABILITY_BITS);
    }
    let letters = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    let word = &text[..text.iter().take_while(|b| letters(b)).count()];
    let (prefix, name) = word.split_at_checked(4)?;
    if !prefix.eq_ignore_ascii_case(b"cap_") {
        return None;
    }
    let mut known = CAPABILITIES.iter();
    let at = known.position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
    u8::try_from(at).ok()
}

const LIMITS: &str = "memory=SIZE, pids=NUMBER, files=NUMBER, file-size=SIZE, cpu-time=SECONDS";

/// One limit, or the sentence that says what is wrong with it and what there is.
pub(super) fn limit(text: &str) -> Result<(Limited, u64), String> {
    let refused = |why: &str| format!("--cowork-limit {text}: {why}; there are {LIMITS}");
    let Some((name, amount)) = text.split_once('=') else {
        return Err(refused("not of the form NAME=VALUE"));
    };
    let (kind, is_size) = match name {
        "memory" => (Limited::Memory, true),
        "pids" => (Limited::Processes, false),
        "files" => (Limited::OpenFiles, false),
        "file-size" => (Limited::FileSize, true),
        "cpu-time" => (Limited::CpuSeconds, false),
        _ => return Err(refused("no such limit")),
    };
    if is_size {
        return match Bytes::parse(amount) {
            Ok(Bytes(size)) => Ok((kind, size)),
            Err(why) => Err(refused(&why)),
        };
    }
    if amount.is_empty() || !amount.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refused("the value is not a whole number"));
    }
    match amount.parse() {
        Ok(0) => Err(refused("zero would leave nothing to run with")),
        Ok(number) => Ok((kind, number)),
        Err(_) => Err(refused("the value is too large")),
    }
}
