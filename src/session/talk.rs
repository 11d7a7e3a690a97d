//! What a running session and those who ask it something say to each other: one packet per
//! sentence, as JSON, with descriptors where they are meant; output of programs as it is.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use std::path::PathBuf;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixCredentials, getsockopt, recv, recvmsg,
    sendmsg, sockopt,
};
use serde::{Deserialize, Serialize};

use super::record::{Record, RecordedMount};
use super::refusals::Refused;
use super::wish::MountWish;
use crate::egress::Totals;
use crate::policy::Access;
use crate::policy::egress::{HostPattern, Rules};
use crate::sys;

/// What can be asked of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Ask {
    Inspect,
    /// Hand out the session's home, which its owner cannot get to while programs run.
    Home,
    /// Start a program: its words come as a file, then the streams it is given.
    Exec {
        terminal: bool,
        streams: [bool; 3],
        /// Say when it has become the program.
        #[serde(default)]
        confirm: bool,
        /// Its variables are all that it gets: none of the session's own are added.
        #[serde(default)]
        only_env: bool,
    },
    /// Talk over this line as well, which comes along; whoever brings lines may be silent in between.
    Line,
    /// To the program that was started on this connection, or to the session's own.
    Signal {
        signal: i32,
        /// To everything that came of the program on this connection as well; SIGKILL until none
        /// of that is left.
        #[serde(default)]
        subtree: bool,
    },
    /// Show what the session's own program says from now on, and what it said last.
    Attach {
        input: bool,
    },
    /// The size of the terminal in front of whoever is attached.
    Resize {
        rows: u16,
        columns: u16,
    },
    /// Show a folder of the host's in the box.
    Mount {
        source: PathBuf,
        device: u64,
        inode: u64,
        uid: u32,
        gid: u32,
        is_folder: bool,
        mode: MountMode,
        /// A name below the folder of mounts, of several parts if need be, or an absolute place.
        place: String,
        /// What was mounted there while it ran is exchanged.
        #[serde(default)]
        replace: bool,
        /// Also when its source overlaps with what is shared already.
        #[serde(default)]
        despite_overlap: bool,
    },
    /// Other limits from now on.
    Limit {
        memory: Option<u64>,
        milli_cpus: Option<u64>,
        pids: Option<u64>,
        disk: Option<u64>,
        io: Option<u64>,
        #[serde(default)]
        files: Option<u64>,
        idle_ms: Option<u64>,
    },
    /// Another host from now on, or one less.
    Host {
        pattern: HostPattern,
        allow: bool,
    },
    /// These rules and no others from now on; connections that they do not allow end.
    Rules {
        rules: Rules,
    },
    /// Another value for a secret that stays outside; it comes along in a file.
    Secret {
        name: String,
    },
    /// Stop everything in the box where it is, or let it go on.
    Pause {
        paused: bool,
    },
    /// Take away a folder that was shown later.
    Unmount {
        name: String,
        force: bool,
    },
    /// End the session: ask the programs, then make them. Answered when it has ended.
    Stop {
        grace_ms: u64,
    },
}

impl Ask {
    pub(super) fn mount(wish: &MountWish) -> Self {
        Self::Mount {
            source: wish.source.clone(),
            device: wish.seen.device,
            inode: wish.seen.inode,
            uid: wish.seen.uid,
            gid: wish.seen.gid,
            is_folder: wish.is_folder,
            mode: wish.mode,
            place: wish.place.clone(),
            replace: wish.replace,
            despite_overlap: wish.despite_overlap,
        }
    }

    /// A signal to a program itself and nobody else.
    pub(super) fn plain_signal(signal: i32) -> Self {
        Self::Signal {
            signal,
            subtree: false,
        }
    }
}

/// How a folder is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountMode {
    #[serde(rename = "ro")]
    Read,
    /// Programs delete only what they have made themselves.
    #[serde(rename = "keep")]
    Keep,
    #[serde(rename = "rw")]
    Write,
}

impl From<Access> for MountMode {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => Self::Read,
            Access::Keep => Self::Keep,
            Access::Write => Self::Write,
        }
    }
}

/// What a session answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(super) enum Say {
    /// It comes along in a file: a plan with hundreds of mounts is longer than any packet.
    Seen,
    /// It comes along as a descriptor.
    Home,
    Started {
        exec: u32,
    },
    /// The program runs, for those who asked to hear of it.
    Executed,
    /// The terminal of the program comes along.
    Terminal,
    NotExecuted {
        errno: i32,
        in_folder: bool,
    },
    Ended {
        status: i32,
    },
    /// You are attached; the program has a terminal, or has not.
    Attached {
        terminal: bool,
    },
    Refused {
        why: String,
    },
    Done,
    /// Done, and there is something to know about it.
    Noted {
        note: String,
    },
}

/// A session as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// On the way to whoever asked; there it is kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The number of the box's first process.
    pub pid: i32,
    pub execs: Vec<SeenExec>,
    pub plan: serde_json::Value,
    pub refused: Vec<Refused>,
    /// What was shown after the start.
    pub mounted: Vec<RecordedMount>,
    pub paused: bool,
    /// How its limits are held, and which one was met last.
    pub limits: Vec<String>,
    /// What went through its gateway, and the rules as they are now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Totals>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Rules>,
    /// What it is limited to now, in words.
    #[serde(default)]
    pub limited_to: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenExec {
    pub exec: u32,
    pub program: Vec<String>,
}

/// A packet: a sentence or bytes, and descriptors.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// The longest sentence; a plan with its hundreds of steps is the longest there is.
const LONGEST: usize = 160 << 10;
const MOST_FDS: usize = 4;
/// As many as the kernel passes at once. With less room it would put some of them in place
/// unseen, and nobody would close them.
const ROOM_FOR_FDS: usize = 253;
/// Output of programs begins with this, a sentence with a brace.
const OUTPUT: u8 = b'o';

/// One end of a conversation.
#[derive(Debug)]
pub(super) struct Line<S = OwnedFd>(S);

impl<S: AsFd> AsFd for Line<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<S: AsFd> Line<S> {
    pub(super) fn new(socket: S) -> Self {
        Self(socket)
    }

    pub(super) fn socket(&self) -> &S {
        &self.0
    }

    /// Who is at the other end, as the kernel noted when the line was opened.
    pub(super) fn peer(&self) -> io::Result<UnixCredentials> {
        Ok(getsockopt(&self.0, sockopt::PeerCredentials)?)
    }

    pub(super) fn say<T: Serialize>(&self, sentence: &T, fds: &[RawFd]) -> io::Result<()> {
        let bytes = serde_json::to_vec(sentence)?;
        self.send(&[&bytes], fds)
    }

    /// Output of a program, from the stream of that number.
    pub(super) fn output(&self, stream: u8, bytes: &[u8]) -> io::Result<()> {
        self.send(&[&[OUTPUT, stream], bytes], &[])
    }

    fn send(&self, parts: &[&[u8]], fds: &[RawFd]) -> io::Result<()> {
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let rights = [ControlMessage::ScmRights(fds)];
        let rights = if fds.is_empty() {
            &rights[..0]
        } else {
            &rights
        };
        sendmsg::<()>(
            self.0.as_fd().as_raw_fd(),
            &parts,
            rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    /// The next packet; `None` when the other side is gone.
    pub(super) fn receive(&self) -> io::Result<Option<Packet>> {
        // Room for the longest sentence would be made, looked through and given back for every short one.
        let whole = MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        let length = recv(self.0.as_fd().as_raw_fd(), &mut [], whole)?;
        let mut buffer = vec![0u8; length.clamp(1, LONGEST)];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let mut space = nix::cmsg_space!([RawFd; ROOM_FOR_FDS]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let packet = recvmsg::<()>(
            self.0.as_fd().as_raw_fd(),
            &mut parts,
            Some(&mut space),
            flags,
        )?;
        let (length, was_cut) = (packet.bytes, packet.flags.contains(MsgFlags::MSG_TRUNC));
        let mut fds = Vec::new();
        for control in packet.cmsgs()? {
            if let ControlMessageOwned::ScmRights(passed) = control {
                fds.extend(passed.into_iter().map(sys::fds::adopt));
            }
        }
        if was_cut || fds.len() > MOST_FDS {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        buffer.truncate(length);
        Ok((length > 0).then_some(Packet { bytes: buffer, fds }))
    }
}

impl Packet {
    /// A sentence of the kind that is expected here.
    pub(super) fn read<T: for<'a> Deserialize<'a>>(&self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.bytes)?)
    }

    /// Output of a program: the stream's number and the bytes.
    pub(super) fn output(&self) -> Option<(u8, &[u8])> {
        match self.bytes.as_slice() {
            [OUTPUT, stream, bytes @ ..] => Some((*stream, bytes)),
            _ => None,
        }
    }
}
