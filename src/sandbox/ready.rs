//! The last steps before a program starts, when nothing of the host can be reached any more.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::unistd::chdir;

use super::owners;
use super::trouble::Trouble;
use crate::plan::{Part, ReadyStep};
use crate::sys;

/// A filter is a list of instructions of this many bytes.
const INSTRUCTION: usize = 8;

/// Leaves where the program starts and what filters came late with the caller.
pub(super) fn apply(
    step: &ReadyStep,
    proc: Option<&OwnedFd>,
    start: &mut Option<PathBuf>,
    filters: &mut Vec<Vec<u8>>,
) -> Result<(), Trouble> {
    match step {
        ReadyStep::WaitFor(fd) => {
            // The end of it is an answer as well, and so is an error.
            let mut byte = [0u8; 1];
            let _ = sys::fds::duplicate(*fd).map(|fd| File::from(fd).read(&mut byte));
            Ok(())
        }
        ReadyStep::ReadFilter(fd) => {
            let filter = read_all(*fd)?;
            if filter.len() % INSTRUCTION != 0 {
                let odd = io::Error::from_raw_os_error(libc::EINVAL);
                return Err(Trouble::new(Part::Write, odd));
            }
            filters.push(filter);
            Ok(())
        }
        ReadyStep::Directory { asked, others } => {
            *start = Some(match asked {
                Some(path) => {
                    chdir(path)?;
                    path.clone()
                }
                None => {
                    let there = others.iter().find(|path| chdir(path.as_path()).is_ok());
                    there.cloned().unwrap_or_else(|| PathBuf::from("/"))
                }
            });
            Ok(())
        }
        ReadyStep::NewSession => Ok(nix::unistd::setsid().map(drop)?),
        ReadyStep::Label(label) => {
            let proc = proc.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
            Ok(owners::write_at(proc, "self/attr/exec", label.as_bytes())?)
        }
    }
}

fn read_all(fd: RawFd) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::from(sys::fds::duplicate(fd)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}
