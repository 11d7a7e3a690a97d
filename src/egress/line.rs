//! The gateway's end of the line to the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::net::UnixDatagram;

use super::accounts::Accounts;
use super::talk::{Hear, LONGEST_TELL, Tell};

/// Packets in order, which a datagram socket's calls are right for.
#[derive(Debug)]
pub(super) struct Line(UnixDatagram);

impl Line {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(packets(fd)?))
    }

    /// The next word of the supervisor; none when it is gone.
    pub(super) async fn hear(&self) -> io::Result<Option<Tell>> {
        let mut packet = vec![0; LONGEST_TELL];
        let length = self.0.recv(&mut packet).await?;
        if length == 0 {
            return Ok(None);
        }
        serde_json::from_slice(&packet[..length])
            .map(Some)
            .map_err(io::Error::other)
    }

    async fn say(&self, word: &Hear) -> io::Result<()> {
        let packet = serde_json::to_vec(word).map_err(io::Error::other)?;
        self.0.send(&packet).await.map(drop)
    }
}

/// A line of packets, for this runtime.
pub(super) fn packets(fd: OwnedFd) -> io::Result<UnixDatagram> {
    let socket = std::os::unix::net::UnixDatagram::from(fd);
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Passes on what the books have to say, as fast as the supervisor takes it.
pub(super) async fn report(line: Rc<Line>, accounts: Rc<Accounts>) {
    loop {
        while let Some(word) = accounts.next_word() {
            if line.say(&word).await.is_err() {
                return;
            }
        }
        accounts.something_to_say.notified().await;
    }
}
