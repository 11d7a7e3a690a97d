//! What holds for every command line.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use proptest::prelude::*;

use super::args::{Asked, Stop, Warning, parse};
use super::messages::{Open, caller, words};
use super::{usage, values};

/// Mostly what is an option or fits behind one.
fn any_word() -> impl Strategy<Value = OsString> {
    let options: Vec<&str> = usage::options().collect();
    let values = [
        "",
        "-",
        "--",
        "0",
        "5",
        " 5",
        "-1",
        "755",
        "4096",
        "9",
        "x",
        "/a",
        "A",
        "A=B",
        "ALL",
        "cap_chown",
        "99999999999999999999",
        "memory=1g",
        "pids=0",
    ];
    prop_oneof![
        6 => proptest::sample::select(options).prop_map(OsString::from),
        6 => proptest::sample::select(values.to_vec()).prop_map(OsString::from),
        1 => proptest::collection::vec(1u8.., 0..12).prop_map(OsString::from_vec),
    ]
}

fn any_words() -> impl Strategy<Value = Vec<OsString>> {
    proptest::collection::vec(any_word(), 0..24)
}

/// Options that have all they need.
fn whole_options() -> impl Strategy<Value = Vec<OsString>> {
    let options = [
        "--dir|a",
        "--uid|5",
        "--perms|700|--tmpfs|b",
        "--size|9|--perms|1|--tmpfs|c",
        "--overlay-src|d|--overlay-src||--ro-overlay|e",
        "--unshare-all",
        "--share-net",
        "--setenv|A|new",
        "--unsetenv|B",
        "--clearenv",
        "--cap-add|cap_kill",
        "--cap-drop|ALL",
        "--level-prefix",
        "--lock-file|f",
        "--info-fd|7",
    ];
    let some = proptest::collection::vec(proptest::sample::select(options.to_vec()), 0..6);
    some.prop_map(|options| options.iter().flat_map(|option| words(option)).collect())
}

/// A line, with what its `--args` would find in descriptor 9.
fn read(words: &[OsString], data: &[u8], uid: u32) -> (Result<Asked, Stop>, Vec<Warning>) {
    let mut warnings = Vec::new();
    let mut open = Open::with(9, data);
    (
        parse(words, &caller(uid), &mut open, &mut warnings),
        warnings,
    )
}

proptest! {
    #[test]
    fn no_words_are_too_much(words in any_words(), data in any_words(), uid in 0u32..2) {
        let data = data.join(OsStr::from_bytes(b"\0")).into_vec();
        let (first, warnings) = read(&words, &data, uid);
        prop_assert_eq!(read(&words, &data, uid), (first.clone(), warnings));
        if let Ok(asked) = first {
            prop_assert!(!asked.command.is_empty());
            prop_assert!(words.ends_with(&asked.command));
        }
    }

    #[test]
    fn words_joined_with_nul_come_apart_again(
        words in proptest::collection::vec(proptest::collection::vec(1u8.., 0..9), 0..50),
        ended in any::<bool>(),
    ) {
        let mut data = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect::<Vec<u8>>();
        // An empty last word is there only because of its end.
        let cut = !ended && words.last().is_some_and(|word| !word.is_empty());
        if cut {
            data.pop();
        }
        let split: Vec<&[u8]> = values::split(&data).iter().map(|word| word.as_bytes()).collect();
        prop_assert_eq!(split, words);
    }

    #[test]
    fn any_bytes_are_split_without_loss(data in proptest::collection::vec(0u8..4, 0..200)) {
        let mut joined = Vec::new();
        for word in values::split(&data) {
            prop_assert!(!word.as_bytes().contains(&0));
            joined.extend_from_slice(word.as_bytes());
            joined.push(0);
        }
        if !data.ends_with(b"\0") && !data.is_empty() {
            joined.pop();
        }
        prop_assert_eq!(joined, data);
    }

    #[test]
    fn options_mean_the_same_from_a_descriptor(
        before in whole_options(),
        inside in whole_options(),
        after in whole_options(),
    ) {
        let end = vec![OsString::from("end")];
        let direct = [before.clone(), inside.clone(), after.clone(), end.clone()].concat();
        let data = inside.join(OsStr::from_bytes(b"\0")).into_vec();
        let through = [before, words("--args|9"), after, end].concat();
        prop_assert_eq!(read(&through, &data, 1000), read(&direct, b"", 1000));
    }
}
