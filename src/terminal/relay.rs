//! Carries bytes between the caller's terminal and the box's. Never waits, never holds more than a
//! fixed amount: a terminal that does not read stops the box, as a terminal of its own would.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{self, SpecialCharacterIndices};

use super::escape::EscapeFilter;
use super::stream::{Moved, Stream};
use crate::sys::tty;

/// How much may wait in each direction before the side it comes from is no longer read.
const MOST_WAITING: usize = 64 << 10;
/// How much of the box's output one call looks at. What is dropped takes no room, so room alone
/// would let a program that prints fast enough hold the loop for ever.
const MOST_AT_ONCE: usize = 4 * MOST_WAITING;

/// The launcher should keep a descriptor of the box's terminal open for as long as programs may
/// come: when the last one closes, the relay takes that for the end.
#[derive(Debug)]
pub struct Relay {
    /// None once the box's side is closed.
    master: Option<Stream>,
    input: Option<Stream>,
    output: Option<Stream>,
    /// To the box.
    inward: Queue,
    /// To the caller, already filtered.
    outward: Queue,
    filter: EscapeFilter,
    scratch: Box<[u8]>,
    /// The box has nothing more to say at this moment.
    quiet: bool,
    /// The caller's terminal is not ours to read until [`Relay::resume`].
    in_background: bool,
    left: bool,
}

impl Relay {
    /// `input` is the caller's terminal if its stdin is one, `output` if its stdout or stderr is.
    /// Without an output what the box prints, such as the echo of input, is dropped.
    pub fn new(
        master: OwnedFd,
        input: Option<BorrowedFd<'_>>,
        output: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        Ok(Self {
            master: Some(Stream::own(master)?),
            input: input.map(Stream::caller).transpose()?,
            output: output.map(Stream::caller).transpose()?,
            inward: Queue::default(),
            outward: Queue::default(),
            filter: EscapeFilter::new(),
            scratch: vec![0; MOST_WAITING].into(),
            quiet: false,
            in_background: false,
            left: false,
        })
    }

    /// Adds what to poll for now. A side that could not be served is not asked about, so that its
    /// hanging up does not wake the loop again and again.
    pub fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        let mut ask = |stream: &'a Option<Stream>, wanted: PollFlags| {
            if let Some(stream) = stream.as_ref().filter(|_| !wanted.is_empty()) {
                out.push(PollFd::new(stream.as_fd(), wanted));
            }
        };
        let hear = flag(self.outward.room() > 0, PollFlags::POLLIN);
        let tell = flag(!self.inward.is_empty(), PollFlags::POLLOUT);
        ask(&self.master, hear | tell);
        ask(&self.input, flag(self.takes_input(), PollFlags::POLLIN));
        ask(
            &self.output,
            flag(!self.outward.is_empty(), PollFlags::POLLOUT),
        );
    }

    /// Moves whatever can be moved without waiting.
    pub fn progress(&mut self) -> io::Result<()> {
        self.hear_box()?;
        self.show()?;
        self.hear_caller()?;
        self.tell_box()
    }

    /// The box's side is closed and everything it said has been shown.
    pub fn finished(&self) -> bool {
        self.master.is_none() && self.outward.is_empty()
    }

    /// After the program's end: shows what the terminal inside still holds, then undoes the modes
    /// the program left switched on. Processes that live on may keep the terminal open and go on
    /// writing; they are not waited for beyond `deadline`. Input that comes now is the shell's.
    pub fn drain(&mut self, deadline: Instant) -> io::Result<()> {
        self.input = None;
        self.inward.clear();
        self.flush(deadline)?;
        self.leave()?;
        self.flush_shown(deadline)
    }

    /// Before the launcher stops itself: shows what there is and undoes modes, for the shell.
    pub fn suspend(&mut self, deadline: Instant) -> io::Result<()> {
        self.flush(deadline)?;
        let mut bytes = Vec::new();
        self.filter.leave(&mut bytes);
        self.outward.extend(&bytes);
        self.flush_shown(deadline)
    }

    /// After the launcher has been continued: switches modes on again and reads input again.
    pub fn resume(&mut self) -> io::Result<()> {
        self.in_background = false;
        let mut bytes = Vec::new();
        self.filter.reenter(&mut bytes);
        self.outward.extend(&bytes);
        self.show()
    }

    /// Gives the box's terminal the size of the caller's.
    pub fn resize(&self) -> io::Result<()> {
        match (&self.master, self.output.as_ref().or(self.input.as_ref())) {
            (Some(master), Some(caller)) => {
                tty::set_size(master.as_fd(), tty::size(caller.as_fd())?)
            }
            _ => Ok(()),
        }
    }

    /// How many bytes wait inside the relay, in both directions.
    pub fn waiting(&self) -> usize {
        self.inward.len() + self.outward.len()
    }

    fn hear_box(&mut self) -> io::Result<()> {
        self.quiet = false;
        let mut heard = 0;
        while let Some(master) = self.master.as_ref().filter(|_| self.outward.room() > 0) {
            if heard >= MOST_AT_ONCE {
                break;
            }
            let room = self.outward.room().min(self.scratch.len());
            match master.read(&mut self.scratch[..room]) {
                Ok(Moved::Bytes(count)) => {
                    heard += count;
                    if self.output.is_some() {
                        let heard = &self.scratch[..count];
                        self.filter.filter(heard, self.outward.tail());
                    }
                }
                Ok(Moved::NotNow) => {
                    self.quiet = true;
                    return Ok(());
                }
                // The kernel says EIO when the last descriptor of the other side has been closed,
                // and only after everything written to it has been read.
                Ok(Moved::Ended) => self.master = None,
                Err(error) if is(&error, Errno::EIO) => self.master = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn show(&mut self) -> io::Result<()> {
        let Some(output) = &self.output else {
            self.outward.clear();
            return Ok(());
        };
        match self.outward.write_to(output) {
            // The terminal is gone. The box is still listened to, or it would wait for ever on a
            // full buffer instead of hearing the hang-up.
            Err(error) if is(&error, Errno::EIO) || is(&error, Errno::EPIPE) => {
                self.output = None;
                self.outward.clear();
                Ok(())
            }
            shown => shown,
        }
    }

    fn hear_caller(&mut self) -> io::Result<()> {
        while let Some(input) = self.input.as_ref().filter(|_| self.takes_input()) {
            let room = self.inward.room().min(self.scratch.len());
            match input.read(&mut self.scratch[..room]) {
                Ok(Moved::Bytes(count)) => self.inward.extend(&self.scratch[..count]),
                Ok(Moved::NotNow) => return Ok(()),
                Ok(Moved::Ended) => self.caller_said_end(),
                // Hung up, or read in the background with SIGTTIN blocked.
                Err(error) if is(&error, Errno::EIO) => {
                    if input.is_hung_up() {
                        self.input = None;
                    } else {
                        self.in_background = true;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A terminal cannot be half closed, but its line discipline knows a character for the end.
    /// In the middle of a line it takes two: the first only hands the line over.
    fn caller_said_end(&mut self) {
        if let Some(master) = &self.master
            && let Ok(settings) = termios::tcgetattr(master)
        {
            let end = settings.control_chars[SpecialCharacterIndices::VEOF as usize];
            let count = if matches!(self.inward.last(), None | Some(b'\n')) {
                1
            } else {
                2
            };
            // A zero means that this character is switched off.
            self.inward
                .extend(&[end, end][..if end == 0 { 0 } else { count }]);
        }
        // A terminal in line mode goes on after ^D; anything else has nothing more to say.
        let goes_on = self.input.as_ref().is_some_and(|input| {
            nix::unistd::isatty(input).unwrap_or(false) && !input.is_hung_up()
        });
        if !goes_on {
            self.input = None;
        }
    }

    fn tell_box(&mut self) -> io::Result<()> {
        let Some(master) = &self.master else {
            self.inward.clear();
            return Ok(());
        };
        match self.inward.write_to(master) {
            // Reading finds out whether this is the end.
            Err(error) if is(&error, Errno::EIO) => {
                self.inward.clear();
                Ok(())
            }
            told => told,
        }
    }

    fn takes_input(&self) -> bool {
        self.master.is_some() && !self.in_background && self.inward.room() > 0
    }

    /// Moves bytes outward until the box is silent and all is shown, or time is up.
    fn flush(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.hear_box()?;
            self.show()?;
            let silent = self.quiet || self.master.is_none();
            if (silent && self.outward.is_empty()) || !self.wait_to_show(deadline)? {
                return Ok(());
            }
        }
    }

    fn flush_shown(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            self.show()?;
            if self.outward.is_empty() || !self.wait_to_show(deadline)? {
                return Ok(());
            }
        }
    }

    /// Waits until the caller's terminal takes more, if there is more; false when time is up.
    fn wait_to_show(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if let Some(output) = self.output.as_ref().filter(|_| !self.outward.is_empty()) {
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(
                &mut [PollFd::new(output.as_fd(), PollFlags::POLLOUT)],
                timeout,
            ) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(true)
    }

    fn leave(&mut self) -> io::Result<()> {
        self.left = true;
        let mut bytes = Vec::new();
        if !self.outward.is_empty() {
            // What is dropped may be the rest of a sequence that the terminal has begun to read.
            self.outward.clear();
            bytes.extend_from_slice(b"\x18\x1b\\");
        }
        self.filter.leave(&mut bytes);
        self.outward.extend(&bytes);
        self.show()
    }
}

impl Drop for Relay {
    /// On the way out after an error, the terminal is still put in order, as far as it listens.
    fn drop(&mut self) {
        if !self.left {
            let _ = self.leave();
        }
    }
}

/// Bytes in the order they came, taken from the front as far as the other side takes them.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    written: usize,
    last: Option<u8>,
}

impl Queue {
    fn write_to(&mut self, stream: &Stream) -> io::Result<()> {
        while !self.is_empty() {
            match stream.write(&self.bytes[self.written..])? {
                Moved::Bytes(count) if count > 0 => self.written += count,
                _ => return Ok(()),
            }
        }
        self.clear();
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.last = bytes.last().copied().or(self.last);
        self.tail().extend_from_slice(bytes);
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        self.bytes.drain(..self.written);
        self.written = 0;
        &mut self.bytes
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }

    /// The last byte that was ever put in by [`Queue::extend`].
    fn last(&self) -> Option<u8> {
        self.last
    }

    fn room(&self) -> usize {
        MOST_WAITING.saturating_sub(self.len())
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn flag(wanted: bool, flag: PollFlags) -> PollFlags {
    if wanted { flag } else { PollFlags::empty() }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}
