//! A program with everything that came of it: its descendants, and whoever is in a process session
//! that it or they made. The program leads a session of its own, so none of these is anybody
//! else's; and it is a child that has not been collected, so its number is its own meanwhile.

use std::collections::BTreeSet;

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use super::kin::Kin;

/// How often everybody is looked at before it is given up; in a storm of births each time finds
/// fewer that still run.
const ROUNDS: usize = 500;
/// Between two looks: who was signalled obeys when it runs next, and nobody tells.
const PAUSE_MS: u8 = 1;

/// What is known of a program's kin.
#[derive(Debug)]
struct Subtree {
    myself: i32,
    program: i32,
    known: BTreeSet<(i32, u64)>,
    sessions: BTreeSet<i32>,
    /// Whether every number in reach is one of the box.
    is_box: bool,
}

/// Sends a signal to all of a program's kin, once; SIGKILL until none is left.
pub(super) fn signal(program: Pid, signal: Signal, is_box: bool) {
    let program = program.as_raw();
    let mut subtree = Subtree {
        myself: getpid().as_raw(),
        program,
        known: BTreeSet::new(),
        sessions: BTreeSet::from([program]),
        is_box,
    };
    match signal {
        Signal::SIGKILL => subtree.end(),
        Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGCONT => {
            let all = subtree.living();
            subtree.send(&all, signal);
        }
        other => subtree.pass_on(other),
    }
}

impl Subtree {
    /// Ends all. Whoever dies leaves its children to the box's first process, which does not know
    /// whose they were: so all are held where they are before the first one dies.
    fn end(&mut self) {
        self.until_none(Signal::SIGSTOP, |kin| !kin.is_held());
        self.until_none(Signal::SIGKILL, Kin::is_living);
    }

    /// Sends a signal to all at once: they are held for a moment, or one could be born unseen and
    /// live on without its parents.
    fn pass_on(&mut self, signal: Signal) {
        self.until_none(Signal::SIGSTOP, |kin| !kin.is_held());
        let all = self.living();
        self.send(&all, signal);
        self.send(&all, Signal::SIGCONT);
    }

    /// Sends a signal to those who are so until there are none.
    fn until_none(&mut self, signal: Signal, is_so: impl Fn(&Kin) -> bool) {
        for _ in 0..ROUNDS {
            let mut left = self.living();
            left.retain(&is_so);
            if left.is_empty() {
                return;
            }
            self.send(&left, signal);
            let _ = poll(&mut [], PollTimeout::from(PAUSE_MS));
        }
    }

    fn send(&self, to: &[Kin], signal: Signal) {
        to.iter().for_each(|kin| kin.signal(signal, self.is_box));
    }

    /// Looks at everybody, and remembers who belongs to it.
    fn living(&mut self) -> Vec<Kin> {
        let mut others = Kin::all();
        others.retain(|kin| kin.pid != self.myself);
        let mut ours = Vec::new();
        // A session whose number is a newer process's by now is another one.
        let known = &self.known;
        let is_new =
            |kin: &&Kin| kin.pid != self.program && !known.contains(&(kin.pid, kin.started));
        let new = others.iter().filter(is_new).map(|kin| kin.pid);
        let new: BTreeSet<i32> = new.collect();
        self.sessions.retain(|session| !new.contains(session));
        loop {
            let parents: BTreeSet<i32> = ours.iter().map(|kin: &Kin| kin.pid).collect();
            let is_ours = |kin: &Kin| {
                kin.pid == self.program
                    || self.known.contains(&(kin.pid, kin.started))
                    || self.sessions.contains(&kin.session)
                    || parents.contains(&kin.parent)
            };
            let (more, rest): (Vec<Kin>, Vec<Kin>) = others.iter().partition(|kin| is_ours(kin));
            if more.is_empty() {
                break;
            }
            others = rest;
            for kin in &more {
                self.known.insert((kin.pid, kin.started));
                // One that is just dying is in no session any more.
                if kin.session > 0 {
                    self.sessions.insert(kin.session);
                }
            }
            ours.extend(more);
        }
        ours.retain(Kin::is_living);
        ours
    }
}
