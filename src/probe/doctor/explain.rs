//! Why a namespace could not be had, from what the host says about itself. Pure: another host is
//! a value, so every distribution's way of saying no can be a test.

use super::evidence::Evidence;
use super::remedy::Remedy;

/// The stages of the attempt, in order; 0 is the call that makes the namespaces.
pub(super) const STAGES: [&str; 6] = [
    "create the namespaces",
    "map the user into it",
    "make its mounts private",
    "mount a tmpfs in it",
    "name the host in it",
    "switch on its loopback",
];

/// A cause in words, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) found: String,
    pub(super) remedy: Remedy,
}

/// Names the rule that forbids user namespaces here.
pub(super) fn explain(evidence: &Evidence, stage: u32, errno: i32) -> Cause {
    let cause = match errno {
        libc::ENOSPC | libc::EUSERS => ceiling(evidence),
        libc::ENOSYS | libc::EPERM | libc::EACCES => refused(evidence, errno)
            .filter(|_| stage == 0)
            .or_else(|| forbidden(evidence)),
        libc::EINVAL if stage == 0 => Some(Cause {
            found: "blocked: this kernel was built without one of the namespaces".to_owned(),
            remedy: Remedy::say("use a distribution's kernel; CONFIG_USER_NS and its siblings"),
        }),
        _ => None,
    };
    cause.unwrap_or_else(|| unknown(stage, errno))
}

fn ceiling(evidence: &Evidence) -> Option<Cause> {
    let lowest = evidence.ceilings.iter().min_by_key(|(_, value)| *value)?;
    let (name, value) = match evidence.ceilings.iter().find(|(_, value)| *value == 0) {
        Some(zero) => zero,
        None => lowest,
    };
    if *value == 0 {
        return Some(Cause {
            found: format!("blocked: {name} is 0"),
            remedy: Remedy::sysctl(name, "15000"),
        });
    }
    Some(Cause {
        found: format!("blocked: all {value} of {name} are in use, or 32 are inside each other"),
        remedy: Remedy::say(format!(
            "end programs that hold namespaces (`lsns -t user`), or raise {name}"
        )),
    })
}

/// Something answers in the kernel's place: known for certain, because the question was one that
/// the kernel always answers with EINVAL.
fn refused(evidence: &Evidence, errno: i32) -> Option<Cause> {
    let (call, _) = evidence.refused.first()?;
    if errno == libc::ENOSYS && evidence.version() < (5, 3) {
        return Some(Cause {
            found: format!("blocked: Linux {} has no clone3", evidence.release),
            remedy: Remedy::say("use Linux 5.15 or newer"),
        });
    }
    let around = match evidence.container {
        Some(kind) => format!("of the {kind} container around this shell"),
        None => "around this shell".to_owned(),
    };
    Some(Cause {
        found: format!("blocked: the seccomp filter {around} refuses {call}"),
        remedy: Remedy::container(evidence.container),
    })
}

/// The kernel said no: which of its rules was it?
fn forbidden(evidence: &Evidence) -> Option<Cause> {
    let ordinary = evidence.uid != 0;
    if ordinary && evidence.userns_clone == Some(0) {
        let name = "kernel.unprivileged_userns_clone";
        return Some(Cause {
            found: format!("blocked: {name} is 0"),
            remedy: Remedy::sysctl(name, "1"),
        });
    }
    let profile = evidence
        .apparmor_profile
        .as_deref()
        .filter(|profile| !profile.starts_with("unconfined"));
    // Ubuntu lets the call through and takes every right away in the new namespace, so the
    // failure often comes one step later, at the map.
    if ordinary && evidence.apparmor_rule == Some(1) && profile.is_none_or(is_default) {
        return Some(Cause {
            found: "blocked: AppArmor keeps user namespaces from programs without a profile \
                    (kernel.apparmor_restrict_unprivileged_userns is 1)"
                .to_owned(),
            remedy: Remedy::apparmor(&evidence.program),
        });
    }
    if let Some(profile) = profile {
        return Some(Cause {
            found: format!("blocked: the AppArmor profile `{profile}` of this shell"),
            remedy: match evidence.container {
                Some(kind) => Remedy::container(Some(kind)),
                None => Remedy::say(format!(
                    "add the line `userns,` to the profile `{profile}`, or run from a shell \
                     without it"
                )),
            },
        });
    }
    if evidence.chrooted {
        return Some(Cause {
            found: "blocked: this shell is in a chroot, where the kernel gives none".to_owned(),
            remedy: Remedy::say("run outside the chroot, or enter it with pivot_root"),
        });
    }
    // Nothing else is in the way, and filters cannot look into every argument: clone3's least.
    (evidence.seccomp_mode == 2).then(|| Cause {
        found: "blocked: most likely by the seccomp filter around this shell".to_owned(),
        remedy: Remedy::container(evidence.container),
    })
}

/// The profile Ubuntu puts on a program that made a namespace without having one of its own.
fn is_default(profile: &str) -> bool {
    profile.starts_with("unprivileged_userns")
}

fn unknown(stage: u32, errno: i32) -> Cause {
    let what = STAGES.get(stage as usize).copied().unwrap_or("use them");
    let why = std::io::Error::from_raw_os_error(errno).to_string();
    let why = why.split(" (os error").next().unwrap_or_default();
    Cause {
        found: format!("blocked: cannot {what}: {why}"),
        remedy: Remedy::say(
            "look for the refusal in the kernel's log (`sudo journalctl -k | grep -i denied`); \
             `--isolation landlock` is the weaker way without namespaces",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ubuntu 24.04 as installed: what its kernel and files say to an ordinary user.
    fn ubuntu() -> Evidence {
        Evidence {
            uid: 1000,
            gid: 1000,
            release: "6.8.0-45-generic".to_owned(),
            apparmor_rule: Some(1),
            userns_clone: Some(1),
            ceilings: vec![("user.max_user_namespaces", 63_000)],
            apparmor_profile: Some("unconfined".to_owned()),
            modules: Some("lockdown,capability,landlock,yama,apparmor".to_owned()),
            program: "/home/ada/.local/bin/cowork-linux".into(),
            ..Evidence::default()
        }
    }

    fn debian() -> Evidence {
        Evidence {
            apparmor_rule: None,
            release: "6.1.0-25-amd64".to_owned(),
            ..ubuntu()
        }
    }

    #[test]
    fn ubuntus_rule_is_named_with_the_profile_to_install() {
        for (stage, errno) in [
            (0, libc::EPERM),
            (0, libc::EACCES),
            (1, libc::EACCES),
            (2, libc::EPERM),
        ] {
            let cause = explain(&ubuntu(), stage, errno);
            assert!(
                cause
                    .found
                    .contains("kernel.apparmor_restrict_unprivileged_userns is 1")
            );
            let file = cause.remedy.file.unwrap();
            assert_eq!(
                file.path,
                std::path::Path::new("/etc/apparmor.d/cowork-linux")
            );
            assert!(
                file.content
                    .contains("/home/ada/.local/bin/cowork-linux flags=(unconfined)")
            );
            assert_eq!(
                cause.remedy.commands,
                ["apparmor_parser -r /etc/apparmor.d/cowork-linux"]
            );
        }
    }

    #[test]
    fn ubuntus_rule_does_not_concern_root() {
        let root = Evidence { uid: 0, ..ubuntu() };
        assert!(
            explain(&root, 0, libc::EPERM)
                .found
                .contains("Operation not permitted")
        );
    }

    #[test]
    fn debians_switch_is_named() {
        let host = Evidence {
            userns_clone: Some(0),
            ..debian()
        };
        let cause = explain(&host, 0, libc::EPERM);
        assert_eq!(
            cause.found,
            "blocked: kernel.unprivileged_userns_clone is 0"
        );
        assert_eq!(
            cause.remedy.file.unwrap().content,
            "kernel.unprivileged_userns_clone = 1\n"
        );
    }

    #[test]
    fn a_ceiling_of_nothing_is_named() {
        let host = Evidence {
            ceilings: vec![
                ("user.max_user_namespaces", 9),
                ("user.max_net_namespaces", 0),
            ],
            ..debian()
        };
        let cause = explain(&host, 0, libc::ENOSPC);
        assert_eq!(cause.found, "blocked: user.max_net_namespaces is 0");
        assert!(explain(&debian(), 0, libc::ENOSPC).found.contains("in use"));
    }

    #[test]
    fn a_container_that_answers_for_the_kernel_is_named_before_rules_that_also_hold() {
        let host = Evidence {
            refused: vec![("clone3", libc::ENOSYS), ("unshare", libc::EPERM)],
            seccomp_mode: 2,
            container: Some("docker"),
            ..ubuntu()
        };
        let cause = explain(&host, 0, libc::ENOSYS);
        assert!(
            cause
                .found
                .contains("seccomp filter of the docker container"),
            "{}",
            cause.found
        );
        assert!(
            cause
                .remedy
                .say
                .contains("--security-opt seccomp=unconfined")
        );
    }

    #[test]
    fn an_old_kernel_is_not_taken_for_a_container() {
        let host = Evidence {
            release: "4.19.0-27-amd64".to_owned(),
            refused: vec![("clone3", libc::ENOSYS)],
            ..debian()
        };
        assert!(
            explain(&host, 0, libc::ENOSYS)
                .found
                .contains("Linux 4.19.0-27-amd64 has no clone3")
        );
    }

    #[test]
    fn a_profile_around_the_shell_and_a_chroot_are_named() {
        let docker = Evidence {
            apparmor_profile: Some("docker-default (enforce)".to_owned()),
            container: Some("docker"),
            ..ubuntu()
        };
        assert!(
            explain(&docker, 0, libc::EACCES)
                .found
                .contains("docker-default")
        );
        let chroot = Evidence {
            chrooted: true,
            ..debian()
        };
        assert!(explain(&chroot, 0, libc::EPERM).found.contains("chroot"));
    }

    #[test]
    fn what_nobody_explains_is_said_as_it_is() {
        let cause = explain(&debian(), 3, libc::EIO);
        assert_eq!(
            cause.found,
            "blocked: cannot mount a tmpfs in it: Input/output error"
        );
    }
}
