//! Those who are connected: who may stay for hours, who was silent for too long, and who makes room
//! when somebody else needs the place.

use std::io;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};

use super::control::{Client, Control};
use super::supervise::Life;
use super::talk::Say;
use crate::sandbox::Running;

/// As many as may talk to one session at the same time.
const MOST_CLIENTS: usize = 256;
/// Places that are never taken by those who stay: somebody must be able to ask it to end.
const KEPT_FREE: usize = 16;
/// How long somebody may be connected without wanting anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same when all places are taken.
const COURTESY: Duration = Duration::from_secs(1);
/// When it is tried again to tell a box that did not listen.
const AGAIN: Duration = Duration::from_secs(1);

/// Not more than there are descriptors for: a call that cannot be taken stays at the door and would
/// wake its supervisor for ever.
pub(super) fn most_clients() -> usize {
    let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, 0));
    let some = usize::try_from(files / 4).unwrap_or(usize::MAX);
    some.clamp(2, MOST_CLIENTS)
}

impl Client {
    /// Whether it is rightly quiet, for hours if need be.
    fn stays(&self) -> bool {
        self.exec.is_some() || self.attached || self.waits || self.brings || self.is_kept
    }
}

impl Control {
    /// Whether one more may stay.
    pub(super) fn has_room_to_stay(&self) -> bool {
        let staying = self.clients.iter().filter(|client| client.stays());
        staying.count() + KEPT_FREE.min(self.most / 2) < self.most
    }

    /// Whether one more may come. Whoever wants nothing and was silent longest leaves for them.
    pub(super) fn make_room(&mut self) -> bool {
        let here = || self.clients.iter().filter(|client| !client.gone);
        if here().count() < self.most {
            return true;
        }
        let now = Instant::now();
        let idle = self.clients.iter_mut().filter(|client| !client.gone);
        let idle = idle.filter(|client| !client.stays() && client.heard + COURTESY <= now);
        match idle.min_by_key(|client| client.heard) {
            Some(client) => {
                client.gone = true;
                true
            }
            None => false,
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let idle = self.clients.iter().filter(|client| !client.stays());
        let idle = idle.map(|client| client.heard + PATIENCE);
        let is_gone = self.clients.iter().any(|client| client.gone);
        let now = is_gone.then(Instant::now);
        let again = (!self.to_end.is_empty()).then(|| Instant::now() + AGAIN);
        idle.chain(now).chain(again).min()
    }

    /// Its question takes a while. By its number, which stays the same whoever else leaves.
    pub(super) fn keep(&mut self, client: usize) -> Option<u64> {
        let client = self.clients.get_mut(client)?;
        client.is_kept = true;
        Some(client.number)
    }

    /// The answer to whoever was kept.
    pub(super) fn answer_at_last(&mut self, number: u64, say: &Say) {
        let known = |client: &&mut Client| client.number == number;
        if let Some(client) = self.clients.iter_mut().find(known) {
            client.is_kept = false;
            client.heard = Instant::now();
            client.gone |= client.line.say(say, &[]).is_err();
        }
    }

    /// Lets go of those who are gone, and of those who were silent for too long. A program whose
    /// caller is gone is ended, as a shell's is when its terminal goes.
    fn let_go(&mut self, running: &Running) {
        let now = Instant::now();
        for client in &mut self.clients {
            client.gone |= !client.stays() && client.heard + PATIENCE <= now;
            if let (true, Some(started)) = (client.gone, &client.exec) {
                self.to_end.push(started.exec);
            }
        }
        self.clients.retain(|client| !client.gone);
        self.to_end.retain(|exec| {
            let told = [libc::SIGHUP, libc::SIGKILL].map(|it| running.signal_exec(*exec, it));
            told.iter().any(does_not_listen)
        });
    }
}

/// Said when a box has not read yet what it was told before.
pub(super) const NO_ANSWER: &str = "the box does not answer; is it paused?";

/// Whether a box has not read yet what it was told before.
pub(super) fn does_not_listen(told: &io::Result<()>) -> bool {
    matches!(told, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Life<'_> {
    pub(super) fn keep_clients(&mut self, running: &Running) {
        self.control.iter_mut().for_each(|it| it.let_go(running));
    }
}
