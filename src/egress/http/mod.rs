//! HTTP/1 at the box's doors: as a proxy, in the place of a host, and as Claude's own gateway.
//!
//! Requests are read, checked and written anew, so that a host sees one reading of them and the
//! same as we did. Bodies stream through. Nothing is added that would tell a host of the box but
//! the secrets that are for it.

mod body;
mod claude;
mod errand;
mod first;
mod headers;
mod link;
mod means;
mod record;
mod switch;
mod target;
mod visit;
mod wire;
mod wrong;

#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod claude_tests;
#[cfg(test)]
mod first_tests;
#[cfg(test)]
mod ground_tests;
#[cfg(test)]
mod headers_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod origin_tests;
#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod smuggling_tests;
#[cfg(test)]
mod target_tests;

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use super::doors;
use super::gate::{Ask, Gate, Outside};
use crate::policy::egress::{Host, Reason};
use body::Body;
use visit::{Manner, Next, Visit};
use wire::{Clock, Near};

pub use claude::ClaudeTarget;
pub use means::Means;

/// A request's headers: their number, their size, and how long they may take. The time counts
/// from the answer before, so it is also how long a connection is kept that nothing is asked on.
const HEADERS: usize = 256;
const HEAD: usize = 64 << 10;
const HEAD_TIME: Duration = Duration::from_secs(75);
/// What is held of a body, each way.
const BUFFER: usize = 128 << 10;
/// Nothing moved between the box and us for so long while a request was on its way. Models think
/// for minutes before their first word.
const QUIET: Duration = Duration::from_secs(20 * 60);
const HANDSHAKE: Duration = Duration::from_secs(30);
/// For the last answer to arrive before the connection is closed under whoever is still sending.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

/// 127.0.0.1:3128.
pub(super) async fn serve_proxy(mut inside: TcpStream, gate: Rc<Gate>) {
    let Ok(from) = inside.peer_addr() else {
        return;
    };
    let Some(first) = greeted(&mut inside).await else {
        return;
    };
    let left = attend(inside, first, Manner::Proxy, from, None, &gate).await;
    if let Some(left) = left {
        match left.next {
            Some(Next::Tunnel(ask, outside)) => {
                let first = left.first.into();
                doors::through_after(left.stream, first, outside, &ask, &gate).await;
            }
            Some(Next::Switch(switched, entry)) => {
                switch::pass_on(left.stream, left.first, switched, &entry).await;
            }
            None => linger(left.stream).await,
        }
    }
}

/// A connection that was meant for a host itself and turned out to be plain HTTP.
pub(super) async fn serve_origin(inside: TcpStream, first: Vec<u8>, ask: Ask, gate: Rc<Gate>) {
    serve_host(inside, first, None, ask, gate).await;
}

/// The same where the host has been dialled already.
pub(super) async fn serve_host(
    inside: TcpStream,
    first: Vec<u8>,
    outside: Option<Outside>,
    ask: Ask,
    gate: Rc<Gate>,
) {
    let from = ask.from;
    let manner = Manner::Host { ask, is_tls: false };
    let left = attend(inside, first, manner, from, outside, &gate).await;
    follow(left).await;
}

/// 127.0.0.1:3129.
pub(super) async fn serve_claude(mut inside: TcpStream, gate: Rc<Gate>) {
    let Ok(from) = inside.peer_addr() else {
        return;
    };
    let Some(first) = greeted(&mut inside).await else {
        return;
    };
    let left = attend(inside, first, Manner::Claude, from, None, &gate).await;
    follow(left).await;
}

/// Whether TLS to this host ends at the gateway.
pub(super) fn is_audited(host: &Host, gate: &Gate) -> bool {
    let authority = gate.http.authority.as_ref();
    authority.is_some_and(|authority| authority.speak_for(host).is_some())
}

/// A connection to a host that [`is_audited`], from the first byte of its TLS on.
pub(super) async fn serve_audited(
    inside: TcpStream,
    first: Vec<u8>,
    outside: Outside,
    ask: Ask,
    gate: Rc<Gate>,
) {
    let authority = gate.http.authority.as_ref();
    let Some(config) = authority.and_then(|authority| authority.speak_for(&ask.host)) else {
        return;
    };
    let clock = Clock::new();
    let near = Near::new(inside, first, &clock);
    let greeting = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), near);
    let Ok(Ok(greeting)) = timeout(HANDSHAKE, greeting).await else {
        return;
    };
    let hello = greeting.client_hello();
    let name = hello.server_name().map(str::to_owned);
    let is_other = |name: &String| Host::parse(name).as_ref() != Ok(&ask.host);
    if let Some(name) = name.filter(is_other) {
        let refusal = ask.refusal(Reason::OtherName(name), None);
        gate.refuse(&ask, &refusal);
        return;
    }
    let Ok(Ok(stream)) = timeout(HANDSHAKE, greeting.into_stream(config)).await else {
        return;
    };
    let from = ask.from;
    let manner = Manner::Host { ask, is_tls: true };
    let left = attend(stream, Vec::new(), manner, from, Some(outside), &gate).await;
    follow(left).await;
}

/// The first words of somebody who comes by themselves, if they are HTTP's.
async fn greeted(inside: &mut TcpStream) -> Option<Vec<u8>> {
    let first = first::read(inside, HEAD_TIME).await?;
    match first::check(&first) {
        Ok(()) => Some(first),
        Err(wrong) => {
            if inside.write_all(&wrong.bytes()).await.is_ok() {
                lingering(inside).await;
            }
            None
        }
    }
}

/// What a proxy says to these bytes whose gate lets nobody by; for those who throw them.
pub(super) async fn answers(bytes: &[u8]) -> Vec<u8> {
    if let Err(wrong) = first::check(bytes) {
        return wrong.bytes();
    }
    let gate = Gate::shut();
    let (mut inside, ours) = tokio::io::duplex(BUFFER);
    let from = SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), 1);
    let attended = attend(ours, bytes.to_vec(), Manner::Proxy, from, None, &gate);
    let hearing = async {
        let mut heard = Vec::new();
        let _ = inside.shutdown().await;
        let _ = inside.read_to_end(&mut heard).await;
        heard
    };
    let talked = async { drop(attended.await) };
    tokio::join!(hearing, talked).0
}

/// A connection after HTTP is over on it.
struct Left<T> {
    stream: T,
    /// Read ahead.
    first: Bytes,
    next: Option<Next>,
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

/// Answers requests until the connection is over or becomes something else.
async fn attend<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    first: Vec<u8>,
    manner: Manner,
    from: SocketAddr,
    outside: Option<Outside>,
    gate: &Rc<Gate>,
) -> Option<Left<T>> {
    // Programs may say that they have no more to ask and wait for the answer. From Claude the same
    // means that the answer is not wanted any more, and its host works hard for one.
    let may_be_done = !matches!(manner, Manner::Claude);
    let clock = Clock::new();
    let near = Near::new(stream, first, &clock);
    let visit = Rc::new(Visit {
        gate: Rc::clone(gate),
        manner,
        from,
        outside: RefCell::new(outside),
        kept: RefCell::default(),
        next: RefCell::default(),
    });
    let answering = {
        let visit = Rc::clone(&visit);
        service_fn(move |request| -> Answering {
            let visit = Rc::clone(&visit);
            Box::pin(async move { Ok(visit.answer(request).await) })
        })
    };
    let mut connection = Builder::new()
        .timer(TokioTimer::new())
        .half_close(may_be_done)
        .header_read_timeout(HEAD_TIME)
        .max_headers(HEADERS)
        .max_header_size(HEAD)
        .max_buf_size(BUFFER)
        .preserve_header_case(true)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(near), answering);
    tokio::select! {
        // Also after an error there may be an answer that has to arrive.
        _ = poll_fn(|cx| connection.poll_without_shutdown(cx)) => {}
        () = clock.quiet(QUIET) => return None,
    }
    let parts = connection.into_parts();
    let (stream, rest) = parts.io.into_inner().into_parts();
    let first = match rest.is_empty() {
        true => parts.read_buf,
        false => [parts.read_buf, rest].concat().into(),
    };
    Some(Left {
        stream,
        first,
        next: visit.next.take(),
    })
}

/// What comes after HTTP where nobody can ask for a tunnel.
async fn follow<T: AsyncRead + AsyncWrite + Unpin>(left: Option<Left<T>>) {
    match left {
        None => {}
        Some(Left {
            stream,
            first,
            next: Some(Next::Switch(switched, entry)),
        }) => switch::pass_on(stream, first, switched, &entry).await,
        Some(Left { stream, .. }) => linger(stream).await,
    }
}

/// Closes without a reset: whoever is still sending would lose the answer by it.
async fn linger<T: AsyncRead + AsyncWrite + Unpin>(mut stream: T) {
    lingering(&mut stream).await;
}

async fn lingering<T: AsyncRead + AsyncWrite + Unpin>(stream: &mut T) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut nobody_reads = [0; 4096];
    let mut left = LINGER_BYTES;
    let draining = async {
        while let Ok(count @ 1..) = stream.read(&mut nobody_reads).await {
            left = left.saturating_sub(count);
            if left == 0 {
                break;
            }
        }
    };
    let _ = timeout(LINGER, draining).await;
}
