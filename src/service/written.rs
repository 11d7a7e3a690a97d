//! Which folders sessions could write to, now or earlier. A program in a session can leave links there, and
//! a folder that the app names later must not be found by one of them.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use super::telling;

/// Folders that are remembered, the latest of them.
const MOST: usize = 4096;
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// What is said of a link that may be a session's.
pub(super) const A_SESSIONS_LINK: Errno = Errno::EXDEV;

#[derive(Debug, Default)]
struct Folders {
    known: HashSet<(u64, u64)>,
    paths: VecDeque<PathBuf>,
    file: Option<PathBuf>,
}

/// The same for all who have it.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Folders>>);

impl Written {
    /// With those that an earlier helper wrote down.
    pub(super) fn kept_in(file: PathBuf) -> Self {
        let read = fs::read(&file).unwrap_or_default();
        let paths: VecDeque<PathBuf> = serde_json::from_slice(&read).unwrap_or_default();
        let seen = paths.iter().filter_map(|path| fs::metadata(path).ok());
        let known = seen.map(|seen| (seen.dev(), seen.ino())).collect();
        let file = Some(file);
        Self(Arc::new(Mutex::new(Folders { known, paths, file })))
    }

    /// A session is about to be able to write there.
    pub(super) fn note(&self, path: &Path, device: u64, inode: u64) {
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !folders.known.insert((device, inode)) {
            return;
        }
        folders.paths.push_back(path.to_owned());
        if folders.paths.len() > MOST {
            folders.paths.pop_front();
        }
        if let Err(error) = folders.save() {
            telling::warn(&format!("cannot remember what sessions write to: {error}"));
        }
    }

    fn has(&self, opened: &OwnedFd) -> Result<bool, Errno> {
        let seen = fstat(opened)?;
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(folders.known.contains(&(seen.st_dev, seen.st_ino)))
    }

    /// Opens a folder or file by its name. Links are followed now and never again; none that a session could
    /// have made, and none of /proc, which lead anywhere.
    pub(super) fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let mut todo: VecDeque<OsString> = parts(path);
        let mut at = open_at(AT_FDCWD, Path::new("/"))?;
        let mut is_written = self.has(&at)?;
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            let next = open_at(&at, Path::new(&part))?;
            let kind = SFlag::from_bits_truncate(fstat(&next)?.st_mode) & SFlag::S_IFMT;
            if kind != SFlag::S_IFLNK {
                is_written |= self.has(&next)?;
                at = next;
                continue;
            }
            links += 1;
            if is_written {
                return Err(A_SESSIONS_LINK);
            }
            if links > MOST_LINKS || fstatfs(&next)?.filesystem_type() == PROC_SUPER_MAGIC {
                return Err(Errno::ELOOP);
            }
            let target = PathBuf::from(readlinkat(&next, "")?);
            if target.is_absolute() {
                at = open_at(AT_FDCWD, Path::new("/"))?;
                is_written = self.has(&at)?;
            }
            for part in parts(&target).into_iter().rev() {
                todo.push_front(part);
            }
        }
        Ok(at)
    }
}

impl Folders {
    /// By write and rename, so that it is always whole.
    fn save(&self) -> std::io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = file.with_extension("new");
        let mut writer = fs::File::create(&new)?;
        writer.write_all(&serde_json::to_vec(&self.paths)?)?;
        fs::rename(new, file)
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.collect()
}

/// One step, and no link followed.
fn open_at(at: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(at.as_fd(), name, how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn noted(written: &Written, path: &Path) {
        let seen = fs::metadata(path).unwrap();
        written.note(path, seen.dev(), seen.ino());
    }

    fn is_at(opened: &OwnedFd, path: &Path) -> bool {
        let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
        fs::read_link(by_number).unwrap() == fs::canonicalize(path).unwrap()
    }

    #[test]
    fn links_are_followed_but_those_that_a_session_could_have_made() {
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| ground.path().join(name);
        for name in ["private", "shared/sub", "other"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink("../private", at("other/relative")).unwrap();
        symlink(at("private"), at("other/absolute")).unwrap();
        symlink(at("shared"), at("to-shared")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink(at("private"), at("shared/sub/planted")).unwrap();
        symlink("../../private", at("shared/sub/planted-too")).unwrap();
        let file = at("state/written");
        let written = Written::kept_in(file.clone());
        // As long as nobody could write there, a link is the user's own.
        assert!(is_at(
            &written.open(&at("shared/sub/planted")).unwrap(),
            &at("private")
        ));
        noted(&written, &at("shared"));
        for written in [written, Written::kept_in(file)] {
            for name in ["other/relative", "other/absolute", "private"] {
                assert!(
                    is_at(&written.open(&at(name)).unwrap(), &at("private")),
                    "{name}"
                );
            }
            for name in ["shared/sub", "to-shared/sub"] {
                assert!(
                    is_at(&written.open(&at(name)).unwrap(), &at("shared/sub")),
                    "{name}"
                );
            }
            for name in [
                "shared/sub/planted",
                "to-shared/sub/planted",
                "shared/sub/planted-too",
            ] {
                assert_eq!(
                    written.open(&at(name)).unwrap_err(),
                    A_SESSIONS_LINK,
                    "{name}"
                );
            }
            assert_eq!(written.open(&at("loop")).unwrap_err(), Errno::ELOOP);
            assert_eq!(written.open(&at("none")).unwrap_err(), Errno::ENOENT);
            for name in ["/proc/self/root", "/proc/self/cwd/x", "/proc/self"] {
                assert_eq!(
                    written.open(Path::new(name)).unwrap_err(),
                    Errno::ELOOP,
                    "{name}"
                );
            }
        }
    }
}
