//! One visitor: a connection from the box, and what becomes of each request that comes over it.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};

use super::body::{Body, Download, Upload, Wanted};
use super::errand::{Errand, scheme};
use super::headers;
use super::link::{Failure, InUse, Link, NoLink, Switched};
use super::record::Record;
use super::target;
use super::wrong::{Wrong, wants_json};
use crate::egress::accounts::Entry;
use crate::egress::gate::{Ask, Gate, Outside, Way};

/// What the visitor takes this for.
#[derive(Debug)]
pub(super) enum Manner {
    /// A proxy: whatever the rules allow.
    Proxy,
    /// The host itself. TLS, if there was any, has been taken off.
    Host { ask: Ask, is_tls: bool },
    /// The gateway of Claude's own.
    Claude,
}

#[derive(Debug)]
pub(super) struct Visit {
    pub(super) gate: Rc<Gate>,
    pub(super) manner: Manner,
    pub(super) from: SocketAddr,
    /// A connection to the host that is there before the first request.
    pub(super) outside: RefCell<Option<Outside>>,
    /// Kept for as long as the same host is asked.
    pub(super) kept: RefCell<Option<Link>>,
    pub(super) next: RefCell<Option<Next>>,
}

/// What follows when a connection ceases to be HTTP.
#[derive(Debug)]
pub(super) enum Next {
    Tunnel(Ask, Outside),
    Switch(Switched, Rc<Entry>),
}

impl Visit {
    pub(super) async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response<Body> {
        let is_json = wants_json(request.headers());
        let (head, body) = request.into_parts();
        let answered = match (&self.manner, &head.method) {
            (Manner::Proxy, &Method::CONNECT) => self.connect(&head, &body).await,
            _ => self.pass_on(head, body).await,
        };
        answered.unwrap_or_else(|wrong| wrong.answer(is_json))
    }

    async fn connect(&self, head: &Parts, body: &Incoming) -> Result<Response<Body>, Wrong> {
        if !body.is_end_stream() {
            return Err(Wrong::request("CONNECT has no body"));
        }
        let ask = self.ask_for(Way::Http, target::of_connect(&head.uri)?);
        let opened = self.gate.open(&ask).await;
        let outside = opened.map_err(|refusal| Wrong::from(&refusal))?;
        self.next.replace(Some(Next::Tunnel(ask, outside)));
        Ok(Response::new(Body::empty()))
    }

    async fn pass_on(&self, mut head: Parts, body: Incoming) -> Result<Response<Body>, Wrong> {
        let errand = self.errand(&head)?;
        let is_websocket = headers::outgoing(&mut head, &errand.authority)?;
        head.uri = errand.path.clone();
        let is_empty = body.is_end_stream();
        let is_repeatable = is_empty && head.method.is_safe();
        let (mut upload, wanted) = match expects(&head.headers) && !is_empty {
            true => {
                let (upload, wanted) = Upload::held(body);
                (upload, Some(wanted))
            }
            false => (Upload::at_once(body), None),
        };
        let mut may_reuse = true;
        loop {
            let (mut link, is_fresh) = self.link(&errand, &head, may_reuse).await?;
            let mut record = self.record(&link.entry, &errand, &head);
            let mut sent = head.clone();
            self.add_secrets(&mut sent.headers, &errand, &link, &mut record);
            let mut request = Request::from_parts(sent, upload);
            if let Some(wanted) = wanted.clone() {
                hyper::ext::on_informational(&mut request, move |said| {
                    if said.status() == StatusCode::CONTINUE {
                        wanted.send_replace(Wanted::Yes);
                    }
                });
            }
            match link.send(request).await {
                Ok((response, in_use)) => {
                    let passing = Passing {
                        record,
                        in_use,
                        wanted,
                        is_websocket,
                    };
                    return self.receive(response, link, passing, &errand).await;
                }
                // The host hung up on a link that was kept, before it heard of this request.
                Err(Failure {
                    unsent: Some(request),
                    is_revoked: false,
                    ..
                }) if !is_fresh => {
                    record.forget();
                    upload = request.into_body();
                }
                Err(failure) if !is_fresh && is_repeatable && !failure.is_revoked => {
                    record.forget();
                    upload = Upload::none();
                }
                Err(failure) => return Err(self.failed(&failure, &errand, record)),
            }
            may_reuse = false;
        }
    }

    fn failed(&self, failure: &Failure, errand: &Errand, mut record: Record) -> Wrong {
        let rules = self.gate.rules.borrow();
        match rules.admit(&errand.ask.host, errand.ask.port) {
            Err(refusal) if failure.is_revoked => {
                let wrong = Wrong::from(&refusal);
                record.failed(&wrong.sentence);
                wrong
            }
            _ => {
                record.failed(&failure.wrong.sentence);
                failure.wrong.clone()
            }
        }
    }

    fn record(&self, entry: &Rc<Entry>, errand: &Errand, head: &Parts) -> Record {
        let (scheme, _) = scheme(errand.is_tls);
        let (authority, path) = (&errand.authority, &errand.path);
        Record::new(entry, &head.method, scheme, authority, path)
    }

    /// A link to the host, and whether it is a new one.
    async fn link(
        &self,
        errand: &Errand,
        head: &Parts,
        may_reuse: bool,
    ) -> Result<(Link, bool), Wrong> {
        let kept = match self.manner {
            Manner::Claude => self.gate.http.spare_link(&errand.ask),
            Manner::Proxy | Manner::Host { .. } => self.kept.take(),
        };
        if let Some(mut link) = kept.filter(|link| may_reuse && link.is_to(&errand.ask))
            && link.settles().await
        {
            return Ok((link, false));
        }
        let (ask, is_tls) = (&errand.ask, errand.is_tls);
        let made = match self.outside.take() {
            Some(outside) => Link::over(outside, &self.gate, ask, is_tls).await,
            None => Link::open(&self.gate, ask, is_tls).await,
        };
        match made {
            Ok(link) => Ok((link, true)),
            Err(no_link) => Err(self.no_link(no_link, errand, head)),
        }
    }

    fn no_link(&self, no_link: NoLink, errand: &Errand, head: &Parts) -> Wrong {
        match no_link {
            NoLink::Refused(refusal) => Wrong::from(&refusal),
            NoLink::Broken(entry, wrong) => {
                self.record(&entry, errand, head).failed(&wrong.sentence);
                wrong
            }
        }
    }

    fn add_secrets(
        &self,
        headers: &mut HeaderMap,
        errand: &Errand,
        link: &Link,
        record: &mut Record,
    ) {
        let secrets = &self.gate.http.secrets;
        let host = &errand.ask.host;
        if matches!(self.manner, Manner::Claude) {
            // Where to, and whether encrypted, was the user's choice and not the program's.
            secrets.add_for_claude(host, headers);
        } else if link.is_private() {
            secrets.add(host, headers);
        } else if secrets.has_for(host) {
            record.note("no secret was added, because the request was not encrypted");
        }
    }

    async fn receive(
        &self,
        response: Response<Incoming>,
        link: Link,
        mut passing: Passing,
        errand: &Errand,
    ) -> Result<Response<Body>, Wrong> {
        let (mut head, body) = response.into_parts();
        passing.record.answered(head.status);
        if let Some(wanted) = &passing.wanted {
            wanted.send_if_modified(|wanted| {
                let is_unknown = *wanted == Wanted::Unknown;
                if is_unknown {
                    *wanted = Wanted::Answered;
                }
                is_unknown
            });
        }
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        let agreed = passing.is_websocket && headers::is_websocket(&head.headers);
        if let Err(wrong) = headers::incoming(&mut head.headers) {
            passing.record.failed(&wrong.sentence);
            return Err(wrong);
        }
        self.gate
            .http
            .secrets
            .hide(&errand.ask.host, &mut head.headers);
        head.version = Version::HTTP_11;
        if switches {
            let switched = match agreed {
                true => link.switched().await,
                false => None,
            };
            let Some((switched, entry)) = switched else {
                let wrong = Wrong::unreachable("the host went on in another protocol, unasked");
                passing.record.failed(&wrong.sentence);
                return Err(wrong);
            };
            passing.record.complete();
            headers::switching(&mut head.headers);
            self.next.replace(Some(Next::Switch(switched, entry)));
            return Ok(Response::from_parts(head, Body::empty()));
        }
        match self.manner {
            Manner::Claude => self.gate.http.spare(link),
            Manner::Proxy | Manner::Host { .. } => drop(self.kept.replace(Some(link))),
        }
        let download = Download::new(
            body,
            passing.record,
            &self.gate,
            &errand.ask.host,
            passing.in_use,
            passing.wanted,
        );
        Ok(Response::from_parts(
            head,
            Body::Passing(Box::new(download)),
        ))
    }
}

/// What goes along with a request until its answer is through.
struct Passing {
    record: Record,
    in_use: InUse,
    wanted: Option<tokio::sync::watch::Sender<Wanted>>,
    is_websocket: bool,
}

fn expects(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(EXPECT).iter();
    all.any(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
