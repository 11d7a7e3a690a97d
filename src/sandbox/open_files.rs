//! Whether programs of a box have files open on a mount that has no place in the box: what a guarded
//! folder is written through is such a one, so that the kernel does not call the folder busy.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// The number of the mount that a descriptor is on. The file itself is not asked: its disk may be
/// slow.
pub(super) fn mount_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let about = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let odd = || io::Error::from_raw_os_error(libc::EPROTO);
    mount_in(&fs::read_to_string(about)?).ok_or_else(odd)
}

/// Whether anybody has a file open there. For a process that has entered the box, but for its first
/// process, which holds the mount for all of them.
pub(super) fn is_any_on(mount: u64) -> bool {
    let numbers = names_in(Path::new("/proc"));
    let programs = numbers.filter(|name| name.parse().is_ok_and(|pid: i32| pid != 1));
    programs.into_iter().any(|pid| {
        let folder = Path::new("/proc").join(pid).join("fdinfo");
        names_in(&folder).any(|name| {
            let about = fs::read_to_string(folder.join(name)).unwrap_or_default();
            mount_in(&about) == Some(mount)
        })
    })
}

/// Who is gone meanwhile has nothing open.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn mount_in(about: &str) -> Option<u64> {
    let line = about
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn files_on_one_disk_are_on_one_mount_and_on_another_are_not() {
        let folder = fs::File::open("/proc/self").unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        let other = tempfile::tempfile().unwrap();
        let mount = mount_of(folder.as_fd()).unwrap();
        assert_eq!(mount_of(file.as_fd()).unwrap(), mount);
        assert_ne!(mount_of(other.as_fd()).unwrap(), mount);
        assert!(is_any_on(mount), "this test has two");
        assert!(!is_any_on(u64::MAX));
    }
}
