//! Passes bytes on between a box and a host, both ways, without looking at them.
//!
//! A connection that says little costs no memory of its own: everybody reads into one buffer. One
//! that says much gets a pipe, through which the kernel moves its pages without copying them.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::accounts::Entry;
use super::gate::Outside;

/// Nothing moved for so long, either way.
const IDLE: Duration = Duration::from_secs(60 * 60);
const PIECE: usize = 64 << 10;
/// So many full pieces in a row are worth a pipe.
const MUCH: u32 = 4;
const PIPE: usize = 1 << 20;
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
pub(super) fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
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
    async fn pass(&self, from: &TcpStream, to: &TcpStream, first: &[u8]) -> io::Result<()> {
        write_all(to, first).await?;
        self.counted(first.len()).await;
        let mut full = 0;
        loop {
            from.readable().await?;
            match self.look(from, to)? {
                Got::Nothing => continue,
                Got::End => break,
                Got::Bytes(count, rest) => {
                    write_all(to, &rest).await?;
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
        shutdown(to)
    }

    /// Reads once and writes what can be written at once.
    fn look(&self, from: &TcpStream, to: &TcpStream) -> io::Result<Got> {
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
    async fn pour(&self, from: &TcpStream, to: &TcpStream, pipe: &Pipe) -> io::Result<bool> {
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
        loop {
            // The pipe is empty here, so that only the stream can be what is not ready.
            let taken = from.try_io(Interest::READABLE, || {
                Ok(splice(
                    from.as_fd(),
                    None,
                    pipe.write.as_fd(),
                    None,
                    PIPE,
                    flags,
                )?)
            });
            let mut held = match taken {
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
            while held > 0 {
                let given = to.try_io(Interest::WRITABLE, || {
                    Ok(splice(
                        pipe.read.as_fd(),
                        None,
                        to.as_fd(),
                        None,
                        held,
                        flags,
                    )?)
                });
                match given {
                    Ok(count) => held -= count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        to.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Says that nothing more comes; the other direction goes on.
fn shutdown(to: &TcpStream) -> io::Result<()> {
    use nix::sys::socket::{Shutdown, shutdown};
    use std::os::fd::AsRawFd;
    match shutdown(to.as_raw_fd(), Shutdown::Write) {
        // The other side is gone already, which the other direction will notice.
        Ok(()) | Err(nix::errno::Errno::ENOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
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
