//! Calls on names below a directory descriptor that nix lacks, or has for glibc only.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;

/// Which object a name leads to, and through which mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// Not to be compared between the box's view and a door: there it differs by design.
    pub(crate) mount: u64,
    pub(crate) mode: u32,
    /// How many names it has.
    pub(crate) links: u32,
    /// When it came into being, where the filesystem knows: seconds and nanoseconds.
    pub(crate) born: Option<(i64, u32)>,
}

/// What is the same stays the same, though its rights and the number of its names change.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_object(other) && self.mount == other.mount
    }
}

impl Eq for Identity {}

impl Identity {
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }

    pub(crate) fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }
}

/// The kernel's `struct statx` as far as it is used; glibc and musl disagree about the rest.
#[repr(C)]
struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad: u16,
    ino: u64,
    size_to_atime: [u64; 5],
    born_seconds: i64,
    born_nanoseconds: u32,
    born_pad: u32,
    ctime_to_rdev: [u64; 5],
    dev_major: u32,
    dev_minor: u32,
    mnt_id: u64,
    spare: [u64; 13],
}

impl Statx {
    const BORN: u32 = 0x800;
    const EMPTY: Self = Self {
        mask: 0,
        blksize: 0,
        attributes: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        mode: 0,
        pad: 0,
        ino: 0,
        size_to_atime: [0; 5],
        born_seconds: 0,
        born_nanoseconds: 0,
        born_pad: 0,
        ctime_to_rdev: [0; 5],
        dev_major: 0,
        dev_minor: 0,
        mnt_id: 0,
        spare: [0; 13],
    };

    fn of(dir: RawFd, name: &CStr, flags: i32) -> Result<Self, Errno> {
        const TYPE_MODE_LINKS: u32 = 0x1 | 0x2 | 0x4;
        const OWNERS_INO_MOUNT: u32 = 0x8 | 0x10 | 0x100 | 0x1000;
        let mut raw = Self::EMPTY;
        // SAFETY: `name` ends with NUL and `raw` has the 256 bytes the kernel writes. A wrong
        // descriptor number gives EBADF.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_statx,
                dir,
                name.as_ptr(),
                flags | libc::AT_NO_AUTOMOUNT,
                TYPE_MODE_LINKS | OWNERS_INO_MOUNT | Self::BORN,
                &raw mut raw,
            )
        };
        Errno::result(ret)?;
        Ok(raw)
    }
}

const _: () = assert!(size_of::<Statx>() == 256);
const _: () = assert!(std::mem::offset_of!(Statx, born_seconds) == 80);
const _: () = assert!(std::mem::offset_of!(Statx, dev_major) == 136);

/// Who `name` below `dir` is. `flags` are those of `statx`.
pub(crate) fn identify(dir: RawFd, name: &CStr, flags: i32) -> Result<Identity, Errno> {
    let raw = Statx::of(dir, name, flags)?;
    Ok(Identity {
        device: (raw.dev_major, raw.dev_minor),
        inode: raw.ino,
        mount: raw.mnt_id,
        mode: raw.mode.into(),
        links: raw.nlink,
        born: (raw.mask & Statx::BORN != 0).then_some((raw.born_seconds, raw.born_nanoseconds)),
    })
}

/// What the kernel remembers of an open file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// What is known of an open file without asking the disk or the server it lies on.
pub(crate) fn remembered(fd: BorrowedFd<'_>) -> Result<Remembered, Errno> {
    const DO_NOT_ASK: i32 = 0x4000;
    let raw = Statx::of(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH | DO_NOT_ASK)?;
    Ok(Remembered {
        device: (raw.dev_major, raw.dev_minor),
        inode: raw.ino,
        uid: raw.uid,
        gid: raw.gid,
        mode: raw.mode.into(),
    })
}

/// Opens a path for reference only, with no link in it, and only if the kernel needs nobody to find it:
/// EAGAIN where it would have to ask.
pub(crate) fn open_if_known(path: &std::path::Path) -> Result<std::os::fd::OwnedFd, Errno> {
    use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
    const CACHED: u64 = 0x20;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::from_bits_retain(CACHED));
    openat2(AT_FDCWD, path, how)
}

/// Whether something is mounted exactly here.
pub(crate) fn is_mount_root(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    const MOUNT_ROOT: u64 = 0x2000;
    let raw = Statx::of(fd.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
    Ok(raw.attributes & MOUNT_ROOT != 0)
}

/// Opens a path for reference only, through links.
pub(crate) fn open_path(path: &std::path::Path) -> Result<std::os::fd::OwnedFd, Errno> {
    use nix::fcntl::OFlag;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty())
}

/// `renameat2`, which musl's nix does not offer.
pub(crate) fn rename(
    from: BorrowedFd<'_>,
    old: &CStr,
    to: BorrowedFd<'_>,
    new: &CStr,
    flags: u32,
) -> Result<(), Errno> {
    // SAFETY: both names end with NUL and live through the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            flags,
        )
    };
    Errno::result(ret).map(drop)
}

/// `mknodat` with the type and permissions in one number, as the kernel has it.
pub(crate) fn make_node(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    // SAFETY: `name` ends with NUL and lives through the call.
    let ret = unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, 0) };
    Errno::result(ret).map(drop)
}

/// Sets times; `None` is now.
pub(crate) fn set_times(
    dir: BorrowedFd<'_>,
    name: &CStr,
    times: Option<[libc::timespec; 2]>,
    flags: i32,
) -> Result<(), Errno> {
    let times = times.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    // SAFETY: `name` ends with NUL; `times` is null or points to two entries on our stack.
    let ret = unsafe { libc::utimensat(dir.as_raw_fd(), name.as_ptr(), times, flags) };
    Errno::result(ret).map(drop)
}

/// `faccessat2`, which does not need the C library's detours.
pub(crate) fn may_access(
    dir: BorrowedFd<'_>,
    name: &CStr,
    mode: i32,
    flags: i32,
) -> Result<(), Errno> {
    // SAFETY: `name` ends with NUL and lives through the call.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            dir.as_raw_fd(),
            name.as_ptr(),
            mode,
            flags,
        )
    };
    Errno::result(ret).map(drop)
}

/// Sets an extended attribute of what `path` leads to.
pub(crate) fn set_attribute(
    path: &CStr,
    name: &CStr,
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    // SAFETY: both strings end with NUL; the kernel reads `value.len()` bytes of `value`.
    let ret = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    };
    Errno::result(ret).map(drop)
}

/// Removes an extended attribute of what `path` leads to.
pub(crate) fn remove_attribute(path: &CStr, name: &CStr) -> Result<(), Errno> {
    // SAFETY: both strings end with NUL.
    let ret = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    Errno::result(ret).map(drop)
}
