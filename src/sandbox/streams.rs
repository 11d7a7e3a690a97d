//! The program's standard streams: what goes in as it is, what goes through a pipe.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::pipe2;

use crate::plan::Stdio;
use crate::sys;

/// What the launcher keeps: one end of a pipe for every copied stream.
#[derive(Debug, Default)]
pub struct CallerEnds {
    pub pipes: [Option<OwnedFd>; 3],
}

/// What the program gets; a stream that will be the box's terminal is filled in later.
#[derive(Debug)]
pub(crate) struct BoxEnds([Option<OwnedFd>; 3]);

pub(crate) fn open(kinds: [Stdio; 3], from_root: bool) -> io::Result<(CallerEnds, BoxEnds)> {
    let mut caller = CallerEnds::default();
    let mut inside = BoxEnds([None, None, None]);
    for (number, kind) in kinds.into_iter().enumerate() {
        match kind {
            Stdio::Direct => inside.0[number] = Some(sys::fds::duplicate(number as RawFd)?),
            Stdio::Terminal | Stdio::Kept => {}
            Stdio::Copied if number == 2 && same_file(1, 2) && kinds[1] == Stdio::Copied => {
                // One pipe for both, or their order would be lost.
                inside.0[2] = inside.0[1].as_ref().map(OwnedFd::try_clone).transpose()?;
            }
            Stdio::Copied => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                let (ours, theirs) = if number == 0 {
                    (write, read)
                } else {
                    (read, write)
                };
                caller.pipes[number] = Some(ours);
                inside.0[number] = Some(theirs);
            }
        }
    }
    if from_root {
        inside.0.iter().flatten().try_for_each(let_reopen)?;
    }
    Ok((caller, inside))
}

/// A box started by root has another user's number, for whom root's pipe is closed: `/dev/stderr`
/// could not be written to. A pipe without a name can be reached only by who has it already, so
/// opening it to all opens it to nobody else. One with a name is left alone.
fn let_reopen(end: &OwnedFd) -> io::Result<()> {
    const WITHOUT_A_NAME: u64 = 0x5049_5045; // PIPEFS_MAGIC
    if nix::sys::statfs::fstatfs(end)?.filesystem_type().0 as u64 == WITHOUT_A_NAME {
        fchmod(end, Mode::from_bits_truncate(0o666))?;
    }
    Ok(())
}

fn same_file(one: RawFd, other: RawFd) -> bool {
    let identity = |fd| fstat(sys::fds::standard(fd)).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((identity(one), identity(other)), (Ok(a), Ok(b)) if a == b)
}

impl BoxEnds {
    pub(super) fn of(ends: [Option<OwnedFd>; 3]) -> Self {
        Self(ends)
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().flatten().map(AsRawFd::as_raw_fd)
    }

    /// Puts the streams at 0, 1 and 2; only for the process that is about to run the program.
    pub(crate) fn take_places(&self, terminal: Option<&OwnedFd>) -> io::Result<()> {
        for (number, end) in self.0.iter().enumerate() {
            if let Some(end) = end.as_ref().or(terminal) {
                sys::fds::place_at(end.as_raw_fd(), number as RawFd)?;
            }
        }
        Ok(())
    }
}
