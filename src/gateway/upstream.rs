//! Connections to the provider: a keep-alive pool over HTTP/1.1, streams over HTTP/2 where it is spoken.
//!
//! A pool of our own, because an attempt counts once its head is written: the gate must know the
//! moment between "a connection is there" and "the request is on it". Knows nothing of the gate.

mod dial;
mod error;
mod shared;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;

use dial::{Dialed, Dialer};
pub(super) use error::UpstreamError;
use shared::{Shared, Stream, Streams};

use super::config::ConfigError;
use super::config_transport::TransportConfig;
use super::config_upstream::UpstreamConfig;
use super::wire::Wire;

/// Idle connections kept.
const IDLE_MAX: usize = 512;
/// How long a pooled connection may take to be ready again.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(20);

type Sender = http1::SendRequest<Full<Bytes>>;

/// The provider's address and the open connections to it.
pub struct Upstream {
    base: Uri,
    dialer: Dialer,
    idle: Mutex<VecDeque<(Instant, Sender)>>,
    /// An idle connection older than this is not trusted: many servers close at 60 s or more.
    idle_age_max: Duration,
    shared: Shared,
    open: AtomicU64,
    wire: Arc<Wire>,
}

/// A connection that is ready for one request.
pub struct Ready(Line);

enum Line {
    /// It is ours alone.
    Whole(Sender),
    /// Others use it at the same time.
    Stream(Stream),
}

impl Upstream {
    /// For a checked configuration.
    ///
    /// # Errors
    /// [`ConfigError`] for an address or a file that cannot be used.
    pub(super) fn new(
        config: &UpstreamConfig,
        transport: &TransportConfig,
        wire: Arc<Wire>,
    ) -> Result<Arc<Self>, ConfigError> {
        let dialer = Dialer::new(config, transport, Arc::clone(&wire))?;
        Ok(Arc::new(Self {
            base: config.uri()?,
            idle: Mutex::new(VecDeque::new()),
            idle_age_max: transport.upstream_idle(),
            shared: Shared::new(dialer.may_share()),
            dialer,
            open: AtomicU64::new(0),
            wire,
        }))
    }

    /// `host[:port]`, for the `Host` header.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.base.authority().map_or("", http::uri::Authority::as_str)
    }

    /// Calls that are open right now, answers still being read included.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Where the gateway's sockets are counted.
    pub(super) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// An open connection with room for one request, or a new one. Nothing is sent on it yet.
    ///
    /// # Errors
    /// [`UpstreamError`] of a kind that says that nothing was sent.
    pub async fn ready(&self) -> Result<Ready, UpstreamError> {
        if let Some(stream) = self.shared.take() {
            return Ok(Ready(Line::Stream(stream)));
        }
        if let Some(sender) = self.settled().await {
            return Ok(Ready(Line::Whole(sender)));
        }
        // Where connections are shared, those who come together wait for one of them.
        let mut turn = self.shared.turn().await?;
        if let Some(stream) = self.shared.take() {
            return Ok(Ready(Line::Stream(stream)));
        }
        let dialed = self.dialer.dial(&self.base).await;
        let line = match dialed {
            Ok(Dialed::Whole(sender)) => {
                self.shared.is_not_spoken();
                Line::Whole(sender)
            }
            Ok(Dialed::Shared(connection)) => Line::Stream(self.shared.add(connection)),
            Err(error) => {
                self.wire.upstream_fault(error.fault());
                turn.failed(&error);
                return Err(error);
            }
        };
        Ok(Ready(line))
    }

    /// Writes the request and waits for the head of the answer. The connection goes back to the
    /// pool when the answer's body has been read to its end; dropped before that, the call is
    /// cancelled: its stream is reset, or its connection closed.
    ///
    /// # Errors
    /// [`UpstreamError::Broken`] when the connection ends first.
    pub async fn send(
        self: &Arc<Self>,
        ready: Ready,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answer>, UpstreamError> {
        let call = OpenCall::new(Arc::clone(self));
        let broken = |error| {
            self.wire.upstream_fault(super::wire::UpstreamFault::Broken);
            UpstreamError::Broken(error)
        };
        match ready.0 {
            Line::Whole(mut sender) => {
                let response = sender.send_request(request).await.map_err(broken)?;
                Ok(response.map(|body| {
                    // Nobody polls a body that has ended already.
                    if body.is_end_stream() {
                        self.push_idle(sender);
                        return Answer { body, held: None };
                    }
                    Answer { body, held: Some((Held::Whole(sender), call)) }
                }))
            }
            Line::Stream(mut stream) => {
                self.address(&mut request);
                let response = stream.send(request).await.map_err(broken)?;
                Ok(response.map(|body| {
                    let held = (!body.is_end_stream())
                        .then(|| (Held::Stream { _place: stream.into_guard() }, call));
                    Answer { body, held }
                }))
            }
        }
    }

    /// HTTP/2 has the host in its pseudo-fields; a second one beside them is refused by some.
    fn address(&self, request: &mut Request<Full<Bytes>>) {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut parts = self.base.clone().into_parts();
        parts.scheme.get_or_insert(Scheme::HTTPS);
        parts.path_and_query = Some(path);
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        request.headers_mut().remove(HOST);
    }

    /// A connection out of the pool that is still good.
    async fn settled(&self) -> Option<Sender> {
        while let Some((since, mut sender)) = self.pop_idle() {
            if since.elapsed() >= self.idle_age_max || sender.is_closed() {
                continue;
            }
            // The connection's task may still be putting the last answer away.
            if let Ok(Ok(())) = tokio::time::timeout(SETTLE_TIMEOUT, sender.ready()).await {
                return Some(sender);
            }
        }
        None
    }

    /// Closes pooled connections that nobody has used for too long. Runs until it is dropped: the pool
    /// is last in, first out, so that after a peak the oldest would otherwise stay for ever.
    pub(super) async fn tidy(&self) {
        let every = self.idle_age_max.max(Duration::from_secs(1));
        loop {
            tokio::time::sleep(every).await;
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(since, sender)| {
                since.elapsed() < self.idle_age_max && !sender.is_closed()
            });
        }
    }

    fn pop_idle(&self) -> Option<(Instant, Sender)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_back()
    }

    fn push_idle(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= IDLE_MAX {
            idle.pop_front();
        }
        idle.push_back((Instant::now(), sender));
    }
}

/// Counts one open call for as long as it lives.
struct OpenCall(Arc<Upstream>);

impl OpenCall {
    fn new(upstream: Arc<Upstream>) -> Self {
        upstream.open.fetch_add(1, Ordering::Relaxed);
        Self(upstream)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an answer holds on to until it has been read.
enum Held {
    Whole(Sender),
    Stream {
        /// Its place on the connection.
        _place: Streams,
    },
}

/// The body of an answer; returns its connection to the pool at its end.
pub struct Answer {
    body: Incoming,
    held: Option<(Held, OpenCall)>,
}

impl Answer {
    /// Counts that the provider fell silent; dropping the answer then ends the call.
    pub(super) fn fell_silent(&self) {
        self.count(super::wire::UpstreamFault::Silent);
    }

    fn count(&self, fault: super::wire::UpstreamFault) {
        if let Some((_, call)) = &self.held {
            call.0.wire.upstream_fault(fault);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        // With a known length, nobody polls past the last byte.
        let ended = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) => {
                self.count(super::wire::UpstreamFault::Broken);
                self.held = None;
                false
            }
            Poll::Pending => false,
        };
        if ended && let Some((Held::Whole(sender), call)) = self.held.take() {
            call.0.push_idle(sender);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
