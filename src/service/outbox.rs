//! What is to be sent on one connection, in the order in which it was put there: answers, and for a
//! subscriber events. One task sends it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::frame::Frame;

/// Above this a process has to wait before it is read again, and a client before it is heard.
const ENOUGH: usize = 512 << 10;
/// How long a subscriber may take nothing although there is something for it.
pub(super) const STALLED: Duration = Duration::from_secs(10);

/// What a message is, for when it could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Answer,
    /// Said anew to every subscriber anyway.
    State,
    /// Of a process: another subscriber has to hear it.
    Process,
}

/// Why nothing more is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// A subscriber that takes nothing.
    Stalled,
    /// Nobody is there, or nothing is left to be said.
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: RefCell<VecDeque<(Kind, Frame)>>,
    bytes: Cell<usize>,
    /// Something to send, or nothing any more.
    changed: Notify,
    /// There is room again.
    room: Notify,
    /// Those who wait for room in all of a profile's subscribers.
    readers: RefCell<Option<Rc<Notify>>>,
    is_closed: Cell<bool>,
    /// Answers that are still being worked on.
    pending: Cell<usize>,
    /// The other side asks nothing more.
    is_heard_out: Cell<bool>,
}

impl Outbox {
    pub(super) fn put(&self, kind: Kind, frame: Frame) {
        if self.is_closed.get() {
            return;
        }
        self.bytes.set(self.bytes.get() + frame.len());
        self.queue.borrow_mut().push_back((kind, frame));
        self.changed.notify_one();
    }

    pub(super) fn has_room(&self) -> bool {
        self.is_closed.get() || self.bytes.get() < ENOUGH
    }

    /// From now on those who read processes are told when there is room.
    pub(super) fn tell_of_room(&self, readers: Rc<Notify>) {
        *self.readers.borrow_mut() = Some(readers);
    }

    pub(super) fn is_subscriber(&self) -> bool {
        self.readers.borrow().is_some()
    }

    #[cfg(test)]
    pub(super) fn has_sent_all(&self) -> bool {
        self.bytes.get() == 0
    }

    /// Counts an answer that will come.
    pub(super) fn promise(self: &Rc<Self>) -> Promise {
        self.pending.set(self.pending.get() + 1);
        Promise(Rc::clone(self))
    }

    /// Waits until what was said before has been taken, as far as it must.
    pub(super) async fn room(&self) {
        loop {
            let room = self.room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }

    /// Waits until one more may be promised, and what was said before has been taken.
    pub(super) async fn room_to_promise(&self, most: usize) {
        let is_free = || self.is_subscriber() || self.has_room();
        loop {
            let room = self.room.notified();
            if self.is_closed.get() || (is_free() && self.pending.get() < most) {
                return;
            }
            room.await;
        }
    }

    /// The other side has asked all, and wants no more events; what was promised is still sent.
    pub(super) fn heard_out(&self) {
        self.is_heard_out.set(true);
        *self.readers.borrow_mut() = None;
        self.changed.notify_one();
    }

    /// Events that were not sent, for somebody else.
    pub(super) fn take_unsent(&self) -> Vec<Frame> {
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        self.bytes.set(0);
        let events = queue.into_iter().filter(|(kind, _)| *kind == Kind::Process);
        events.map(|(_, frame)| frame).collect()
    }

    fn is_done(&self) -> bool {
        self.is_heard_out.get() && self.pending.get() == 0 && !self.is_subscriber()
    }

    /// Sends until there is nothing more to send, or nobody to send it to.
    pub(super) async fn send_all(&self, mut to: OwnedWriteHalf) -> Sent {
        let sent = loop {
            // It stays at the front until all of it has been sent.
            let next = self.queue.borrow().front().map(|(_, frame)| frame.clone());
            match next {
                Some(frame) => {
                    if let Err(error) = self.send(&mut to, frame.bytes()).await {
                        break match error.kind() {
                            io::ErrorKind::TimedOut => Sent::Stalled,
                            _ => Sent::Gone,
                        };
                    }
                    self.queue.borrow_mut().pop_front();
                    self.sent(frame.len());
                }
                None if self.is_done() => break Sent::Gone,
                None => self.changed.notified().await,
            }
        };
        self.is_closed.set(true);
        self.room.notify_waiters();
        sent
    }

    fn sent(&self, length: usize) {
        let had_room = self.has_room();
        // Nothing is left of it when it was taken away meanwhile.
        self.bytes.set(self.bytes.get().saturating_sub(length));
        if !had_room && self.has_room() {
            self.room.notify_waiters();
            if let Some(readers) = &*self.readers.borrow() {
                readers.notify_waiters();
            }
        }
    }

    async fn send(&self, to: &mut OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let some = match timeout(STALLED, to.write(bytes)).await {
                Ok(some) => some?,
                Err(_) if self.is_subscriber() => return Err(io::ErrorKind::TimedOut.into()),
                Err(_) => continue,
            };
            if some == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[some..];
        }
        Ok(())
    }
}

/// An answer that is being worked on.
#[derive(Debug)]
pub(super) struct Promise(Rc<Outbox>);

impl Promise {
    pub(super) fn keep(self, frame: Frame) {
        self.0.put(Kind::Answer, frame);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.pending.set(self.0.pending.get() - 1);
        self.0.changed.notify_one();
        self.0.room.notify_waiters();
    }
}
