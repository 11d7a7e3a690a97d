//! Passes bytes on between a box and a host, both ways, without looking at them.
//!
//! A connection that says little costs no memory of its own: everybody reads into one buffer. One
//! that says much gets a pipe, through which the kernel moves its pages without copying them.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::accounts::Entry;
use super::gate::Outside;

mod end;
mod place;
use end::End;
use place::Place;

/// Nothing moved for so long, either way.
const IDLE: Duration = Duration::from_secs(60 * 60);
const PIECE: usize = 64 << 10;
/// So many full pieces in a row are worth a pipe.
const MUCH: u32 = 4;
const PIPE: usize = 1 << 20;
/// After so much others have their turn.
const TURN: usize = 4 << 20;
/// Faster than this comes what is on the same computer.
const SOON: Duration = Duration::from_millis(10);
/// What may wait for a box on its side of a connection, half of what the kernel counts. It takes what it is given
/// at once; with more the bytes would have left the processor's cache by then.
const WAITING: usize = 192 << 10;
/// A pipe that nothing came through for so long is given back.
const QUIET: Duration = Duration::from_secs(1);
/// The kernel gives each user so many pages for pipes, and small ones to whoever has more.
const MOST_PIPES: u32 = 32;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
    static PIPES: Cell<u32> = const { Cell::new(0) };
}

/// Until both sides have said their last, one is gone, nothing moved for too long, or the rules
/// changed. `first` was read from the inside already.
pub(super) async fn relay(inside: TcpStream, outside: Outside, first: &[u8]) {
    let Outside { stream, entry } = outside;
    let (Ok(inside), Ok(stream)) = (End::new(inside), End::new(stream)) else {
        return;
    };
    let moved = Cell::new(Instant::now());
    let there = Way {
        entry: &entry,
        moved: &moved,
        count: Entry::sent,
    };
    let back = Way {
        count: Entry::received,
        ..there
    };
    let both = async {
        tokio::try_join!(
            there.pass(&inside, &stream, first),
            back.pass(&stream, &inside, &[])
        )
    };
    let ended = tokio::select! {
        ended = both => ended.map(drop),
        () = entry.revoked() => Err(io::ErrorKind::PermissionDenied.into()),
        () = idle(&moved) => Err(io::ErrorKind::TimedOut.into()),
    };
    if ended.is_err() {
        reset(&inside);
        reset(&stream);
    }
}

/// The other side hears a reset instead of an end.
pub(super) fn reset(stream: &impl AsFd) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = setsockopt(&stream.as_fd(), sockopt::Linger, &at_once);
}

/// What is done to the stream of a program in a box: small words go at once, and few wait.
pub(super) fn of_the_box(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::SndBuf, &WAITING);
}

async fn idle(moved: &Cell<Instant>) {
    while moved.get().elapsed() < IDLE {
        sleep_until(moved.get() + IDLE).await;
    }
}

/// One direction.
#[derive(Clone, Copy)]
struct Way<'a> {
    entry: &'a Entry,
    moved: &'a Cell<Instant>,
    count: fn(&Entry, u64),
}

/// What a single look at a stream brought.
enum Got {
    End,
    Nothing,
    /// So much, of which this is still to be written.
    Bytes(usize, Vec<u8>),
}

impl Way<'_> {
    async fn pass(&self, from: &End, to: &End, first: &[u8]) -> io::Result<()> {
        to.write_all(first).await?;
        self.counted(first.len()).await;
        let mut full = 0;
        loop {
            from.readable().await?;
            match self.look(from, to)? {
                Got::Nothing => continue,
                Got::End => break,
                Got::Bytes(count, rest) => {
                    to.write_all(&rest).await?;
                    self.counted(count).await;
                    full = if count == PIECE { full + 1 } else { 0 };
                }
            }
            if full >= MUCH
                && let Some(pipe) = Pipe::take()
            {
                full = 0;
                if self.pour(from, to, &pipe).await? {
                    break;
                }
            }
        }
        to.shutdown()
    }

    /// Reads once and writes what can be written at once.
    fn look(&self, from: &End, to: &End) -> io::Result<Got> {
        let most = self.entry.piece().unwrap_or(PIECE);
        BUFFER.with_borrow_mut(|buffer| {
            let count = match from.try_read(&mut buffer[..most]) {
                Ok(0) => return Ok(Got::End),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Got::Nothing),
                Err(error) => return Err(error),
            };
            let written = match to.try_write(&buffer[..count]) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            Ok(Got::Bytes(count, buffer[written..count].to_vec()))
        })
    }

    async fn counted(&self, bytes: usize) {
        if bytes > 0 {
            (self.count)(self.entry, bytes as u64);
            self.moved.set(Instant::now());
            self.entry.pay(bytes).await;
        }
    }

    /// Moves pages through a pipe: true at the end of the stream, false when it has gone quiet.
    async fn pour(&self, from: &End, to: &End, pipe: &Pipe) -> io::Result<bool> {
        let place = Place::take();
        let (mut in_turn, mut began) = (0, Instant::now());
        loop {
            let mut held = match from.try_pour_into(&pipe.write, PIPE) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match timeout(QUIET, from.readable()).await {
                        Ok(ready) => ready?,
                        Err(_) => return Ok(false),
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.counted(held).await;
            in_turn += held;
            while held > 0 {
                match to.try_pour_from(&pipe.read, held) {
                    Ok(count) => held -= count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        to.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            if in_turn >= TURN {
                match began.elapsed() < SOON {
                    true => place.stay(to.processor()),
                    false => place.leave(),
                }
                yield_now().await;
                (in_turn, began) = (0, Instant::now());
            }
        }
    }
}

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn take() -> Option<Self> {
        if PIPES.get() >= MOST_PIPES {
            return None;
        }
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).ok()?;
        // A smaller one does as well.
        let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE as i32));
        PIPES.set(PIPES.get() + 1);
        Some(Self { read, write })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        PIPES.set(PIPES.get() - 1);
    }
}

#[cfg(test)]
mod tests;
