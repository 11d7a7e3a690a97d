//! Netlink: messages built byte by byte, several to a packet, and what the kernel says to them.
//! What the messages mean is the caller's business.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Length, kind, flags, number, port.
const HEADER: usize = 16;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const NESTED: u16 = 1 << 15;
/// The kind of an answer that carries an error, or 0 for none.
const ERROR: u16 = 2;
/// More answers than this come from no batch of ours.
const MOST_ANSWERS: usize = 64;

/// Messages that go to the kernel together, in this order.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each message starts.
    starts: Vec<usize>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(1024),
            starts: Vec::with_capacity(8),
        }
    }

    /// Adds a message: the fixed part that belongs to its kind, then attributes.
    pub(crate) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        let start = self.bytes.len();
        self.starts.push(start);
        let number = self.starts.len() as u32;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(fixed);
        pad(&mut self.bytes);
        attributes(&mut Attributes(&mut self.bytes));
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    fn acknowledge(&mut self, message: usize) {
        if let Some(start) = self.starts.get(message) {
            // The flags lie behind length and kind.
            let flags = u16::from_ne_bytes([self.bytes[start + 6], self.bytes[start + 7]]);
            let flags = (flags | ACKNOWLEDGE).to_ne_bytes();
            self.bytes[start + 6..start + 8].copy_from_slice(&flags);
        }
    }
}

/// The attributes of a message, or of an attribute that holds others.
#[derive(Debug)]
pub(crate) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(crate) fn bytes(&mut self, kind: u16, value: &[u8]) {
        self.put(kind, |bytes| bytes.extend_from_slice(value));
    }

    /// With the NUL that the kernel expects.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        self.put(kind, |bytes| {
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        });
    }

    /// A number in the byte order of the network, as netfilter has them.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Attributes within an attribute.
    pub(crate) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes<'_>)) {
        self.put(kind | NESTED, |bytes| inner(&mut Attributes(bytes)));
    }

    fn put(&mut self, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 2]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        value(self.0);
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        pad(self.0);
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// What the kernel did not like, by place in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) message: usize,
    pub(crate) errno: Errno,
}

/// Sends a batch as one packet. `last` is the message whose acknowledgement says that all before it
/// have been dealt with: the kernel tells of errors unasked, and of successes only when asked.
pub(crate) fn tell(
    protocol: SockProtocol,
    batch: &mut Batch,
    last: usize,
) -> io::Result<Vec<Refused>> {
    batch.acknowledge(last);
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )?;
    send(socket.as_raw_fd(), &batch.bytes, MsgFlags::empty())?;
    answers(&socket, last)
}

/// The kernel has answered by the time that sending returns, so nothing is waited for here.
fn answers(socket: &OwnedFd, last: usize) -> io::Result<Vec<Refused>> {
    let odd = || io::Error::from(Errno::EPROTO);
    let mut refused = Vec::new();
    let mut buffer = [0u8; 4096];
    for _ in 0..MOST_ANSWERS {
        let length = match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            // A batch that was refused as a whole is answered once, at its beginning.
            Err(Errno::EAGAIN) if !refused.is_empty() => return Ok(refused),
            other => other?,
        };
        let Answer { message, errno } = read(&buffer[..length]).ok_or_else(odd)?;
        if let Some(errno) = errno {
            refused.push(Refused { message, errno });
        }
        if message == last {
            return Ok(refused);
        }
    }
    Err(odd())
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    message: usize,
    errno: Option<Errno>,
}

/// An error message: its header, the error, and the header of what it is about.
fn read(packet: &[u8]) -> Option<Answer> {
    let kind = u16::from_ne_bytes(packet.get(4..6)?.try_into().ok()?);
    let number = u32::from_ne_bytes(packet.get(8..12)?.try_into().ok()?);
    let error = i32::from_ne_bytes(packet.get(HEADER..HEADER + 4)?.try_into().ok()?);
    let message = usize::try_from(number.checked_sub(1)?).ok()?;
    (kind == ERROR).then_some(Answer {
        message,
        errno: (error != 0).then(|| Errno::from_raw(error.wrapping_neg())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_do_not_count_the_padding_and_messages_are_aligned() {
        let mut batch = Batch::new();
        batch.message(7, 0, &[9; 5], |with| {
            with.text(1, "ab");
            with.nest(2, |with| with.bytes(3, &[1]));
        });
        batch.message(8, 0, &[], |_| {});
        let expected: [&[u8]; 5] = [
            // Header, with 44 bytes in all.
            &[44, 0, 0, 0, 7, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[9, 9, 9, 9, 9, 0, 0, 0],
            &[7, 0, 1, 0, b'a', b'b', 0, 0],
            &[12, 0, 2, 0x80, 5, 0, 3, 0, 1, 0, 0, 0],
            &[16, 0, 0, 0, 8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0],
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(batch.bytes, expected.concat());
        }
        assert_eq!((batch.count(), &batch.starts[..]), (2, &[0, 44][..]));
        batch.acknowledge(1);
        assert_eq!(batch.bytes[44 + 6] | batch.bytes[44 + 7], 5);
    }

    #[test]
    fn an_answer_names_the_message_and_the_error() {
        let mut packet = vec![36, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        packet.extend((-2i32).to_ne_bytes());
        packet.resize(36, 0);
        let errno = Some(Errno::ENOENT);
        assert_eq!(read(&packet), Some(Answer { message: 2, errno }));
        packet[16..20].fill(0);
        assert_eq!(read(&packet).unwrap().errno, None);
        // Cut short, of another kind, about nothing.
        assert_eq!(read(&packet[..19]), None);
        assert_eq!(read(&[]), None);
        packet[4] = 3;
        assert_eq!(read(&packet), None);
        packet[4] = 2;
        packet[8] = 0;
        assert_eq!(read(&packet), None);
    }

    #[test]
    fn the_kernel_names_every_message_that_it_refuses() {
        // About no device at all: an error, whoever asks.
        let mut batch = Batch::new();
        let nothing = [0u8; 16];
        batch.message(19, 0, &nothing, |_| {});
        batch.message(19, 0, &nothing, |_| {});
        let refused = tell(SockProtocol::NetlinkRoute, &mut batch, 1).unwrap();
        let places: Vec<_> = refused.iter().map(|refused| refused.message).collect();
        assert_eq!(places, [0, 1]);
    }
}
