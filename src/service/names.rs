//! The names that the app gives: of sessions, and of mounts in them. Both become paths, so
//! whoever holds one of these needs no second look.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

use crate::policy::SessionId;

const LONGEST_SESSION: usize = 128;
const LONGEST_MOUNT: usize = 4096;
const LONGEST_PART: usize = 255;

/// The name of a session, which is a folder's and a user's too.
pub(super) fn session_name(text: &str) -> Result<SessionId, String> {
    let first = |byte: &u8| byte.is_ascii_alphanumeric();
    let other = |byte: &u8| first(byte) || matches!(byte, b'.' | b'_' | b'-');
    let fits = text.len() <= LONGEST_SESSION
        && text.as_bytes().first().is_some_and(first)
        && text.as_bytes().iter().all(other);
    if !fits {
        return Err(format!(
            "{} is not a session name: it has 1 to {LONGEST_SESSION} letters, digits, dots, \
             dashes and underscores, and starts with a letter or digit",
            shortened(text)
        ));
    }
    SessionId::parse(text).map_err(|error| error.to_string())
}

/// Where below a session's folder of mounts something is shown: `proj`, `.claude/skills`. Any
/// text can be a part of it, because people's folders are called what they are called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MountName(String);

/// Checks the name of a mount; never changes it.
pub(super) fn mount_name(text: &str) -> Result<MountName, String> {
    let refuse = |why: &str| Err(format!("{} cannot name a mount: {why}", shortened(text)));
    if text.is_empty() {
        return refuse("it is empty");
    }
    if text.len() > LONGEST_MOUNT {
        return refuse("it is longer than any path");
    }
    if text.contains('\0') {
        return refuse("it contains a NUL byte");
    }
    if text.starts_with('/') {
        return refuse("names are relative to the folder of mounts");
    }
    for part in text.split('/') {
        match part {
            "" => return refuse("it has an empty part"),
            "." | ".." => return refuse("`.` and `..` have no place in it"),
            part if part.len() > LONGEST_PART => {
                return refuse("a part of it is longer than a file's name can be");
            }
            _ => {}
        }
    }
    Ok(MountName(text.to_owned()))
}

impl MountName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// How many parts it has. Sorted by this, in a sort that keeps the order of equals, whatever
    /// holds another mount comes before it.
    pub(super) fn depth(&self) -> usize {
        self.0.split('/').count()
    }

    /// What is left of this name below `above`, if it lies below it.
    pub(super) fn below(&self, above: &Self) -> Option<&str> {
        self.0.strip_prefix(above.as_str())?.strip_prefix('/')
    }
}

impl AsRef<str> for MountName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl AsRef<Path> for MountName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for MountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for MountName {
    fn cmp(&self, other: &Self) -> Ordering {
        let both = self.depth().cmp(&other.depth());
        both.then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for MountName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A text of the app's, fit for a message and a log: quoted, escaped, and not endless.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_names_are_one_component_of_plain_letters() {
        for good in ["tender-kind-hypatia", "t-sess-one", "a", "7"] {
            assert_eq!(session_name(good).unwrap().as_str(), good);
        }
        let long = "x".repeat(300);
        for bad in [
            "",
            ".",
            "..",
            ".hid",
            "-a",
            "_a",
            "a/b",
            "/a",
            "../../x",
            "../../../../tmp/probe/escape",
            "a\0b",
            "a\nb",
            "a b",
            "ä",
            "a\u{202e}b",
            "a\\b",
            "a:b",
            "a$(x)",
            long.as_str(),
        ] {
            assert!(session_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn mount_names_may_be_anything_but_a_way_out() {
        let long = "x".repeat(255);
        for good in [
            "proj",
            ".claude",
            ".claude/skills",
            "a b",
            "it's \"so\"",
            "$(x)",
            "line\nbreak",
            "😀",
            "İ",
            "i̇",
            "...",
            "..a",
            "a..",
            "-rf",
            "a\\b",
            long.as_str(),
        ] {
            assert_eq!(mount_name(good).unwrap().as_str(), good);
        }
        let (part, whole) = ("x".repeat(256), "x/".repeat(2048) + "xx");
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "../../evil",
            "/abs",
            "//",
            "a/../b",
            "a/..",
            "a/.",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            part.as_str(),
            whole.as_str(),
        ] {
            assert!(mount_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_holds_another_mount_comes_first_and_equals_stay_in_order() {
        let given = [".claude/skills", "z", ".claude", "a/b/c", "b"];
        let mut names: Vec<_> = given.map(|name| mount_name(name).unwrap()).into();
        names.sort_by_key(MountName::depth);
        let sorted: Vec<_> = names.iter().map(MountName::as_str).collect();
        assert_eq!(sorted, ["z", ".claude", "b", ".claude/skills", "a/b/c"]);
    }

    #[test]
    fn below_is_from_slash_to_slash() {
        let name = |text| mount_name(text).unwrap();
        let above = name(".claude");
        assert_eq!(name(".claude/a/b").below(&above), Some("a/b"));
        for other in [".claude", ".claude2/a", "x/.claude/a"] {
            assert_eq!(name(other).below(&above), None, "{other}");
        }
    }

    #[test]
    fn what_is_refused_is_quoted_and_not_endless() {
        let why = session_name(&"\u{1b}[31m".repeat(200)).unwrap_err();
        assert!(!why.contains('\u{1b}') && why.len() < 1500, "{why}");
    }
}
