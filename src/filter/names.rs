//! From the name of a system call to its number.

use libseccomp::{ScmpArch, ScmpSyscall};

use super::Arch;

/// What a name means on one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// The call has this number.
    Is(u32),
    /// The call exists, but not on this architecture.
    Elsewhere,
    /// Nobody knows the name.
    Unknown,
}

/// Calls younger than some libseccomp in use. From 424 on a call has the same number on
/// every architecture we build for, so one table serves all, and what a profile means
/// does not depend on the library's age.
const RECENT: &[(&str, u32)] = &[
    ("pidfd_send_signal", 424),
    ("io_uring_setup", 425),
    ("io_uring_enter", 426),
    ("io_uring_register", 427),
    ("open_tree", 428),
    ("move_mount", 429),
    ("fsopen", 430),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fspick", 433),
    ("pidfd_open", 434),
    ("clone3", 435),
    ("close_range", 436),
    ("openat2", 437),
    ("pidfd_getfd", 438),
    ("faccessat2", 439),
    ("process_madvise", 440),
    ("epoll_pwait2", 441),
    ("mount_setattr", 442),
    ("quotactl_fd", 443),
    ("landlock_create_ruleset", 444),
    ("landlock_add_rule", 445),
    ("landlock_restrict_self", 446),
    ("memfd_secret", 447),
    ("process_mrelease", 448),
    ("futex_waitv", 449),
    ("set_mempolicy_home_node", 450),
    ("cachestat", 451),
    ("fchmodat2", 452),
    ("map_shadow_stack", 453),
    ("futex_wake", 454),
    ("futex_wait", 455),
    ("futex_requeue", 456),
    ("statmount", 457),
    ("listmount", 458),
    ("lsm_get_self_attr", 459),
    ("lsm_set_self_attr", 460),
    ("lsm_list_modules", 461),
    ("mseal", 462),
    ("setxattrat", 463),
    ("getxattrat", 464),
    ("listxattrat", 465),
    ("removexattrat", 466),
    ("open_tree_attr", 467),
    ("file_getattr", 468),
    ("file_setattr", 469),
    ("listns", 470),
];

/// Looks a name up.
pub fn number(name: &str, arch: Arch) -> Number {
    if let Some((_, number)) = RECENT.iter().find(|(recent, _)| *recent == name) {
        return Number::Is(*number);
    }
    match ScmpSyscall::from_name_by_arch(name, token(arch)) {
        // libseccomp numbers the calls of other architectures from -1 down.
        Ok(call) => u32::try_from(i32::from(call)).map_or(Number::Elsewhere, Number::Is),
        Err(_) => Number::Unknown,
    }
}

/// The reverse: what a number is called.
pub fn name_of(number: u32, arch: Arch) -> Option<String> {
    let recent = RECENT.iter().find(|(_, recent)| *recent == number);
    if let Some((name, _)) = recent {
        return Some((*name).to_owned());
    }
    let call = ScmpSyscall::from(i32::try_from(number).ok()?);
    call.get_name_by_arch(token(arch)).ok()
}

fn token(arch: Arch) -> ScmpArch {
    match arch {
        Arch::X86_64 => ScmpArch::X8664,
        Arch::Aarch64 => ScmpArch::Aarch64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_up_without_gaps() {
        for ((_, number), expected) in RECENT.iter().zip(424..) {
            assert_eq!(*number, expected);
        }
    }

    #[test]
    fn the_table_agrees_with_the_library_where_both_know() {
        for token in [ScmpArch::X8664, ScmpArch::Aarch64] {
            for (name, expected) in RECENT {
                let Ok(call) = ScmpSyscall::from_name_by_arch(name, token) else {
                    continue;
                };
                if let Ok(number) = u32::try_from(i32::from(call)) {
                    assert_eq!(number, *expected, "{name}");
                }
            }
        }
    }

    #[test]
    fn every_number_leads_back_to_its_name() {
        for arch in Arch::ALL {
            for called in (0..480).filter_map(|number| name_of(number, arch)) {
                let Number::Is(number) = number(&called, arch) else {
                    panic!("{called} has no number");
                };
                assert_eq!(name_of(number, arch), Some(called));
            }
        }
        assert_eq!(name_of(165, Arch::X86_64).as_deref(), Some("mount"));
        assert_eq!(name_of(435, Arch::Aarch64).as_deref(), Some("clone3"));
        assert_eq!(name_of(4000, Arch::X86_64), None);
    }

    #[test]
    fn old_names_of_one_architecture_are_known_on_the_other() {
        assert_eq!(number("open", Arch::X86_64), Number::Is(2));
        assert_eq!(number("open", Arch::Aarch64), Number::Elsewhere);
        assert_eq!(number("opne", Arch::X86_64), Number::Unknown);
    }
}
