//! HTTP/2 connections to the provider, each shared by as many requests as its peer allows.
//!
//! Streams are counted here and not left to the protocol: beyond the peer's limit it would hold a
//! request back that the gate believes to be sent.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2;

use super::error::UpstreamError;

/// Most streams on one connection, whatever its peer allows: one lost segment holds all of them up.
const STREAMS_MAX: usize = 256;

/// Whoever knows how many streams the peer of a connection allows right now.
pub(super) type Allowed = Arc<dyn Fn() -> usize + Send + Sync>;

/// One HTTP/2 connection.
#[derive(Clone)]
pub(super) struct Connection {
    sender: http2::SendRequest<Full<Bytes>>,
    streams: Arc<AtomicUsize>,
    allowed: Allowed,
}

impl Connection {
    pub(super) fn new(sender: http2::SendRequest<Full<Bytes>>, allowed: Allowed) -> Self {
        Self { sender, streams: Arc::default(), allowed }
    }

    fn take(&self) -> Option<Stream> {
        let most = (self.allowed)().min(STREAMS_MAX);
        let room = |taken: usize| (taken < most).then_some(taken + 1);
        self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(Stream { sender: self.sender.clone(), guard: Streams(Arc::clone(&self.streams)) })
    }
}

/// The shared connections of one provider.
pub(super) struct Shared {
    /// HTTP/2 may be spoken, as far as is known.
    is_possible: AtomicBool,
    connections: Mutex<Vec<Connection>>,
    /// Held by whoever opens a connection; why the last time failed, and when.
    dialing: tokio::sync::Mutex<Option<(Instant, UpstreamError)>>,
}

impl Shared {
    pub(super) fn new(is_possible: bool) -> Self {
        let is_possible = AtomicBool::new(is_possible);
        Self { is_possible, connections: Mutex::default(), dialing: tokio::sync::Mutex::default() }
    }

    /// A place on an open connection.
    pub(super) fn take(&self) -> Option<Stream> {
        if !self.is_possible.load(Ordering::Relaxed) {
            return None;
        }
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.sender.is_closed());
        connections.iter().find_map(Connection::take)
    }

    /// Keeps a new connection and takes the first place on it.
    pub(super) fn add(&self, connection: Connection) -> Stream {
        connection.streams.store(1, Ordering::Relaxed);
        let guard = Streams(Arc::clone(&connection.streams));
        let stream = Stream { sender: connection.sender.clone(), guard };
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        stream
    }

    /// The provider chose HTTP/1.1: nobody need wait for anybody's connection.
    pub(super) fn is_not_spoken(&self) {
        self.is_possible.store(false, Ordering::Relaxed);
    }

    /// Waits until nobody else opens a connection, so that a burst opens one and not one each.
    ///
    /// # Errors
    /// What the one who was waited for got: the others need not try in turn.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, UpstreamError> {
        if !self.is_possible.load(Ordering::Relaxed) {
            return Ok(Turn(None));
        }
        let came = Instant::now();
        let mut turn = self.dialing.lock().await;
        if let Some((at, error)) = &*turn
            && *at >= came
            && let Some(error) = error.again()
        {
            return Err(error);
        }
        *turn = None;
        Ok(Turn(Some(turn)))
    }
}

/// The right to open a connection.
pub(super) struct Turn<'a>(Option<tokio::sync::MutexGuard<'a, Option<(Instant, UpstreamError)>>>);

impl Turn<'_> {
    /// Tells those who wait that there is no connection to be had.
    pub(super) fn failed(&mut self, error: &UpstreamError) {
        if let (Some(turn), Some(error)) = (&mut self.0, error.again()) {
            **turn = Some((Instant::now(), error));
        }
    }
}

/// A place on a shared connection.
pub(super) struct Stream {
    sender: http2::SendRequest<Full<Bytes>>,
    guard: Streams,
}

impl Stream {
    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        self.sender.send_request(request).await
    }

    /// What keeps the place while the answer is read.
    pub(super) fn into_guard(self) -> Streams {
        self.guard
    }
}

/// One taken place, until it is dropped.
pub(super) struct Streams(Arc<AtomicUsize>);

impl Drop for Streams {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
