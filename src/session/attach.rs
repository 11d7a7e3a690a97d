//! Sitting down in front of a program that runs in the background, and leaving it there again.

use std::io::{self, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::client::{AskError, Call};
use super::outcome::Outcome;
use super::signals::watch_signals;
use super::talk::{Ask, Say};
use crate::sys;
use crate::terminal::{EscapeFilter, OuterTerminal};

/// How one left a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// By the keys for it; it goes on.
    Detached,
    Ended(Outcome),
}

/// ^P ^Q, which people know from docker.
const LEAVE: [u8; 2] = [0x10, 0x11];

/// What is typed, up to the keys that mean to leave. A first key of the two is held back until
/// the next one tells.
#[derive(Debug, Default)]
struct Keys {
    held: bool,
}

impl Keys {
    /// What goes to the program, and whether to leave.
    fn read(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut on = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            match (std::mem::take(&mut self.held), *key) {
                (true, key) if key == LEAVE[1] => return (on, true),
                (held, key) => {
                    on.extend(held.then_some(LEAVE[0]));
                    match key == LEAVE[0] {
                        true => self.held = true,
                        false => on.push(key),
                    }
                }
            }
        }
        (on, false)
    }
}

impl Call {
    /// Shows what the program says; with `input` passes on what is typed.
    pub fn attach(&self, input: bool, on_terminal: bool) -> Result<Left, AskError> {
        let signals = watch_signals().map_err(AskError::Streams)?;
        self.ask(&Ask::Attach { input }, &[])?;
        let mut front = Sitting::new(on_terminal);
        let mut reads = input;
        loop {
            let mut waiting = vec![
                PollFd::new(self.line().as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            if reads {
                waiting.push(PollFd::new(sys::fds::standard(0), PollFlags::POLLIN));
            }
            match poll(&mut waiting, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(AskError::Streams(error.into())),
            }
            let is = |number: usize| waiting.get(number).is_some_and(|it| it.any() == Some(true));
            let (told, signalled, typed) = (is(0), is(1), is(2));
            drop(waiting);
            while signalled && let Ok(Some(signal)) = signals.read_signal() {
                match signal.ssi_signo as i32 {
                    winch if winch == Signal::SIGWINCH as i32 => self.resize(&front)?,
                    stop if stop == Signal::SIGTSTP as i32 => {}
                    // Whoever only looks on leaves; the program is not theirs to end.
                    _ => return Ok(Left::Detached),
                }
            }
            if typed {
                let mut bytes = [0u8; 4096];
                let count = nix::unistd::read(sys::fds::standard(0), &mut bytes).unwrap_or(0);
                reads = count > 0;
                let (on, leave) = front.keys.read(&bytes[..count]);
                self.send_output(0, &on)?;
                if leave {
                    return Ok(Left::Detached);
                }
            }
            if !told {
                continue;
            }
            let packet = self.packet()?;
            if let Some((stream, bytes)) = packet.output() {
                match front.show(stream, bytes) {
                    // Whoever read it has left, as `head` does.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                        return Ok(Left::Detached);
                    }
                    shown => shown.map_err(AskError::Streams)?,
                }
                continue;
            }
            match self.understood(&packet)? {
                Say::Attached { terminal } if terminal && input && on_terminal => {
                    front.take().map_err(AskError::Streams)?;
                    self.resize(&front)?;
                }
                Say::Ended { status } => return Ok(Left::Ended(Outcome::from_status(status))),
                _ => {}
            }
        }
    }

    fn resize(&self, front: &Sitting) -> Result<(), AskError> {
        match front.outer.as_ref().map(OuterTerminal::size) {
            Some(Ok(size)) => self.ask(
                &Ask::Resize {
                    rows: size.rows,
                    columns: size.columns,
                },
                &[],
            ),
            _ => Ok(()),
        }
    }
}

/// The terminal of whoever sits there.
#[derive(Debug)]
struct Sitting {
    outer: Option<OuterTerminal>,
    keys: Keys,
    /// A program can say anything; a terminal must not obey everything.
    filter: Option<EscapeFilter>,
}

impl Sitting {
    fn new(on_terminal: bool) -> Self {
        Self {
            outer: None,
            keys: Keys::default(),
            filter: on_terminal.then(EscapeFilter::new),
        }
    }

    fn take(&mut self) -> io::Result<()> {
        self.outer = Some(OuterTerminal::take_and_survive(sys::fds::standard(0))?);
        Ok(())
    }

    fn show(&mut self, stream: u8, bytes: &[u8]) -> io::Result<()> {
        let mut clean = Vec::new();
        let bytes = match &mut self.filter {
            Some(filter) => {
                filter.filter(bytes, &mut clean);
                &clean
            }
            None => bytes,
        };
        match stream {
            2 => io::stderr().write_all(bytes),
            _ => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush())
            }
        }
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        if let Some(filter) = &mut self.filter {
            let mut last = Vec::new();
            filter.leave(&mut last);
            let _ = io::stdout()
                .write_all(&last)
                .and_then(|()| io::stdout().flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_to_leave_are_found_however_they_arrive() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"ab\x10"), (b"ab".to_vec(), false));
        assert_eq!(keys.read(b"\x11rest"), (Vec::new(), true));
        let mut keys = Keys::default();
        assert_eq!(
            keys.read(b"\x10\x10x\x11"),
            (b"\x10\x10x\x11".to_vec(), false)
        );
    }
}
