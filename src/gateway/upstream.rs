//! Connections to the provider: a small keep-alive pool over HTTP/1.1, TLS where the URL says so.
//!
//! A pool of our own, because an attempt counts once its head is written: the gate must know the
//! moment between "a connection is there" and "the request is on it".

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;

/// Idle connections kept.
const IDLE_MAX: usize = 512;
/// An idle connection older than this is not trusted: many servers close at 60 s or more.
const IDLE_AGE_MAX: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a pooled connection may take to be ready again.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(20);

/// Why an attempt got no answer.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// No connection; nothing was sent.
    #[error("cannot connect to the provider at {0}: {1}")]
    Connect(Uri, String),
    /// The connection broke after the request was on its way.
    #[error("the connection to the provider broke: {0}")]
    Broken(#[from] hyper::Error),
}

type Sender = SendRequest<Full<Bytes>>;

/// The provider's address and the open connections to it.
pub struct Upstream {
    base: Uri,
    connector: TowerToHyperService<HttpsConnector<HttpConnector>>,
    idle: Mutex<VecDeque<(Instant, Sender)>>,
    open: AtomicU64,
}

/// A connection that is ready for one request.
pub struct Ready(Sender);

impl Upstream {
    /// For `http://host[:port]` or `https://host[:port]`.
    ///
    /// # Panics
    /// Never: the ring provider supports the default protocol versions.
    #[must_use]
    pub fn new(base: Uri) -> Arc<Self> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default protocol versions")
            .with_webpki_roots()
            .with_no_client_auth();
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Arc::new(Self {
            base,
            connector: TowerToHyperService::new(https),
            idle: Mutex::new(VecDeque::new()),
            open: AtomicU64::new(0),
        })
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

    /// An open connection, from the pool or a new one.
    ///
    /// # Errors
    /// [`UpstreamError::Connect`] when there is none to be had.
    pub async fn ready(&self) -> Result<Ready, UpstreamError> {
        while let Some((since, mut sender)) = self.pop_idle() {
            if since.elapsed() >= IDLE_AGE_MAX || sender.is_closed() {
                continue;
            }
            // The connection's task may still be putting the last answer away.
            if let Ok(Ok(())) = tokio::time::timeout(SETTLE_TIMEOUT, sender.ready()).await {
                return Ok(Ready(sender));
            }
        }
        let fail = |error: String| UpstreamError::Connect(self.base.clone(), error);
        let connect = hyper::service::Service::call(&self.connector, self.base.clone());
        let io = tokio::time::timeout(CONNECT_TIMEOUT, connect)
            .await
            .map_err(|_| fail(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| fail(error.to_string()))?;
        let (mut sender, connection) =
            handshake(io).await.map_err(|error| fail(error.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the provider ended");
            }
        });
        sender.ready().await.map_err(|error| fail(error.to_string()))?;
        Ok(Ready(sender))
    }

    /// Writes the request and waits for the head of the answer. The connection goes back to the
    /// pool when the answer's body has been read to its end.
    ///
    /// # Errors
    /// [`UpstreamError::Broken`] when the connection ends first.
    pub async fn send(
        self: &Arc<Self>,
        ready: Ready,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Answer>, UpstreamError> {
        let call = OpenCall::new(Arc::clone(self));
        let mut sender = ready.0;
        let response = sender.send_request(request).await?;
        Ok(response.map(|body| {
            // Nobody polls a body that has ended already.
            if body.is_end_stream() {
                self.push_idle(sender);
                return Answer { body, back: None };
            }
            Answer { body, back: Some((sender, call)) }
        }))
    }

    fn pop_idle(&self) -> Option<(Instant, Sender)> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_back()
    }

    fn push_idle(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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

/// The body of an answer; returns its connection to the pool at its end.
pub struct Answer {
    body: Incoming,
    back: Option<(Sender, OpenCall)>,
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
            _ => false,
        };
        if ended && let Some((sender, call)) = self.back.take() {
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
