//! The app's side of the conversation, for `doctor` and tests: asks one thing at a time, listens to
//! events, and keeps its finger on the helper's pulse.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use serde_json::{Value, json};

/// The longest message either side takes.
const LONGEST: usize = 10 << 20;
const CHUNK: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("nobody answers at {0}")]
    Nobody(String, #[source] io::Error),
    #[error("the helper belongs to another user, number {0}")]
    Stranger(u32),
    #[error("the helper did not answer `{method}` within {patience:?}")]
    Late { method: String, patience: Duration },
    #[error("the helper hung up")]
    Closed,
    #[error("the helper refused: {0}")]
    Refused(String),
    #[error("the helper's words make no sense: {0}")]
    Nonsense(String),
    #[error("the line to the helper broke")]
    Broken(#[from] io::Error),
}

/// Who serves a socket, as the kernel noted when it began to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub pid: i32,
    pub uid: u32,
    /// What it runs, if that may be looked at.
    pub program: Option<PathBuf>,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    server: Server,
    asked: u64,
    /// What came and is not a whole message yet.
    unread: Vec<u8>,
}

impl Client {
    /// Only to a helper of the same user, as the app insists on.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        let nobody = |error| ClientError::Nobody(socket.display().to_string(), error);
        let stream = UnixStream::connect(socket).map_err(nobody)?;
        let peer = getsockopt(&stream, sockopt::PeerCredentials).map_err(io::Error::from)?;
        if peer.uid() != nix::unistd::getuid().as_raw() {
            return Err(ClientError::Stranger(peer.uid()));
        }
        let server = Server {
            pid: peer.pid(),
            uid: peer.uid(),
            program: std::fs::read_link(format!("/proc/{}/exe", peer.pid())).ok(),
        };
        Ok(Self {
            stream,
            server,
            asked: 0,
            unread: Vec::new(),
        })
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The result of a call. Answers to earlier ones, which nobody waits for any more, are let go.
    pub fn ask(
        &mut self,
        method: &str,
        params: Value,
        patience: Duration,
    ) -> Result<Value, ClientError> {
        let until = Instant::now() + patience;
        let late = || ClientError::Late {
            method: method.to_owned(),
            patience,
        };
        let id = match self.send(method, params, until) {
            Err(ClientError::Broken(error)) if is_late(&error) => return Err(late()),
            sent => sent?,
        };
        loop {
            let mut message = self.message(until)?.ok_or_else(late)?;
            if message["id"] != id {
                continue;
            }
            return match message["success"].as_bool() {
                Some(true) => Ok(message["result"].take()),
                Some(false) => {
                    let why = message["error"].as_str().unwrap_or("without a reason");
                    Err(ClientError::Refused(why.to_owned()))
                }
                None => Err(ClientError::Nonsense(
                    "an answer without `success`".to_owned(),
                )),
            };
        }
    }

    /// Turns the connection into a stream of events.
    pub fn subscribe(mut self, params: Value, patience: Duration) -> Result<Events, ClientError> {
        self.ask("subscribeEvents", params, patience)?;
        Ok(Events(self))
    }

    /// Sends a call; its number.
    fn send(&mut self, method: &str, params: Value, until: Instant) -> Result<u64, ClientError> {
        self.asked += 1;
        let body = json!({ "method": method, "params": params, "id": self.asked }).to_string();
        let length = u32::try_from(body.len())
            .ok()
            .filter(|_| body.len() <= LONGEST);
        let length =
            length.ok_or_else(|| ClientError::Nonsense("too long to be sent".to_owned()))?;
        let frame = [&length.to_be_bytes()[..], body.as_bytes()].concat();
        // A helper that reads nothing any more must not hold us up.
        self.stream.set_write_timeout(Some(left(until)))?;
        self.stream.write_all(&frame)?;
        Ok(self.asked)
    }

    /// The next message; nothing if none came in time.
    fn message(&mut self, until: Instant) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(Some(message));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left(until)))?;
            let before = self.unread.len();
            self.unread.resize(before + CHUNK, 0);
            let read = self.stream.read(&mut self.unread[before..]);
            self.unread.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ClientError::Closed),
                Ok(_) => {}
                Err(error) if is_late(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ClientError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_message(&mut self) -> Result<Option<Value>, ClientError> {
        let Some(head) = self.unread.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > LONGEST {
            return Err(ClientError::Nonsense(format!(
                "a message of {length} bytes"
            )));
        }
        let Some(body) = self.unread.get(4..4 + length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body);
        self.unread.drain(..4 + length);
        match message {
            Ok(message @ Value::Object(_)) => Ok(Some(message)),
            Ok(_) => Err(ClientError::Nonsense(
                "a message that is no object".to_owned(),
            )),
            Err(error) => Err(ClientError::Nonsense(error.to_string())),
        }
    }
}

fn left(until: Instant) -> Duration {
    // Nothing at all would mean for ever.
    until
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}

fn is_late(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// What a helper tells without being asked.
#[derive(Debug)]
pub struct Events(Client);

impl Events {
    /// The next event; nothing if none came in time.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Value>, ClientError> {
        self.0.message(Instant::now() + patience)
    }
}

/// How the app finds out that its helper is gone.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat {
    pub every: Duration,
    pub patience: Duration,
    /// So many without an answer in a row, and the helper is lost.
    pub misses: u32,
}

impl Heartbeat {
    pub const APP: Self = Self {
        every: Duration::from_secs(2),
        patience: Duration::from_secs(2),
        misses: 3,
    };

    /// Pings until the helper is lost, or until whoever hears the answers has had enough.
    pub fn watch<T>(
        &self,
        client: &mut Client,
        mut heard: impl FnMut(Value) -> ControlFlow<T>,
    ) -> Result<T, ClientError> {
        let mut missed = 0;
        loop {
            let began = Instant::now();
            match client.ask("isGuestConnected", json!({}), self.patience) {
                Ok(answer) => {
                    missed = 0;
                    if let ControlFlow::Break(value) = heard(answer) {
                        return Ok(value);
                    }
                }
                Err(late @ ClientError::Late { .. }) => {
                    missed += 1;
                    if missed >= self.misses {
                        return Err(late);
                    }
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(self.every.saturating_sub(began.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const FAST: Heartbeat = Heartbeat {
        every: Duration::from_millis(5),
        patience: Duration::from_millis(200),
        misses: 3,
    };

    /// A server in a thread: answers each call, numbered from 0, with the bytes it is told to.
    fn serving(
        answer: impl Fn(u64, &Value) -> Vec<u8> + Send + 'static,
    ) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<u64>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = 0;
            let mut head = [0; 4];
            while stream.read_exact(&mut head).is_ok() {
                let mut body = vec![0; u32::from_be_bytes(head) as usize];
                stream.read_exact(&mut body).unwrap();
                let call = serde_json::from_slice(&body).unwrap();
                let _ = stream.write_all(&answer(asked, &call));
                asked += 1;
            }
            asked
        });
        (folder, path, served)
    }

    fn frame(value: &Value) -> Vec<u8> {
        let body = value.to_string();
        [&(body.len() as u32).to_be_bytes()[..], body.as_bytes()].concat()
    }

    fn connected(call: &Value) -> Vec<u8> {
        frame(&json!({ "success": true, "result": { "connected": true }, "id": call["id"] }))
    }

    #[test]
    fn three_misses_in_a_row_and_the_helper_is_lost() {
        // The third is missed and the fourth is not; from the fifth on there is nothing.
        let (_folder, path, served) = serving(|at, call| match at {
            0 | 1 | 3 => connected(call),
            _ => Vec::new(),
        });
        let mut client = Client::connect(&path).unwrap();
        let mut heard = 0;
        let lost = FAST.watch(&mut client, |answer| {
            assert_eq!(answer["connected"], true);
            heard += 1;
            ControlFlow::<()>::Continue(())
        });
        assert!(matches!(lost, Err(ClientError::Late { .. })), "{lost:?}");
        drop(client);
        assert_eq!((heard, served.join().unwrap()), (3, 7));
        assert_eq!(Heartbeat::APP.every, Duration::from_secs(2));
        assert_eq!(Heartbeat::APP.misses, 3);
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_taken_for_the_next_one() {
        let (_folder, path, _served) = serving(|at, call| match at {
            0 => Vec::new(),
            // Both at once, the old one first.
            _ => {
                let old =
                    frame(&json!({ "success": true, "result": { "connected": false }, "id": 1 }));
                [old, connected(call)].concat()
            }
        });
        let mut client = Client::connect(&path).unwrap();
        let first = FAST.watch(&mut client, ControlFlow::Break).unwrap();
        assert_eq!(first["connected"], true);
    }

    #[test]
    fn a_helper_that_hangs_up_refuses_or_babbles_is_told_apart() {
        let ask = |answer: fn(u64, &Value) -> Vec<u8>| {
            let (_folder, path, _served) = serving(answer);
            let mut client = Client::connect(&path).unwrap();
            assert_eq!(client.server().pid, nix::unistd::getpid().as_raw());
            client
                .ask("isRunning", json!({}), Duration::from_secs(10))
                .unwrap_err()
        };
        let refused =
            ask(|_, call| frame(&json!({ "success": false, "error": "no", "id": call["id"] })));
        assert!(matches!(refused, ClientError::Refused(why) if why == "no"));
        for babble in [
            &[0, 0, 0, 0][..],
            &[255, 255, 255, 255],
            &[0, 0, 0, 2, b'{', b'{'],
            &[0, 0, 0, 2, b'[', b']'],
        ] {
            let answer = babble.to_owned();
            let (_folder, path, _served) = serving(move |_, _| answer.clone());
            let mut client = Client::connect(&path).unwrap();
            let error = client
                .ask("x", json!({}), Duration::from_secs(10))
                .unwrap_err();
            assert!(matches!(error, ClientError::Nonsense(_)), "{error:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        assert!(matches!(
            Client::connect(&path),
            Err(ClientError::Nobody(..))
        ));
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&path).unwrap();
        drop(listener.accept().unwrap());
        let error = client
            .ask("x", json!({}), Duration::from_secs(10))
            .unwrap_err();
        assert!(
            matches!(error, ClientError::Closed | ClientError::Broken(_)),
            "{error:?}"
        );
    }

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let (_folder, path, _served) = serving(|_, call| {
            let ack = frame(&json!({ "success": true, "id": call["id"] }));
            let events = (0..3).map(|number| {
                frame(&json!({ "type": "stdout", "data": "x".repeat(number * 300_000) }))
            });
            [vec![ack], events.collect()].concat().concat()
        });
        let client = Client::connect(&path).unwrap();
        let mut events = client
            .subscribe(json!({}), Duration::from_secs(10))
            .unwrap();
        for number in 0..3 {
            let event = events.next(Duration::from_secs(10)).unwrap().unwrap();
            assert_eq!(event["data"].as_str().unwrap().len(), number * 300_000);
        }
        assert!(events.next(Duration::from_millis(1)).unwrap().is_none());
    }
}
