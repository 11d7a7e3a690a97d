//! Calls that change directories: making, removing, moving and linking.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::mkdirat;
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::caller::Caller;
use super::guarding::{Arrival, guarded};
use super::resolve::{Last, Place, own};
use super::{Answer, Case, Outcome, permissions};
use crate::policy::guard::{GIT_CONFIG, GIT_POINTER};
use crate::sys::at;

impl Case<'_> {
    /// The place of something new. `None` for its name means that it exists.
    fn new_place(&self, dirfd: i32, path: u64) -> Result<Place<'_>, Answer> {
        let path = self.caller.text(path)?;
        let place = self.place(dirfd, &path, Last::Keep)?;
        match place.look()? {
            Some(_) => Err(Errno::EEXIST.into()),
            None => Ok(place),
        }
    }

    /// The same for what is not a directory and so cannot end with a slash.
    fn new_file_place(&self, dirfd: i32, path: u64) -> Result<Place<'_>, Answer> {
        let place = self.new_place(dirfd, path)?;
        if place.slash {
            return Err(Errno::ENOENT.into());
        }
        Ok(place)
    }

    pub(super) fn make_directory(&self, dirfd: i32, path: u64, mode: u64) -> Outcome {
        let place = self.new_place(dirfd, path)?;
        self.may_arrive(&place, Arrival::NewDirectory)?;
        self.creating(|| mkdirat(&place.dir, place.name(), permissions(mode)))?;
        self.note_made(&place);
        Ok(Answer::Done)
    }

    pub(super) fn make_node(&self, dirfd: i32, path: u64, mode: u64) -> Outcome {
        let mode = u32::try_from(mode & 0xffff).unwrap_or(0);
        let kind = mode & libc::S_IFMT;
        let place = self.new_file_place(dirfd, path)?;
        // Devices, and the 0:0 one that hides files in an overlay, are nothing to leave behind.
        if !matches!(kind, 0 | libc::S_IFREG | libc::S_IFIFO | libc::S_IFSOCK) {
            return Err(Errno::EPERM.into());
        }
        self.may_arrive(&place, Arrival::Other)?;
        let mode = kind | (mode & 0o1777);
        self.creating(|| at::make_node(place.dir(), place.name(), mode))?;
        self.note_made(&place);
        Ok(Answer::Done)
    }

    pub(super) fn make_symlink(&self, target: u64, dirfd: i32, path: u64) -> Outcome {
        let target = self.caller.text(target)?;
        let place = self.new_file_place(dirfd, path)?;
        self.may_arrive(&place, Arrival::Link)?;
        symlinkat(target.as_slice(), &place.dir, place.name())?;
        self.note_made(&place);
        Ok(Answer::Done)
    }

    pub(super) fn remove(&self, dirfd: i32, path: u64, what: UnlinkatFlags) -> Outcome {
        let path = self.caller.text(path)?;
        let place = self.place(dirfd, &path, Last::Keep)?;
        if place.name.is_none() {
            // A door itself, or a path that ends with a dot: the kernel refuses both.
            return Err(Answer::CarryOn);
        }
        let found = place.existing()?;
        self.may_remove(&place)?;
        // Where the call does not fit what is there, the kernel's own answer is the right one.
        let fits = (found.kind() == libc::S_IFDIR) == matches!(what, UnlinkatFlags::RemoveDir);
        let successor = match fits {
            true => self.may_delete(&place, &found)?,
            false => None,
        };
        unlinkat(&place.dir, place.name(), what)?;
        self.note_deleted(&found, successor);
        Ok(Answer::Done)
    }

    pub(super) fn rename(&self, old: (i32, u64), new: (i32, u64), flags: u32) -> Outcome {
        let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
        if flags & !known != 0 {
            return Err(Answer::CarryOn);
        }
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let from = self.place(old.0, &self.caller.text(old.1)?, Last::Keep)?;
        let to = self.place(new.0, &self.caller.text(new.1)?, Last::Keep)?;
        // Between two mounts the kernel's own answer is the right one, and it comes before the
        // one about read-only mounts.
        if from.name.is_none() || to.name.is_none() || !std::ptr::eq(from.door, to.door) {
            return Err(Answer::CarryOn);
        }
        let found = from.existing()?;
        let moved = found.kind();
        let replaced = to.look()?;
        if to.slash && moved != libc::S_IFDIR {
            return Err(Errno::ENOTDIR.into());
        }
        if replaced.is_some() && flags & libc::RENAME_NOREPLACE != 0 {
            return Err(Errno::EEXIST.into());
        }
        self.may_leave(&from, moved == libc::S_IFDIR)?;
        // What is mounted in a folder would come along, to a place at which nobody knows it.
        if self.broker.has_mount_in(&from.inside())
            || exchange && self.broker.has_mount_in(&to.inside())
        {
            return Err(Errno::EBUSY.into());
        }
        if let Some(replaced) = replaced.as_ref().filter(|_| !exchange) {
            self.may_vanish(&to, &found, replaced)?;
        }
        if flags == 0
            && moved == libc::S_IFREG
            && self.rule_of(&to).is_some_and(|rule| rule == GIT_CONFIG)
        {
            return self.replace_config(&from, &to);
        }
        self.may_move(&from, moved, &to)?;
        if let Some(replaced) = &replaced {
            let replaced = replaced.kind();
            self.may_leave(&to, replaced == libc::S_IFDIR && exchange)?;
            if exchange {
                self.may_move(&to, replaced, &from)?;
            }
        }
        at::rename(from.dir(), from.name(), to.dir(), to.name(), flags)?;
        self.note_renamed(&from, &to, &found, replaced.as_ref(), exchange);
        Ok(Answer::Done)
    }

    fn may_move(&self, what: &Place<'_>, kind: u32, to: &Place<'_>) -> Result<(), Answer> {
        match kind {
            libc::S_IFDIR => self.may_arrive(to, Arrival::Directory(&what.object()?)),
            libc::S_IFLNK => self.may_arrive(to, Arrival::Link),
            _ => self.may_arrive(to, Arrival::Other),
        }
    }

    pub(super) fn link(&self, old: (i32, u64), new: (i32, u64), flags: i32) -> Outcome {
        let path = self.caller.text(old.1)?;
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let descriptor = if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
            Some(old.0)
        } else {
            Caller::descriptor_in(&path).filter(|_| follow)
        };
        let from = match descriptor {
            Some(number) => self.place_of_descriptor(number),
            None => {
                let last = if follow { Last::Follow } else { Last::Keep };
                self.place(old.0, &path, last)
            }
        };
        let from = match (from, descriptor) {
            // A file without a name: it came through a door, or the kernel will refuse it.
            (Err(Answer::CarryOn), Some(number)) => {
                return self.name_the_nameless(&self.caller.handle(number)?, new);
            }
            (Err(Answer::CarryOn), None) => return self.link_from_outside(old.0, &path, new),
            (from, _) => from?,
        };
        let kind = from.existing()?.kind();
        let to = self.new_file_place(new.0, new.1)?;
        if from.name.is_none() || !std::ptr::eq(from.door, to.door) {
            return Err(Errno::EXDEV.into());
        }
        if kind == libc::S_IFDIR {
            return Err(Errno::EPERM.into());
        }
        self.may_touch(&from)?;
        if self.is_pointer(&from) {
            // Under a second name it could be written to.
            return Err(guarded(&from, GIT_POINTER.to_owned()));
        }
        self.may_move(&from, kind, &to)?;
        linkat(&from.dir, from.name(), &to.dir, to.name(), AtFlags::empty())?;
        Ok(Answer::Done)
    }

    /// Two mounts: the answer that makes programs copy instead, where the kernel would speak of a
    /// read-only one.
    fn link_from_outside(&self, dirfd: i32, old: &[u8], new: (i32, u64)) -> Outcome {
        let base = match old.first() {
            Some(b'/') => None,
            _ => Some(self.caller.base(dirfd)?),
        };
        let base = base.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
        let old = CString::new(old).map_err(|_| Answer::CarryOn)?;
        at::identify(base, &old, libc::AT_SYMLINK_NOFOLLOW).map_err(|_| Answer::CarryOn)?;
        self.new_file_place(new.0, new.1)?;
        Err(Errno::EXDEV.into())
    }

    /// `O_TMPFILE`, then a name. The kernel demands that file and directory come through the same
    /// mount, so nothing that was opened in the box's own view can arrive this way.
    fn name_the_nameless(&self, file: &OwnedFd, new: (i32, u64)) -> Outcome {
        let to = self.new_file_place(new.0, new.1)?;
        self.may_arrive(&to, Arrival::Other)?;
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        linkat(AT_FDCWD, own(file).as_c_str(), &to.dir, to.name(), follow)?;
        Ok(Answer::Done)
    }
}
