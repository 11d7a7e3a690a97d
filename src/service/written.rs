//! Which folders sessions could write to, now or earlier. A program in a session can leave links there, and
//! a folder that the app names later must not be found by one of them.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use serde::{Deserialize, Serialize};

use super::telling;

/// More than this are not told apart any more: then no link of anybody's but the system's is followed.
const MOST: usize = 1 << 16;
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// What is said of a link that may be a session's.
pub(super) const A_SESSIONS_LINK: Errno = Errno::EXDEV;

/// One folder. Numbers of devices change with a restart of the computer, names when somebody moves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Folder {
    device: u64,
    inode: u64,
    path: PathBuf,
}

#[derive(Debug, Default)]
struct Folders {
    numbers: HashSet<(u64, u64)>,
    paths: HashSet<PathBuf>,
    /// A line for each.
    file: Option<PathBuf>,
    /// Some may be missing: what was written down cannot be read, or there are too many.
    is_incomplete: bool,
}

/// The same for all who have it.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Folders>>);

impl Written {
    /// With those that an earlier helper wrote down. None of them is looked at: a dead disk would not answer.
    pub(super) fn kept_in(file: PathBuf) -> Self {
        let mut folders = Folders::default();
        match fs::read(&file) {
            Ok(text) => {
                for line in text.split(|byte| *byte == b'\n') {
                    match serde_json::from_slice::<Folder>(line) {
                        Ok(folder) => folders.add(&folder),
                        // Empty or cut off: that folder was never shared.
                        Err(error) if error.is_eof() => {}
                        Err(_) => folders.is_incomplete = true,
                    }
                }
            }
            Err(error) => folders.is_incomplete = error.kind() != io::ErrorKind::NotFound,
        }
        if folders.is_incomplete {
            telling::warn(&format!(
                "{} cannot be read: no links to folders are followed; what they lead to can be shared",
                file.display()
            ));
        }
        folders.file = Some(file);
        Self(Arc::new(Mutex::new(folders)))
    }

    /// A session is about to be able to write there. What cannot be remembered is not to be shared.
    pub(super) fn note(&self, path: &Path, device: u64, inode: u64) -> Result<(), String> {
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.numbers.contains(&(device, inode)) && folders.paths.contains(path) {
            return Ok(());
        }
        let path = path.to_owned();
        let folder = Folder {
            device,
            inode,
            path,
        };
        folders.save(&folder).map_err(|error| {
            let error = crate::report::without_number(&error.to_string());
            format!("it cannot be noted that it is shared: {error}")
        })?;
        folders.add(&folder);
        Ok(())
    }

    /// Whether a session could have made what is in this folder.
    fn has(&self, opened: &OwnedFd) -> Result<bool, Errno> {
        let seen = fstat(opened)?;
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.numbers.contains(&(seen.st_dev, seen.st_ino)) {
            return Ok(true);
        }
        if folders.is_incomplete {
            return Ok(seen.st_uid != 0);
        }
        let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let path = fs::read_link(by_number).map_err(|_| Errno::ENOENT)?;
        Ok(folders.paths.contains(&path))
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
    fn add(&mut self, folder: &Folder) {
        self.numbers.insert((folder.device, folder.inode));
        self.paths.insert(folder.path.clone());
        self.is_incomplete |= self.paths.len() > MOST;
    }

    fn save(&self, folder: &Folder) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_incomplete) else {
            return Ok(());
        };
        if let Some(above) = file.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(above)?;
        }
        // On a line of its own, whatever became of the one before.
        let line = format!("\n{}\n", serde_json::to_string(folder)?);
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        options.open(file)?.write_all(line.as_bytes())
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
    use std::os::unix::fs::{MetadataExt, symlink};

    fn noted(written: &Written, path: &Path) {
        let seen = fs::metadata(path).unwrap();
        written.note(path, seen.dev(), seen.ino()).unwrap();
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

    #[test]
    fn a_folder_is_known_by_its_name_or_by_its_number() {
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| fs::canonicalize(ground.path()).unwrap().join(name);
        for name in ["private", "shared"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("private"), at("shared/planted")).unwrap();
        let file = at("written");
        let written = Written::kept_in(file.clone());
        // As after a restart of the computer.
        written.note(&at("shared"), 1, 1).unwrap();
        let again = Written::kept_in(file.clone());
        assert_eq!(
            again.open(&at("shared/planted")).unwrap_err(),
            A_SESSIONS_LINK
        );
        // As after somebody moved it.
        noted(&again, &at("shared"));
        fs::rename(at("shared"), at("moved")).unwrap();
        let again = Written::kept_in(file.clone());
        assert_eq!(
            again.open(&at("moved/planted")).unwrap_err(),
            A_SESSIONS_LINK
        );
        // A line that was cut off says nothing.
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{whole}{{\"dev")).unwrap();
        symlink(at("private"), at("link")).unwrap();
        let again = Written::kept_in(file.clone());
        assert!(again.open(&at("link")).is_ok());
        // Nor does it spoil the next one.
        noted(&again, &at("private"));
        let again = Written::kept_in(file);
        assert!(!again.0.lock().unwrap().is_incomplete);
        symlink(at("moved"), at("private/planted")).unwrap();
        assert_eq!(
            again.open(&at("private/planted")).unwrap_err(),
            A_SESSIONS_LINK
        );
    }

    #[test]
    fn what_cannot_be_remembered_is_not_taken_for_the_users() {
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| ground.path().join(name);
        fs::create_dir(at("private")).unwrap();
        symlink(at("private"), at("link")).unwrap();
        // Whose files these are decides where a link is still followed.
        let is_roots = nix::unistd::getuid().is_root();
        for damaged in [&b"garbage\n"[..], b"{}\n", b"\xff\xfe\n"] {
            fs::write(at("written"), damaged).unwrap();
            let written = Written::kept_in(at("written"));
            assert!(written.open(&at("private")).is_ok());
            assert_eq!(written.open(&at("link")).is_ok(), is_roots, "{damaged:?}");
        }
        // A folder in the file's place: nothing can be written down.
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("plain"), "").unwrap();
        let written = Written::kept_in(at("plain/written"));
        assert!(written.0.lock().unwrap().is_incomplete);
        let written = Written(Arc::new(Mutex::new(Folders {
            file: Some(at("folder")),
            ..Folders::default()
        })));
        let why = written.note(&at("private"), 1, 2).unwrap_err();
        assert!(why.contains("cannot be noted"), "{why}");
        assert!(!written.0.lock().unwrap().numbers.contains(&(1, 2)));
    }
}
