//! What launcher and box say to each other: small packets over one socket pair.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixCredentials, recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};

use super::network::Listeners;
use crate::broker::RefusedCall;
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
    /// A program could not be started; with `in_folder` because of where it was to start.
    NotExecuted {
        exec: u32,
        errno: i32,
        in_folder: bool,
    },
    /// The box's terminal, for the launcher to relay.
    Terminal(OwnedFd),
    /// The program was stopped by this signal.
    Stopped { signal: i32 },
    /// The program ended; the number is what wait(2) gave.
    Ended { status: i32 },
    /// Start another program; its words and its streams come along.
    Exec(Errand),
    /// The terminal of a program that was started later.
    ExecTerminal { exec: u32, master: OwnedFd },
    /// A program that was started later has ended.
    ExecEnded { exec: u32, status: i32 },
    /// Hand this signal to a program that was started later.
    ExecSignal {
        exec: u32,
        signal: i32,
        /// To everything that came of it as well.
        subtree: bool,
    },
    /// A program that was started later has become what it was to be.
    Executed { exec: u32 },
    /// End what runs in the box, and then the box.
    Stop,
    /// Copies of mounts.
    Trees(Vec<OwnedFd>),
    /// Programs that are started from now on may have this many files open.
    OpenFiles(u32),
    /// The kernel's tables of what the box shares in memory: segments, semaphores, messages.
    SharedMemory(Vec<OwnedFd>),
    /// A writable copy of a guarded mount that the box has since now, at this place; none when only
    /// its mode is another.
    Door {
        inside: String,
        writable: Option<OwnedFd>,
        /// Programs delete only what they have made there.
        keeps: bool,
    },
    /// What the box sees at this place is not pid 1's to change, whatever it lies in.
    Wall { inside: String },
    /// A mount is gone.
    NoDoor { inside: String },
    /// A guarded path was left as it is: the rule, a tab, the path.
    Refused(String),
    /// The filter refused a call.
    RefusedCall(RefusedCall),
    /// The mounts at this place could not be restricted, and the caller does not mind.
    Loose(String),
    /// The identity maps are written, or whatever else the box was to wait for.
    Go,
    /// Everything stands; the program is next.
    Starting,
    /// Sent by the box's first process, so that the launcher learns its number.
    Here,
    /// Where pid 1 hears what a program wants to change.
    Listener(OwnedFd),
    /// Sockets in the box's network, for the gateway.
    Listeners(Listeners),
    /// Answer whoever asks here for connections into the box.
    Dialer(OwnedFd),
    /// Hand this signal to the program.
    Signal { signal: i32 },
}

/// Another program for a box that stands already.
#[derive(Debug)]
pub struct Errand {
    /// The number it goes by; the first program is 0.
    pub exec: u32,
    /// It gets a terminal of its own where it gets no stream.
    pub terminal: bool,
    /// The launcher wants to hear when it has become the program.
    pub confirm: bool,
    /// A file with its words, as [`super::execs`] has them.
    pub words: OwnedFd,
    pub streams: [Option<OwnedFd>; 3],
}

const LIMIT: usize = 4608;
/// As many descriptors as one packet carries.
pub(super) const MOST_FDS: usize = 32;

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
        self.put(message, MsgFlags::MSG_NOSIGNAL)
    }

    /// As `send`, but it is an error when the other side has not read what it was sent before.
    pub(crate) fn send_now(&self, message: &Message) -> io::Result<()> {
        self.put(message, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT)
    }

    fn put(&self, message: &Message, flags: MsgFlags) -> io::Result<()> {
        let mut fds = Vec::new();
        let places: Vec<u8>;
        let spelled;
        let (kind, first, text): (u32, [i32; 2], &[u8]) = match message {
            Message::Failed {
                step,
                part,
                errno,
                detail,
            } => (
                1 | u32::from(*part as u8) << 8,
                [*step as i32, *errno],
                detail,
            ),
            Message::NotExecuted {
                exec,
                errno,
                in_folder,
            } => (2 | u32::from(*in_folder) << 8, [*errno, *exec as i32], b""),
            Message::Terminal(fd) => {
                fds.push(fd.as_raw_fd());
                (3, [0, 0], b"")
            }
            Message::Stopped { signal } => (4, [*signal, 0], b""),
            Message::Ended { status } => (5, [*status, 0], b""),
            Message::Refused(text) => (6, [0, 0], text.as_bytes()),
            Message::RefusedCall(refused) => {
                spelled = refused.to_bytes();
                let numbers = [refused.call as i32, refused.thread as i32];
                (23, numbers, &spelled)
            }
            Message::Go => (7, [0, 0], b""),
            Message::Signal { signal } => (8, [*signal, 0], b""),
            Message::Listener(fd) => {
                fds.push(fd.as_raw_fd());
                (9, [0, 0], b"")
            }
            Message::Starting => (10, [0, 0], b""),
            Message::Here => (11, [0, 0], b""),
            Message::Exec(errand) => {
                fds.push(errand.words.as_raw_fd());
                fds.extend(errand.streams.iter().flatten().map(AsRawFd::as_raw_fd));
                let there = |number: usize| i32::from(errand.streams[number].is_some()) << number;
                let streams = there(0) | there(1) | there(2) | i32::from(errand.terminal) << 3;
                let streams = streams | i32::from(errand.confirm) << 4;
                (12, [errand.exec as i32, streams], b"")
            }
            Message::ExecTerminal { exec, master } => {
                fds.push(master.as_raw_fd());
                (13, [*exec as i32, 0], b"")
            }
            Message::ExecEnded { exec, status } => (14, [*exec as i32, *status], b""),
            Message::ExecSignal {
                exec,
                signal,
                subtree,
            } => (15 | u32::from(*subtree) << 8, [*exec as i32, *signal], b""),
            Message::Executed { exec } => (26, [*exec as i32, 0], b""),
            Message::Stop => (16, [0, 0], b""),
            Message::Trees(trees) => {
                fds.extend(trees.iter().map(AsRawFd::as_raw_fd));
                (17, [0, 0], b"")
            }
            Message::OpenFiles(most) => (25, [*most as i32, 0], b""),
            Message::SharedMemory(tables) => {
                fds.extend(tables.iter().map(AsRawFd::as_raw_fd));
                (24, [0, 0], b"")
            }
            Message::Door {
                inside,
                writable,
                keeps,
            } => {
                fds.extend(writable.as_ref().map(AsRawFd::as_raw_fd));
                (18, [i32::from(*keeps), 0], inside.as_bytes())
            }
            Message::Loose(place) => (20, [0, 0], place.as_bytes()),
            Message::NoDoor { inside } => (19, [0, 0], inside.as_bytes()),
            Message::Wall { inside } => (40, [0, 0], inside.as_bytes()),
            Message::Dialer(line) => {
                fds.push(line.as_raw_fd());
                (22, [0, 0], b"")
            }
            Message::Listeners(listeners) => {
                fds.extend(listeners.open.iter().map(|(_, fd)| fd.as_raw_fd()));
                let place = |(place, _): &(u16, OwnedFd)| place.to_ne_bytes();
                places = listeners.open.iter().flat_map(place).collect();
                let more = i32::from(listeners.more);
                (21, [listeners.not_redirected, more], &places)
            }
        };
        let mut packet = [0u8; LIMIT];
        packet[..4].copy_from_slice(&kind.to_ne_bytes());
        packet[4..8].copy_from_slice(&first[0].to_ne_bytes());
        packet[8..12].copy_from_slice(&first[1].to_ne_bytes());
        let length = 12 + text.len().min(LIMIT - 12);
        packet[12..length].copy_from_slice(&text[..length - 12]);
        let packet = &packet[..length];
        if fds.is_empty() && !flags.contains(MsgFlags::MSG_DONTWAIT) {
            // By the simplest call: the caller's filters may allow no other at this point.
            nix::unistd::write(&self.0, packet)?;
            return Ok(());
        }
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() {
            &rights[..0]
        } else {
            &rights
        };
        let (to, parts) = (self.0.as_raw_fd(), [IoSlice::new(packet)]);
        sendmsg::<()>(to, &parts, rights, flags, None)?;
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
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; MOST_FDS]);
        let fd = self.0.as_raw_fd();
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let packet = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags)?;
        let length = packet.bytes;
        let mut passed = Vec::new();
        for control in packet.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                passed.extend(fds.into_iter().map(sys::fds::adopt));
            }
        }
        let mut passed = passed.into_iter();
        if length == 0 {
            return Ok(None);
        }
        let number = |at: usize| {
            let bytes = buffer.get(at..at + 4).and_then(|b| b.try_into().ok());
            i32::from_ne_bytes(bytes.unwrap_or_default())
        };
        let text = || String::from_utf8_lossy(&buffer[12.min(length)..length]).into_owned();
        let [kind, part, ..] = number(0).to_le_bytes();
        let odd = || io::Error::from_raw_os_error(libc::EPROTO);
        let mut fd = || passed.next().ok_or_else(odd);
        let message = match kind {
            1 => Message::Failed {
                step: number(4) as u32,
                part: Part::numbered(part),
                errno: number(8),
                detail: buffer[12.min(length)..length].to_vec(),
            },
            2 => Message::NotExecuted {
                errno: number(4),
                exec: number(8) as u32,
                in_folder: part != 0,
            },
            3 => Message::Terminal(fd()?),
            4 => Message::Stopped { signal: number(4) },
            5 => Message::Ended { status: number(4) },
            6 => Message::Refused(text()),
            7 => Message::Go,
            9 => Message::Listener(fd()?),
            8 => Message::Signal { signal: number(4) },
            10 => Message::Starting,
            11 => Message::Here,
            12 => {
                let streams = number(8);
                let words = fd()?;
                let mut stream = |bit: i32| match streams & bit {
                    0 => Ok(None),
                    _ => fd().map(Some),
                };
                Message::Exec(Errand {
                    exec: number(4) as u32,
                    terminal: streams & 8 != 0,
                    confirm: streams & 16 != 0,
                    words,
                    streams: [stream(1)?, stream(2)?, stream(4)?],
                })
            }
            13 => Message::ExecTerminal {
                exec: number(4) as u32,
                master: fd()?,
            },
            14 => Message::ExecEnded {
                exec: number(4) as u32,
                status: number(8),
            },
            15 => Message::ExecSignal {
                exec: number(4) as u32,
                signal: number(8),
                subtree: part != 0,
            },
            26 => Message::Executed {
                exec: number(4) as u32,
            },
            16 => Message::Stop,
            17 => Message::Trees(std::iter::from_fn(|| fd().ok()).collect()),
            18 => Message::Door {
                inside: text(),
                writable: fd().ok(),
                keeps: number(4) != 0,
            },
            19 => Message::NoDoor { inside: text() },
            40 => Message::Wall { inside: text() },
            20 => Message::Loose(text()),
            21 => {
                let (places, _) = buffer[12.min(length)..length].as_chunks();
                let places = places.iter().map(|place| u16::from_ne_bytes(*place));
                Message::Listeners(Listeners {
                    open: places
                        .map(|place| Ok((place, fd()?)))
                        .collect::<io::Result<_>>()?,
                    more: number(8) != 0,
                    not_redirected: number(4),
                })
            }
            22 => Message::Dialer(fd()?),
            23 => Message::RefusedCall(
                RefusedCall::from_bytes([number(4), number(8)], &buffer[12.min(length)..length])
                    .ok_or_else(odd)?,
            ),
            25 => Message::OpenFiles(number(4) as u32),
            24 => Message::SharedMemory(std::iter::from_fn(|| fd().ok()).collect()),
            _ => return Err(odd()),
        };
        Ok(Some(message))
    }
}
