//! Opens one connection to the provider: name, TCP, TLS, and the protocol that both sides speak.
//!
//! Each step has an error of its own, because each has another cure. Sends no request.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::Sender;
use super::error::UpstreamError;
use super::shared::Connection;
use crate::gateway::config::ConfigError;
use crate::gateway::config_transport::TransportConfig;
use crate::gateway::config_upstream::UpstreamConfig;
use crate::gateway::tls::{self, ALPN_HTTP1, ALPN_HTTP2};
use crate::gateway::wire::{Protocol, Side, Wire};

/// Bytes of one answer that may be on their way before they are read: a caller that reads slowly
/// holds no more of the gateway's memory.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for all answers of a connection.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;
/// How often a silent HTTP/2 connection is asked whether it lives. gRPC servers take offence below 10 s.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How many streams a peer takes before its settings have come.
const NOT_SAID_YET: usize = 0;
/// From one look for these settings to the next. They come a round trip after the connection.
const SETTINGS_LOOK: Duration = Duration::from_millis(1);
const NO_HTTP2: &str = "it does not speak HTTP/2; take `http2 = true` out of gateway.upstream";

/// A connection, by how it may be used.
pub(super) enum Dialed {
    /// By one request at a time.
    Whole(Sender),
    /// By several.
    Shared(Connection),
}

/// What it takes to open a connection.
pub(super) struct Dialer {
    tcp: TowerToHyperService<HttpConnector>,
    tls: Option<TlsConnector>,
    /// `http2` of the configuration.
    http2: Option<bool>,
    timeout: Duration,
    wire: Arc<Wire>,
}

impl Dialer {
    pub(super) fn new(
        config: &UpstreamConfig,
        transport: &TransportConfig,
        wire: Arc<Wire>,
    ) -> Result<Self, ConfigError> {
        let timeout = transport.connect_timeout();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeout));
        let is_secure = config.uri()?.scheme() == Some(&http::uri::Scheme::HTTPS);
        let alpn = match config.http2 {
            None => vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()],
            Some(true) => vec![ALPN_HTTP2.to_vec()],
            Some(false) => vec![ALPN_HTTP1.to_vec()],
        };
        let tls = is_secure.then(|| tls::client(config.ca_file.as_deref(), alpn)).transpose()?;
        let tls = tls.map(TlsConnector::from);
        let tcp = TowerToHyperService::new(tcp);
        Ok(Self { tcp, tls, http2: config.http2, timeout, wire })
    }

    /// Whether a connection may turn out to be one that requests share.
    pub(super) const fn may_share(&self) -> bool {
        matches!((self.http2, &self.tls), (Some(true), _) | (None, Some(_)))
    }

    pub(super) async fn dial(&self, base: &Uri) -> Result<Dialed, UpstreamError> {
        let late = || {
            let why = format!("no answer within {} s", self.timeout.as_secs_f64());
            UpstreamError::Connect(base.to_string(), why)
        };
        tokio::time::timeout(self.timeout, self.steps(base)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn steps(&self, base: &Uri) -> Result<Dialed, UpstreamError> {
        let tcp = hyper::service::Service::call(&self.tcp, base.clone()).await;
        let tcp = tcp.map_err(|error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            // The connector says no otherwise which of its steps failed.
            if error.to_string().starts_with("dns") {
                UpstreamError::Dns(base.to_string(), why)
            } else {
                UpstreamError::Connect(base.to_string(), why)
            }
        })?;
        let Some(tls) = &self.tls else {
            return self.speak(base, tcp, self.http2 == Some(true)).await;
        };
        let refused = |why: String, remedy| UpstreamError::Tls(base.to_string(), why, remedy);
        let host = base.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host)
            .map_err(|error| refused(error.to_string(), "write a name or an IP address"))?;
        let stream = tls.connect(name, tcp.into_inner()).await.map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => refused(inner.to_string(), tls::remedy(inner)),
                None => refused(error.to_string(), "it ended the handshake; is it a TLS port?"),
            }
        })?;
        let chosen = stream.get_ref().1.alpn_protocol();
        let is_http2 = chosen == Some(ALPN_HTTP2);
        if self.http2 == Some(true) && !is_http2 {
            let why = "it does not offer HTTP/2".to_owned();
            return Err(refused(why, "take `http2 = true` out of gateway.upstream"));
        }
        self.speak(base, TokioIo::new(stream), is_http2).await
    }

    async fn speak<T>(&self, base: &Uri, io: T, is_http2: bool) -> Result<Dialed, UpstreamError>
    where
        T: Read + Write + Send + Unpin + 'static,
    {
        let fail =
            |error: hyper::Error| UpstreamError::Connect(base.to_string(), error.to_string());
        if is_http2 {
            let shared = self.shared(io).await.map_err(fail)?;
            return match shared {
                Some(connection) => Ok(Dialed::Shared(connection)),
                None => Err(UpstreamError::Connect(base.to_string(), NO_HTTP2.to_owned())),
            };
        }
        let (mut sender, connection) =
            http1::handshake::<_, Full<Bytes>>(io).await.map_err(fail)?;
        let counted = self.wire.open(Side::Upstream, Protocol::Http1);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the provider ended");
            }
            drop(counted);
        });
        sender.ready().await.map_err(fail)?;
        Ok(Dialed::Whole(sender))
    }

    /// `None` when what comes back is no HTTP/2.
    async fn shared<T>(&self, io: T) -> hyper::Result<Option<Connection>>
    where
        T: Read + Write + Send + Unpin + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_max_send_streams(NOT_SAID_YET)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake::<_, Full<Bytes>>(io)
            .await?;
        // Polled by its task, asked for the peer's limit by the pool. It is dropped once it has ended, or
        // senders would take it for alive.
        let connection = Arc::new(Mutex::new(Some(connection)));
        let asked = Arc::clone(&connection);
        let counted = self.wire.open(Side::Upstream, Protocol::Http2);
        tokio::spawn(async move {
            let ended = std::future::poll_fn(|cx| {
                let mut held = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(open) = &mut *held else { return Poll::Ready(Ok(())) };
                let ended = ready!(Pin::new(open).poll(cx));
                *held = None;
                Poll::Ready(ended)
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "a connection to the provider ended");
            }
            drop(counted);
        });
        let allowed = move || {
            let held = asked.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_ref().map_or(NOT_SAID_YET, http2::Connection::current_max_send_streams)
        };
        // Until the peer has said how many streams it takes, too many would be put on it.
        while allowed() == NOT_SAID_YET {
            if sender.is_closed() {
                return Ok(None);
            }
            tokio::time::sleep(SETTINGS_LOOK).await;
        }
        Ok(Some(Connection::new(sender, Arc::new(allowed))))
    }
}
