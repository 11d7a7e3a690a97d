//! Which call means what: numbers and arguments to deeds.

use nix::errno::Errno;
use nix::fcntl::ResolveFlag;
use nix::unistd::UnlinkatFlags;

use super::asked::SYS_FCHMODAT2;
use super::attributes::{Clock, Object};
use super::opening::Wish;
use super::resolve::Last;
use super::{Answer, Case, Outcome};
use crate::sys::notify::Request;

const HERE: i32 = libc::AT_FDCWD;

/// The kernel looks at the low half of these arguments only.
fn int(argument: u64) -> i32 {
    u32::try_from(argument & 0xffff_ffff)
        .unwrap_or(0)
        .cast_signed()
}

fn low(argument: u64) -> u64 {
    argument & 0xffff_ffff
}

fn removal(flags: u64) -> UnlinkatFlags {
    if int(flags) & libc::AT_REMOVEDIR != 0 {
        UnlinkatFlags::RemoveDir
    } else {
        UnlinkatFlags::NoRemoveDir
    }
}

fn wish(dirfd: i32, flags: u64, mode: u64) -> Wish {
    Wish {
        dirfd,
        flags: int(flags),
        mode,
        limits: ResolveFlag::empty(),
    }
}

impl Case<'_> {
    pub(super) fn answer(&self, request: &Request) -> Outcome {
        if request.thread == 0 {
            return Err(Answer::CarryOn);
        }
        let args = &request.args;
        let [a, b, c, d, e, _] = *args;
        match request.call {
            libc::SYS_openat => self.open(b, wish(int(a), c, d)),
            libc::SYS_openat2 => self.open_how(int(a), b, c, d),
            libc::SYS_mkdirat => self.make_directory(int(a), b, c),
            libc::SYS_mknodat => self.make_node(int(a), b, c),
            libc::SYS_symlinkat => self.make_symlink(a, int(b), c),
            libc::SYS_unlinkat => self.remove(int(a), b, removal(c)),
            libc::SYS_renameat => self.rename((int(a), b), (int(c), d), 0),
            libc::SYS_renameat2 => self.rename((int(a), b), (int(c), d), int(e).cast_unsigned()),
            libc::SYS_linkat => self.link((int(a), b), (int(c), d), int(e)),
            libc::SYS_truncate => self.truncate(a, b),
            libc::SYS_fchmod => self.change_mode(Object::Descriptor(int(a)), b, 0),
            libc::SYS_fchmodat => self.change_mode(Object::at(int(a), b, 0), c, 0),
            SYS_FCHMODAT2 => self.change_mode(Object::at(int(a), b, d), c, low(d)),
            libc::SYS_fchown => self.change_owner(Object::Descriptor(int(a)), (b, c), 0),
            libc::SYS_fchownat => self.change_owner(Object::at(int(a), b, e), (c, d), low(e)),
            libc::SYS_utimensat if b == 0 => {
                self.change_times(Object::Descriptor(int(a)), c, Clock::Nanoseconds, 0)
            }
            libc::SYS_utimensat => {
                let object = Object::at(int(a), b, d);
                self.change_times(object, c, Clock::Nanoseconds, low(d))
            }
            libc::SYS_faccessat => self.check_access(Object::at(int(a), b, 0), c, 0),
            libc::SYS_faccessat2 => self.check_access(Object::at(int(a), b, d), c, low(d)),
            libc::SYS_setxattr => self.set_attribute(Object::plain(a, Last::Follow), args),
            libc::SYS_lsetxattr => self.set_attribute(Object::plain(a, Last::Keep), args),
            libc::SYS_fsetxattr => self.set_attribute(Object::Descriptor(int(a)), args),
            libc::SYS_removexattr => self.remove_attribute(Object::plain(a, Last::Follow), b),
            libc::SYS_lremovexattr => self.remove_attribute(Object::plain(a, Last::Keep), b),
            libc::SYS_fremovexattr => self.remove_attribute(Object::Descriptor(int(a)), b),
            libc::SYS_umask => {
                self.broker.umasks.forget();
                Err(Answer::CarryOn)
            }
            _ => self.answer_old(request),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn answer_old(&self, request: &Request) -> Outcome {
        let [a, b, c, ..] = request.args;
        match request.call {
            libc::SYS_open => self.open(a, wish(HERE, b, c)),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(a, wish(HERE, u64::from(flags.cast_unsigned()), b))
            }
            libc::SYS_mkdir => self.make_directory(HERE, a, b),
            libc::SYS_mknod => self.make_node(HERE, a, b),
            libc::SYS_symlink => self.make_symlink(a, HERE, b),
            libc::SYS_unlink => self.remove(HERE, a, UnlinkatFlags::NoRemoveDir),
            libc::SYS_rmdir => self.remove(HERE, a, UnlinkatFlags::RemoveDir),
            libc::SYS_rename => self.rename((HERE, a), (HERE, b), 0),
            libc::SYS_link => self.link((HERE, a), (HERE, b), 0),
            libc::SYS_chmod => self.change_mode(Object::plain(a, Last::Follow), b, 0),
            libc::SYS_chown => self.change_owner(Object::plain(a, Last::Follow), (b, c), 0),
            libc::SYS_lchown => self.change_owner(Object::plain(a, Last::Keep), (b, c), 0),
            libc::SYS_utime => {
                self.change_times(Object::plain(a, Last::Follow), b, Clock::Seconds, 0)
            }
            libc::SYS_utimes => {
                self.change_times(Object::plain(a, Last::Follow), b, Clock::Microseconds, 0)
            }
            libc::SYS_futimesat if b == 0 => {
                self.change_times(Object::Descriptor(int(a)), c, Clock::Microseconds, 0)
            }
            libc::SYS_futimesat => {
                self.change_times(Object::at(int(a), b, 0), c, Clock::Microseconds, 0)
            }
            libc::SYS_access => self.check_access(Object::plain(a, Last::Follow), b, 0),
            _ => Err(Answer::Errno(Errno::EPERM)), // not asked about: see `asked`
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn answer_old(&self, _request: &Request) -> Outcome {
        Err(Answer::Errno(Errno::EPERM))
    }

    /// `openat2`: flags, mode and limits lie in the caller's memory.
    fn open_how(&self, dirfd: i32, path: u64, how: u64, size: u64) -> Outcome {
        const KNOWN: u64 = 24;
        if size != KNOWN {
            return Err(Answer::CarryOn);
        }
        let bytes = self.caller.bytes(how, 24)?;
        let number = |index: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[index * 8..][..8]);
            u64::from_ne_bytes(raw)
        };
        let (flags, mode, limits) = (number(0), number(1), number(2));
        let Some(limits) = ResolveFlag::from_bits(limits) else {
            return Err(Answer::CarryOn);
        };
        if flags > low(u64::MAX) || limits.contains(ResolveFlag::RESOLVE_IN_ROOT) {
            return Err(Answer::CarryOn);
        }
        let wish = Wish {
            limits,
            ..wish(dirfd, flags, mode)
        };
        self.open(path, wish)
    }
}
