//! What the tests of the doors stand on: a real gate, real sockets on loopback, hosts that answer
//! byte by byte what they are told to.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::egress::accounts::Accounts;
use crate::egress::dial::Dialer;
use crate::egress::gate::{Ask, Gate, Way};
use crate::egress::http::{self, Means};
use crate::egress::names::Names;
use crate::egress::pace::Pace;
use crate::egress::resolve::Resolver;
use crate::egress::{Connection, Hear, Request, Secrets, StandIns};
use crate::policy::egress::{Host, HostPattern, Name, Rule, Rules, SecretSpec};

pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Runs a test in a runtime like the gateway's. Nothing here takes so long.
pub(super) fn run(test: impl Future<Output = ()>) {
    run_in(false, test);
}

/// The same, with a clock that jumps to the next alarm whenever nobody has anything to do.
pub(super) fn run_fast(test: impl Future<Output = ()>) {
    run_in(true, test);
}

fn run_in(is_fast: bool, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(is_fast)
        .build()
        .unwrap();
    let limit = Duration::from_secs(if is_fast { 24 * 60 * 60 } else { 60 });
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(limit, test).await.expect("too slow");
        // What a task found wrong is the test's failure as well.
        for task in TASKS.take() {
            task.abort();
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    });
}

thread_local! {
    static TASKS: RefCell<Vec<JoinHandle<()>>> = RefCell::default();
}

pub(super) fn rule(pattern: &str) -> Rule {
    let said_by = format!("--allow-host {pattern}");
    Rule::new(HostPattern::parse(pattern).unwrap(), said_by)
}

/// A gate whose rules allow these patterns. Names of hosts are known by `name`.
pub(super) fn gate(allow: &[String], means: Means) -> Rc<Gate> {
    gate_and_pace(allow, means, None)
}

fn gate_and_pace(allow: &[String], means: Means, pace: Option<Pace>) -> Rc<Gate> {
    let rules = Rules {
        allow: allow.iter().map(|pattern| rule(pattern)).collect(),
        deny: Vec::new(),
    };
    Rc::new(Gate {
        rules: rules.into(),
        names: Names::new(16).into(),
        accounts: Accounts::new(64, pace),
        resolver: Resolver::new(),
        dialer: Dialer::new(None),
        http: means,
    })
}

/// A gate that lets one host by, under the name `api.test`.
pub(super) fn gate_to(host: &TestHost) -> Rc<Gate> {
    gate_with(host, Means::default())
}

pub(super) fn gate_with(host: &TestHost, means: Means) -> Rc<Gate> {
    gate_for(host, means, None)
}

pub(super) fn gate_at(host: &TestHost, pace: Option<Pace>) -> Rc<Gate> {
    gate_for(host, Means::default(), pace)
}

fn gate_for(host: &TestHost, means: Means, pace: Option<Pace>) -> Rc<Gate> {
    let port = host.port;
    let allow = [format!("api.test:{port}"), format!("127.0.0.1:{port}")];
    let gate = gate_and_pace(&allow, means, pace);
    name(&gate, "api.test");
    gate
}

/// Gives a name the address of loopback.
pub(super) fn name(gate: &Gate, name: &str) {
    let name = Name::parse(name).unwrap();
    gate.resolver.remember(&name, &[LOOPBACK]);
}

/// A door of the box: the proxy's.
pub(super) async fn proxy(gate: &Rc<Gate>) -> SocketAddr {
    let gate = Rc::clone(gate);
    door(move |stream| spawn(http::serve_proxy(stream, Rc::clone(&gate)))).await
}

pub(super) async fn claude(gate: &Rc<Gate>) -> SocketAddr {
    let gate = Rc::clone(gate);
    door(move |stream| spawn(http::serve_claude(stream, Rc::clone(&gate)))).await
}

/// What was meant for this host.
pub(super) async fn origin(gate: &Rc<Gate>, host: &str, port: u16) -> SocketAddr {
    let gate = Rc::clone(gate);
    let host = Host::parse(host).unwrap();
    door(move |stream| {
        let ask = ask(&host, port, &stream);
        spawn(http::serve_origin(
            stream,
            Vec::new(),
            ask,
            Rc::clone(&gate),
        ));
    })
    .await
}

pub(super) fn ask(host: &Host, port: u16, stream: &TcpStream) -> Ask {
    Ask {
        way: Way::Redirect,
        host: host.clone(),
        port,
        from: stream.peer_addr().unwrap(),
    }
}

pub(super) fn spawn(serving: impl Future<Output = ()> + 'static) {
    let task = spawn_local(serving);
    TASKS.with_borrow_mut(|tasks| tasks.push(task));
}

pub(super) async fn door(serve: impl Fn(TcpStream) + 'static) -> SocketAddr {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream);
        }
    });
    at
}

/// What the books say so far, as connections that are over and requests.
pub(super) fn journal(gate: &Gate) -> (Vec<Connection>, Vec<Request>) {
    let (mut connections, mut requests) = (Vec::new(), Vec::new());
    while let Some(word) = gate.accounts.next_word() {
        match word {
            Hear::Over(connection) => connections.push(connection),
            Hear::Request { request, .. } => requests.push(request),
            _ => {}
        }
    }
    (connections, requests)
}

/// Secrets as `--secret` would have them, and the stand-in of the first.
pub(super) fn secrets(said: &[&str]) -> (Secrets, String) {
    let specs: Vec<SecretSpec> = said
        .iter()
        .map(|text| SecretSpec::parse(text).unwrap())
        .collect();
    let stand_ins = StandIns::new(&specs).unwrap();
    let secrets = Secrets::take(&specs, &stand_ins, |_| None).unwrap();
    let first = stand_ins.iter().find(|(name, _)| *name == specs[0].name);
    let stand_in = first.unwrap().1.to_owned();
    (secrets, stand_in)
}

/// A host outside.
pub(super) struct TestHost {
    pub(super) port: u16,
    /// Connections it has had.
    pub(super) visits: Rc<Cell<u32>>,
    /// Connections it is done with.
    pub(super) done: Rc<Cell<u32>>,
    /// Requests it has heard, whole.
    pub(super) heard: Rc<RefCell<Vec<String>>>,
}

impl TestHost {
    /// One that does as it is told with each connection.
    pub(super) async fn new<T: Future<Output = ()> + 'static>(
        serve: impl Fn(Talk<TcpStream>) -> T + 'static,
    ) -> Self {
        let visits = Rc::new(Cell::new(0));
        let done = Rc::new(Cell::new(0));
        let (count, finished) = (Rc::clone(&visits), Rc::clone(&done));
        let at = door(move |stream| {
            count.set(count.get() + 1);
            let served = serve(Talk::new(stream));
            let finished = Rc::clone(&finished);
            spawn(async move {
                served.await;
                finished.set(finished.get() + 1);
            });
        })
        .await;
        Self {
            port: at.port(),
            visits,
            done,
            heard: Rc::default(),
        }
    }

    /// One that gives this answer to whatever is asked, for as long as it is asked.
    pub(super) async fn answering(answer: &'static str) -> Self {
        let heard: Rc<RefCell<Vec<String>>> = Rc::default();
        let hearing = Rc::clone(&heard);
        let host = Self::new(move |mut talk| {
            let heard = Rc::clone(&hearing);
            async move {
                while let Some(message) = talk.message().await {
                    heard.borrow_mut().push(message.whole());
                    talk.say(answer).await;
                }
            }
        })
        .await;
        Self { heard, ..host }
    }

    /// Resolves when it is done with so many connections.
    pub(super) async fn is_done_with(&self, count: u32) {
        while self.done.get() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.borrow().clone()
    }
}

/// A message as it was on the wire: its head, and its body without the chunks' sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) head: String,
    pub(super) body: String,
    pub(super) trailers: String,
    /// The other side closed in the middle of it.
    pub(super) is_cut: bool,
}

impl Message {
    pub(super) fn whole(&self) -> String {
        format!("{}{}{}", self.head, self.body, self.trailers)
    }

    pub(super) fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (said, value) = line.split_once(':')?;
            said.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Either side of a conversation, in plain bytes.
pub(super) struct Talk<T> {
    pub(super) stream: T,
    read: Vec<u8>,
}

impl Talk<TcpStream> {
    pub(super) async fn to(at: SocketAddr) -> Self {
        Self::new(TcpStream::connect(at).await.unwrap())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Talk<T> {
    pub(super) fn new(stream: T) -> Self {
        Self {
            stream,
            read: Vec::new(),
        }
    }

    /// Whoever is not there any more does not hear it.
    pub(super) async fn say(&mut self, text: &str) {
        let _ = self.stream.write_all(text.as_bytes()).await;
        let _ = self.stream.flush().await;
    }

    async fn more(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.read).await, Ok(1..))
    }

    /// So many bytes; fewer if that is all there is.
    pub(super) async fn take(&mut self, count: usize) -> String {
        while self.read.len() < count && self.more().await {}
        let rest = self.read.split_off(self.read.len().min(count));
        String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap()
    }

    /// Up to and with this text; everything if it does not come.
    pub(super) async fn until(&mut self, text: &str) -> String {
        loop {
            let found = self
                .read
                .windows(text.len())
                .position(|part| part == text.as_bytes());
            if let Some(at) = found {
                return self.take(at + text.len()).await;
            }
            if !self.more().await {
                let all = self.read.len();
                return self.take(all).await;
            }
        }
    }

    pub(super) async fn rest(&mut self) -> String {
        self.take(usize::MAX).await
    }

    /// The next whole message; none when the other side is gone.
    pub(super) async fn message(&mut self) -> Option<Message> {
        self.message_for("").await
    }

    /// The answer to a request by this method.
    pub(super) async fn message_for(&mut self, method: &str) -> Option<Message> {
        let head = self.until("\r\n\r\n").await;
        if head.is_empty() {
            return None;
        }
        let mut message = Message {
            is_cut: !head.ends_with("\r\n\r\n"),
            head,
            body: String::new(),
            trailers: String::new(),
        };
        let is_answer = message.head.starts_with("HTTP/");
        let has_none = method == "HEAD"
            || is_answer && matches!(message.status(), 100..=199 | 204 | 304)
            || is_answer && method == "CONNECT" && message.status() == 200;
        if message.is_cut || has_none {
            return Some(message);
        }
        if message.header("transfer-encoding").is_some() {
            self.chunks(&mut message).await;
        } else if let Some(length) = message.header("content-length") {
            let length = length.parse().unwrap();
            message.body = self.take(length).await;
            message.is_cut = message.body.len() < length;
        } else if is_answer {
            message.body = self.rest().await;
        }
        Some(message)
    }

    async fn chunks(&mut self, message: &mut Message) {
        loop {
            let size = self.until("\r\n").await;
            let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
                message.is_cut = true;
                return;
            };
            if size == 0 {
                break;
            }
            message.body += &self.take(size).await;
            if self.take(2).await != "\r\n" {
                message.is_cut = true;
                return;
            }
        }
        loop {
            let line = self.until("\r\n").await;
            if line == "\r\n" {
                return;
            }
            message.trailers += &line;
            if line.is_empty() {
                message.is_cut = true;
                return;
            }
        }
    }

    pub(super) async fn ask(&mut self, request: &str) -> Message {
        self.say(request).await;
        let method = request.split(' ').next().unwrap();
        self.message_for(method).await.expect("no answer")
    }
}
