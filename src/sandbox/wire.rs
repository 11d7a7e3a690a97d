//! What launcher and box say to each other: small packets over one socket pair.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixCredentials, recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};

use crate::plan::Part;
use crate::sys;

/// A packet is a kind, two numbers and, for some kinds, text or a descriptor.
#[derive(Debug)]
pub enum Message {
    /// Set-up failed at this part of this step of the plan.
    Failed {
        step: u32,
        part: Part,
        errno: i32,
        /// A name that only the box knows.
        detail: Vec<u8>,
    },
    /// The program could not be started.
    NotExecuted { errno: i32 },
    /// The box's terminal, for the launcher to relay.
    Terminal(OwnedFd),
    /// The program was stopped by this signal.
    Stopped { signal: i32 },
    /// The program ended; the number is what wait(2) gave.
    Ended { status: i32 },
    /// A guarded path was left as it is: the rule, a tab, the path.
    Refused(String),
    /// The identity maps are written, or whatever else the box was to wait for.
    Go,
    /// Everything stands; the program is next.
    Starting,
    /// Sent by the box's first process, so that the launcher learns its number.
    Here,
    /// Where pid 1 hears what a program wants to change.
    Listener(OwnedFd),
    /// Hand this signal to the program.
    Signal { signal: i32 },
}

const LIMIT: usize = 4608;

#[derive(Debug)]
pub(crate) struct Wire(OwnedFd);

/// The launcher's end and the box's end.
pub(crate) fn pair() -> io::Result<(Wire, Wire)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok((Wire(ours), Wire(theirs)))
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wire {
    pub(crate) fn send(&self, message: &Message) -> io::Result<()> {
        let (kind, first, text, fd): (u32, [i32; 2], &[u8], Option<BorrowedFd<'_>>) = match message
        {
            Message::Failed {
                step,
                part,
                errno,
                detail,
            } => (
                1 | u32::from(*part as u8) << 8,
                [*step as i32, *errno],
                detail,
                None,
            ),
            Message::NotExecuted { errno } => (2, [*errno, 0], b"", None),
            Message::Terminal(fd) => (3, [0, 0], b"", Some(fd.as_fd())),
            Message::Stopped { signal } => (4, [*signal, 0], b"", None),
            Message::Ended { status } => (5, [*status, 0], b"", None),
            Message::Refused(text) => (6, [0, 0], text.as_bytes(), None),
            Message::Go => (7, [0, 0], b"", None),
            Message::Signal { signal } => (8, [*signal, 0], b"", None),
            Message::Listener(fd) => (9, [0, 0], b"", Some(fd.as_fd())),
            Message::Starting => (10, [0, 0], b"", None),
            Message::Here => (11, [0, 0], b"", None),
        };
        let mut packet = [0u8; LIMIT];
        packet[..4].copy_from_slice(&kind.to_ne_bytes());
        packet[4..8].copy_from_slice(&first[0].to_ne_bytes());
        packet[8..12].copy_from_slice(&first[1].to_ne_bytes());
        let length = 12 + text.len().min(LIMIT - 12);
        packet[12..length].copy_from_slice(&text[..length - 12]);
        let packet = &packet[..length];
        let Some(fd) = fd else {
            // By the simplest call: the caller's filters may allow no other at this point.
            nix::unistd::write(&self.0, packet)?;
            return Ok(());
        };
        let fds = [fd.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&fds)];
        let (to, parts) = (self.0.as_raw_fd(), [IoSlice::new(packet)]);
        sendmsg::<()>(to, &parts, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// From now on the kernel notes on every packet who sent it.
    pub(crate) fn note_senders(&self, note: bool) -> io::Result<()> {
        Ok(setsockopt(&self.0, sockopt::PassCred, &note)?)
    }

    /// Waits for the box's first process to say that it is there; its number in this process's
    /// own pid namespace, whatever namespace it is in itself.
    pub(crate) fn sender_of_here(&self) -> io::Result<Option<i32>> {
        let mut buffer = [0u8; 16];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut space = nix::cmsg_space!(UnixCredentials);
        let fd = self.0.as_raw_fd();
        let packet = recvmsg::<()>(fd, &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
        let sender = packet.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmCredentials(who) => Some(who.pid()),
            _ => None,
        });
        Ok(sender.filter(|_| packet.bytes > 0))
    }

    /// Whether anybody could still hear or say something there.
    pub(crate) fn has_other_side(&self) -> bool {
        let mut wire = [PollFd::new(self.0.as_fd(), PollFlags::empty())];
        let hung_up = |wire: &[PollFd<'_>; 1]| {
            wire[0]
                .revents()
                .is_some_and(|what| what.contains(PollFlags::POLLHUP))
        };
        !matches!(poll(&mut wire, PollTimeout::ZERO), Ok(1) if hung_up(&wire))
    }

    /// The next message; `None` when the other side is gone.
    pub(crate) fn receive(&self) -> io::Result<Option<Message>> {
        let mut buffer = [0u8; LIMIT];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
        let fd = self.0.as_raw_fd();
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let packet = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags)?;
        let length = packet.bytes;
        let passed = packet.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied().map(sys::fds::adopt),
            _ => None,
        });
        if length == 0 {
            return Ok(None);
        }
        let number = |at: usize| {
            let bytes = buffer.get(at..at + 4).and_then(|b| b.try_into().ok());
            i32::from_ne_bytes(bytes.unwrap_or_default())
        };
        let text = || String::from_utf8_lossy(&buffer[12.min(length)..length]).into_owned();
        let [kind, part, ..] = number(0).to_le_bytes();
        let message = match (kind, passed) {
            (1, _) => Message::Failed {
                step: number(4) as u32,
                part: Part::numbered(part),
                errno: number(8),
                detail: buffer[12.min(length)..length].to_vec(),
            },
            (2, _) => Message::NotExecuted { errno: number(4) },
            (3, Some(fd)) => Message::Terminal(fd),
            (4, _) => Message::Stopped { signal: number(4) },
            (5, _) => Message::Ended { status: number(4) },
            (6, _) => Message::Refused(text()),
            (7, _) => Message::Go,
            (9, Some(fd)) => Message::Listener(fd),
            (8, _) => Message::Signal { signal: number(4) },
            (10, _) => Message::Starting,
            (11, _) => Message::Here,
            _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
        };
        Ok(Some(message))
    }
}
