//! Leaving the caller: the supervisor goes on by itself, and the caller hears how it started.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;

use crate::sys;
use crate::sys::process::SingleThreaded;

/// Which side of the fork this is.
#[derive(Debug)]
pub enum Detached {
    /// The caller's: the code that the supervisor had to say, 0 when the program runs.
    Caller(u8),
    /// The supervisor's: where it says how it started.
    Supervisor(OwnedFd),
}

/// What the caller hears when the supervisor dies before it can say anything.
const NOT_STARTED: u8 = 125;

pub fn detach() -> io::Result<Detached> {
    let proof = SingleThreaded::prove()?;
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    match sys::process::fork(&proof)? {
        Some(supervisor) => {
            drop(write);
            let mut code = [NOT_STARTED];
            let _ = File::from(read).read(&mut code)?;
            if code[0] != 0 {
                // It is about to say why; nothing is to be said after this process has ended.
                let _ = sys::process::wait(supervisor, 0);
            }
            Ok(Detached::Caller(code[0]))
        }
        None => {
            drop(read);
            // Values given with --env are among them.
            sys::process::forget_words();
            nix::unistd::setsid()?;
            nix::unistd::chdir("/")?;
            sys::fds::put_null_at(&[0, 1])?;
            Ok(Detached::Supervisor(write))
        }
    }
}

/// Says how it started; from then on nothing of the caller's is held. Whether somebody was there to
/// hear it.
pub(super) fn say(to: OwnedFd, code: u8) -> bool {
    let said = File::from(to).write_all(&[code]);
    if code == 0 {
        let _ = sys::fds::put_null_at(&[0, 1, 2]);
    }
    said.is_ok()
}
