//! Where this process is in the tree of control groups, and whose that place is.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::sys;

/// The one tree of cgroup v2, and this process in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) mount: PathBuf,
    /// This process's own group, as a path on this host.
    pub(super) own: PathBuf,
}

impl Tree {
    pub(super) fn here() -> Result<Self, String> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
    }

    /// From the kernel's lists: "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 c rw"
    /// and "0::/user.slice".
    fn find(groups: &str, mountinfo: &str) -> Result<Self, String> {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
        let own = own.ok_or("the kernel does not say in which cgroup this process is")?;
        let mounts = mountinfo.lines().filter_map(|line| {
            let (place, of) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            (of.split(' ').next() == Some("cgroup2")).then_some((place.next()?, place.next()?))
        });
        let mut why = "no cgroup v2 tree is mounted here";
        // What was mounted last lies on top.
        for (root, mount) in mounts.collect::<Vec<_>>().into_iter().rev() {
            // Seen from a namespace below it, or through a mount of another part of the tree.
            why = "this process is outside of the part of the cgroup tree that is mounted here";
            let Ok(below) = Path::new(own).strip_prefix(root) else {
                continue;
            };
            if below.components().all(|part| part.as_os_str() != "..") {
                return Ok(Self {
                    mount: mount.into(),
                    own: match below.as_os_str().is_empty() {
                        true => mount.into(),
                        false => Path::new(mount).join(below),
                    },
                });
            }
        }
        Err(why.to_owned())
    }

    /// The group above, as far as the mount shows it.
    pub(super) fn above<'a>(&self, group: &'a Path) -> Option<&'a Path> {
        group
            .parent()
            .filter(|parent| parent.starts_with(&self.mount))
    }

    /// Whether a group has been left to this process to divide, or why not. That a user may write
    /// there is not enough: what systemd has not given away, it may change at any time.
    pub(super) fn is_ours(&self, group: &Path) -> Result<(), String> {
        let at = group.display();
        let files = ["", "cgroup.procs", "cgroup.subtree_control"];
        let writable = |name: &&str| access(&group.join(name), AccessFlags::W_OK).is_ok();
        if !files.iter().all(writable) {
            return Err(format!("{at} is not delegated to this user"));
        }
        let marked = |up: &&Path| sys::limits::attribute(up, c"user.delegate") == Some(b'1');
        let inside = |up: &&Path| up.starts_with(&self.mount);
        let giver = group.ancestors().take_while(inside).find(marked);
        let has_systemd = Path::new("/run/systemd/system").exists();
        match giver {
            Some(giver) if !is_user_manager(giver) => Ok(()),
            None if !has_systemd => Ok(()),
            // Older ones leave no mark, but they give to nobody but root by accident.
            None if !nix::unistd::geteuid().is_root()
                && !group.ancestors().any(is_user_manager) =>
            {
                Ok(())
            }
            _ => Err(format!("{at} is managed by systemd")),
        }
    }
}

/// `user@1000.service` is delegated to that user's systemd, which is not us.
fn is_user_manager(group: &Path) -> bool {
    let name = group.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("user@") && name.ends_with(".service"))
}

/// The controllers that the kernel lists in one of a group's files.
pub(super) fn controllers(group: &Path, file: &str) -> Vec<String> {
    let list = fs::read_to_string(group.join(file)).unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let tree = Tree::find("4:memory:/a\n0::/user.slice/a.scope\n", V2).unwrap();
        assert_eq!(tree.own, Path::new("/sys/fs/cgroup/user.slice/a.scope"));
        assert_eq!(
            tree.above(&tree.own),
            Some(Path::new("/sys/fs/cgroup/user.slice"))
        );
        let top = Tree::find("0::/\n", V2).unwrap();
        assert_eq!(top.own, Path::new("/sys/fs/cgroup"));
        assert_eq!(top.above(&top.own), None);
    }

    #[test]
    fn a_part_of_the_tree_may_be_mounted() {
        let part = "36 25 0:31 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let tree = Tree::find("0::/docker/1/x\n", part).unwrap();
        assert_eq!(tree.own, Path::new("/sys/fs/cgroup/x"));
        let both = format!("30 25 0:31 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n{V2}");
        let on_top = Tree::find("0::/\n", &both).unwrap();
        assert_eq!(on_top.own, Path::new("/sys/fs/cgroup"));
        for elsewhere in ["0::/docker/2\n", "0::/docker/1/../2\n", "0::/../x\n"] {
            let said = Tree::find(elsewhere, part).unwrap_err();
            assert!(said.contains("outside"), "{elsewhere} {said}");
        }
    }

    #[test]
    fn hosts_without_the_tree_say_so() {
        let v1 = "37 36 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert!(Tree::find("4:memory:/a\n", v1).is_err());
        assert!(Tree::find("4:memory:/a\n", V2).is_err());
    }

    #[test]
    fn a_users_systemd_is_known_by_its_name() {
        assert!(is_user_manager(Path::new("/x/user@1000.service")));
        assert!(!is_user_manager(Path::new(
            "/x/user@1000.service/app.slice"
        )));
        assert!(!is_user_manager(Path::new("/x/user.slice")));
    }
}
