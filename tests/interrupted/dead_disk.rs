//! A disk that is mounted and does not answer, as one on a network that is gone. It needs the right to mount.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, poll};

/// A filesystem that says hello and nothing else. Whoever waits for it is freed when it is dropped.
pub(crate) struct DeadDisk<'a> {
    at: &'a Path,
    server: File,
}

impl<'a> DeadDisk<'a> {
    pub(crate) fn at(at: &'a Path) -> Self {
        let mut server = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={}",
            server.as_raw_fd(),
            nix::unistd::getuid(),
            nix::unistd::getgid()
        );
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("dead"),
            at,
            Some("fuse"),
            flags,
            Some(options.as_str()),
        )
        .unwrap();
        let mut asked = vec![0u8; 1 << 20];
        let length = server.read(&mut asked).unwrap();
        let number = |at: usize| u32::from_ne_bytes(asked[at..at + 4].try_into().unwrap());
        assert!(length >= 56 && number(4) == 26, "its first word is hello");
        // The length of the answer, no error, the question's number; then which words it knows.
        let mut answer = vec![0u8; 16 + 64];
        let whole = answer.len() as u32;
        answer[..4].copy_from_slice(&whole.to_ne_bytes());
        answer[8..16].copy_from_slice(&asked[8..16]);
        for (place, value) in [(16, 7u32), (20, 31), (24, 65536), (36, 4096)] {
            answer[place..place + 4].copy_from_slice(&value.to_ne_bytes());
        }
        server.write_all(&answer).unwrap();
        Self { at, server }
    }
}

impl DeadDisk<'_> {
    /// Waits until somebody asks it for something, and takes the question: from then on not even
    /// a signal frees them.
    pub(crate) fn takes_a_question(&mut self) {
        let mut waiting = [PollFd::new(self.server.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut waiting, 10_000u16), Ok(1), "nobody asks");
        let mut asked = vec![0u8; 1 << 20];
        assert!(self.server.read(&mut asked).unwrap() >= 40);
    }
}

impl Drop for DeadDisk<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.at, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
}
