//! Which disks folders lie on: the kernel counts traffic per disk, not per folder or partition.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sys::stat::fstat;

/// The disks below the given folders; a folder in memory or from the network has none.
pub(super) fn disks_of(folders: &[OwnedFd]) -> BTreeSet<(u64, u64)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let device = |folder: &OwnedFd| {
        let device = fstat(folder.as_fd()).ok()?.st_dev;
        let own = (nix::libc::major(device), nix::libc::minor(device));
        let (major, minor) = (u64::from(own.0), u64::from(own.1));
        match major {
            // Some filesystems go by a number of their own; the mount names the disk.
            0 => source_of(&mounts, (major, minor)),
            _ => Some((major, minor)),
        }
    };
    folders.iter().filter_map(device).map(whole_disk).collect()
}

/// The device that a filesystem with this number was mounted from.
fn source_of(mounts: &str, number: (u64, u64)) -> Option<(u64, u64)> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let wanted = format!("{}:{}", number.0, number.1);
    let source = mounts.lines().find_map(|line| {
        let (place, of) = line.split_once(" - ")?;
        let is_it = place.split(' ').nth(2) == Some(wanted.as_str());
        is_it.then(|| of.split(' ').nth(1)).flatten()
    })?;
    let source = fs::metadata(source).ok()?;
    let device = source.rdev();
    source.file_type().is_block_device().then(|| {
        (
            u64::from(nix::libc::major(device)),
            u64::from(nix::libc::minor(device)),
        )
    })
}

fn whole_disk(number: (u64, u64)) -> (u64, u64) {
    let entry = format!("/sys/dev/block/{}:{}", number.0, number.1);
    let entry = Path::new(&entry);
    if !entry.join("partition").exists() {
        return number;
    }
    let above = fs::read_to_string(entry.join("../dev")).ok();
    let read = |text: String| {
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    above.and_then(read).unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_without_a_disk_has_none() {
        let mounts = "30 1 0:26 / /tmp rw - tmpfs tmpfs rw\n";
        assert_eq!(source_of(mounts, (0, 26)), None);
        assert_eq!(source_of(mounts, (0, 27)), None);
    }

    #[test]
    fn a_whole_disk_stays_what_it_is() {
        assert_eq!(whole_disk((7, 9999)), (7, 9999));
    }
}
