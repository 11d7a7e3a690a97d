//! The descriptor-based mount API: nothing here resolves a path twice.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::NixPath;

use super::check;

pub(crate) const ATTR_READ_ONLY: u64 = 0x1;
pub(crate) const ATTR_NO_SETUID: u64 = 0x2;
pub(crate) const ATTR_NO_DEVICES: u64 = 0x4;
pub(crate) const ATTR_NO_EXEC: u64 = 0x8;
const ATTR_ID_MAP: u64 = 0x0010_0000;
const AT_RECURSIVE: libc::c_uint = 0x8000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// Copies the mount at `path` (below `at`), with everything mounted below it, into a detached
/// tree that nobody else can see.
pub(crate) fn copy_tree(at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | AT_RECURSIVE
        | libc::AT_EMPTY_PATH as libc::c_uint
        | libc::AT_NO_AUTOMOUNT as libc::c_uint;
    open_tree(at, path, flags)
}

/// Like [`copy_tree`], from the working directory, through links, and through automounts: the
/// caller named the source and wants what is there.
pub(crate) fn copy_tree_of(path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    open_tree(here(), path, flags)
}

/// Like [`copy_tree`], for the one mount only.
pub(crate) fn copy_mount(at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | libc::AT_EMPTY_PATH as libc::c_uint
        | libc::AT_NO_AUTOMOUNT as libc::c_uint;
    open_tree(at, path, flags)
}

fn open_tree(at: BorrowedFd<'_>, path: &Path, flags: libc::c_uint) -> io::Result<OwnedFd> {
    let fd = at.as_raw_fd();
    let ret = path.with_nix_path(|path| {
        // SAFETY: the path is a C string that outlives the call.
        unsafe { libc::syscall(libc::SYS_open_tree, fd, path.as_ptr(), flags) }
    })?;
    own(ret)
}

/// Sets attributes on a whole tree and cuts it off from mounts made elsewhere later.
pub(crate) fn restrict_tree(tree: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let attr = MountAttr {
        set: attributes,
        clear: 0,
        propagation: libc::MS_PRIVATE,
        userns: 0,
    };
    set_attributes(tree, &attr, AT_RECURSIVE)
}

/// Makes one mount read-only and leaves those below it as they are.
pub(crate) fn freeze_mount(mount: BorrowedFd<'_>) -> io::Result<()> {
    restrict_mount(mount, ATTR_READ_ONLY)
}

/// Takes attributes away from one mount again.
pub(crate) fn loosen_mount(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let attr = MountAttr {
        set: 0,
        clear: attributes,
        propagation: 0,
        userns: 0,
    };
    set_attributes(mount, &attr, 0)
}

/// Sets attributes on one mount.
pub(crate) fn restrict_mount(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let attr = MountAttr {
        set: attributes,
        clear: 0,
        propagation: 0,
        userns: 0,
    };
    set_attributes(mount, &attr, 0)
}

/// Shows the tree's files with other owners, as the user namespace behind `userns` maps them.
pub(crate) fn map_owners(tree: BorrowedFd<'_>, userns: BorrowedFd<'_>) -> io::Result<()> {
    let userns = userns.as_raw_fd() as u64;
    let attr = MountAttr {
        set: ATTR_ID_MAP,
        clear: 0,
        propagation: 0,
        userns,
    };
    set_attributes(tree, &attr, AT_RECURSIVE)
}

fn set_attributes(mount: BorrowedFd<'_>, attr: &MountAttr, flags: libc::c_uint) -> io::Result<()> {
    let flags = flags | libc::AT_EMPTY_PATH as libc::c_uint;
    // SAFETY: the path is an empty C string, the structure outlives the call and its true size
    // is given.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const *attr,
            size_of::<MountAttr>(),
        )
    };
    check(ret).map(drop)
}

/// Attaches a detached tree onto the object behind `target`.
pub(crate) fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    move_mount(tree, target, 0)
}

/// Attaches a detached tree under the mount whose top `target` is, so that it is seen when that
/// one is taken away. Kernels before 6.5 refuse the question.
pub(crate) fn attach_beneath(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    const BENEATH: libc::c_uint = 0x200;
    move_mount(tree, target, BENEATH)
}

fn move_mount(tree: BorrowedFd<'_>, target: BorrowedFd<'_>, how: libc::c_uint) -> io::Result<()> {
    const FROM_DESCRIPTOR: libc::c_uint = 0x4;
    const ONTO_DESCRIPTOR: libc::c_uint = 0x40;
    // SAFETY: both paths are empty C strings: the descriptors alone say what is meant.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            FROM_DESCRIPTOR | ONTO_DESCRIPTOR | how,
        )
    };
    check(ret).map(drop)
}

/// Makes a new, detached filesystem with the given options.
pub(crate) fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: u64,
) -> io::Result<OwnedFd> {
    const CLOEXEC: libc::c_uint = 1;
    const SET_STRING: libc::c_uint = 1;
    const CREATE: libc::c_uint = 6;
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: the kind is a C string.
    let ret = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOEXEC) };
    let context = own(ret)?;
    let fd = context.as_raw_fd();
    for (key, value) in options {
        let (key, value) = (key.as_ptr(), value.as_ptr());
        // SAFETY: key and value are C strings that outlive the call.
        let ret = unsafe { libc::syscall(libc::SYS_fsconfig, fd, SET_STRING, key, value, 0) };
        check(ret)?;
    }
    // SAFETY: the create command takes neither key nor value.
    let ret = unsafe { libc::syscall(libc::SYS_fsconfig, fd, CREATE, none, none, 0) };
    check(ret)?;
    // SAFETY: takes integers only.
    let ret = unsafe { libc::syscall(libc::SYS_fsmount, fd, CLOEXEC, attributes) };
    own(ret)
}

/// Makes the current directory the root and lets go of the old one for good, with as many mounts
/// as lie on top of that.
pub(crate) fn enter_current_directory_as_root(covers: usize) -> io::Result<()> {
    // With the same directory for both, the old root ends up mounted on top of the new one, so
    // unmounting the current directory leaves no name for it.
    nix::unistd::pivot_root(".", ".")?;
    // What lies on the old root's own top is the first that the directory stands for.
    for _ in 0..=covers {
        nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
    }
    nix::unistd::chdir("/")?;
    Ok(())
}

fn own(ret: libc::c_long) -> io::Result<OwnedFd> {
    let fd = check(ret)? as libc::c_int;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The working directory as a place to resolve from.
pub(crate) fn here() -> BorrowedFd<'static> {
    nix::fcntl::AT_FDCWD.as_fd()
}
