//! Paths as a policy file writes them: `~`, `${NAME}`, relative to the file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::MountSpec;
use super::error::ValueError;

/// The kernel takes no longer path.
const LONGEST: usize = 4096;
const MOST_COLONS: usize = 32;

/// How to look up a variable of the caller's environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the paths of one layer mean.
#[derive(Clone, Copy)]
pub(super) enum Paths<'a> {
    /// The shell has expanded them, and they are relative to the working directory.
    AsGiven,
    /// They stand in a file in this folder.
    In(&'a Path, Environment<'a>),
}

impl Paths<'_> {
    pub(super) fn mount(&self, text: &Path) -> Result<MountSpec, ValueError> {
        // Every colon is a place to cut and one more look at the disk, and a stranger may have
        // written them.
        if text
            .as_os_str()
            .as_bytes()
            .iter()
            .filter(|b| **b == b':')
            .count()
            > MOST_COLONS
        {
            return Err(ValueError::Colons(MOST_COLONS));
        }
        let exists = |path: &Path| self.path(path).is_ok_and(|path| path.exists());
        let mut spec = MountSpec::parse(text.as_os_str(), exists)?;
        spec.source = self.path(&spec.source)?;
        Ok(spec)
    }

    pub(super) fn path(&self, text: &Path) -> Result<PathBuf, ValueError> {
        match text.as_os_str().len() {
            0 => return Err(ValueError::Empty),
            1..=LONGEST => {}
            _ => return Err(ValueError::TooLong(LONGEST)),
        }
        match self {
            Self::AsGiven => Ok(text.to_owned()),
            Self::In(folder, env) => {
                let path = expand(text.as_os_str(), *env)?;
                // `.` would leave `folder/.`, which compares equal but reads badly.
                Ok(folder.join(path).components().collect())
            }
        }
    }
}

fn expand(text: &OsStr, env: Environment<'_>) -> Result<PathBuf, ValueError> {
    let shown = || text.to_string_lossy().into_owned();
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    if let Some(after) = rest.strip_prefix(b"~") {
        if !matches!(after.first(), None | Some(b'/')) {
            return Err(ValueError::Tilde(shown()));
        }
        out.extend_from_slice(variable("HOME", env)?.as_bytes());
        rest = after;
    }
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"$") {
            out.push(b'$');
            rest = after;
            continue;
        }
        let name = rest
            .strip_prefix(b"{")
            .and_then(|after| {
                after
                    .split(|byte| *byte == b'}')
                    .next()
                    .filter(|n| n.len() < after.len())
            })
            .filter(|name| !name.is_empty())
            .ok_or_else(|| ValueError::Dollar(shown()))?;
        let value = variable(&String::from_utf8_lossy(name), env)?;
        out.extend_from_slice(value.as_bytes());
        rest = &rest[name.len() + 2..];
    }
    out.extend_from_slice(rest);
    Ok(PathBuf::from(OsString::from_vec(out)))
}

/// An empty variable is as bad as an absent one: `${NOPE}/x` must not become `/x`.
fn variable(name: &str, env: Environment<'_>) -> Result<OsString, ValueError> {
    env(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| ValueError::Unset(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<PathBuf, ValueError> {
        let env = |name: &str| match name {
            "HOME" => Some(OsString::from("/home/u")),
            "SRC" => Some(OsString::from("/src")),
            "EMPTY" => Some(OsString::new()),
            _ => None,
        };
        Paths::In(Path::new("/p"), &env).path(Path::new(text))
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        for (text, path) in [
            ("a", "/p/a"),
            (".", "/p"),
            ("./a/", "/p/a"),
            ("/a", "/a"),
            ("~", "/home/u"),
            ("~/a", "/home/u/a"),
            ("${SRC}/a${SRC}", "/src/a/src"),
            ("a$$b", "/p/a$b"),
            ("a~", "/p/a~"),
        ] {
            assert_eq!(place(text), Ok(PathBuf::from(path)), "{text}");
        }
    }

    #[test]
    fn an_unset_or_empty_variable_is_named() {
        assert_eq!(place("${NOPE}/x"), Err(ValueError::Unset("NOPE".into())));
        assert_eq!(place("${EMPTY}/x"), Err(ValueError::Unset("EMPTY".into())));
        for bad in ["$NOPE/x", "$", "${", "${}", "${SRC", "a$"] {
            assert_eq!(place(bad), Err(ValueError::Dollar(bad.into())), "{bad}");
        }
        assert_eq!(place("~root/x"), Err(ValueError::Tilde("~root/x".into())));
    }

    #[test]
    fn a_mount_made_to_be_slow_is_refused() {
        let env = |_: &str| None;
        let paths = Paths::In(Path::new("/p"), &env);
        let colons = PathBuf::from(":".repeat(1 << 20));
        assert_eq!(paths.mount(&colons), Err(ValueError::Colons(MOST_COLONS)));
        let long = PathBuf::from("a".repeat(1 << 20));
        assert_eq!(paths.mount(&long), Err(ValueError::TooLong(LONGEST)));
    }

    #[test]
    fn a_colon_in_a_variable_does_not_cut_a_mount() {
        let env = |_: &str| Some(OsString::from("/a:b"));
        let spec = Paths::In(Path::new("/p"), &env)
            .mount(Path::new("${X}/c:w:ro"))
            .unwrap();
        assert_eq!(spec.source, Path::new("/a:b/c"));
        assert_eq!(spec.place.as_deref(), Some(Path::new("w")));
    }
}
