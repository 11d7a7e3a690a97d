//! Waiting until something happens in a folder.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Where the kernel has no watch left to give, or does not see what happens (files of another
/// machine), one looks again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often news are read at once; what is left wakes the next wait.
const MOST_READS: usize = 64;

#[derive(Debug)]
pub struct Watch {
    inotify: Option<Inotify>,
}

impl Watch {
    /// Sees everything that happens from now on, until it is asked for.
    pub fn new(folder: &impl AsFd) -> Self {
        let watched = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            let events = AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_CLOSE_WRITE
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_DELETE_SELF;
            // The folder that is open, whatever its name leads to by now.
            let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
            inotify.add_watch(path.as_str(), events)?;
            Ok::<_, Errno>(inotify)
        };
        Self {
            inotify: watched().ok(),
        }
    }

    /// Returns when something has happened since the last call, or after `most`.
    pub fn wait(&self, most: Duration) -> io::Result<()> {
        let Some(inotify) = &self.inotify else {
            return pause(&mut [], most.min(LOOK_AGAIN));
        };
        pause(&mut [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)], most)?;
        for _ in 0..MOST_READS {
            match inotify.read_events() {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

fn pause(on: &mut [PollFd<'_>], most: Duration) -> io::Result<()> {
    match poll(on, PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
