//! What is in front of the caller while a program runs in a box: the caller's terminal, and the
//! files its streams lead to. Carries bytes; decides nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::poll::PollFd;
use nix::sys::signal::{Signal, kill};

use crate::plan::Stdio;
use crate::sys;
use crate::terminal::{FileCopy, OuterTerminal, Relay};

#[derive(Debug)]
pub(super) struct Front {
    stdio: [Stdio; 3],
    relay: Option<Relay>,
    outer: Option<OuterTerminal>,
    /// With the number of the stream that each stands for.
    copies: Vec<(usize, FileCopy)>,
    /// Streams whose file failed, and why.
    pub(super) lost: Vec<(usize, io::Error)>,
}

impl Front {
    /// `pipes` are the ends of those streams that are copied.
    pub(super) fn new(stdio: [Stdio; 3], pipes: &mut [Option<OwnedFd>; 3]) -> io::Result<Self> {
        let mut copies = Vec::new();
        for (number, pipe) in pipes.iter_mut().enumerate() {
            let Some(pipe) = pipe.take() else { continue };
            let file = sys::fds::duplicate(number as i32)?;
            let copy = match number {
                0 => FileCopy::inward(file, pipe)?,
                _ => FileCopy::outward(pipe, file)?,
            };
            copies.push((number, copy));
        }
        Ok(Self {
            stdio,
            relay: None,
            outer: None,
            copies,
            lost: Vec::new(),
        })
    }

    pub(super) fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        if let Some(relay) = &self.relay {
            relay.interests(out);
        }
        for (_, copy) in &self.copies {
            copy.interests(out);
        }
    }

    pub(super) fn progress(&mut self) -> io::Result<()> {
        if let Some(relay) = &mut self.relay {
            relay.progress()?;
        }
        for (number, copy) in &mut self.copies {
            // Such as a full disk. The copy has closed its pipe, which tells the program.
            if let Err(error) = copy.progress() {
                self.lost.push((*number, error));
            }
        }
        Ok(())
    }

    /// Connects the box's terminal with the caller's.
    pub(super) fn take_terminal(&mut self, master: OwnedFd) -> io::Result<()> {
        let is = |number: usize| self.stdio[number] == Stdio::Terminal;
        let output = [1, 2].into_iter().find(|number| is(*number));
        if is(0) && is(1) {
            let outer = OuterTerminal::take_and_survive(sys::fds::standard(0))?;
            self.outer = Some(outer);
        }
        let input = is(0).then(|| sys::fds::standard(0));
        let relay = Relay::new(master, input, output.map(|n| sys::fds::standard(n as i32)))?;
        relay.resize()?;
        self.relay = Some(relay);
        Ok(())
    }

    pub(super) fn resize(&self) {
        if let Some(relay) = &self.relay {
            let _ = relay.resize();
        }
    }

    /// The program was stopped: this process stops too, so that the shell gets its turn.
    pub(super) fn stop_with_it(&mut self, soon: Instant) -> io::Result<()> {
        if let Some(relay) = &mut self.relay {
            relay.suspend(soon)?;
        }
        if let Some(outer) = &mut self.outer {
            outer.suspend()?;
        }
        loop {
            kill(nix::unistd::getpid(), Signal::SIGSTOP)?;
            let ours = self
                .outer
                .as_mut()
                .map_or(Ok(true), OuterTerminal::resume)?;
            if ours {
                break;
            }
        }
        if let Some(relay) = &mut self.relay {
            relay.resume()?;
            relay.resize()?;
        }
        Ok(())
    }

    /// Shows what the program had said before it ended.
    pub(super) fn last_words(&mut self, deadline: Instant) {
        if let Some(relay) = &mut self.relay {
            let _ = relay.drain(deadline);
        }
        for (number, copy) in &mut self.copies {
            if let Err(error) = copy.drain(deadline) {
                self.lost.push((*number, error));
            }
        }
        self.outer = None;
    }
}
