//! Opening files for writing, and making them.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, ResolveFlag, fcntl, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::ftruncate;

use super::guarding::{Arrival, guarded};
use super::resolve::{Last, Place, own};
use super::{Answer, Case, Outcome, permissions};
use crate::policy::guard::GIT_POINTER;

/// Flags that mean the same when the broker opens in the caller's stead.
const PASSED_ON: i32 = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_DSYNC
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_LARGEFILE;

/// What a caller wants opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) dirfd: i32,
    pub(super) flags: i32,
    pub(super) mode: u64,
    pub(super) limits: ResolveFlag,
}

impl Wish {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag == flag
    }

    fn only_reads(&self) -> bool {
        self.flags & libc::O_ACCMODE == libc::O_RDONLY && !self.has(libc::O_TRUNC)
    }

    /// The flags to open with. Never waiting: a lease held inside the box must not stop us.
    fn passed_on(&self, without: i32) -> OFlag {
        let flags = self.flags & PASSED_ON & !without;
        OFlag::from_bits_retain(flags | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC)
    }

    /// For a file that was opened without waiting.
    fn calm_down(&self, file: OwnedFd) -> Outcome {
        if !self.has(libc::O_NONBLOCK) {
            let flags = self.flags & PASSED_ON & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
            fcntl(&file, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags)))?;
        }
        self.hand_over(file)
    }

    fn hand_over(&self, file: OwnedFd) -> Outcome {
        Ok(Answer::File {
            file,
            close_on_exec: self.has(libc::O_CLOEXEC),
        })
    }
}

impl Case<'_> {
    pub(super) fn open(&self, path: u64, wish: Wish) -> Outcome {
        let creates = wish.has(libc::O_CREAT);
        let nameless = wish.has(libc::O_TMPFILE);
        if wish.has(libc::O_PATH) || (wish.only_reads() && !creates && !nameless) {
            return Err(Answer::CarryOn);
        }
        if creates && wish.has(libc::O_DIRECTORY) && !nameless {
            return Err(Answer::CarryOn);
        }
        let path = self.caller.text(path)?;
        if path == b"/dev/null" {
            // Scripts open nothing as often as this.
            return Err(Answer::CarryOn);
        }
        let keep = wish.has(libc::O_NOFOLLOW) || (creates && wish.has(libc::O_EXCL));
        let last = if keep { Last::Keep } else { Last::Follow };
        let place = self.place_within(wish.dirfd, &path, last, wish.limits)?;
        if nameless {
            return self.open_nameless(&place, wish);
        }
        self.note_record(&place);
        if self.is_pointer(&place) {
            let writes = match place.look()?.map(|found| found.kind()) {
                None => creates && !place.slash,
                Some(libc::S_IFREG) => !wish.only_reads() && !wish.has(libc::O_EXCL),
                Some(_) => false,
            };
            if writes {
                return wish.hand_over(self.write_pointer(&place)?);
            }
        }
        let Some(found) = place.look()? else {
            return match (creates, place.slash) {
                (false, _) => Err(Errno::ENOENT.into()),
                (true, true) => Err(Errno::EISDIR.into()),
                (true, false) => self.create(&place, wish),
            };
        };
        if creates && wish.has(libc::O_EXCL) {
            return Err(Errno::EEXIST.into());
        }
        match found.kind() {
            libc::S_IFDIR => Err(Errno::EISDIR.into()),
            libc::S_IFLNK => Err(Errno::ELOOP.into()),
            libc::S_IFREG if place.slash || wish.has(libc::O_DIRECTORY) => {
                Err(Errno::ENOTDIR.into())
            }
            libc::S_IFREG if wish.only_reads() => Err(Answer::CarryOn),
            libc::S_IFREG => {
                self.may_touch(&place)?;
                wish.calm_down(reopen(
                    &place,
                    wish.passed_on(libc::O_CREAT | libc::O_EXCL),
                )?)
            }
            // Pipes, sockets and devices open on a read-only mount, and may take their time.
            _ => Err(Answer::CarryOn),
        }
    }

    fn create(&self, place: &Place<'_>, wish: Wish) -> Outcome {
        self.may_arrive(place, Arrival::Other)?;
        // Exclusive: if the host was quicker, what it made has not been looked at.
        let mut flags = wish.passed_on(0) | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        // Nobody can have a lease on what does not exist yet.
        flags.set(OFlag::O_NONBLOCK, wish.has(libc::O_NONBLOCK));
        let made =
            self.creating(|| openat(&place.dir, place.name(), flags, permissions(wish.mode)));
        match made {
            Err(Answer::Errno(Errno::EEXIST)) if !wish.has(libc::O_EXCL) => {
                self.may_touch(place)?;
                let flags = wish.passed_on(libc::O_CREAT | libc::O_EXCL);
                wish.calm_down(reopen(place, flags)?)
            }
            Err(other) => Err(other),
            Ok(file) => {
                self.note_file(&file);
                wish.hand_over(file)
            }
        }
    }

    fn open_nameless(&self, place: &Place<'_>, wish: Wish) -> Outcome {
        self.may_touch(place)?;
        let dir = place.object()?;
        let flags = wish.passed_on(libc::O_CREAT | libc::O_TRUNC) | OFlag::O_TMPFILE;
        let file = self.creating(|| open(own(&dir).as_c_str(), flags, permissions(wish.mode)))?;
        self.note_file(&file);
        wish.calm_down(file)
    }

    pub(super) fn truncate(&self, path: u64, length: u64) -> Outcome {
        let path = self.caller.text(path)?;
        let place = self.place(libc::AT_FDCWD, &path, Last::Follow)?;
        match place.existing()?.kind() {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
        self.may_touch(&place)?;
        if self.is_pointer(&place) {
            return Err(guarded(&place, GIT_POINTER.to_owned()));
        }
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        ftruncate(reopen(&place, flags)?, length.cast_signed())?;
        Ok(Answer::Done)
    }
}

/// Opens a regular file behind a door; one that is a door itself is opened through itself.
fn reopen(place: &Place<'_>, flags: OFlag) -> Result<OwnedFd, Errno> {
    match &place.name {
        Some(name) => openat(
            &place.dir,
            name.as_c_str(),
            flags | OFlag::O_NOFOLLOW,
            Mode::empty(),
        ),
        None => open(own(&place.dir).as_c_str(), flags, Mode::empty()),
    }
}
