//! Bodies on their way through: nothing of them is kept, and neither side is read faster than the
//! other takes it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::watch;

use super::link::InUse;
use super::record::Record;
use crate::egress::gate::Gate;
use crate::policy::egress::Host;

/// How long a host is waited for that was asked whether it wants the body at all.
const CONSIDERS: Duration = Duration::from_secs(1);

/// An answer's body.
#[derive(Debug)]
pub(super) enum Body {
    /// Our own words.
    Whole(Option<Bytes>),
    /// A host's.
    Passing(Box<Download>),
}

impl Body {
    pub(super) fn empty() -> Self {
        Self::Whole(None)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Passing(download) => download.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Passing(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Passing(download) => download.body.size_hint(),
        }
    }
}

/// What a host answers, counted. It is written down when it is through, or given up.
pub(super) struct Download {
    body: Incoming,
    record: Record,
    gate: Rc<Gate>,
    host: Host,
    /// Given back when everything has passed.
    _in_use: InUse,
    /// Tells an upload that is still held back that nobody wants it any more.
    _upload: Option<watch::Sender<Wanted>>,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").finish_non_exhaustive()
    }
}

impl Download {
    pub(super) fn new(
        body: Incoming,
        mut record: Record,
        gate: &Rc<Gate>,
        host: &Host,
        in_use: InUse,
        upload: Option<watch::Sender<Wanted>>,
    ) -> Self {
        if body.is_end_stream() {
            record.complete();
        }
        Self {
            body,
            record,
            gate: Rc::clone(gate),
            host: host.clone(),
            _in_use: in_use,
            _upload: upload,
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    self.record.passed(bytes.len());
                }
                if let Some(trailers) = frame.trailers_mut() {
                    self.gate.http.secrets.hide(&self.host, trailers);
                }
                if self.body.is_end_stream() {
                    self.record.complete();
                }
            }
            Some(Err(error)) => self.record.failed(&because(error)),
            None => self.record.complete(),
        }
        Poll::Ready(frame)
    }
}

/// Whether a host wants the body of a request that asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Unknown,
    Yes,
    /// It answered without it.
    Answered,
}

/// A request's body.
pub(super) struct Upload {
    body: Option<Incoming>,
    /// Until it is known that the host wants it.
    held: Option<Pin<Box<dyn Future<Output = bool>>>>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").finish_non_exhaustive()
    }
}

impl Upload {
    pub(super) fn at_once(body: Incoming) -> Self {
        Self {
            body: Some(body),
            held: None,
        }
    }

    /// A body that waits: until the host says 100, and not for long if it says nothing. Once the
    /// host has answered without it, it is never sent.
    pub(super) fn held(body: Incoming) -> (Self, watch::Sender<Wanted>) {
        let (sender, mut wanted) = watch::channel(Wanted::Unknown);
        let held = async move {
            let said = wanted.wait_for(|wanted| *wanted != Wanted::Unknown);
            match tokio::time::timeout(CONSIDERS, said).await {
                Ok(Ok(wanted)) if *wanted == Wanted::Yes => return true,
                Ok(Err(_)) => return false,
                Ok(Ok(_)) => {}
                Err(_) => return true,
            }
            // The answer is on its way, and the connection is of no use afterwards.
            while wanted.changed().await.is_ok() {}
            false
        };
        let upload = Self {
            body: Some(body),
            held: Some(Box::pin(held)),
        };
        (upload, sender)
    }

    /// For a request that was sent without one.
    pub(super) fn none() -> Self {
        Self {
            body: None,
            held: None,
        }
    }
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = Unsent;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unsent>>> {
        if let Some(held) = &mut self.held {
            let is_wanted = ready!(held.as_mut().poll(cx));
            self.held = None;
            if !is_wanted {
                self.body = None;
                return Poll::Ready(Some(Err(Unsent::NotWanted)));
            }
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx).map_err(Unsent::Broken),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// Why a request's body was not sent whole.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsent {
    #[error("the host answered without it")]
    NotWanted,
    #[error("the program broke off")]
    Broken(#[source] hyper::Error),
}

/// What went wrong, down to what the kernel or the peer said.
pub(super) fn because(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // No error has so many causes; the bound keeps a strange one from going round.
    for _ in 0..8 {
        let Some(cause) = source else { break };
        let more = cause.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
