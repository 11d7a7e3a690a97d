//! What a program says that nobody sits in front of: kept in the log, shown to whoever attaches,
//! and the way back for what they type.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::control::Control;
use crate::logs::{DEFAULT_LIMIT, LogError, LogStore, Pump, Recent, Stream};
use crate::sys::tty::{self, Size};

/// What is typed ahead of a program that does not read.
const MOST_TYPED: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Outputs {
    store: LogStore,
    recent: Recent,
    pumps: Vec<Pump>,
    /// Where what is typed goes: a pipe, or the terminal.
    input: Option<OwnedFd>,
    typed: Vec<u8>,
    has_terminal: bool,
}

impl Outputs {
    /// `pipes` are the ends of the program's streams.
    pub(super) fn new(folder: &Path, pipes: &mut [Option<OwnedFd>; 3]) -> Result<Self, LogError> {
        let mut outputs = Self {
            store: LogStore::open(folder, DEFAULT_LIMIT)?,
            recent: Recent::new(),
            pumps: Vec::new(),
            input: pipes[0].take(),
            typed: Vec::new(),
            has_terminal: false,
        };
        if let Some(input) = &outputs.input {
            let _ = unblock(input);
        }
        for (number, stream) in [(1, Stream::Out), (2, Stream::Err)] {
            if let Some(Ok(pump)) = pipes[number].take().map(|pipe| Pump::new(pipe, stream)) {
                outputs.pumps.push(pump);
            }
        }
        Ok(outputs)
    }

    pub(super) fn take_terminal(&mut self, master: OwnedFd) -> io::Result<()> {
        self.input = Some(master.try_clone()?);
        self.pumps.push(Pump::new(master, Stream::Out)?);
        self.has_terminal = true;
        Ok(())
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.has_terminal
    }

    /// Nothing is read from the program while somebody `is_behind` with what it said.
    pub(super) fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>, is_behind: bool) {
        if !is_behind {
            self.pumps.iter().for_each(|pump| pump.interests(out));
        }
        if let (Some(input), false) = (&self.input, self.typed.is_empty()) {
            out.push(PollFd::new(input.as_fd(), PollFlags::POLLOUT));
        }
    }

    /// Carries what is there, within bounds, to the log and to those who are attached.
    pub(super) fn progress(&mut self, control: &mut Option<Control>) {
        control.iter_mut().for_each(Control::catch_up);
        for pump in &mut self.pumps {
            if is_behind(control) {
                break;
            }
            let recent = &mut self.recent;
            let mut watching = |stream: Stream, bytes: &[u8]| {
                recent.push(stream, bytes);
                if let Some(control) = control {
                    control.spread(stream as u8, bytes);
                }
            };
            let heard = pump.progress(&mut self.store, &mut watching);
            if heard.is_err() {
                self.store
                    .note("a stream of the program cannot be read any more");
            }
        }
        self.pumps.retain(|pump| pump.pipe().is_some());
        self.type_on();
    }

    /// What somebody typed. More than a program leaves unread for long is forgotten.
    pub(super) fn type_in(&mut self, bytes: &[u8]) {
        if self.input.is_some() && self.typed.len() + bytes.len() <= MOST_TYPED {
            self.typed.extend_from_slice(bytes);
        }
        self.type_on();
    }

    fn type_on(&mut self) {
        let Some(input) = &self.input else { return };
        while !self.typed.is_empty() {
            match nix::unistd::write(input, &self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    self.typed.clear();
                    self.input = None;
                    return;
                }
            }
        }
    }

    pub(super) fn resize(&self, rows: u16, columns: u16) {
        if let (Some(terminal), true) = (&self.input, self.has_terminal) {
            let size = Size {
                rows,
                columns,
                width: 0,
                height: 0,
            };
            let _ = tty::set_size(terminal.as_fd(), size);
        }
    }

    /// What was said last, for whoever comes now.
    pub(super) fn recent(&self) -> Vec<(u8, Vec<u8>)> {
        let pieces = self.recent.pieces().into_iter();
        pieces
            .map(|(stream, bytes)| (stream as u8, bytes))
            .collect()
    }

    /// Takes in what was said before the end.
    pub(super) fn last_words(&mut self, control: &mut Option<Control>, deadline: Instant) {
        while Instant::now() < deadline {
            self.progress(control);
            let mut waiting = Vec::new();
            let next = control.as_ref().and_then(Control::behind_until);
            match control {
                Some(control) if next.is_some() => control.behind(&mut waiting),
                // A terminal whose programs are gone has nothing more to say, and does not say so.
                _ if self.has_terminal => {}
                _ => self
                    .pumps
                    .iter()
                    .for_each(|pump| pump.interests(&mut waiting)),
            }
            if waiting.is_empty() {
                break;
            }
            let until = next.map_or(deadline, |next| next.min(deadline));
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut waiting, timeout);
        }
    }
}

fn is_behind(control: &Option<Control>) -> bool {
    control
        .as_ref()
        .is_some_and(|control| control.behind_until().is_some())
}

fn unblock(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
