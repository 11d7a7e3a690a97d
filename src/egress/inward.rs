//! Connections into the box, asked for from its first process, which is in its network.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixDatagram};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::line::packets;
use super::relay;
use crate::sys;

const PATIENCE: Duration = Duration::from_secs(10);

/// Those who wait, by the number they asked with.
type Waiting = Rc<RefCell<HashMap<u32, oneshot::Sender<io::Result<OwnedFd>>>>>;

/// The line; `sandbox::dialer` says what is said on it.
#[derive(Debug)]
pub(super) struct Inward {
    line: Rc<UnixDatagram>,
    waiting: Waiting,
    next: std::cell::Cell<u32>,
}

impl Inward {
    pub(super) fn new(line: OwnedFd) -> io::Result<Self> {
        let line = Rc::new(packets(line)?);
        let waiting = Waiting::default();
        spawn_local(hear(Rc::clone(&line), Rc::clone(&waiting)));
        Ok(Self {
            line,
            waiting,
            next: std::cell::Cell::new(0),
        })
    }

    pub(super) async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let made = tokio::time::timeout(PATIENCE, self.ask(port)).await;
        made.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn ask(&self, port: u16) -> io::Result<TcpStream> {
        let number = self.next.replace(self.next.get().wrapping_add(1));
        let (tell, hear) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, tell);
        let mut question = [0; 6];
        question[..4].copy_from_slice(&number.to_le_bytes());
        question[4..].copy_from_slice(&port.to_le_bytes());
        self.line.send(&question).await?;
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let stream = std::net::TcpStream::from(hear.await.map_err(gone)??);
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        // It may still be on its way.
        stream.writable().await?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => {
                relay::of_the_box(&stream);
                Ok(stream)
            }
        }
    }
}

/// Hands answers to those who asked. When the box is gone, so is everybody's hope.
async fn hear(line: Rc<UnixDatagram>, waiting: Waiting) {
    loop {
        if line.readable().await.is_err() {
            break;
        }
        match line.try_io(Interest::READABLE, || answer(line.as_raw_fd())) {
            Ok(Some((number, answer))) => {
                if let Some(tell) = waiting.borrow_mut().remove(&number) {
                    let _ = tell.send(answer);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => break,
        }
    }
    waiting.borrow_mut().clear();
}

/// The next answer; none at the end of the line.
fn answer(line: RawFd) -> io::Result<Option<(u32, io::Result<OwnedFd>)>> {
    let mut packet = [0u8; 8];
    let mut parts = [IoSliceMut::new(&mut packet)];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let got = recvmsg::<()>(line, &mut parts, Some(&mut space), flags)?;
    let length = got.bytes;
    let mut passed = Vec::new();
    for control in got.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            passed.extend(fds.into_iter().map(sys::fds::adopt));
        }
    }
    if length < packet.len() {
        return Ok(None);
    }
    let [a, b, c, d, e, f, g, h] = packet;
    let number = u32::from_le_bytes([a, b, c, d]);
    Ok(Some((
        number,
        match (i32::from_le_bytes([e, f, g, h]), passed.pop()) {
            (0, Some(socket)) => Ok(socket),
            (0, None) => Err(io::ErrorKind::InvalidData.into()),
            (errno, _) => Err(io::Error::from_raw_os_error(errno)),
        },
    )))
}
