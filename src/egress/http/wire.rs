//! The two ends of a connection, as streams that keep account of what moves.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::client::TlsStream;

use crate::egress::accounts::Entry;

/// When something moved last.
#[derive(Debug)]
pub(super) struct Clock(Cell<Instant>);

impl Clock {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self(Cell::new(Instant::now())))
    }

    pub(super) fn touch(&self) {
        self.0.set(Instant::now());
    }

    /// Resolves when nothing has moved for so long.
    pub(super) async fn quiet(&self, long: Duration) {
        while self.0.get().elapsed() < long {
            sleep_until(self.0.get() + long).await;
        }
    }
}

/// The box's end. What was read ahead comes first.
#[derive(Debug)]
pub(super) struct Near<T> {
    first: Bytes,
    stream: T,
    clock: Rc<Clock>,
}

impl<T> Near<T> {
    pub(super) fn new(stream: T, first: Vec<u8>, clock: &Rc<Clock>) -> Self {
        Self {
            first: first.into(),
            stream,
            clock: Rc::clone(clock),
        }
    }

    /// The stream, and what was read ahead of it and not been asked for.
    pub(super) fn into_parts(self) -> (T, Bytes) {
        (self.stream, self.first)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Near<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let had = buffer.filled().len();
        if self.first.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        } else {
            let count = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first[..count]);
            self.first.advance(count);
        }
        if buffer.filled().len() > had {
            self.clock.touch();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Near<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.clock.touch();
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.clock.touch();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The host's end, below TLS: counted as it is on the wire, and paid for where there is a rate.
pub(super) struct Far {
    stream: TcpStream,
    entry: Rc<Entry>,
    debt: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

impl Far {
    pub(super) fn new(stream: TcpStream, entry: &Rc<Entry>) -> Self {
        Self {
            stream,
            entry: Rc::clone(entry),
            debt: None,
        }
    }

    /// Nothing moves while there is something to pay.
    fn poll_paid(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(debt) = &mut self.debt {
            ready!(debt.as_mut().poll(cx));
            self.debt = None;
        }
        Poll::Ready(())
    }

    fn owe(&mut self, bytes: usize) {
        if bytes > 0 && self.entry.piece().is_some() {
            let entry = Rc::clone(&self.entry);
            self.debt = Some(Box::pin(async move { entry.pay(bytes).await }));
        }
    }

    fn wrote(&mut self, bytes: usize) -> Poll<io::Result<usize>> {
        self.entry.sent(bytes as u64);
        self.owe(bytes);
        Poll::Ready(Ok(bytes))
    }
}

impl AsyncRead for Far {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_paid(cx));
        let had = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let count = buffer.filled().len() - had;
        self.entry.received(count as u64);
        self.owe(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Far {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_paid(cx));
        let most = self.entry.piece().unwrap_or(bytes.len()).min(bytes.len());
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[..most]))?;
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_paid(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        self.wrote(written)
    }

    /// Where there is a rate pieces are small, and are written one by one.
    fn is_write_vectored(&self) -> bool {
        self.entry.piece().is_none()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The host's end, with or without TLS.
#[derive(Debug)]
pub(super) enum FarEnd {
    Plain(Far),
    Tls(Box<TlsStream<Far>>),
}

macro_rules! either {
    ($end:expr, $stream:ident => $call:expr) => {
        match $end {
            FarEnd::Plain($stream) => $call,
            FarEnd::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for FarEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for FarEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
