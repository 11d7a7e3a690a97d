//! What those who talk to a session are told.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};

use super::control::{Client, Control};
use super::talk::{self, Say};
use crate::sys;

/// How long somebody may take to make room for the news that it is over.
const LAST_WORD_MS: u16 = 500;

impl Control {
    pub(super) fn answer(&mut self, client: usize, say: &Say) {
        if let Some(client) = self.clients.get_mut(client) {
            client.gone |= client.line.say(say, &[]).is_err();
        }
    }

    /// The terminal of a program, for whoever started it.
    pub(super) fn hand_over(&mut self, exec: u32, master: BorrowedFd<'_>) {
        if let Some(client) = self.of(exec) {
            let sent = client.line.say(&Say::Terminal, &[master.as_raw_fd()]);
            client.gone |= sent.is_err();
        }
    }

    pub(super) fn tell(&mut self, exec: u32, say: &Say) {
        if let Some(client) = self.of(exec) {
            client.gone |= client.line.say(say, &[]).is_err();
            if matches!(say, Say::Ended { .. }) {
                client.exec = None;
                client.heard = Instant::now();
            }
        }
    }

    fn of(&mut self, exec: u32) -> Option<&mut Client> {
        let is = |client: &&mut Client| client.exec.as_ref().is_some_and(|it| it.exec == exec);
        self.clients.iter_mut().find(is)
    }

    /// The session is over. A program that was still running in it has been ended with it.
    pub(super) fn tell_the_end(&mut self, status: i32) {
        for client in &mut self.clients {
            let say = match (client.exec.is_some(), client.attached) {
                (true, _) => Say::Ended {
                    status: libc::SIGKILL,
                },
                (false, true) => Say::Ended { status },
                (false, false) if client.waits => Say::Done,
                (false, false) => continue,
            };
            // What it was shown before may still fill the line.
            if client.line.say(&say, &[]).is_err() && client.attached {
                let mut waiting = [PollFd::new(client.line.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut waiting, LAST_WORD_MS);
                let _ = client.line.say(&say, &[]);
            }
        }
    }

    pub(super) fn inspected(&mut self, client: usize, seen: talk::Seen) {
        let written = || -> io::Result<File> {
            let mut file = File::from(sys::fds::memory(c"seen")?);
            file.write_all(&serde_json::to_vec(&seen)?)?;
            Ok(file)
        };
        if let (Some(client), Ok(file)) = (self.clients.get_mut(client), written()) {
            client.gone |= client.line.say(&Say::Seen, &[file.as_raw_fd()]).is_err();
        }
    }
}
