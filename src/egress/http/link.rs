//! A connection to a host that requests are sent over, one after the other.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::body::{Upload, because};
use super::wire::{Clock, Far, FarEnd};
use super::wrong::Wrong;
use super::{BUFFER, HEADERS};
use crate::egress::accounts::Entry;
use crate::egress::gate::{Ask, Gate, Outside};
use crate::policy::egress::{Class, Host, Refusal, classify};

const HANDSHAKE: Duration = Duration::from_secs(15);
/// A link that nobody asked anything for so long is given up.
const UNUSED: Duration = Duration::from_secs(55);
/// Until the host has said the last word of the answer before.
const SETTLES: Duration = Duration::from_secs(1);

/// What is left of a link after both sides agreed on another protocol.
pub(super) type Switched = (FarEnd, Bytes);

pub(super) struct Link {
    pub(super) entry: Rc<Entry>,
    host: Host,
    port: u16,
    is_tls: bool,
    sender: SendRequest<Upload>,
    driver: JoinHandle<Option<Switched>>,
    use_of: Rc<Use>,
}

/// Whether something is going on over a link.
#[derive(Debug)]
struct Use {
    requests: Cell<u32>,
    clock: Rc<Clock>,
}

/// Held for as long as a request and its answer take.
#[derive(Debug)]
pub(super) struct InUse(Rc<Use>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
        self.0.clock.touch();
    }
}

/// Why there is no link.
#[derive(Debug)]
pub(super) enum NoLink {
    /// The gate said so, and wrote it down.
    Refused(Refusal),
    /// It broke after the host was reached.
    Broken(Rc<Entry>, Wrong),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({}:{})", self.host, self.port)
    }
}

impl Link {
    pub(super) async fn open(gate: &Rc<Gate>, ask: &Ask, is_tls: bool) -> Result<Self, NoLink> {
        let outside = gate.open(ask).await.map_err(NoLink::Refused)?;
        Self::over(outside, gate, ask, is_tls).await
    }

    /// Over a connection that is there already.
    pub(super) async fn over(
        outside: Outside,
        gate: &Rc<Gate>,
        ask: &Ask,
        is_tls: bool,
    ) -> Result<Self, NoLink> {
        let entry = Rc::new(outside.entry);
        let far = Far::new(outside.stream, &entry);
        let broken = |wrong| NoLink::Broken(Rc::clone(&entry), wrong);
        let end = match is_tls {
            true => encrypt(far, gate, &ask.host).await.map_err(broken)?,
            false => FarEnd::Plain(far),
        };
        let (sender, connection) = Builder::new()
            .preserve_header_case(true)
            .max_headers(HEADERS)
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(end))
            .await
            .map_err(|error| broken(failure(&ask.host, &error)))?;
        let use_of = Rc::new(Use {
            requests: Cell::new(0),
            clock: Clock::new(),
        });
        let driver = spawn_local(drive(connection, Rc::clone(&entry), Rc::clone(&use_of)));
        Ok(Self {
            entry,
            host: ask.host.clone(),
            port: ask.port,
            is_tls,
            sender,
            driver,
            use_of,
        })
    }

    pub(super) fn is_to(&self, ask: &Ask) -> bool {
        self.host == ask.host && self.port == ask.port
    }

    /// Whether it could take a request this very moment.
    pub(super) fn is_free(&self) -> bool {
        self.sender.is_ready()
    }

    pub(super) fn is_over(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether it can be used again, once the answer before is through.
    pub(super) async fn settles(&mut self) -> bool {
        matches!(timeout(SETTLES, self.sender.ready()).await, Ok(Ok(())))
    }

    /// Whether nobody on the way can read along: it is encrypted, or it stays on networks that
    /// are not the internet, which only rules that name them lead to.
    pub(super) fn is_private(&self) -> bool {
        let address = self.entry.address();
        self.is_tls || address.is_some_and(|address| classify(address) != Class::Public)
    }

    /// Sends a request. One that was not sent at all comes back.
    pub(super) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<(Response<Incoming>, InUse), Failure> {
        self.use_of.requests.set(self.use_of.requests.get() + 1);
        let in_use = InUse(Rc::clone(&self.use_of));
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok((response, in_use)),
            Err(mut error) => {
                let unsent = error.take_message();
                let wrong = failure(&self.host, error.error());
                Err(Failure {
                    unsent: unsent.map(Box::new),
                    is_revoked: self.entry.is_revoked(),
                    wrong,
                })
            }
        }
    }

    /// The connection itself, after the host agreed to speak something else.
    pub(super) async fn switched(self) -> Option<(Switched, Rc<Entry>)> {
        drop(self.sender);
        let switched = self.driver.await.ok()??;
        Some((switched, self.entry))
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) unsent: Option<Box<Request<Upload>>>,
    pub(super) is_revoked: bool,
    pub(super) wrong: Wrong,
}

/// Moves what there is to move, until the host hangs up, the rules change, or nobody needs it.
async fn drive(
    mut connection: Connection<TokioIo<FarEnd>, Upload>,
    entry: Rc<Entry>,
    use_of: Rc<Use>,
) -> Option<Switched> {
    let unused = async {
        loop {
            use_of.clock.quiet(UNUSED).await;
            if use_of.requests.get() == 0 {
                break;
            }
            use_of.clock.touch();
        }
    };
    tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => ended.ok()?,
        () = entry.revoked() => return None,
        () = unused => return None,
    }
    let parts = connection.into_parts();
    Some((parts.io.into_inner(), parts.read_buf))
}

async fn encrypt(far: Far, gate: &Gate, host: &Host) -> Result<FarEnd, Wrong> {
    let no_roots = || Wrong::unreachable("the gateway has no certificates to check hosts by");
    let config = gate.http.outward.clone().ok_or_else(no_roots)?;
    let name = match host {
        Host::Name(name) => ServerName::try_from(name.to_string()).ok(),
        Host::Address(address) => Some(ServerName::from(*address)),
    };
    let name = name.ok_or_else(|| Wrong::unreachable("a host by this name has no certificate"))?;
    let greeted = TlsConnector::from(config).connect(name, far);
    match timeout(HANDSHAKE, greeted).await {
        Ok(Ok(stream)) => Ok(FarEnd::Tls(Box::new(stream))),
        Ok(Err(error)) => Err(Wrong {
            word: "tls-failed",
            ..Wrong::unreachable(&format!(
                "{host} was reached, but no encrypted connection could be made: {error}"
            ))
        }),
        Err(_) => Err(Wrong {
            word: "tls-failed",
            ..Wrong::unreachable(&format!("{host} was reached, but did not greet in time"))
        }),
    }
}

fn failure(host: &Host, error: &hyper::Error) -> Wrong {
    Wrong {
        word: "no-answer",
        ..Wrong::unreachable(&format!(
            "{host} was reached, but did not answer as HTTP does: {}",
            because(error)
        ))
    }
}
