//! Git's configuration as git replaces it: read, judged, and written anew from our own memory.
//! The file a program prepared is never put in place itself, since it may still hold it open.

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::guarding::guarded;
use super::resolve::Place;
use super::{Answer, Case, Outcome};
use crate::policy::git_config::{self, SIZE_LIMIT};
use crate::sys::at;

/// Exists for the time of one rename and is never left behind.
const FRESH: &CStr = c".config.cowork-new";

impl Case<'_> {
    /// `config.lock` takes the place of `config`.
    pub(super) fn replace_config(&self, from: &Place<'_>, to: &Place<'_>) -> Outcome {
        let refuse = |key: String| guarded(to, format!("git config: {key}"));
        let (new, mode) = read(&from.dir, from.name())?
            .ok_or_else(|| refuse("not a readable file".to_owned()))?;
        let old = match at::identify(to.dir.as_raw_fd(), to.name(), libc::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Vec::new(),
            _ => {
                read(&to.dir, to.name())?
                    .ok_or_else(|| refuse("not a readable file".to_owned()))?
                    .0
            }
        };
        git_config::check_change(&old, &new, &to.below).map_err(refuse)?;
        let is_own =
            self.is_own_or_free(&from.dir, from.name()) && self.is_own_or_free(&to.dir, to.name());
        write(&to.dir, to.name(), &new, mode)?;
        if is_own {
            self.note_made(to);
        }
        unlinkat(&from.dir, from.name(), UnlinkatFlags::NoRemoveDir)?;
        Ok(Answer::Done)
    }

    /// Writes a file anew, which stays whose it was; where there was none it is the program's.
    pub(super) fn write_file(
        &self,
        dir: &OwnedFd,
        name: &CStr,
        content: &[u8],
        mode: u32,
    ) -> Result<(), Answer> {
        let is_own = self.is_own_or_free(dir, name);
        write(dir, name, content, mode)?;
        if is_own {
            self.note_named(dir, name);
        }
        Ok(())
    }

    pub(super) fn config_is_harmless(&self, place: &Place<'_>) -> bool {
        matches!(read(&place.dir, place.name()),
            Ok(Some((content, _))) if git_config::is_all_harmless(&content, &place.below))
    }

    /// Replaces a configuration by a copy that nobody holds open; `false` when its content or
    /// kind does not allow that.
    pub(super) fn refresh_config(
        &self,
        dir: &OwnedFd,
        name: &CStr,
        place: &Path,
    ) -> Result<bool, Answer> {
        match at::identify(dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(true),
            // Git wants a file and stops at a directory.
            Ok(found) if found.kind() == libc::S_IFDIR => return Ok(true),
            _ => {}
        }
        match read(dir, name)? {
            Some((content, mode)) if git_config::is_all_harmless(&content, place) => {
                self.write_file(dir, name, &content, mode)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Content and permissions of a regular file of bearable size.
pub(super) fn read(dir: &OwnedFd, name: &CStr) -> Result<Option<(Vec<u8>, u32)>, Answer> {
    let found = at::identify(dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW)?;
    if found.kind() != libc::S_IFREG {
        return Ok(None);
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    let mut content = Vec::new();
    let limit = SIZE_LIMIT as u64 + 1;
    match file.take(limit).read_to_end(&mut content) {
        Ok(_) if content.len() <= SIZE_LIMIT => Ok(Some((content, found.mode & 0o777))),
        _ => Ok(None),
    }
}

fn write(dir: &OwnedFd, name: &CStr, content: &[u8], mode: u32) -> Result<(), Answer> {
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = || openat(dir, FRESH, flags, Mode::from_bits_truncate(0o600));
    let file = open().or_else(|error| {
        // Left by a broker that was killed, or made by a program to be in the way.
        unlinkat(dir, FRESH, UnlinkatFlags::NoRemoveDir).map_err(|_| error)?;
        open()
    })?;
    let mut file = File::from(file);
    let written = file
        .write_all(content)
        .map_err(errno)
        .and_then(|()| fchmod(&file, Mode::from_bits_truncate(mode)))
        .and_then(|()| at::rename(dir.as_fd(), FRESH, dir.as_fd(), name, 0));
    if let Err(errno) = written {
        let _ = unlinkat(dir, FRESH, UnlinkatFlags::NoRemoveDir);
        return Err(errno.into());
    }
    Ok(())
}
