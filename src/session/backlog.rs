//! What somebody who is attached has not taken yet. While there is any, nothing more is read from
//! the program, so that it stays short; who takes nothing for a while is let go.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::control::Control;
use super::talk::Line;

/// How long a program is held up by somebody who does not read.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest piece that is sent at once.
const PIECE: usize = 32 << 10;

#[derive(Debug, Default)]
pub(super) struct Backlog {
    pieces: VecDeque<(u8, Vec<u8>)>,
    /// When something was taken last.
    since: Option<Instant>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Until when it is waited for.
    pub(super) fn until(&self) -> Option<Instant> {
        self.since.map(|since| since + PATIENCE)
    }

    pub(super) fn send(&mut self, line: &Line, stream: u8, bytes: &[u8]) -> io::Result<()> {
        let pieces = bytes.chunks(PIECE);
        self.pieces
            .extend(pieces.map(|piece| (stream, piece.to_vec())));
        self.since.get_or_insert_with(Instant::now);
        self.go_on(line)
    }

    /// Sends what can be sent; an error when that was nothing for too long.
    pub(super) fn go_on(&mut self, line: &Line) -> io::Result<()> {
        while let Some((stream, bytes)) = self.pieces.front() {
            match line.output(*stream, bytes) {
                Ok(()) => {
                    self.pieces.pop_front();
                    self.since = Some(Instant::now());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return match self.until() {
                        Some(until) if until <= Instant::now() => Err(error),
                        _ => Ok(()),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        self.since = None;
        Ok(())
    }
}

impl Control {
    /// Those who have not taken yet what was sent to them.
    pub(super) fn behind<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        let behind = self.clients.iter().filter(|it| !it.backlog.is_empty());
        out.extend(behind.map(|client| PollFd::new(client.line.as_fd(), PollFlags::POLLOUT)));
    }

    /// Until when somebody who is behind is waited for.
    pub(super) fn behind_until(&self) -> Option<Instant> {
        let clients = self.clients.iter();
        clients.filter_map(|client| client.backlog.until()).min()
    }

    pub(super) fn show(&mut self, client: usize, stream: u8, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(client) {
            client.gone |= client.backlog.send(&client.line, stream, bytes).is_err();
        }
    }

    /// Output of the session's own program, for everybody who is attached.
    pub(super) fn spread(&mut self, stream: u8, bytes: &[u8]) {
        for client in self.clients.iter_mut().filter(|client| client.attached) {
            client.gone |= client.backlog.send(&client.line, stream, bytes).is_err();
        }
    }

    /// Sends what could not be sent before. Who does not keep up is let go, rather than shown
    /// something with a hole in it: what was missed is in the log.
    pub(super) fn catch_up(&mut self) {
        for client in self.clients.iter_mut().filter(|client| client.attached) {
            client.gone |= client.backlog.go_on(&client.line).is_err();
        }
        self.clients
            .retain(|client| !client.gone || client.exec.is_some());
    }
}
