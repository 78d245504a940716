//! A connection that does not wait for ever to be written to: who takes nothing of an answer would hold
//! a permit of everybody's as long as it likes. Knows no protocol.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::Sleep;

use crate::gateway::wire::{ClientFault, Wire};

/// A stream whose writes fail after a time in which nothing of them was taken.
pub(super) struct Patient<T> {
    inner: T,
    patience: Duration,
    /// Runs while a write waits. Most never do, so most connections never have one.
    waiting: Option<Pin<Box<Sleep>>>,
    wire: Arc<Wire>,
}

impl<T: Read + Write + Unpin> Patient<T> {
    pub(super) const fn new(inner: T, patience: Duration, wire: Arc<Wire>) -> Self {
        Self { inner, patience, waiting: None, wire }
    }

    pub(super) fn into_inner(self) -> T {
        self.inner
    }

    /// Passes on what a write came to, unless it has waited too long.
    fn judged<R>(
        &mut self,
        polled: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        self.wire.client_fault(ClientFault::AnswerNotTaken);
        Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut)))
    }
}

impl<T: Read + Write + Unpin> Read for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: Read + Write + Unpin> Write for Patient<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judged(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judged(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.judged(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judged(polled, cx)
    }
}
