//! As much of D-Bus as it takes to ask systemd for one thing: a connection, questions, answers,
//! and an end to the patience with all of them. No thread, no loop, no crate.

mod marshal;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, socket,
};

pub(super) use marshal::{Call, Kind, Message, Writer};

/// Where a bus listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Path(PathBuf),
    /// A name in the kernel's own list, without the leading zero byte.
    Abstract(Vec<u8>),
}

impl Address {
    /// The sockets in a list such as `unix:path=/run/user/1000/bus,guid=1;unix:abstract=x`.
    pub fn all(list: &str) -> Vec<Self> {
        list.split(';').filter_map(Self::one).collect()
    }

    fn one(text: &str) -> Option<Self> {
        use std::os::unix::ffi::OsStringExt;
        let pairs = text.strip_prefix("unix:")?.split(',');
        pairs
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(key, value)| match key {
                "path" => {
                    let path = std::ffi::OsString::from_vec(unescaped(value)?);
                    Some(Self::Path(path.into()))
                }
                "abstract" => unescaped(value).map(Self::Abstract),
                _ => None,
            })
    }

    fn socket(&self) -> nix::Result<UnixAddr> {
        match self {
            Self::Path(path) => UnixAddr::new(path),
            Self::Abstract(name) => UnixAddr::new_abstract(name),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// Bytes that are not plain are written as % and two digits.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            other => other,
        });
    }
    Some(plain)
}

/// A connection to a bus that is given up at one point in time, whatever it waits for then.
#[derive(Debug)]
pub(super) struct Bus {
    socket: OwnedFd,
    until: Instant,
    unread: Vec<u8>,
    messages: VecDeque<Message>,
    serial: u32,
}

impl Bus {
    /// Connects, says who this is, and greets; the answer to the greeting is not waited for.
    pub(super) fn connect(address: &Address, patience: Duration) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        connect(socket.as_raw_fd(), &address.socket()?)?;
        let mut bus = Self {
            socket,
            until: Instant::now() + patience,
            unread: Vec::new(),
            messages: VecDeque::new(),
            serial: 0,
        };
        bus.say_who()?;
        let hello = bus.call(&greeting("Hello", ""), |_| ())?;
        debug_assert_eq!(hello, 1);
        Ok(bus)
    }

    /// The kernel tells the other side who this is; the text only has to agree.
    fn say_who(&mut self) -> io::Result<()> {
        let digits = nix::unistd::geteuid().to_string();
        let digits: String = digits.bytes().map(|digit| format!("{digit:02x}")).collect();
        self.write(format!("\0AUTH EXTERNAL {digits}\r\n").as_bytes())?;
        let end = loop {
            match self.unread.windows(2).position(|pair| pair == b"\r\n") {
                Some(end) => break end,
                None if self.unread.len() > 4096 => return Err(refused("it talks too much")),
                None => self.more()?,
            }
        };
        let accepted = self.unread.starts_with(b"OK ");
        self.unread.drain(..end + 2);
        match accepted {
            true => self.write(b"BEGIN\r\n"),
            false => Err(refused("it does not accept this user")),
        }
    }

    /// Sends a question and returns the number its answer will carry.
    pub(super) fn call(
        &mut self,
        call: &Call<'_>,
        body: impl FnOnce(&mut Writer),
    ) -> io::Result<u32> {
        self.serial += 1;
        let message = call.message(self.serial, body);
        self.write(&message)?;
        Ok(self.serial)
    }

    /// Asks the bus to pass on signals that match.
    pub(super) fn listen(&mut self, rule: &str) -> io::Result<u32> {
        self.call(&greeting("AddMatch", "s"), |body| body.text(rule))
    }

    /// The next message, whatever it is.
    pub(super) fn next(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Ok(message);
            }
            match Message::length(&self.unread).map_err(refused)? {
                Some(length) if length <= self.unread.len() => {
                    let rest = self.unread.split_off(length);
                    let whole = std::mem::replace(&mut self.unread, rest);
                    let message = Message::read(whole);
                    self.messages
                        .push_back(message.ok_or_else(|| refused("it sent nonsense"))?);
                }
                _ => self.more()?,
            }
        }
    }

    fn more(&mut self) -> io::Result<()> {
        self.wait(PollFlags::POLLIN)?;
        let mut buffer = [0u8; 4096];
        match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) => Err(refused("it hung up")),
            Ok(count) => {
                self.unread.extend(&buffer[..count]);
                Ok(())
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(self.socket.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(nix::errno::Errno::EAGAIN) => self.wait(PollFlags::POLLOUT)?,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn wait(&self, what: PollFlags) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(refused("it did not answer in time"));
        }
        let left = left + Duration::from_millis(1);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.socket.as_fd(), what)], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn greeting<'a>(member: &'a str, signature: &'a str) -> Call<'a> {
    Call {
        to: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member,
        signature,
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_specification_writes_them() {
        let list = "unix:path=/run/user/1000/bus,guid=1f;tcp:host=x;unix:abstract=/tmp/a%20b";
        assert_eq!(
            Address::all(list),
            [
                Address::Path("/run/user/1000/bus".into()),
                Address::Abstract(b"/tmp/a b".to_vec())
            ]
        );
        assert_eq!(Address::all("unix:path=/a%2"), []);
        assert_eq!(Address::all(""), []);
        assert_eq!(Address::all("disabled:"), []);
    }

    #[test]
    fn a_bus_that_says_nothing_is_given_up_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bus");
        let _deaf = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        let error = Bus::connect(&Address::Path(path), Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}
