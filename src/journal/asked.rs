//! What somebody asks about: a path, a host or a system call; and which refusals are about it.

use std::net::IpAddr;

use super::entry::{MountNote, RefusalKind};

#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) text: &'a str,
    host: String,
}

impl<'a> Asked<'a> {
    pub(super) fn about(text: &'a str) -> Self {
        let text = text.trim();
        Self {
            text,
            host: host_of(text),
        }
    }

    pub(super) fn may_be_path(&self) -> bool {
        !self.text.contains("://")
    }

    pub(super) fn may_be_host(&self) -> bool {
        let is_address = self.text.contains("://") || self.host.parse::<IpAddr>().is_ok();
        let is_name = !self.text.contains('/') && self.host.contains('.');
        is_address || self.host == "localhost" || is_name && !self.text.starts_with('.')
    }

    pub(super) fn may_be_syscall(&self) -> bool {
        let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        !self.text.is_empty() && self.text.bytes().all(letters)
    }

    /// Whether a refusal is about it. A shared folder has a name outside the box and one inside;
    /// either will do.
    pub(super) fn is_met_by(&self, kind: RefusalKind, object: &str, mounts: &[MountNote]) -> bool {
        match kind {
            RefusalKind::File => {
                let other_names = mounts.iter().flat_map(|mount| {
                    let (out, inside) = (mount.source.as_str(), mount.place.as_str());
                    [moved(self.text, out, inside), moved(self.text, inside, out)]
                });
                is_about_path(self.text, object)
                    || other_names
                        .flatten()
                        .any(|name| is_about_path(&name, object))
            }
            RefusalKind::Network => self.may_be_host() && is_about_host(&self.host, object),
            RefusalKind::Syscall => {
                let end = object.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                object[..end.unwrap_or(object.len())].eq_ignore_ascii_case(self.text)
            }
        }
    }
}

fn parts(path: &str) -> Vec<&str> {
    let named = |part: &&str| !part.is_empty() && *part != ".";
    path.split('/').filter(named).collect()
}

/// Whether `path` lies in `folder` or is it; both are absolute.
pub(super) fn lies_in(path: &str, folder: &str) -> bool {
    path.starts_with('/') && folder.starts_with('/') && parts(path).starts_with(&parts(folder))
}

/// An absolute path is met by itself and by all below it; a relative one wherever it occurs.
fn is_about_path(asked: &str, object: &str) -> bool {
    if asked.starts_with('/') {
        return lies_in(object, asked);
    }
    let (asked, object) = (parts(asked), parts(object));
    !asked.is_empty() && object.windows(asked.len()).any(|some| some == asked)
}

/// The path's name where `from` is called `to`.
fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    let below = || parts(path)[parts(from).len()..].join("/");
    lies_in(path, from).then(|| format!("{}/{}", to.trim_end_matches('/'), below()))
}

/// The host in `https://host:443/path`, `host:443`, `[::1]:443` and `host.`.
fn host_of(text: &str) -> String {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.split('/').next().unwrap_or_default();
    let host = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => match rest.split_once(':') {
            // More colons are those of an address.
            Some((host, port)) if !port.contains(':') => host,
            _ => rest,
        },
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// A domain is met by itself and by all names in it.
fn is_about_host(asked: &str, object: &str) -> bool {
    let host = host_of(object);
    if asked.is_empty() || host == asked {
        return !asked.is_empty();
    }
    let in_it = host
        .strip_suffix(asked)
        .is_some_and(|front| front.ends_with('.'));
    in_it && host.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use RefusalKind::{File, Network, Syscall};

    #[track_caller]
    fn met(asked: &str, kind: RefusalKind, object: &str) -> bool {
        Asked::about(asked).is_met_by(kind, object, &[])
    }

    #[test]
    fn paths_are_compared_part_by_part() {
        let object = "/w/app/.git/hooks/pre-commit";
        for asked in [
            "/w/app",
            "/w/app/",
            "/",
            object,
            ".git",
            ".git/hooks",
            "./hooks/pre-commit",
        ] {
            assert!(met(asked, File, object), "{asked}");
        }
        for asked in [
            "/w/ap",
            "/app",
            "git",
            "hooks/.git",
            "",
            ".",
            "/w/app/.git/hooks/pre-commit/x",
        ] {
            assert!(!met(asked, File, object), "{asked}");
        }
    }

    #[test]
    fn a_shared_folder_has_two_names() {
        let mount = MountNote {
            source: "/home/u/app/".to_owned(),
            place: "/sessions/a/mnt/app".to_owned(),
            mode: "rw".to_owned(),
        };
        let met = |asked: &str, object: &str| {
            Asked::about(asked).is_met_by(File, object, std::slice::from_ref(&mount))
        };
        assert!(met("/home/u/app/.envrc", "/sessions/a/mnt/app/.envrc"));
        assert!(met("/sessions/a/mnt/app", "/home/u/app/.envrc"));
        assert!(!met("/home/u/application", "/sessions/a/mnt/app/.envrc"));
    }

    #[test]
    fn hosts_are_met_by_names_in_them() {
        for asked in [
            "example.com",
            "API.example.com.",
            "https://api.example.com/v1",
            "api.example.com:443",
        ] {
            assert!(met(asked, Network, "api.example.com:443"), "{asked}");
        }
        for asked in ["ample.com", "com.example", "x.api.example.com", "", "."] {
            assert!(!met(asked, Network, "api.example.com:443"), "{asked}");
        }
        assert!(met("::1", Network, "[::1]:443"));
        assert!(met("10.0.0.1", Network, "10.0.0.1:80"));
        assert!(!met("0.0.1", Network, "10.0.0.1:80"));
    }

    #[test]
    fn system_calls_are_met_by_name() {
        assert!(met("clone", Syscall, "clone(CLONE_NEWUSER)"));
        assert!(met("ioctl", Syscall, "ioctl TIOCSTI"));
        assert!(!met("clone", Syscall, "clone3"));
        assert!(!met("clone", File, "/clone3"));
    }

    #[test]
    fn a_word_may_mean_several_things() {
        let may_be = |text| {
            let asked = Asked::about(text);
            (
                asked.may_be_path(),
                asked.may_be_host(),
                asked.may_be_syscall(),
            )
        };
        assert_eq!(may_be("/etc/passwd"), (true, false, false));
        assert_eq!(may_be(".envrc"), (true, false, false));
        assert_eq!(may_be("package.json"), (true, true, false));
        assert_eq!(may_be("https://a.b/c"), (false, true, false));
        assert_eq!(may_be("mount"), (true, false, true));
    }
}
