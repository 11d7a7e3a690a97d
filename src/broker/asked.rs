//! The calls that are asked about because they could change something in a guarded mount. The
//! filter that asks is `seccomp/guard.json`; a test holds it equal to this list.

/// Added in Linux 6.6; the same number everywhere.
pub(super) const SYS_FCHMODAT2: i64 = 452;

const CALLS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_utimensat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_mknodat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_umask,
];

#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[i64] = &[
    libc::SYS_open,
    libc::SYS_access,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rename,
    libc::SYS_chmod,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_creat,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[i64] = &[];

/// Whether a question about this call is one for the broker. Any other comes from a filter that
/// refuses the call, and there is one answer to it.
pub fn answers(call: i64) -> bool {
    CALLS.contains(&call) || OLD_CALLS.contains(&call)
}
