//! The calls that are asked about, as a filter program.

use libc::sock_filter;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
/// Elsewhere nothing is asked, and guarded mounts are simply read-only.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCH: u32 = 0;

/// Added in Linux 6.6; the same number everywhere.
pub(super) const SYS_FCHMODAT2: i64 = 452;

/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
const CHANGES: u32 =
    (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | TMPFILE).cast_unsigned();
const W_OK: u32 = libc::W_OK.cast_unsigned();

/// Calls that matter only when an argument has one of these bits: call, argument, bits.
const SOMETIMES: &[(i64, u32, u32)] = &[
    (libc::SYS_openat, 2, CHANGES),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, CHANGES),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_access, 1, W_OK),
    (libc::SYS_faccessat, 2, W_OK),
    (libc::SYS_faccessat2, 2, W_OK),
];

const ALWAYS: &[i64] = &[
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_utimensat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_openat2,
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
    SYS_FCHMODAT2,
    // Changes nothing by itself, but what was read about it does not hold any more.
    libc::SYS_umask,
];

#[cfg(target_arch = "x86_64")]
const ALWAYS_OLD: &[i64] = &[
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
const ALWAYS_OLD: &[i64] = &[];

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// The program: foreign architectures and everything unnamed are allowed, since the box's own
/// filter has its say about them anyway.
pub(super) fn program() -> Vec<sock_filter> {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let allow = step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
    let ask = step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF);
    let mut program = vec![
        step(LOAD, 0, 0, 4),
        step(EQUAL, 1, 0, ARCH),
        allow,
        step(LOAD, 0, 0, 0),
    ];
    for (call, argument, bits) in SOMETIMES {
        // The low half of the argument; both architectures are little-endian.
        program.push(step(EQUAL, 0, 4, number(*call)));
        program.push(step(LOAD, 0, 0, 16 + 8 * argument));
        program.push(step(ANY_BIT, 0, 1, *bits));
        program.push(ask);
        program.push(allow);
    }
    for call in ALWAYS.iter().chain(ALWAYS_OLD) {
        program.push(step(EQUAL, 0, 1, number(*call)));
        program.push(ask);
    }
    program.push(allow);
    program
}

fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would.
    fn answer(arch: u32, call: i64, args: [u64; 6]) -> u32 {
        let program = program();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => {
                    value = match step.k {
                        0 => number(call),
                        4 => arch,
                        k => u32::try_from(args[(k as usize - 16) / 8] & 0xffff_ffff).unwrap(),
                    }
                }
                RETURN => return step.k,
                EQUAL => at += usize::from(if value == step.k { step.jt } else { step.jf }),
                ANY_BIT => {
                    at += usize::from(if value & step.k != 0 {
                        step.jt
                    } else {
                        step.jf
                    })
                }
                _ => panic!("unknown step"),
            }
        }
    }

    #[test]
    fn only_changes_are_asked_about() {
        let open = |flags: i32| {
            let flags = u64::from(flags.cast_unsigned());
            answer(ARCH, libc::SYS_openat, [0, 0, flags, 0, 0, 0])
        };
        assert_eq!(
            open(libc::O_RDONLY | libc::O_CLOEXEC),
            libc::SECCOMP_RET_ALLOW
        );
        assert_eq!(
            open(libc::O_RDONLY | libc::O_DIRECTORY),
            libc::SECCOMP_RET_ALLOW
        );
        for flags in [
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_CREAT,
            libc::O_TRUNC,
            libc::O_TMPFILE,
        ] {
            assert_eq!(open(flags), libc::SECCOMP_RET_USER_NOTIF);
        }
        assert_eq!(
            answer(ARCH, libc::SYS_read, [0; 6]),
            libc::SECCOMP_RET_ALLOW
        );
        assert_eq!(
            answer(ARCH, libc::SYS_unlinkat, [0; 6]),
            libc::SECCOMP_RET_USER_NOTIF
        );
        assert_eq!(
            answer(ARCH, SYS_FCHMODAT2, [0; 6]),
            libc::SECCOMP_RET_USER_NOTIF
        );
    }

    #[test]
    fn another_architecture_is_left_to_the_boxs_own_filter() {
        assert_eq!(
            answer(ARCH + 1, libc::SYS_unlinkat, [0; 6]),
            libc::SECCOMP_RET_ALLOW
        );
    }
}
