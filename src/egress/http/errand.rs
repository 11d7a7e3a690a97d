//! What a request asks for, in each manner of asking.

use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};

use super::target::{self, Disagreement, Target};
use super::visit::{Manner, Visit};
use super::wrong::Wrong;
use crate::egress::gate::{Ask, Way};
use crate::policy::egress::Reason;

/// A request, understood.
#[derive(Debug)]
pub(super) struct Errand {
    pub(super) ask: Ask,
    pub(super) is_tls: bool,
    /// As it stands in the Host header.
    pub(super) authority: String,
    pub(super) path: Uri,
}

impl Errand {
    fn new(ask: Ask, is_tls: bool, path: Uri) -> Self {
        let target = Target {
            host: ask.host.clone(),
            port: ask.port,
        };
        let (_, usual) = scheme(is_tls);
        Self {
            ask,
            is_tls,
            authority: target.authority(usual),
            path,
        }
    }
}

/// What addresses begin with, and the port they mean by saying none.
pub(super) fn scheme(is_tls: bool) -> (&'static str, u16) {
    match is_tls {
        true => ("https", 443),
        false => ("http", 80),
    }
}

impl Visit {
    pub(super) fn ask_for(&self, way: Way, target: Target) -> Ask {
        Ask {
            way,
            host: target.host,
            port: target.port,
            from: self.from,
        }
    }

    pub(super) fn errand(&self, head: &Parts) -> Result<Errand, Wrong> {
        if head.method == Method::TRACE {
            // The host would send back what was added on the way.
            let sentence = "TRACE is not passed on";
            let status = StatusCode::METHOD_NOT_ALLOWED;
            return Err(Wrong::new(status, "method-refused", sentence));
        }
        let (ask, is_tls) = match &self.manner {
            Manner::Proxy => {
                let target = target::of_absolute(&head.uri)?;
                (self.ask_for(Way::Http, target), false)
            }
            Manner::Host { ask, is_tls } => (ask.clone(), *is_tls),
            Manner::Claude => return self.for_claude(head),
        };
        self.check(head, &ask, is_tls)?;
        let path = target::path(&head.method, &head.uri)?;
        Ok(Errand::new(ask, is_tls, path))
    }

    /// Whether every place that names a host names the one that is dialled.
    fn check(&self, head: &Parts, ask: &Ask, is_tls: bool) -> Result<(), Wrong> {
        let (scheme, usual) = scheme(is_tls);
        let expected = Target {
            host: ask.host.clone(),
            port: ask.port,
        };
        let is_proxy = matches!(self.manner, Manner::Proxy);
        match target::agrees(head, scheme, usual, &expected) {
            Ok(()) => Ok(()),
            Err(Disagreement::Malformed(wrong)) => {
                let reason = Reason::Malformed(wrong.sentence.clone());
                self.gate.refuse(ask, &ask.refusal(reason, None));
                Err(wrong)
            }
            Err(Disagreement::Other(name)) => {
                let refusal = ask.refusal(Reason::OtherName(name), None);
                self.gate.refuse(ask, &refusal);
                // Whom a proxy is asked for is said twice, and then it is no request at all.
                Err(match is_proxy {
                    true => {
                        Wrong::request("the Host header names another host than the request itself")
                    }
                    false => Wrong {
                        is_last: true,
                        ..Wrong::from(&refusal)
                    },
                })
            }
        }
    }

    fn for_claude(&self, head: &Parts) -> Result<Errand, Wrong> {
        let claude = self.gate.http.claude.as_ref();
        let claude = claude.ok_or_else(|| Wrong::request("there is no key for Claude"))?;
        if head.method == Method::CONNECT || head.uri.authority().is_some() {
            return Err(Wrong::request(
                "this is Claude's gateway: ask it for a path, such as /v1/messages",
            ));
        }
        let target = Target {
            host: claude.host.clone(),
            port: claude.port,
        };
        let path = claude.path(&target::path(&head.method, &head.uri)?)?;
        Ok(Errand::new(
            self.ask_for(Way::Claude, target),
            claude.is_tls,
            path,
        ))
    }
}
