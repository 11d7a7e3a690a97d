//! Calls that the box's filter refuses. They are asked about only so that somebody hears of them:
//! there is one answer, whatever the arguments are, and the kernel never goes on with such a call.
//!
//! A program may try as often as it likes. What is kept is bounded, and the first of a kind alone
//! is looked at.

use std::io;
use std::os::fd::BorrowedFd;

use super::caller::Caller;
use crate::sys::notify::{self, Request};

/// How many kinds are told apart; the filters know fewer.
const KINDS: usize = 128;

/// A call that was refused, as it was made the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    pub call: u32,
    pub args: [u64; 6],
    /// Who made it, in the numbers of the box.
    pub thread: u32,
    /// What that thread calls itself; empty where it was gone too soon.
    pub program: Vec<u8>,
    /// How often since it was told the last time.
    pub times: u64,
}

impl RefusedCall {
    /// What one call is used for is told apart only where few uses are refused at all.
    fn kind(call: u32, args: &[u64; 6]) -> (u32, u64) {
        match i64::from(call) {
            libc::SYS_ioctl => (call, args[1] & 0xffff_ffff),
            _ => (call, 0),
        }
    }
}

impl RefusedCall {
    /// For the line to the launcher, besides call and thread: how often, the arguments, and the
    /// program's name last.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.times).chain(&self.args);
        let mut bytes: Vec<u8> = numbers.flat_map(|number| number.to_ne_bytes()).collect();
        bytes.extend_from_slice(&self.program);
        bytes
    }

    /// The reverse; nothing when they are not what they should be.
    pub fn from_bytes([call, thread]: [i32; 2], bytes: &[u8]) -> Option<Self> {
        let (numbers, program) = bytes.split_at_checked(56)?;
        let numbers = numbers.as_chunks::<8>().0.iter().copied();
        let mut numbers = numbers.map(u64::from_ne_bytes);
        let times = numbers.next()?;
        let mut args = [0; 6];
        args.iter_mut()
            .zip(numbers)
            .for_each(|(arg, number)| *arg = number);
        Some(Self {
            call: call as u32,
            args,
            thread: thread as u32,
            program: program.to_vec(),
            times,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct RefusedCalls {
    known: Vec<RefusedCall>,
    /// How many of them somebody was told of at all.
    told: usize,
}

impl RefusedCalls {
    /// Answers a question about a call that is refused.
    pub(super) fn refuse(&mut self, listener: BorrowedFd<'_>, request: &Request) -> io::Result<()> {
        self.note(listener, request);
        notify::finish(listener, request.id, libc::EPERM)
    }

    fn note(&mut self, listener: BorrowedFd<'_>, request: &Request) {
        let Ok(call) = u32::try_from(request.call) else {
            return;
        };
        let kind = RefusedCall::kind(call, &request.args);
        let same = |known: &&mut RefusedCall| RefusedCall::kind(known.call, &known.args) == kind;
        if let Some(known) = self.known.iter_mut().find(same) {
            known.times = known.times.saturating_add(1);
        } else if self.known.len() < KINDS {
            let name = Caller::new(request.thread).name();
            // The number may be another's by now.
            let is_theirs = notify::is_waiting(listener, request.id);
            self.known.push(RefusedCall {
                call,
                args: request.args,
                thread: request.thread,
                program: name.filter(|_| is_theirs).unwrap_or_default(),
                times: 1,
            });
        }
    }

    /// The next one that nobody has been told of.
    pub(super) fn next_new(&mut self) -> Option<RefusedCall> {
        let new = self.known.get_mut(self.told)?;
        self.told += 1;
        let said = new.clone();
        new.times = 0;
        Some(said)
    }

    /// All that happened since it was told the last time.
    pub(super) fn take(&mut self) -> Vec<RefusedCall> {
        self.told = self.known.len();
        let more = self.known.iter_mut().filter(|known| known.times > 0);
        more.map(|known| {
            let said = known.clone();
            known.times = 0;
            said
        })
        .collect()
    }
}
