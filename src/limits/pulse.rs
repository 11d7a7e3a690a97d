//! The cheapest look at a box in which nothing happens: its processes' lines in /proc, kept open,
//! are the same as before to the letter. A fraction of the price of counting everybody anew.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::census::Census;

/// An idle box has a few processes; descriptors for more of them would cost more than they save.
const MOST: usize = 8;
/// How often the cheap look may take the place of the real one. A thread that is not its process's
/// first one can give birth without a trace in these lines.
const IN_A_ROW: u32 = 3;

#[derive(Debug)]
pub(super) struct Pulse {
    beats: Vec<Beat>,
    taken: u32,
}

/// One process: how it is, and its children.
#[derive(Debug)]
struct Beat {
    files: [File; 2],
    text: Vec<u8>,
}

impl Pulse {
    /// `start` is any number: sessions that were started together are not all to count at once.
    pub(super) fn of(census: &Census, start: u32) -> Option<Self> {
        if census.all.len() > MOST {
            return None;
        }
        let beats: Option<Vec<Beat>> = census.all.iter().map(|p| Beat::of(p.pid)).collect();
        let taken = start % (IN_A_ROW + 1);
        beats.map(|beats| Self { beats, taken })
    }

    /// Whether for all that can be seen nobody has done anything. Now and then it does not say.
    pub(super) fn is_still(&mut self) -> bool {
        self.taken += 1;
        if self.taken > IN_A_ROW {
            self.taken = 0;
            return false;
        }
        let mut room = [0u8; 2048];
        self.beats
            .iter()
            .all(|beat| beat.read(&mut room).is_some_and(|text| text == beat.text))
    }
}

impl Beat {
    fn of(pid: i32) -> Option<Self> {
        let open = |path: String| File::open(path).ok();
        let mut beat = Self {
            files: [
                open(format!("/proc/{pid}/stat"))?,
                open(format!("/proc/{pid}/task/{pid}/children"))?,
            ],
            text: Vec::new(),
        };
        let mut room = [0u8; 2048];
        beat.text = beat.read(&mut room)?.to_vec();
        Some(beat)
    }

    /// Both texts, one after the other; none when they are longer than an idle process's.
    fn read<'a>(&self, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut end = 0;
        for file in &self.files {
            end += file.read_at(&mut room[end..], 0).ok()?;
        }
        (end < room.len()).then_some(&room[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::census::Process;

    #[test]
    fn a_process_that_does_something_is_noticed_and_one_that_does_not_is_still() {
        use std::io::{BufRead, BufReader, Write};
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "echo 1; read x; sleep 60 & echo 2; read x"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut heard = BufReader::new(shell.stdout.take().unwrap()).lines();
        heard.next().unwrap().unwrap();
        let pid = shell.id() as i32;
        let asleep = || Process::look(pid).unwrap().state == b'S';
        while !asleep() {
            std::thread::yield_now();
        }
        let census = Census {
            all: vec![Process::look(pid).unwrap()],
            is_cut: false,
        };
        let mut pulse = Pulse::of(&census, 4).unwrap();
        let still: Vec<bool> = (0..5).map(|_| pulse.is_still()).collect();
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        heard.next().unwrap().unwrap();
        let after = pulse.is_still();
        let born = Census::take(pid, census.all[0].started, 10).unwrap();
        for process in born.all.iter().rev() {
            let pid = nix::unistd::Pid::from_raw(process.pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        shell.wait().unwrap();
        assert_eq!(still, [true, true, true, false, true]);
        assert!(!after);
        assert_eq!(born.all.len(), 2);
    }
}
