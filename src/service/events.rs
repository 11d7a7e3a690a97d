//! What happens in an app's profile, told to all who subscribed to it, in order. While nobody listens
//! it is kept; when too much is kept, or a listener is slow, processes are not read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use serde::Serialize;
use tokio::sync::Notify;

use super::frame::{Draft, Frame};
use super::outbox::{Kind, Outbox};

/// What is kept while nobody listens.
const KEPT: usize = 8 << 20;
/// Around the text of an event: its kind and the longest name of a process we expect.
const AROUND: usize = 160;

/// Which of a process's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// How a process ended, in the app's words.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename = "exit", rename_all = "camelCase")]
pub(super) struct Exit<'a> {
    pub(super) id: &'a str,
    pub(super) exit_code: i32,
    pub(super) signal: Option<&'a str>,
    pub(super) oom_kill_count: u32,
}

/// How the app's workspace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum State {
    StartupStep {
        step: &'static str,
        status: &'static str,
    },
    NetworkStatus {
        status: &'static str,
    },
    ApiReachability {
        status: &'static str,
    },
}

pub(super) const CONNECTED: State = State::NetworkStatus {
    status: "CONNECTED",
};
pub(super) const NOT_CONNECTED: State = State::NetworkStatus {
    status: "NOT_CONNECTED",
};
pub(super) const REACHABLE: State = State::ApiReachability {
    status: "REACHABLE",
};
pub(super) const PROBABLY_UNREACHABLE: State = State::ApiReachability {
    status: "PROBABLY_UNREACHABLE",
};
pub(super) const UNREACHABLE: State = State::ApiReachability {
    status: "UNREACHABLE",
};
const STARTED: &str = "started";

/// A step of the start, as it begins.
pub(super) fn begun(step: &'static str) -> State {
    let status = STARTED;
    State::StartupStep { step, status }
}

/// The same step as it ends.
pub(super) fn ended(step: &'static str, well: bool) -> State {
    let status = if well { "completed" } else { "failed" };
    State::StartupStep { step, status }
}

/// One profile's events.
#[derive(Debug, Default)]
pub(super) struct Feed {
    subscribers: RefCell<Vec<Rc<Outbox>>>,
    kept: RefCell<VecDeque<Frame>>,
    kept_bytes: Cell<usize>,
    /// As it is now: a step that is under way, the network, the API.
    standing: RefCell<[Option<State>; 3]>,
    room: Rc<Notify>,
}

impl Feed {
    /// Whoever subscribes hears how things are, and what nobody has heard yet.
    pub(super) fn subscribe(&self, to: &Rc<Outbox>) {
        to.tell_of_room(Rc::clone(&self.room));
        for state in self.standing.borrow().iter().flatten() {
            if let Some(frame) = Frame::of(state) {
                to.put(Kind::State, frame);
            }
        }
        for frame in std::mem::take(&mut *self.kept.borrow_mut()) {
            to.put(Kind::Process, frame);
        }
        self.kept_bytes.set(0);
        self.subscribers.borrow_mut().push(Rc::clone(to));
    }

    /// What the last one to leave has not heard is kept for the next.
    pub(super) fn unsubscribe(&self, from: &Rc<Outbox>) {
        let mut subscribers = self.subscribers.borrow_mut();
        let before = subscribers.len();
        subscribers.retain(|one| !Rc::ptr_eq(one, from));
        if subscribers.is_empty() && before > 0 {
            from.take_unsent().into_iter().for_each(|it| self.keep(it));
        }
        self.room.notify_waiters();
    }

    fn keep(&self, frame: Frame) {
        self.kept_bytes.set(self.kept_bytes.get() + frame.len());
        self.kept.borrow_mut().push_back(frame);
    }

    pub(super) fn has_room(&self) -> bool {
        let subscribers = self.subscribers.borrow();
        match subscribers.as_slice() {
            [] => self.kept_bytes.get() < KEPT,
            all => all.iter().all(|one| one.has_room()),
        }
    }

    /// Waits until there is room for what a process says.
    pub(super) async fn room(&self) {
        loop {
            let room = self.room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }

    fn tell(&self, frame: Frame) {
        let subscribers = self.subscribers.borrow();
        match subscribers.as_slice() {
            [] => self.keep(frame),
            all => all
                .iter()
                .for_each(|one| one.put(Kind::Process, frame.clone())),
        }
    }

    /// Text of a process. Whoever calls has waited for room.
    pub(super) fn output(&self, id: &str, stream: Stream, text: &str) {
        let mut draft = Draft::new(AROUND + text.len());
        let kind: &[u8] = match stream {
            Stream::Out => br#"{"type":"stdout","id":"#,
            Stream::Err => br#"{"type":"stderr","id":"#,
        };
        draft.0.extend_from_slice(kind);
        let written = serde_json::to_writer(&mut draft.0, id);
        draft.0.extend_from_slice(br#","data":"#);
        let written = written.and_then(|()| serde_json::to_writer(&mut draft.0, text));
        draft.0.push(b'}');
        if let (Ok(()), Some(frame)) = (written, draft.finish()) {
            self.tell(frame);
        }
    }

    /// Never kept back, however little room there is.
    pub(super) fn exit(&self, exit: &Exit<'_>) {
        if let Some(frame) = Frame::of(exit) {
            self.tell(frame);
        }
    }

    /// How things are from now on; said to those who listen, and to all who come.
    pub(super) fn state(&self, state: State) {
        {
            let mut standing = self.standing.borrow_mut();
            match state {
                State::StartupStep { status, .. } => {
                    standing[0] = (status == STARTED).then_some(state);
                }
                State::NetworkStatus { .. } => standing[1] = Some(state),
                State::ApiReachability { .. } => standing[2] = Some(state),
            }
        }
        if let Some(frame) = Frame::of(&state) {
            for one in self.subscribers.borrow().iter() {
                one.put(Kind::State, frame.clone());
            }
        }
    }

    /// The API's answer is nothing to go by any more.
    pub(super) fn forget_reachability(&self) {
        let mut standing = self.standing.borrow_mut();
        (standing[0], standing[2]) = (None, None);
    }
}
