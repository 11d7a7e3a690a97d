//! One control group: made, given its limits, read, frozen, ended, removed.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ground::Ground;
use super::io_devices::disks_of;
use super::{Limit, Usage, Wanted};

/// How long the kernel may take to stop, or to forget, what is in a group.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a limit that was met is not spoken of again.
const MUTED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    /// Held for the life of the group, so that whoever cleans up knows it is in use.
    directory: Flock<File>,
    events: Vec<Events>,
}

/// A file of counts that the kernel announces changes of.
#[derive(Debug)]
struct Events {
    limit: Option<Limit>,
    file: File,
    /// What is counted as the limit having been met, as of the last look.
    seen: u64,
    /// A bomb meets its limit all the time; that is told now and then.
    told: Option<Instant>,
}

impl Events {
    fn is_muted(&self) -> bool {
        self.told.is_some_and(|told| told.elapsed() < MUTED)
    }
}

const COUNTED: [(&str, &str, Option<Limit>); 3] = [
    ("memory.events", "oom_kill", Some(Limit::Memory)),
    ("pids.events", "max", Some(Limit::Pids)),
    ("cgroup.events", "frozen", None),
];

impl Group {
    /// Makes the group; one of the same name that nobody uses is taken over.
    pub(super) fn make(path: PathBuf) -> io::Result<Self> {
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let left = lock(&path, FlockArg::LockExclusiveNonblock)?;
                fs::remove_dir(&path)?;
                drop(left);
                fs::create_dir(&path)?;
            }
            other => other?,
        }
        let directory = lock(&path, FlockArg::LockExclusiveNonblock)?;
        let events = COUNTED
            .iter()
            .filter_map(|(name, counted, limit)| {
                let mut file = File::open(path.join(name)).ok()?;
                // The kernel tells of changes since the last time it was read.
                let seen = count(&read(&mut file).ok()?, counted);
                Some(Events {
                    limit: *limit,
                    file,
                    seen,
                    told: None,
                })
            })
            .collect();
        Ok(Self {
            path,
            directory,
            events,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Writes all limits; `None` lifts one. Those whose controller is missing are left out.
    pub(super) fn set(&self, wanted: &Wanted, ground: &Ground) -> io::Result<()> {
        let or_max = |value: Option<u64>| value.map_or("max".to_owned(), |value| value.to_string());
        self.write_if_there("memory.max", &or_max(wanted.memory))?;
        // Swap is memory too: a limit that lets a box fill the swap is none.
        let swap = wanted.memory.map_or("max", |_| "0");
        self.write_if_there("memory.swap.max", swap)?;
        self.write_if_there("pids.max", &or_max(wanted.pids))?;
        // A tenth of a second is what the kernel takes when nobody says otherwise.
        let quota = wanted.milli_cpus.map(|milli| (milli * 100).max(1000));
        self.write_if_there("cpu.max", &format!("{} 100000", or_max(quota)))?;
        let rate = or_max(wanted.io);
        if wanted.io.is_some() || self.has_rates() {
            for (major, minor) in disks_of(ground.folders()) {
                let line = format!("{major}:{minor} rbps={rate} wbps={rate}");
                self.write_if_there("io.max", &line)?;
            }
        }
        Ok(())
    }

    fn has_rates(&self) -> bool {
        fs::read_to_string(self.path.join("io.max")).is_ok_and(|text| !text.trim().is_empty())
    }

    fn write_if_there(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path.join(name);
        match fs::OpenOptions::new().write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(named(&path, &error)),
            Ok(mut file) => file
                .write_all(text.as_bytes())
                .map_err(|error| named(&path, &error)),
        }
    }

    /// What can be waited for with `POLLPRI`.
    pub(super) fn events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let heard = |events: &&Events| events.limit.is_some() && !events.is_muted();
        let heard = self.events.iter().filter(heard);
        heard.map(|events| (events.file.as_fd(), PollFlags::POLLPRI))
    }

    /// When what is not listened to now is to be looked at.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let muted = self.events.iter().filter(|events| events.is_muted());
        muted.filter_map(|events| Some(events.told? + MUTED)).min()
    }

    /// A limit that the kernel has held since the last time this was asked, and how often.
    pub(super) fn news(&mut self) -> Option<(Limit, u64)> {
        self.events.iter_mut().find_map(|events| {
            let limit = events.limit.filter(|_| !events.is_muted())?;
            let (_, counted, _) = COUNTED.iter().find(|(_, _, of)| *of == Some(limit))?;
            let now = count(&read(&mut events.file).ok()?, counted);
            let new = now.checked_sub(events.seen).filter(|new| *new > 0)?;
            events.seen = now;
            events.told = Some(Instant::now());
            Some((limit, new))
        })
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = fs::read_to_string(self.path.join(name)).ok()?;
        text.trim().parse().ok()
    }

    fn listed(&self, name: &str, key: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(name)).unwrap_or_default();
        count(&text, key)
    }

    /// What the group uses; memory without files that the kernel only keeps at hand.
    pub(super) fn usage(&self) -> Usage {
        let at_hand = self.listed("memory.stat", "inactive_file");
        Usage {
            memory: self
                .number("memory.current")
                .unwrap_or(0)
                .saturating_sub(at_hand),
            cpu_time: self.cpu_time(),
            pids: self.number("pids.current").unwrap_or(0),
            ..Usage::default()
        }
    }

    pub(super) fn cpu_time(&self) -> Duration {
        Duration::from_micros(self.listed("cpu.stat", "usage_usec"))
    }

    /// Stops or continues everything in the group and waits until that is so.
    pub(super) fn freeze(&mut self, frozen: bool) -> io::Result<()> {
        let text = if frozen { "1" } else { "0" };
        fs::write(self.path.join("cgroup.freeze"), text)?;
        self.wait_for("frozen", frozen.into())
    }

    /// Ends everything in the group at once; not on kernels before 5.14.
    pub(super) fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    fn wait_for(&self, key: &str, value: u64) -> io::Result<()> {
        let mut file = File::open(self.path.join("cgroup.events"))?;
        let until = Instant::now() + PATIENCE;
        while count(&read(&mut file)?, key) != value {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("{} does not come to {key} {value}", self.path.display());
                return Err(io::Error::other(what));
            }
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLPRI)], left);
        }
        Ok(())
    }

    /// Removes the group once its last process is gone.
    pub(super) fn remove(self) -> io::Result<()> {
        self.wait_for("populated", 0)?;
        fs::remove_dir(&self.path)
    }
}

/// Opens a group and locks it; the lock goes with the process.
pub(super) fn lock(path: &Path, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(File::open(path)?, how).map_err(|(_, error)| error.into())
}

fn read(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The number after a key in lines of key and number; 0 where there is none.
fn count(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_their_whole_name() {
        let events = "low 0\nhigh 3\nmax 17\noom 2\noom_kill 1\n";
        assert_eq!(count(events, "oom_kill"), 1);
        assert_eq!(count(events, "oom"), 2);
        assert_eq!(count(events, "none"), 0);
    }
}
