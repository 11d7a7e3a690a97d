//! Calls that change what is said about a file: permissions, owner, times, extended attributes.

use std::ffi::CString;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Gid, Uid, fchownat};

use super::resolve::{Last, Place, own};
use super::{Answer, Case, Outcome};
use crate::sys::at;

/// The kernel's own limits for extended attributes.
const VALUE_LIMIT: u64 = 64 * 1024;
const NAME_LIMIT: usize = 255;

/// How a call names its object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Object {
    Path { dirfd: i32, path: u64, last: Last },
    Descriptor(i32),
}

impl Object {
    pub(super) fn at(dirfd: i32, path: u64, flags: u64) -> Self {
        let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
        let last = if has(libc::AT_SYMLINK_NOFOLLOW) {
            Last::Keep
        } else {
            Last::Follow
        };
        Self::Path { dirfd, path, last }
    }

    pub(super) fn plain(path: u64, last: Last) -> Self {
        Self::Path {
            dirfd: libc::AT_FDCWD,
            path,
            last,
        }
    }
}

/// Which of the old calls brings the times.
#[derive(Debug, Clone, Copy)]
pub(super) enum Clock {
    Nanoseconds,
    Microseconds,
    Seconds,
}

impl Case<'_> {
    /// An existing object, its kind, and whether the caller may change it.
    fn object(&self, object: Object, empty_is_descriptor: bool) -> Result<Place<'_>, Answer> {
        let place = self.named(object, empty_is_descriptor)?;
        self.may_touch(&place)?;
        Ok(place)
    }

    fn named(&self, object: Object, empty_is_descriptor: bool) -> Result<Place<'_>, Answer> {
        let place = match object {
            Object::Descriptor(number) => self.place_of_descriptor(number)?,
            Object::Path { dirfd, path, last } => {
                let path = self.caller.text(path)?;
                if path.is_empty() && empty_is_descriptor && dirfd >= 0 {
                    self.place_of_descriptor(dirfd)?
                } else {
                    self.place(dirfd, &path, last)?
                }
            }
        };
        place.existing()?;
        Ok(place)
    }

    pub(super) fn change_mode(&self, object: Object, mode: u64, flags: u64) -> Outcome {
        let mode = u32::try_from(mode & 0o7777).unwrap_or(0);
        let lends_identity = mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        let place = match self.named(object, empties(flags)) {
            // A descriptor that came through a door carries on to a writable mount, and which one
            // is meant can change until the kernel looks: these bits are decided by number alone.
            Err(Answer::CarryOn) if lends_identity => return Err(Errno::EPERM.into()),
            other => other?,
        };
        self.may_change_mode(&place)?;
        let kind = place.existing()?.kind();
        if kind == libc::S_IFLNK {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if kind != libc::S_IFDIR && lends_identity {
            return Err(Errno::EPERM.into());
        }
        let handle = place.object()?;
        let follow = FchmodatFlags::FollowSymlink;
        let mode = Mode::from_bits_truncate(mode);
        fchmodat(AT_FDCWD, own(&handle).as_c_str(), mode, follow)?;
        Ok(Answer::Done)
    }

    pub(super) fn change_owner(&self, object: Object, owner: (u64, u64), flags: u64) -> Outcome {
        let place = self.object(object, empties(flags))?;
        let id = |raw: u64| {
            u32::try_from(raw & 0xffff_ffff)
                .ok()
                .filter(|id| *id != u32::MAX)
        };
        let handle = place.object()?;
        let (user, group) = (
            id(owner.0).map(Uid::from_raw),
            id(owner.1).map(Gid::from_raw),
        );
        fchownat(&handle, c"", user, group, AtFlags::AT_EMPTY_PATH)?;
        Ok(Answer::Done)
    }

    pub(super) fn change_times(
        &self,
        object: Object,
        times: u64,
        clock: Clock,
        flags: u64,
    ) -> Outcome {
        let times = match times {
            0 => None,
            address => Some(self.times(address, clock)?),
        };
        let place = self.object(object, empties(flags))?;
        match &place.name {
            Some(name) => at::set_times(place.dir(), name, times, libc::AT_SYMLINK_NOFOLLOW)?,
            None => at::set_times(place.dir(), &own(&place.dir), times, 0)?,
        }
        Ok(Answer::Done)
    }

    fn times(&self, address: u64, clock: Clock) -> Result<[libc::timespec; 2], Answer> {
        let length = match clock {
            Clock::Seconds => 16,
            Clock::Nanoseconds | Clock::Microseconds => 32,
        };
        let bytes = self.caller.bytes(address, length)?;
        let number = |index: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[index * 8..][..8]);
            i64::from_ne_bytes(raw)
        };
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        Ok(match clock {
            Clock::Seconds => [time(number(0), 0), time(number(1), 0)],
            Clock::Nanoseconds => [time(number(0), number(1)), time(number(2), number(3))],
            Clock::Microseconds => {
                let (first, second) = (number(1), number(3));
                if !(0..1_000_000).contains(&first) || !(0..1_000_000).contains(&second) {
                    return Err(Errno::EINVAL.into());
                }
                [
                    time(number(0), first * 1000),
                    time(number(2), second * 1000),
                ]
            }
        })
    }

    /// Programs ask before they write; a read-only mount would make them give up.
    pub(super) fn check_access(&self, object: Object, mode: u64, flags: u64) -> Outcome {
        let place = self.object(object, empties(flags))?;
        let mode = i32::try_from(mode & 7).unwrap_or(7);
        let effective = i32::try_from(flags).unwrap_or(0) & libc::AT_EACCESS;
        match &place.name {
            Some(name) => {
                let flags = effective | libc::AT_SYMLINK_NOFOLLOW;
                at::may_access(place.dir(), name, mode, flags)?;
            }
            None => at::may_access(place.dir(), c"", mode, effective | libc::AT_EMPTY_PATH)?,
        }
        Ok(Answer::Done)
    }

    pub(super) fn set_attribute(&self, object: Object, args: &[u64; 6]) -> Outcome {
        let [_, name, value, size, flags, _] = *args;
        let name = self.attribute_name(name)?;
        if size > VALUE_LIMIT {
            return Err(Errno::E2BIG.into());
        }
        let value = self
            .caller
            .bytes(value, usize::try_from(size).unwrap_or(0))?;
        let place = self.object(object, false)?;
        if place.existing()?.kind() == libc::S_IFLNK {
            return Err(Errno::EPERM.into());
        }
        let handle = place.object()?;
        let flags = i32::try_from(flags).unwrap_or(-1);
        at::set_attribute(&own(&handle), &name, &value, flags)?;
        Ok(Answer::Done)
    }

    pub(super) fn remove_attribute(&self, object: Object, name: u64) -> Outcome {
        let name = self.attribute_name(name)?;
        let place = self.object(object, false)?;
        if place.existing()?.kind() == libc::S_IFLNK {
            return Err(Errno::EPERM.into());
        }
        let handle = place.object()?;
        at::remove_attribute(&own(&handle), &name)?;
        Ok(Answer::Done)
    }

    fn attribute_name(&self, address: u64) -> Result<CString, Answer> {
        let name = self.caller.text(address)?;
        if name.is_empty() || name.len() > NAME_LIMIT {
            return Err(Errno::ERANGE.into());
        }
        CString::new(name).map_err(|_| Answer::CarryOn)
    }
}

fn empties(flags: u64) -> bool {
    flags & u64::from(libc::AT_EMPTY_PATH.cast_unsigned()) != 0
}
