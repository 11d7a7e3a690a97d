//! What of the host a box can fill: folders on disks, and file systems in memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

use super::system_v::SystemV;

/// An inode in memory, with its name, costs about this much besides what it holds.
const INODE: u64 = 1024;

/// By descriptors, because the session's home is sealed while programs run, and because what is
/// mounted in the box has no name outside of it.
#[derive(Debug, Default)]
pub struct Ground {
    folders: Vec<OwnedFd>,
    memory: Vec<OwnedFd>,
    shared: SystemV,
}

impl Ground {
    /// `folders` are what of the session lies on a disk: home, outputs, the upper layer of an
    /// overlay. `memory` is any descriptor on each tmpfs of the box.
    pub fn new(folders: Vec<OwnedFd>, memory: Vec<OwnedFd>) -> Self {
        let mut ground = Self {
            folders,
            memory: Vec::new(),
            shared: SystemV::default(),
        };
        for one in memory {
            ground.add_memory(one);
        }
        ground
    }

    pub(super) fn folders(&self) -> &[OwnedFd] {
        &self.folders
    }

    /// The kernel's tables of what the box shares, opened by one of its own processes.
    pub(super) fn set_shared(&mut self, tables: Vec<OwnedFd>) {
        self.shared = SystemV::new(tables);
    }

    pub(super) fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Two descriptors of one file system would count it twice.
    fn add_memory(&mut self, one: OwnedFd) {
        let device = |fd: BorrowedFd<'_>| fstat(fd).map(|seen| seen.st_dev);
        let is_memory = fstatfs(&one).is_ok_and(|seen| seen.filesystem_type() == TMPFS_MAGIC);
        let new = device(one.as_fd());
        let is_known = self.memory.iter().any(|old| device(old.as_fd()) == new);
        if is_memory && !is_known {
            self.memory.push(one);
        }
    }

    /// Looks for the box's file systems in memory through one of its processes. Not possible
    /// through its first one, which hides from its own user.
    pub(super) fn find_memory(&mut self, pid: i32) -> io::Result<()> {
        let mounts = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/mnt"));
        if mounts(&pid.to_string())? == mounts("self")? {
            // It has no mounts of its own; the host's are not the box's to answer for.
            return Ok(());
        }
        let path = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let root = open(
            format!("/proc/{pid}/root").as_str(),
            path | OFlag::O_DIRECTORY,
            Mode::empty(),
        )?;
        for place in ["tmp", "dev/shm", "run", "var/tmp"] {
            let how = OpenHow::new()
                .flags(path)
                // The box chose these names' contents: no link of its leads us anywhere.
                .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH);
            if let Ok(found) = openat2(&root, place, how) {
                self.add_memory(found);
            }
        }
        Ok(())
    }

    /// Bytes that the box's file systems in memory hold, and what else is there without a process.
    pub(super) fn in_memory(&self) -> u64 {
        let used = |fd: &OwnedFd| {
            let seen = fstatfs(fd).ok()?;
            let blocks = seen.blocks().saturating_sub(seen.blocks_free());
            let inodes = seen.files().saturating_sub(seen.files_free());
            Some(blocks * seen.block_size() as u64 + inodes * INODE)
        };
        self.memory.iter().filter_map(used).sum::<u64>() + self.shared.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_no_memory_and_memory_counts_once() {
        let shared = || OwnedFd::from(std::fs::File::open("/dev/shm").unwrap());
        let proc = OwnedFd::from(std::fs::File::open("/proc").unwrap());
        let ground = Ground::new(Vec::new(), vec![shared(), proc, shared()]);
        assert_eq!(ground.memory.len(), 1);
        assert!(ground.has_memory());
    }
}
