//! What a process says, read as fast as the app takes it, and told as text.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

use super::events::{Feed, Stream};
use super::text::Decoder;
use crate::sys;

/// As much as is read at once.
const PIECE: usize = 64 << 10;
/// How long the streams of a process that has ended may be silent before they count as ended.
const SILENCE: Duration = Duration::from_millis(200);
/// How long others may go on talking into them before the end is told all the same.
const OTHERS: Duration = Duration::from_millis(400);

thread_local! {
    /// One for all: nobody keeps it while waiting.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Our ends of a process's streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) input: Option<pipe::Sender>,
    pub(super) out: pipe::Receiver,
    pub(super) err: pipe::Receiver,
}

/// Reads one stream to its end.
#[derive(Debug)]
pub(super) struct Pump {
    pipe: pipe::Receiver,
    stream: Stream,
    id: String,
    feed: Rc<Feed>,
    decoder: RefCell<Decoder>,
    /// When something was read last, and how much in all.
    last: Cell<Instant>,
    total: Cell<u64>,
    /// There is something to read, and no room for it.
    is_waiting: Cell<bool>,
    is_over: Cell<bool>,
    over: Notify,
    /// The end of the process was told: whoever else has the stream may go on, unheard.
    is_silenced: Cell<bool>,
    silenced: Notify,
}

impl Pump {
    pub(super) fn start(
        pipe: pipe::Receiver,
        stream: Stream,
        id: &str,
        feed: &Rc<Feed>,
    ) -> Rc<Self> {
        let pump = Rc::new(Self {
            pipe,
            stream,
            id: id.to_owned(),
            feed: Rc::clone(feed),
            decoder: RefCell::default(),
            last: Cell::new(Instant::now()),
            total: Cell::new(0),
            is_waiting: Cell::new(false),
            is_over: Cell::new(false),
            over: Notify::new(),
            is_silenced: Cell::new(false),
            silenced: Notify::new(),
        });
        let running = Rc::clone(&pump);
        spawn_local(async move { running.run().await });
        pump
    }

    async fn run(&self) {
        while self.pipe.readable().await.is_ok() {
            if !self.is_silenced.get() {
                self.is_waiting.set(true);
                tokio::select! {
                    () = self.feed.room() => {}
                    () = self.silenced.notified() => {}
                }
                self.is_waiting.set(false);
            }
            match self.read() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    self.last.set(Instant::now());
                    self.total.set(self.total.get() + count as u64);
                }
            }
        }
        self.flush();
        self.is_over.set(true);
        self.over.notify_waiters();
    }

    /// Reads a piece and tells it, without waiting in between.
    fn read(&self) -> io::Result<usize> {
        BUFFER.with_borrow_mut(|buffer| {
            let mut decoder = self.decoder.borrow_mut();
            let held = decoder.held().len();
            buffer[..held].copy_from_slice(decoder.held());
            let count = self.pipe.try_read(&mut buffer[held..])?;
            if count > 0 && !self.is_silenced.get() {
                let text = decoder.decode(&buffer[..held + count]);
                if !text.is_empty() {
                    self.feed.output(&self.id, self.stream, &text);
                }
            }
            Ok(count)
        })
    }

    fn flush(&self) {
        if let (Some(text), false) = (self.decoder.borrow_mut().finish(), self.is_silenced.get()) {
            self.feed.output(&self.id, self.stream, text);
        }
    }

    /// Whoever else writes into the stream is read on, so that it is not held up, and not told.
    pub(super) fn stop_telling(&self) {
        self.flush();
        self.is_silenced.set(true);
        self.silenced.notify_one();
    }

    async fn over(&self) {
        loop {
            let over = self.over.notified();
            if self.is_over.get() {
                return;
            }
            over.await;
        }
    }
}

/// Waits until all was told that a process said which has just ended: to the end of its streams, or
/// until they are silent, when others still have them; not much longer when it was cancelled.
pub(super) async fn last_words(pumps: &[&Rc<Pump>; 2], is_cancelled: impl Fn() -> bool) {
    let ended = Instant::now();
    // What is in a pipe now is all that the process itself can have left there.
    let own = pumps.map(|pump| {
        let unread = sys::pipe::unread(pump.pipe.as_fd()).unwrap_or(0);
        pump.total.get() + unread as u64
    });
    loop {
        let open = || pumps.iter().filter(|pump| !pump.is_over.get());
        let Some(last) = open().map(|pump| pump.last.get()).max() else {
            return;
        };
        let now = Instant::now();
        let is_waiting = open().any(|pump| pump.is_waiting.get());
        let told_all = pumps
            .iter()
            .zip(own)
            .all(|(pump, own)| pump.is_over.get() || pump.total.get() >= own);
        // Nobody may be there to make room, and the workspace is to be stopped nevertheless.
        if is_cancelled() && now >= ended + OTHERS {
            return;
        }
        let quiet = last.max(ended) + SILENCE;
        if told_all && (now >= ended + OTHERS || (now >= quiet && !is_waiting)) {
            return;
        }
        let next = if now < quiet { quiet } else { now + SILENCE };
        tokio::select! {
            () = async { pumps[0].over().await; pumps[1].over().await } => return,
            () = sleep_until(next.min((ended + OTHERS).max(now + SILENCE / 4))) => {}
        }
    }
}
