//! One connection of the app's: questions in, answers and events out. All three kinds of
//! connections that the app opens are the same here.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Serialize;
use serde_json::Value;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use super::frame::{self, Broken, Frame};
use super::helper::Helper;
use super::methods::{self, Handled};
use super::outbox::{Kind, Outbox, Sent};
use super::profile::{Presence, Profile};
use super::request::Request;
use super::telling;

/// Questions of one connection that are worked on at the same time.
const MOST_AT_ONCE: usize = 1024;
const READ_AHEAD: usize = 4 << 10;

/// An answer as it is sent.
#[derive(Debug, Serialize)]
struct Reply {
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Value>,
}

/// What came of a question.
pub(super) type Answer = Result<Value, String>;

fn reply(answer: Answer, id: Option<Value>) -> Frame {
    let (result, error) = match answer {
        Ok(result) => (Some(result).filter(|result| !result.is_null()), None),
        Err(error) => (None, Some(error)),
    };
    let success = error.is_none();
    let whole = Reply {
        success,
        result,
        error,
        id,
    };
    let too_long = || Reply {
        success: false,
        result: None,
        error: Some("the answer is longer than a message may be".to_owned()),
        id: None,
    };
    let frame = Frame::of(&whole).or_else(|| Frame::of(&too_long()));
    frame.unwrap_or_else(|| unreachable!("a short answer fits"))
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) helper: Rc<Helper>,
    pub(super) outbox: Rc<Outbox>,
    /// The profile it belongs to, once it has said so.
    profile: RefCell<Option<(Rc<Profile>, Presence)>>,
    /// Files are read for it one by one: each may be as long as an answer can be.
    pub(super) reading: Mutex<()>,
    /// Those whose events it hears.
    subscribed: RefCell<Vec<Rc<Profile>>>,
}

impl Connection {
    /// The profile that is meant by what is asked here.
    pub(super) fn profile(&self) -> Rc<Profile> {
        let own = self.profile.borrow();
        match &*own {
            Some((profile, _)) => Rc::clone(profile),
            None => self.helper.current(),
        }
    }

    /// Whether it has said which profile it belongs to.
    pub(super) fn is_named(&self) -> bool {
        self.profile.borrow().is_some()
    }

    pub(super) fn belong_to(&self, profile: &Rc<Profile>) {
        let presence = profile.presence();
        *self.profile.borrow_mut() = Some((Rc::clone(profile), presence));
    }

    pub(super) fn subscribe(&self, to: &Rc<Profile>) {
        let mut subscribed = self.subscribed.borrow_mut();
        if !subscribed.iter().any(|known| Rc::ptr_eq(known, to)) {
            to.feed.subscribe(&self.outbox);
            subscribed.push(Rc::clone(to));
        }
    }

    /// The answer that has to come before the first event.
    pub(super) fn acknowledge(&self, id: Option<Value>) {
        self.outbox.put(Kind::Answer, reply(Ok(Value::Null), id));
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(stream: UnixStream, helper: Rc<Helper>) {
    let (read, write) = stream.into_split();
    let connection = Rc::new(Connection {
        helper,
        outbox: Rc::default(),
        profile: RefCell::default(),
        reading: Mutex::default(),
        subscribed: RefCell::default(),
    });
    let outbox = Rc::clone(&connection.outbox);
    let sending = outbox.send_all(write);
    let hearing = hear(BufReader::with_capacity(READ_AHEAD, read), &connection);
    tokio::pin!(sending, hearing);
    tokio::select! {
        biased;
        sent = &mut sending => match sent {
            Sent::Stalled => telling::warn("a subscriber took nothing for too long: it is let go"),
            // Whoever wants no answers may still have asked for something.
            Sent::Gone => hearing.await,
        },
        () = &mut hearing => {
            // Whoever subscribes stays until it is done listening: what comes later is the next one's.
            unsubscribe(&connection);
            // What was promised is sent, to whoever has closed only its own side.
            connection.outbox.heard_out();
            sending.await;
        }
    }
    unsubscribe(&connection);
}

fn unsubscribe(connection: &Connection) {
    let subscribed = connection.subscribed.take();
    for profile in subscribed {
        profile.feed.unsubscribe(&connection.outbox);
    }
}

async fn hear(mut read: BufReader<tokio::net::unix::OwnedReadHalf>, connection: &Rc<Connection>) {
    let outbox = &connection.outbox;
    loop {
        outbox.room_to_promise(MOST_AT_ONCE).await;
        let bytes = match frame::read(&mut read).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(Broken::Lost(error)) => {
                telling::detail(|| format!("a connection was lost: {error}"));
                return;
            }
            Err(Broken::Length(length)) => {
                let why = format!("frame length {length} out of range");
                outbox.put(Kind::Answer, reply(Err(why), None));
                return;
            }
        };
        let request = Request::read(&bytes);
        drop(bytes);
        match request {
            Err(unread) => outbox.put(Kind::Answer, reply(Err(unread.why), unread.id)),
            Ok(request) => answer(request, connection),
        }
    }
}

/// Begins to answer. What has to keep its order has kept it when this returns.
fn answer(request: Request, connection: &Rc<Connection>) {
    let Request { method, params, id } = request;
    let handled = methods::handle(connection, &method, params, &id);
    match handled {
        Handled::Now(answer) => connection.outbox.put(Kind::Answer, reply(answer, id)),
        Handled::Said => {}
        Handled::Later(work) => {
            let promise = connection.outbox.promise();
            spawn_local(async move {
                let answer = work.await;
                if let Err(why) = &answer {
                    telling::detail(|| format!("{method}: {why}"));
                }
                promise.keep(reply(answer, id));
            });
        }
    }
}
