//! What can be read about why this host says no. Reading only; what it means is `explain`'s.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys;

/// Everything an explanation is made from, so that another host can be written down in a test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) release: String,
    /// Ubuntu's rule: user namespaces only for programs with a profile.
    pub(super) apparmor_rule: Option<u64>,
    /// Debian's switch, also in hardened kernels.
    pub(super) userns_clone: Option<u64>,
    /// `user.max_*_namespaces` of the caller's user namespace.
    pub(super) ceilings: Vec<(&'static str, u64)>,
    /// Calls that something around this process answers instead of the kernel.
    pub(super) refused: Vec<(&'static str, i32)>,
    /// 2 when filters are loaded on this process already.
    pub(super) seccomp_mode: u32,
    pub(super) container: Option<&'static str>,
    pub(super) apparmor_profile: Option<String>,
    /// The security modules in use; unknown where securityfs is not mounted.
    pub(super) modules: Option<String>,
    /// The root directory is not the root of a mount.
    pub(super) chrooted: bool,
    /// The program, as it is installed.
    pub(super) program: PathBuf,
}

const CEILINGS: [&str; 7] = [
    "user.max_user_namespaces",
    "user.max_mnt_namespaces",
    "user.max_pid_namespaces",
    "user.max_net_namespaces",
    "user.max_ipc_namespaces",
    "user.max_uts_namespaces",
    "user.max_cgroup_namespaces",
];

impl Evidence {
    pub(super) fn gather() -> Self {
        let ceilings = CEILINGS
            .into_iter()
            .filter_map(|name| Some((name, sysctl(name)?)))
            .collect();
        let refused = sys::kernel::refused_namespace_calls()
            .into_iter()
            .map(|(name, error)| (name, error.raw_os_error().unwrap_or(0)))
            .collect();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            release: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            apparmor_rule: sysctl("kernel.apparmor_restrict_unprivileged_userns"),
            userns_clone: sysctl("kernel.unprivileged_userns_clone"),
            ceilings,
            refused,
            seccomp_mode: field(&status, "Seccomp").unwrap_or(0),
            container: container(),
            apparmor_profile: text("/proc/self/attr/apparmor/current")
                .or_else(|| text("/proc/self/attr/current"))
                .filter(|profile| !profile.is_empty()),
            modules: text("/sys/kernel/security/lsm"),
            chrooted: fs::read_to_string("/proc/self/mountinfo").is_ok_and(|all| is_chroot(&all)),
            program: std::env::current_exe().unwrap_or_else(|_| "/usr/bin/cowork-linux".into()),
        }
    }

    /// The kernel's version as two numbers; a name that has none counts as new enough.
    pub(super) fn version(&self) -> (u32, u32) {
        let mut parts = self
            .release
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (u32::MAX, 0),
        }
    }
}

fn sysctl(name: &str) -> Option<u64> {
    text(&format!("/proc/sys/{}", name.replace('.', "/")))?
        .parse()
        .ok()
}

fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_matches(['\0', '\n', ' ']).to_owned())
}

/// A number from a `Name:\tvalue` list such as /proc/self/status.
pub(super) fn field<T: std::str::FromStr>(list: &str, name: &str) -> Option<T> {
    word(list, name)?.parse().ok()
}

/// The same as it is written.
pub(super) fn word<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    list.lines().find_map(of_line).map(str::trim)
}

fn container() -> Option<&'static str> {
    let there = |path: &str| Path::new(path).exists();
    match () {
        () if there("/run/.containerenv") => Some("podman"),
        () if there("/.dockerenv") => Some("docker"),
        () if there("/var/run/secrets/kubernetes.io") => Some("kubernetes"),
        () if there("/.flatpak-info") => Some("flatpak"),
        () => None,
    }
}

/// Outside a chroot something is mounted at `/`. The kernel gives no user namespace in one.
fn is_chroot(mountinfo: &str) -> bool {
    let is_root = |line: &str| line.split(' ').nth(4) == Some("/");
    !mountinfo.is_empty() && !mountinfo.lines().any(is_root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_any_distributions_name() {
        let version = |release: &str| {
            Evidence {
                release: release.to_owned(),
                ..Evidence::default()
            }
            .version()
        };
        assert_eq!(version("6.8.0-45-generic"), (6, 8));
        assert_eq!(version("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(version("6.12-rc1+"), (6, 12));
        assert_eq!(version("strange"), (u32::MAX, 0));
    }

    #[test]
    fn fields_of_a_status_list_are_found_by_their_whole_name() {
        let status = "Seccomp_filters:\t3\nSeccomp:\t2\n";
        assert_eq!(field::<u32>(status, "Seccomp"), Some(2));
        assert_eq!(field::<u32>(status, "Seccomp_filters"), Some(3));
        assert_eq!(field::<u32>(status, "NoNewPrivs"), None);
    }

    #[test]
    fn a_chroot_has_nothing_mounted_at_its_root() {
        assert!(!is_chroot("22 1 8:1 / / rw - ext4 /dev/a rw\n"));
        assert!(is_chroot("23 22 0:5 / /proc rw - proc proc rw\n"));
    }
}
