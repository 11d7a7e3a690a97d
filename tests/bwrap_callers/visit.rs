//! Looks at a sandboxed command from outside, while it waits for us: which programs stand between
//! it and its caller.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;

use crate::support::{DISTRIBUTION_BWRAP, Ran, binary};

/// What the sandboxed shell runs to be looked at, in the folder with the two pipes.
pub(crate) const WAIT: &str = "echo here > arrived; read -r word < leave";

const PATIENCE_IN_MILLISECONDS: u16 = 60_000;

/// Two named pipes in the folder of a command that runs `WAIT`.
pub(crate) struct Visit {
    arrived: File,
    leave: File,
}

impl Visit {
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let pipe = |name| {
            let path = folder.join(name);
            nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
            // For both, so that neither side waits in open and no end of file comes between.
            let mut both = OpenOptions::new();
            both.read(true).write(true).open(path).unwrap()
        };
        Self {
            arrived: pipe("arrived"),
            leave: pipe("leave"),
        }
    }

    /// Starts the caller, looks when its command waits, and lets it go on to its end.
    pub(crate) fn of(mut self, command: &mut Command) -> (Way, Ran) {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let caller = command.spawn().unwrap();
        let way = self.is_inside(&caller).then(|| Way::to(&caller));
        writeln!(self.leave, "go").unwrap();
        let ended = caller.wait_with_output().unwrap();
        let ran = Ran {
            code: ended.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&ended.stdout).into_owned(),
            err: String::from_utf8_lossy(&ended.stderr).into_owned(),
        };
        (way.unwrap_or_else(|| panic!("never came: {ran:?}")), ran)
    }

    /// Whether the command comes before the caller ends, whose output nobody has then.
    pub(crate) fn is_inside(&self, caller: &Child) -> bool {
        let out = caller.stdout.as_ref().unwrap();
        let mut waiting = [
            PollFd::new(self.arrived.as_fd(), PollFlags::POLLIN),
            PollFd::new(out.as_fd(), PollFlags::empty()),
        ];
        poll(&mut waiting, PollTimeout::from(PATIENCE_IN_MILLISECONDS)).unwrap();
        waiting[0].any() == Some(true)
    }
}

/// The processes from the innermost one of a sandbox out to the one that was started.
#[derive(Debug)]
pub(crate) struct Way(Vec<Process>);

#[derive(Debug)]
struct Process {
    /// How many process namespaces number it.
    namespaces: usize,
    /// What it calls itself.
    name: String,
    /// The program it runs: the name it had, and which file it is. Not every process shows it.
    program: Option<(PathBuf, (u64, u64))>,
}

impl Process {
    fn new(pid: i32) -> Self {
        let link = PathBuf::from(format!("/proc/{pid}/exe"));
        let name = std::fs::read_link(&link).ok();
        let program = name.and_then(|name| Some((name, identity(&link)?)));
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            namespaces: namespaces(pid),
            name: name.trim_end().to_owned(),
            program,
        }
    }
}

impl Way {
    fn to(caller: &Child) -> Self {
        let caller = caller.id() as i32;
        let everybody = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = everybody.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ways = pids.filter_map(|pid| way_up(pid, caller));
        let longest = ways.max_by_key(|way| (namespaces(way[0]), way.len()));
        let longest = longest.expect("the caller itself is there");
        Self(longest.into_iter().map(Process::new).collect())
    }

    /// The command is in a process namespace of its own, the given program is what stands between
    /// it and its caller, and the distribution's is nowhere.
    #[track_caller]
    pub(crate) fn leads_through(&self, bwrap: &Path) {
        let own = namespaces(std::process::id() as i32);
        let inside = self.0[0].namespaces;
        assert!(inside > own, "no namespace of its own: {self:#?}");
        assert!(self.passes(bwrap), "no {} in {self:#?}", bwrap.display());
        let other = Path::new(DISTRIBUTION_BWRAP);
        if identity(other) != identity(bwrap) {
            assert!(!self.passes(other), "{DISTRIBUTION_BWRAP} in {self:#?}");
        }
    }

    fn passes(&self, program: &Path) -> bool {
        let Some(wanted) = identity(program) else {
            return false;
        };
        let mut programs = self.0.iter().filter_map(|process| process.program.as_ref());
        programs.any(|(_, file)| *file == wanted) || (is_ours(program) && self.passes_hidden())
    }

    /// Ours lets nobody look at its processes, not even the user they belong to; the distribution's
    /// does.
    fn passes_hidden(&self) -> bool {
        let hidden = |process: &&Process| process.program.is_none();
        self.0
            .iter()
            .filter(hidden)
            .any(|process| process.name == "bwrap")
    }
}

fn is_ours(program: &Path) -> bool {
    identity(program) == identity(&binary())
}

/// Which file it is, whatever names it has.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// The process and its parents up to the given one; nothing if that is none of them.
fn way_up(pid: i32, top: i32) -> Option<Vec<i32>> {
    let mut way = vec![pid];
    while *way.last()? != top {
        let parent = status(*way.last()?, "PPid:").parse().ok()?;
        // Who has no parent that we see is nobody's descendant.
        if parent == 0 {
            return None;
        }
        way.push(parent);
    }
    Some(way)
}

fn namespaces(pid: i32) -> usize {
    status(pid, "NSpid:").split_whitespace().count()
}

/// A line of the status of a process; empty when it is gone.
fn status(pid: i32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}
