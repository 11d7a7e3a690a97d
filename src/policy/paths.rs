//! Names and paths that have been checked: what holds one of these types needs no second look.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};

use super::Access;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error(
        "`{0}` is not a session name: use 1 to 128 of a-z, A-Z, 0-9, `.`, `_` and `-`, starting with a letter or digit"
    )]
    SessionName(String),
    #[error("`{0}` contains `..`; name the place itself")]
    Climbs(String),
    #[error("`{0}` is empty")]
    Empty(String),
    #[error("`{0}` contains a NUL byte")]
    Nul(String),
    #[error("`{0}` is not a mode; use ro, keep or rw")]
    Mode(String),
    #[error("the mode `{0}` is not available yet; use ro, keep or rw")]
    ModeNotYet(String),
    #[error("`{0}` belongs to the box itself and cannot be a mount's place")]
    Reserved(String),
}

/// The name of a session; safe as a file name and a path component, and as part of a unit's or a
/// control group's name. As long as those that Claude Desktop gives its sessions can be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionId(String);

impl SessionId {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let bytes = text.as_bytes();
        let fits = matches!(bytes.len(), 1..=128)
            && bytes[0].is_ascii_alphanumeric()
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(PathError::SessionName(text.to_owned()))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An absolute path in the box without `.`, `..` or a trailing slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InsidePath(PathBuf);

impl InsidePath {
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        let shown = || path.display().to_string();
        let mut clean = PathBuf::from("/");
        if path.as_os_str().is_empty() {
            return Err(PathError::Empty(shown()));
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        for part in path.components() {
            match part {
                Component::Normal(name) => clean.push(name),
                Component::ParentDir => return Err(PathError::Climbs(shown())),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        Ok(Self(clean))
    }

    /// For paths written in this program's own source.
    pub fn fixed(path: &'static str) -> Self {
        debug_assert!(Self::new(path).is_ok_and(|p| p.0 == Path::new(path)));
        Self(PathBuf::from(path))
    }

    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        Self::new(self.0.join(name.trim_start_matches('/')))
    }

    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The same path as seen from a descriptor of the root: without the leading slash.
    pub fn relative(&self) -> &Path {
        match self.0.strip_prefix("/") {
            Ok(rest) if !rest.as_os_str().is_empty() => rest,
            _ => Path::new("."),
        }
    }

    pub fn starts_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for InsidePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl fmt::Debug for InsidePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for InsidePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.display())
    }
}

/// `SRC[:DST][:MODE]` as it was written, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountSpec {
    pub source: PathBuf,
    /// Where below `mnt` it goes, or an absolute place; the source's own name when absent.
    pub place: Option<PathBuf>,
    pub access: Access,
}

impl MountSpec {
    /// Takes the text apart. A colon may be part of a name: the longest left part for which
    /// `exists` says yes is the source, and `\:` is a colon that never separates.
    pub fn parse(text: &OsStr, exists: impl Fn(&Path) -> bool) -> Result<Self, PathError> {
        let shown = || text.to_string_lossy().into_owned();
        if text.as_bytes().contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        let whole = unescape(text.as_bytes());
        if !whole.is_empty() && exists(Path::new(OsStr::from_bytes(&whole))) {
            return Ok(Self::of(&whole, None, Access::Write));
        }
        let parts = split_unescaped(text.as_bytes());
        let (parts, access) = match parts.split_last() {
            Some((last, rest)) if !rest.is_empty() => match last.as_slice() {
                b"ro" => (rest, Access::Read),
                b"keep" => (rest, Access::Keep),
                b"rw" => (rest, Access::Write),
                b"rwd" | b"overlay" => return Err(PathError::ModeNotYet(lossy(last))),
                _ => (parts.as_slice(), Access::Write),
            },
            _ => (parts.as_slice(), Access::Write),
        };
        for cut in (1..=parts.len()).rev() {
            let source = parts[..cut].join(&b':');
            let place = (cut < parts.len()).then(|| parts[cut..].join(&b':'));
            if source.is_empty() {
                continue;
            }
            if exists(Path::new(OsStr::from_bytes(&source))) || cut == 1 {
                if place.as_ref().is_some_and(Vec::is_empty) {
                    return Err(PathError::Empty(shown()));
                }
                return Ok(Self::of(&source, place.as_deref(), access));
            }
        }
        Err(PathError::Empty(shown()))
    }

    fn of(source: &[u8], place: Option<&[u8]>, access: Access) -> Self {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Self {
            source: path(source),
            place: place.map(path),
            access,
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    split_unescaped(bytes).join(&b':')
}

fn split_unescaped(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' if rest.peek() == Some(&b':') => {
                rest.next();
                if let Some(part) = parts.last_mut() {
                    part.push(b':');
                }
            }
            b':' => parts.push(Vec::new()),
            other => {
                if let Some(part) = parts.last_mut() {
                    part.push(other);
                }
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str, there: &[&str]) -> Result<MountSpec, PathError> {
        MountSpec::parse(OsStr::new(text), |path| {
            there.iter().any(|p| Path::new(p) == path)
        })
    }

    #[test]
    fn a_mount_is_source_place_and_mode() {
        let full = spec("/a:w:ro", &["/a"]).unwrap();
        assert_eq!(full.source, Path::new("/a"));
        assert_eq!(full.place.as_deref(), Some(Path::new("w")));
        assert_eq!(full.access, Access::Read);
        assert_eq!(spec("/a", &["/a"]).unwrap().access, Access::Write);
        assert_eq!(spec("/a:ro", &["/a"]).unwrap().place, None);
        let keeps = spec("/a:w:keep", &["/a"]).unwrap();
        assert_eq!(keeps.access, Access::Keep);
        assert_eq!(keeps.place.as_deref(), Some(Path::new("w")));
    }

    #[test]
    fn colons_in_names_belong_to_the_longest_source_that_exists() {
        assert_eq!(
            spec("/a:b", &["/a:b", "/a"]).unwrap().source,
            Path::new("/a:b")
        );
        assert_eq!(
            spec("/a:b:ro", &["/a:b"]).unwrap().source,
            Path::new("/a:b")
        );
        assert_eq!(spec("/a:ro", &["/a:ro"]).unwrap().access, Access::Write);
        assert_eq!(spec(r"/a\:ro:ro", &[]).unwrap().source, Path::new("/a:ro"));
        assert_eq!(spec("/gone:w", &[]).unwrap().source, Path::new("/gone"));
    }

    #[test]
    fn modes_that_are_to_come_are_named() {
        assert_eq!(
            spec("/a:overlay", &["/a"]),
            Err(PathError::ModeNotYet("overlay".into()))
        );
        assert!(spec("", &[]).is_err());
        assert!(spec("/a::ro", &["/a"]).is_err());
    }

    #[test]
    fn session_names_cannot_be_paths() {
        for bad in [
            "",
            "a/b",
            ".",
            "..",
            ".a",
            "-a",
            "_a",
            "ü",
            "a b",
            "a\n",
            &"x".repeat(129),
        ] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
        }
        for good in [
            "fix-login-2",
            "A",
            "a..b",
            "Swift_keen.turing-",
            &"x".repeat(128),
        ] {
            assert!(SessionId::parse(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn inside_paths_cannot_climb() {
        assert!(InsidePath::new("/a/../b").is_err());
        assert_eq!(
            InsidePath::new("//a/./b/").unwrap().as_path(),
            Path::new("/a/b")
        );
        assert_eq!(InsidePath::new("/").unwrap().relative(), Path::new("."));
    }
}
