//! The app's side of the socket: frames, requests with and without a number, and a listener. Every
//! wait ends, so that a helper that says nothing fails a test and hangs none.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ground::patience;

/// The longest body that either side may send.
pub(crate) const LONGEST: usize = 10_485_760;

pub(crate) fn frame(body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// A connection with requests on it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) stream: UnixStream,
    next: u64,
    /// Replies to requests that were not asked for yet.
    early: Vec<Value>,
}

impl Line {
    #[track_caller]
    pub(crate) fn to(socket: &Path) -> Self {
        Self::over(UnixStream::connect(socket).unwrap())
    }

    pub(crate) fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(patience())).unwrap();
        stream.set_write_timeout(Some(patience())).unwrap();
        Self {
            stream,
            next: 0,
            early: Vec::new(),
        }
    }

    #[track_caller]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    #[track_caller]
    pub(crate) fn say(&mut self, message: &Value) {
        self.put(&frame(message.to_string().as_bytes()));
    }

    pub(crate) fn says_no_more(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The body of the next frame, or none if the connection ended between two.
    #[track_caller]
    pub(crate) fn body(&mut self) -> Option<Vec<u8>> {
        let mut head = [0u8; 4];
        let mut got = 0;
        while got < head.len() {
            match self.stream.read(&mut head[got..]) {
                Ok(0) if got == 0 => return None,
                Ok(0) => panic!("it ends within a length"),
                Ok(count) => got += count,
                Err(error) if error.kind() == ErrorKind::ConnectionReset && got == 0 => {
                    return None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("nothing was heard: {error}"),
            }
        }
        let length = u32::from_be_bytes(head) as usize;
        assert!((1..=LONGEST).contains(&length), "a frame of {length} bytes");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        Some(body)
    }

    /// The next message as it comes.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let body = self.body()?;
        let text = std::str::from_utf8(&body).expect("a frame is text");
        Some(serde_json::from_str(text).expect("a frame is JSON"))
    }

    /// Nothing more is said; the other side has closed.
    #[track_caller]
    pub(crate) fn is_closed(&mut self) {
        if let Some(more) = self.hear() {
            panic!("it goes on: {more}");
        }
    }

    /// Sends a request; its number.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.say(&json!({"method": method, "params": params, "id": self.next}));
        self.next
    }

    /// The reply with this number; others that come before are kept.
    #[track_caller]
    pub(crate) fn reply(&mut self, number: u64) -> Value {
        if let Some(at) = self.early.iter().position(|early| early["id"] == number) {
            return self.early.remove(at);
        }
        loop {
            let reply = self.hear().expect("a reply, and not the end");
            if reply["id"] == number {
                return reply;
            }
            self.early.push(reply);
        }
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let number = self.request(method, params);
        let reply = self.reply(number);
        let success = reply["success"].as_bool().expect("it says whether");
        assert_eq!(success, reply.get("error").is_none(), "{method}: {reply}");
        reply
    }

    /// Asks, and it is done: the result.
    #[track_caller]
    pub(crate) fn ok(&mut self, method: &str, params: Value) -> Value {
        let reply = self.ask(method, params);
        assert_eq!(reply["success"], true, "{method}: {reply}");
        reply["result"].clone()
    }

    /// Asks, and it is refused: why.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: Value) -> String {
        let reply = self.ask(method, params);
        assert_eq!(reply["success"], false, "{method}: {reply}");
        let error = reply["error"].as_str().expect("an error is text");
        assert!(!error.is_empty());
        error.to_owned()
    }

    /// Starts a program; the names of mounts that could not be made.
    #[track_caller]
    pub(crate) fn spawn(&mut self, params: Value) -> Vec<String> {
        let result = self.ok("spawn", params);
        let failed = result["failedMounts"].as_array();
        let failed = failed.unwrap_or_else(|| panic!("no failedMounts: {result}"));
        failed
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    }

    #[track_caller]
    pub(crate) fn is_connected(&mut self) -> bool {
        let result = self.ok("isGuestConnected", json!({}));
        result["connected"].as_bool().unwrap()
    }
}

/// A connection for one request without a number, after which its writer falls silent.
#[track_caller]
pub(crate) fn once(socket: &Path, method: &str, params: Value) -> Value {
    let mut line = Line::to(socket);
    line.say(&json!({"method": method, "params": params}));
    line.says_no_more();
    let reply = line.hear().expect("an answer");
    assert!(reply.get("id").is_none(), "{reply}");
    line.is_closed();
    reply
}

/// What a program has said and how it ended.
#[derive(Debug, Default, Clone)]
pub(crate) struct Done {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) exit: Option<Value>,
}

impl Done {
    #[track_caller]
    pub(crate) fn code(&self) -> i64 {
        let exit = self.exit.as_ref().expect("it has ended");
        exit["exitCode"].as_i64().expect("a number")
    }

    #[track_caller]
    pub(crate) fn signal(&self) -> Option<&str> {
        let exit = self.exit.as_ref().expect("it has ended");
        exit.get("signal").expect("it says which").as_str()
    }

    /// It ended well: what it said.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code(), 0, "{self:?}");
        self.out
    }

    #[track_caller]
    pub(crate) fn ended(&self, code: i64, signal: Option<&str>) {
        assert_eq!((self.code(), self.signal()), (code, signal), "{self:?}");
    }
}

/// A subscribed connection. A thread of its own reads it, so that it never holds anybody up.
#[derive(Debug)]
pub(crate) struct Listener {
    events: Receiver<Value>,
    /// Events that belong to no process, in order.
    pub(crate) states: Vec<Value>,
    running: HashMap<String, Done>,
    stream: UnixStream,
}

impl Listener {
    #[track_caller]
    pub(crate) fn to(socket: &Path, params: Value) -> Self {
        let mut line = Line::to(socket);
        line.say(&json!({"method": "subscribeEvents", "params": params}));
        let ack = line.hear().expect("an acknowledgement");
        assert_eq!(ack["success"], true, "{ack}");
        assert!(ack.get("type").is_none(), "{ack}");
        let stream = line.stream.try_clone().unwrap();
        let (sender, events) = channel();
        // Nothing may be said for long: then it waits, and ends with the connection.
        line.stream.set_read_timeout(None).unwrap();
        std::thread::spawn(move || {
            while let Some(event) = line.hear() {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Self {
            events,
            states: Vec::new(),
            running: HashMap::new(),
            stream,
        }
    }

    /// The next event as it comes; none if there is none in time, or the connection has ended.
    pub(crate) fn next_within(&mut self, time: Duration) -> Option<Value> {
        match self.events.recv_timeout(time) {
            Ok(event) => {
                self.note(&event);
                Some(event)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    #[track_caller]
    fn note(&mut self, event: &Value) {
        let kind = event["type"].as_str().expect("an event has a type");
        assert!(event.get("success").is_none() && event.get("method").is_none());
        let id = event["id"].as_str();
        if !["stdout", "stderr", "exit", "error"].contains(&kind) {
            self.states.push(event.clone());
            return;
        }
        let done = self.running.entry(id.expect("an id").into()).or_default();
        // Exactly one end, and it is the last of all.
        assert!(done.exit.is_none(), "after its end: {event}");
        match kind {
            "stdout" => done.out += event["data"].as_str().unwrap(),
            "stderr" => done.err += event["data"].as_str().unwrap(),
            "exit" => done.exit = Some(event.clone()),
            _ => {}
        }
    }

    /// Waits for a program's end, and forgets it.
    #[track_caller]
    pub(crate) fn finished(&mut self, id: &str) -> Done {
        self.until(&format!("{id} ends"), |so_far| so_far.of(id).exit.is_some());
        self.running.remove(id).unwrap()
    }

    /// What a program has said so far.
    pub(crate) fn of(&self, id: &str) -> Done {
        self.running.get(id).cloned().unwrap_or_default()
    }

    pub(crate) fn knows(&self, id: &str) -> bool {
        self.running.contains_key(id)
    }

    /// Waits until a program has said this.
    #[track_caller]
    pub(crate) fn says(&mut self, id: &str, text: &str) {
        self.until(&format!("{id} says {text:?}"), |so_far| {
            let done = so_far.running.get(id);
            done.is_some_and(|done| done.out.contains(text))
        });
    }

    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + patience();
        while !is_so(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.next_within(left).is_none() {
                let said: String = format!("{:?}", self.running).chars().take(2000).collect();
                panic!("not so in time: {what}; so far {said}");
            }
        }
    }

    /// Takes in whatever comes for so long; for the cases that are about silence.
    pub(crate) fn listen(&mut self, time: Duration) -> Vec<Value> {
        let deadline = Instant::now() + time;
        let mut heard = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next_within(left) {
                Some(event) => heard.push(event),
                None => return heard,
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Requests and events of one app.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) line: Line,
    pub(crate) events: Listener,
}

impl App {
    /// Runs a program to its end; every mount has to work.
    #[track_caller]
    pub(crate) fn run(&mut self, params: Value) -> Done {
        let id = params["id"].as_str().unwrap().to_owned();
        let failed = self.line.spawn(params);
        assert!(failed.is_empty(), "failed: {failed:?}");
        self.events.finished(&id)
    }
}
