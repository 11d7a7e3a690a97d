//! All processes of a box, found from outside by who gave birth to whom. In the box's own pid
//! namespace orphans become children of its first process, so nobody leaves this family.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::read;

/// What the kernel says about one process in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) state: u8,
    pub(super) threads: u64,
    /// Processor time of its own and of children it has buried, in ticks.
    pub(super) ticks: u64,
    /// Page faults, which nobody avoids who does anything.
    pub(super) faults: u64,
    pub(super) started: u64,
    /// Pages in memory, those of files included.
    pub(super) resident: u64,
}

impl Process {
    pub(super) fn look(pid: i32) -> io::Result<Self> {
        let mut room = [0u8; 1024];
        let text = read_small(&format!("/proc/{pid}/stat"), &mut room)?;
        Self::parse(pid, text).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// The name stands in brackets and may hold anything, brackets included; the rest are numbers.
    fn parse(pid: i32, text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 2..)?).ok()?;
        let mut words = rest.split(' ');
        let state = *words.next()?.as_bytes().first()?;
        let parent = words.next()?.parse().ok()?;
        let mut number = |skipped: usize| words.nth(skipped)?.parse::<u64>().ok();
        let faults = number(5)?.wrapping_add(number(1)?);
        let ticks = number(1)? + number(0)? + number(0)? + number(0)?;
        Some(Self {
            pid,
            parent,
            state,
            faults,
            ticks,
            threads: number(2)?,
            started: number(1)?,
            resident: number(1)?,
        })
    }

    pub(super) fn is_zombie(&self) -> bool {
        self.state == b'Z'
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

/// Everybody in the box at about one instant; parents come before their children.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) all: Vec<Process>,
    /// There were more than were asked for.
    pub(super) is_cut: bool,
}

impl Census {
    /// Counts the process that started at this time and its descendants, but not beyond `most`.
    /// The time tells it from another one that got its number later.
    pub(super) fn take(first: i32, started: u64, most: usize) -> io::Result<Self> {
        let top = Process::look(first)?;
        if top.started != started {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut census = Self {
            all: vec![top],
            is_cut: false,
        };
        let mut next = 0;
        while let Some(process) = census.all.get(next).copied() {
            next += 1;
            if census.all.len() > most {
                census.is_cut = true;
                break;
            }
            match children(&process) {
                Ok(born) => {
                    let seen = born.into_iter().filter_map(|pid| Process::look(pid).ok());
                    // A number that was given to somebody else meanwhile has another parent,
                    // or it was an orphan that the first process took over: then it is ours.
                    census.all.extend(
                        seen.filter(|born| born.parent == process.pid || born.parent == first),
                    );
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && next == 1 => {
                    // Kernels can be built without these lists.
                    return Self::search(top, most);
                }
                Err(_) => {}
            }
        }
        census.forget_doubles();
        Ok(census)
    }

    /// Whoever was handed over while we looked may be listed twice.
    fn forget_doubles(&mut self) {
        let mut pids: Vec<i32> = self.all.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        if pids.windows(2).any(|pair| pair[0] == pair[1]) {
            let mut seen = std::collections::HashSet::new();
            self.all.retain(|process| seen.insert(process.pid));
        }
    }

    /// The same by looking at every process of this host.
    fn search(top: Process, most: usize) -> io::Result<Self> {
        let mut others: Vec<Process> = fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Process::look(pid).ok())
            .collect();
        let mut census = Self {
            all: vec![top],
            is_cut: false,
        };
        let mut next = 0;
        while let Some(process) = census.all.get(next).copied() {
            next += 1;
            let is_child = |other: &Process| other.parent == process.pid;
            census.all.extend(others.iter().copied().filter(is_child));
            others.retain(|other| !is_child(other));
        }
        census.is_cut = census.all.len() > most;
        Ok(census)
    }

    /// Threads count like processes, for the kernel too.
    pub(super) fn threads(&self) -> u64 {
        self.all.iter().map(|process| process.threads).sum()
    }

    pub(super) fn ticks(&self) -> u64 {
        self.all.iter().map(|process| process.ticks).sum()
    }

    pub(super) fn living(&self) -> impl Iterator<Item = &Process> {
        self.all.iter().filter(|process| !process.is_zombie())
    }

    /// Whether nobody has done anything between the two.
    pub(super) fn is_as_quiet_as(&self, before: &Self) -> bool {
        let doing = |process: &Process| (process.pid, process.ticks, process.faults);
        self.all.iter().map(doing).eq(before.all.iter().map(doing))
    }
}

/// Children are listed with the thread that gave birth to them.
fn children(process: &Process) -> io::Result<Vec<i32>> {
    let pid = process.pid;
    let mut born = Vec::new();
    if process.threads <= 1 {
        listed(format!("/proc/{pid}/task/{pid}/children"), &mut born)?;
        return Ok(born);
    }
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let path = thread.path().join("children");
        // A thread may have ended since it was listed.
        let _ = listed(path, &mut born);
    }
    Ok(born)
}

fn listed(path: impl AsRef<Path>, born: &mut Vec<i32>) -> io::Result<()> {
    let text = fs::read_to_string(path)?;
    born.extend(text.split_ascii_whitespace().flat_map(str::parse::<i32>));
    Ok(())
}

/// Reads a file that is known to be shorter than the room, without asking how long it is.
pub(super) fn read_small<'a>(path: &str, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let length = read(file.as_fd(), room)?;
    Ok(&room[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_the_rest_of_the_line() {
        let line = b"42 (a) Z 1 (b)) S 7 42 42 0 -1 0 10 20 30 40 1 2 3 4 20 0 5 0 99 1 6 0\n";
        let process = Process::parse(42, line).unwrap();
        assert_eq!(process.parent, 7);
        assert_eq!(process.state, b'S');
        assert_eq!(process.faults, 40);
        assert_eq!(process.ticks, 10);
        assert_eq!(process.threads, 5);
        assert_eq!(process.started, 99);
        assert_eq!(process.resident, 6);
        assert_eq!(Process::parse(1, b"1 (x"), None);
        assert_eq!(Process::parse(1, b"1 (x) S 1"), None);
    }

    #[test]
    fn a_family_is_found_from_its_first_member_and_only_that() {
        use std::io::{BufRead, BufReader};
        let script = "sleep 60 & sleep 60 & sh -c 'sleep 60 & echo ready; wait' & wait";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = parent.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut said).unwrap();
        let pid = parent.id() as i32;
        let top = Process::look(pid).unwrap();
        let census = Census::take(pid, top.started, 100).unwrap();
        let other = Census::take(pid, top.started + 1, 100);
        let few = Census::take(pid, top.started, 2).unwrap();
        let mut searched = Census::search(top, 100).unwrap();
        for process in census.all.iter().rev() {
            let pid = nix::unistd::Pid::from_raw(process.pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        parent.wait().unwrap();
        assert_eq!(census.all.len(), 5, "{census:?}");
        assert_eq!(census.threads(), 5);
        assert!(!census.is_cut && few.is_cut);
        assert!(other.is_err(), "a recycled number is not the box");
        let pids = |census: &mut Census| {
            let mut pids: Vec<i32> = census.all.iter().map(|process| process.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(&mut searched), pids(&mut census.clone()));
    }
}
