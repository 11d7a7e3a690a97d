//! What these tests share: a box with a program that does as it is told, and the loop a
//! supervisor has.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cowork_linux::limits::{Ground, Holder, Verdict, Wanted, supervise};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::World;

pub(crate) const MIB: u64 = 1 << 20;
/// Longer than anything here takes on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const PYTHON: &str = "/usr/bin/python3";

/// What every program here starts with: it says a word and waits to be told to go on.
const PRELUDE: &str = "
import os, sys, time, mmap, resource
def say(*words): os.write(1, (' '.join(map(str, words)) + '\\n').encode())
def wait(): return sys.stdin.readline()
M = 1 << 20
";

/// A program in a box, or beside none.
pub(crate) struct Boxed {
    pub(crate) child: Child,
    /// The process that all others in the box descend from.
    pub(crate) first: i32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _world: Option<World>,
}

impl Boxed {
    /// `limits` are words of prlimit(1).
    pub(crate) fn start(program: &str, limits: &[&str]) -> Self {
        Self::over(program, limits, None)
    }

    /// The same with a folder of the host's, in which it starts.
    pub(crate) fn over(program: &str, limits: &[&str], folder: Option<&Path>) -> Self {
        let world = World::new();
        let mut command = world.cowork();
        command.args(["run", "-q", "--tmp-size", "160M"]);
        if let Some(folder) = folder {
            command.arg("--mount").arg(folder);
        }
        command.args(["--", "prlimit"]).args(limits);
        let command = command.args(["--core=0", "--", PYTHON, "-u", "-c"]);
        let mut boxed = Self::of(command, program, Some(world));
        assert_eq!(boxed.hear(), "up");
        let launcher = boxed.first;
        let born = children(launcher);
        assert_eq!(born.len(), 1, "{born:?}");
        boxed.first = born[0];
        boxed
    }

    /// The same program with nothing of its own.
    pub(crate) fn plain(program: &str) -> Self {
        let mut boxed = Self::of(Command::new(PYTHON).args(["-u", "-c"]), program, None);
        assert_eq!(boxed.hear(), "up");
        boxed
    }

    /// The same program in a control group: it enters that before it does anything else.
    pub(crate) fn within(group: &Path, program: &str) -> Self {
        let mut command = Command::new("sh");
        let enter = "echo 0 > \"$0/cgroup.procs\" && exec \"$@\"";
        command.args(["-c", enter]).arg(group);
        let mut boxed = Self::of(command.args([PYTHON, "-u", "-c"]), program, None);
        assert_eq!(boxed.hear(), "up");
        boxed
    }

    fn of(command: &mut Command, program: &str, world: Option<World>) -> Self {
        let mut child = command
            .arg(format!("{PRELUDE}say('up')\n{program}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            first: child.id() as i32,
            child,
            _world: world,
        }
    }

    /// The next line; empty when there will be none.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    /// Holds the box to limits without a control group.
    pub(crate) fn held_to(&self, wanted: Wanted, folders: &[&Path]) -> Holder {
        let mut holder = supervise(&wanted, "this is a test").unwrap();
        let first = Pid::from_raw(self.first);
        holder.begin(first, true, on_disk(folders)).unwrap();
        holder
    }

    /// Whether everybody in the box goes away: only then does its output end.
    pub(crate) fn vanishes(mut self) -> bool {
        self.wake_launcher();
        drop(self.input);
        let end = Instant::now() + PATIENCE;
        let mut rest = [0u8; 4096];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left).unwrap();
            let fd = self.output.get_ref().as_fd();
            if poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], left).unwrap() == 0 {
                return false;
            }
            if self.output.read(&mut rest).unwrap() == 0 {
                self.child.wait().unwrap();
                return true;
            }
        }
    }

    /// Ends the box, so that its launcher cleans up after it.
    pub(crate) fn end(mut self) {
        let _ = kill(Pid::from_raw(self.first), Signal::SIGKILL);
        self.wake_launcher();
        self.child.wait().unwrap();
    }

    /// A launcher stops together with its program, when it sees that stop.
    fn wake_launcher(&self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGCONT);
    }
}

pub(crate) fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    let pids = text.split_whitespace();
    pids.map(|pid| pid.parse().unwrap()).collect()
}

pub(crate) fn on_disk(folders: &[&Path]) -> Ground {
    let open = |path: &&Path| OwnedFd::from(std::fs::File::open(path).unwrap());
    Ground::new(folders.iter().map(open).collect(), Vec::new())
}

/// What a supervisor does: waits for the next thing and asks. Ends with the first verdict that
/// is not fine, or after a while.
pub(crate) fn supervise_for(holder: &mut Holder, time: Duration) -> Verdict {
    let end = Instant::now() + time;
    loop {
        match holder.check() {
            Verdict::Fine => {}
            found => return found,
        }
        let now = Instant::now();
        if now >= end {
            return Verdict::Fine;
        }
        let next = holder.wake_at().unwrap_or(end).min(end);
        let left = next.saturating_duration_since(now) + Duration::from_millis(1);
        let mut waiting: Vec<PollFd<'_>> = holder
            .events()
            .map(|(fd, flags)| PollFd::new(fd, flags))
            .collect();
        poll(&mut waiting, PollTimeout::try_from(left).unwrap()).unwrap();
    }
}

/// The sentence of a verdict that the box is over a limit.
#[track_caller]
pub(crate) fn over(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Over { what, .. } => what,
        other => panic!("{other:?}"),
    }
}
