//! What a process is to read, in the order in which the app sent it. The queue is bounded: what does
//! not fit is held for a while without an answer, and refused when the process does not read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

/// What is taken and answered at once.
const QUEUED: usize = 16 << 20;
/// What may wait beyond that without an answer; the first one always may.
const HELD: usize = 8 << 20;
/// How long an answer may be held back: less than the app waits for one.
const PATIENCE: Duration = Duration::from_secs(25);

/// What became of a piece of input.
#[derive(Debug)]
pub(super) enum Taken {
    Done,
    /// It is answered when there is room for it, or when there is none for too long.
    Held(oneshot::Receiver<Result<(), String>>),
    Refused(String),
}

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    until: Instant,
    answer: oneshot::Sender<Result<(), String>>,
}

#[derive(Debug)]
pub(super) struct Input {
    id: String,
    queue: RefCell<VecDeque<Vec<u8>>>,
    queued: Cell<usize>,
    held: RefCell<VecDeque<Held>>,
    held_bytes: Cell<usize>,
    changed: Notify,
    /// Why nothing is taken any more.
    closed: RefCell<Option<String>>,
}

impl Input {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            queue: RefCell::default(),
            queued: Cell::new(0),
            held: RefCell::default(),
            held_bytes: Cell::new(0),
            changed: Notify::new(),
            closed: RefCell::default(),
        }
    }

    pub(super) fn write(&self, bytes: Vec<u8>) -> Taken {
        if let Some(why) = &*self.closed.borrow() {
            return Taken::Refused(why.clone());
        }
        let length = bytes.len();
        let is_first = self.held.borrow().is_empty();
        if is_first && (self.queued.get() + length <= QUEUED || self.queued.get() == 0) {
            self.push(bytes);
            return Taken::Done;
        }
        if !is_first && self.held_bytes.get() + length > HELD {
            return Taken::Refused(self.too_much());
        }
        let (answer, later) = oneshot::channel();
        self.held_bytes.set(self.held_bytes.get() + length);
        self.held.borrow_mut().push_back(Held {
            bytes,
            until: Instant::now() + PATIENCE,
            answer,
        });
        self.changed.notify_one();
        Taken::Held(later)
    }

    /// The app knows this number and tries again later.
    fn too_much(&self) -> String {
        format!(
            "-32002: process {} does not read its input, and no more of it can be kept",
            self.id
        )
    }

    fn push(&self, bytes: Vec<u8>) {
        self.queued.set(self.queued.get() + bytes.len());
        if !bytes.is_empty() {
            self.queue.borrow_mut().push_back(bytes);
            self.changed.notify_one();
        }
    }

    /// Takes what was held as far as there is room.
    fn take_held(&self) {
        loop {
            let mut held = self.held.borrow_mut();
            let Some(first) = held.front() else {
                return;
            };
            if self.queued.get() > 0 && self.queued.get() + first.bytes.len() > QUEUED {
                return;
            }
            if let Some(first) = held.pop_front() {
                drop(held);
                self.held_bytes
                    .set(self.held_bytes.get() - first.bytes.len());
                self.push(first.bytes);
                let _ = first.answer.send(Ok(()));
            }
        }
    }

    /// Refuses everything that was held: what was taken is always the beginning of what was sent.
    fn refuse_held(&self, why: &str) {
        self.held_bytes.set(0);
        for held in self.held.borrow_mut().drain(..) {
            let _ = held.answer.send(Err(why.to_owned()));
        }
    }

    /// Takes nothing more, because of this.
    pub(super) fn close(&self, why: String) {
        self.queue.borrow_mut().clear();
        self.queued.set(0);
        self.refuse_held(&why);
        *self.closed.borrow_mut() = Some(why);
    }

    fn held_until(&self) -> Option<Instant> {
        self.held.borrow().front().map(|held| held.until)
    }

    /// Writes what comes until the process reads no more.
    pub(super) async fn feed(&self, pipe: pipe::Sender) {
        loop {
            let first = self.queue.borrow_mut().pop_front();
            let Some(bytes) = first else {
                self.changed.notified().await;
                continue;
            };
            let mut sent = 0;
            while sent < bytes.len() {
                let until = self.held_until();
                let late = async {
                    match until {
                        Some(until) => sleep_until(until).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    some = write(&pipe, &bytes[sent..]) => match some {
                        Ok(some) => {
                            sent += some;
                            self.queued.set(self.queued.get().saturating_sub(some));
                            self.take_held();
                        }
                        Err(_) => {
                            self.close(format!("process {} reads no input any more", self.id));
                            return;
                        }
                    },
                    () = late => self.refuse_held(&self.too_much()),
                    // Somebody new may be waiting.
                    () = self.changed.notified() => {}
                }
            }
        }
    }
}

async fn write(pipe: &pipe::Sender, bytes: &[u8]) -> io::Result<usize> {
    loop {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}
