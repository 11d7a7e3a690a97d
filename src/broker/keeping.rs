//! Doors that keep what was there: programs make, change and rename what they like, but delete only
//! what they have made themselves.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::resolve::Place;
use super::{Answer, Case};
use crate::sys::at::{self, Identity};

impl Case<'_> {
    /// Something that was just made here.
    pub(super) fn note_made(&self, place: &Place<'_>) {
        self.note_named(&place.dir, place.name());
    }

    pub(super) fn note_named(&self, dir: &OwnedFd, name: &CStr) {
        self.note(at::identify(dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW).ok());
    }

    pub(super) fn note_file(&self, file: &OwnedFd) {
        self.note(at::identify(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH).ok());
    }

    fn note(&self, made: Option<Identity>) {
        if let (Some(ours), Some(made)) = (&self.broker.made, made) {
            ours.borrow_mut().note(&made);
        }
    }

    /// Whether what is to be written at this name is ours: nothing was there, or something of ours.
    pub(super) fn is_own_or_free(&self, dir: &OwnedFd, name: &CStr) -> bool {
        match at::identify(dir.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => self.has_made(&found),
            Err(errno) => errno == nix::errno::Errno::ENOENT,
        }
    }

    fn has_made(&self, found: &Identity) -> bool {
        let ours = self.broker.made.as_ref();
        ours.is_some_and(|ours| ours.borrow().has(found))
    }

    /// Whether it may be deleted; and what counts as the user's afterwards in its stead.
    ///
    /// Editors save by giving the old file another name, writing a new one and deleting the old.
    /// The name stays and what it stands for has changed, which a rename over it could do as well.
    pub(super) fn may_delete(
        &self,
        place: &Place<'_>,
        found: &Identity,
    ) -> Result<Option<Identity>, Answer> {
        if !place.door.keeps || self.has_made(found) {
            return Ok(None);
        }
        let successor = match found.kind() {
            libc::S_IFDIR => None,
            _ => self.successor(place, found),
        };
        successor.map(Some).ok_or_else(|| Answer::Kept {
            path: place.inside(),
        })
    }

    /// Whether one may take the other's place. Of two of the user's own one would be gone for good.
    pub(super) fn may_vanish(
        &self,
        place: &Place<'_>,
        moved: &Identity,
        replaced: &Identity,
    ) -> Result<(), Answer> {
        let is_harmless = !place.door.keeps
            || moved.is_same_object(replaced)
            || self.has_made(moved)
            || self.has_made(replaced);
        match is_harmless {
            true => Ok(()),
            false => Err(Answer::Kept {
                path: place.inside(),
            }),
        }
    }

    /// What a program has made where this was before it moved it.
    fn successor(&self, place: &Place<'_>, found: &Identity) -> Option<Identity> {
        let ours = self.broker.made.as_ref()?.borrow();
        let below = ours.origin(found)?.strip_prefix(&place.door.inside).ok()?;
        let folder = open_below(&place.door.writable, below.parent()?)?;
        let name = CString::new(below.file_name()?.as_bytes()).ok()?;
        let there = at::identify(folder.as_raw_fd(), &name, libc::AT_SYMLINK_NOFOLLOW).ok()?;
        (there.kind() == libc::S_IFREG && ours.has(&there)).then_some(there)
    }

    /// It was deleted.
    pub(super) fn note_deleted(&self, found: &Identity, successor: Option<Identity>) {
        if let Some(ours) = &self.broker.made {
            let mut ours = ours.borrow_mut();
            successor.inspect(|it| ours.forget(it));
            // Under another name it is still there.
            if found.kind() == libc::S_IFDIR || found.links < 2 {
                ours.forget(found);
            }
        }
    }

    /// It has another name. What lies where something of the user's was is the user's from now on.
    pub(super) fn note_renamed(
        &self,
        from: &Place<'_>,
        to: &Place<'_>,
        moved: &Identity,
        replaced: Option<&Identity>,
        exchange: bool,
    ) {
        let Some(ours) = &self.broker.made else {
            return;
        };
        let mut ours = ours.borrow_mut();
        let is_ours = ours.has(moved);
        match replaced {
            // Two names of one file: nothing happens.
            Some(replaced) if replaced.is_same_object(moved) => return,
            Some(replaced) if exchange && ours.has(replaced) != is_ours => {
                ours.forget(moved);
                ours.forget(replaced);
            }
            Some(_) if exchange => {}
            Some(replaced) if !ours.has(replaced) => ours.forget(moved),
            Some(replaced) if replaced.links < 2 => ours.forget(replaced),
            Some(_) | None => {}
        }
        if !is_ours && !exchange && moved.kind() != libc::S_IFDIR {
            ours.note_moved(moved, &from.inside(), &to.inside());
        }
    }
}

fn open_below(door: &OwnedFd, folder: &Path) -> Option<OwnedFd> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(door, folder, how).ok()
}
