//! Watches processes that are not our children, by descriptor and never by number.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Much longer than anything takes; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Watch(Vec<(i32, OwnedFd)>);

impl Watch {
    /// Opens them; who is gone already needs no watching.
    pub fn over(pids: &[i32]) -> Self {
        Self(
            pids.iter()
                .filter_map(|pid| Some((*pid, open(*pid)?)))
                .collect(),
        )
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[track_caller]
    pub fn all_gone(&self) {
        let deadline = Instant::now() + PATIENCE;
        for (pid, process) in &self.0 {
            assert!(readable(process, deadline), "{pid} is still there");
        }
    }
}

fn open(pid: i32) -> Option<OwnedFd> {
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the kernel just made this descriptor for us alone.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether it becomes readable in time; a descriptor of a process does when that ends.
fn readable(fd: &impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(left).unwrap();
        match poll(&mut waiting, timeout) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// What comes out of a pipe until its last writer has closed it.
#[track_caller]
pub fn until_closed(pipe: OwnedFd, patience: Duration) -> String {
    let deadline = Instant::now() + patience;
    let mut pipe = std::fs::File::from(pipe);
    let mut text = Vec::new();
    let mut piece = [0u8; 4096];
    loop {
        assert!(readable(&pipe, deadline), "somebody still has the pipe");
        match pipe.read(&mut piece).unwrap() {
            0 => return String::from_utf8_lossy(&text).into_owned(),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

pub fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

pub fn descendants(pid: i32) -> Vec<i32> {
    let mut all = children(pid);
    let mut next = 0;
    while next < all.len() {
        let more = children(all[next]);
        all.extend(more);
        next += 1;
    }
    all
}

/// Processes with this text on their command line, wherever they are.
pub fn marked(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(marker) {
            found.push(format!("{} {line}", entry.file_name().display()));
        }
    }
    found
}

pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}
