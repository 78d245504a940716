//! The clients' connections: TLS, HTTP/1.1 or HTTP/2, their limits, and how they end.
//!
//! Knows no quota and reads no request; whatever comes whole goes to the proxy. A connection costs the
//! others nothing: each is a task of its own with a bound on every wait.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config_transport::TransportConfig;
use super::proxy::{Proxy, ProxyBody};
use super::tls::ALPN_HTTP2;
use super::wire::{ClientFault, OpenConnection, Protocol, Side, Wire};

mod patient;

use patient::Patient;

/// Longest TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How the first bytes of HTTP/2 begin (RFC 9113, section 3.4): no method of HTTP/1 may be so named.
const PREFACE: &[u8] = b"PRI ";
/// How long to wait for the rest of these bytes where a few of them came alone.
const PREFACE_WAIT: Duration = Duration::from_millis(5);
/// How often a silent HTTP/2 connection is asked whether it lives; HTTP/1.1 ones just end.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of one HTTP/2 answer that wait for a caller who reads slowly.
const SEND_BUFFER_MAX: usize = 64 * 1024;
/// After a head that was too large: how long, and how much of it, is read and thrown away, so that the
/// answer is not lost to a reset.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A connection that was accepted, and its place among the others.
pub(super) struct Taken {
    stream: TcpStream,
    place: OwnedSemaphorePermit,
}

/// All connections of clients.
pub(super) struct Lines {
    proxy: Arc<Proxy>,
    tls: Option<TlsAcceptor>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    head_timeout: Duration,
    write_timeout: Duration,
    wire: Arc<Wire>,
    /// As many connections as may be open.
    room: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Answers say that their connection is the last one's.
    is_leaving: AtomicBool,
    leaving: CancellationToken,
    /// Idle connections end.
    is_closing: AtomicBool,
    closing: CancellationToken,
}

impl Lines {
    /// For a checked configuration.
    pub(super) fn new(
        proxy: Arc<Proxy>,
        config: &TransportConfig,
        tls: Option<Arc<ServerConfig>>,
        wire: Arc<Wire>,
    ) -> Arc<Self> {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(config.head_timeout())
            .max_header_size(config.head_max);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.streams_max)
            .max_header_list_size(u32::try_from(config.head_max).unwrap_or(u32::MAX))
            .max_send_buf_size(SEND_BUFFER_MAX)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Arc::new(Self {
            proxy,
            tls: tls.map(TlsAcceptor::from),
            http1,
            http2,
            head_timeout: config.head_timeout(),
            write_timeout: config.write_timeout(),
            wire,
            room: Arc::new(Semaphore::new(room(config.connections_max))),
            tasks: TaskTracker::new(),
            is_leaving: AtomicBool::new(false),
            leaving: CancellationToken::new(),
            is_closing: AtomicBool::new(false),
            closing: CancellationToken::new(),
        })
    }

    /// The next connection, once there is room for it. Dropped before it is there, it takes nobody.
    ///
    /// # Errors
    /// What the listener says, mostly that there are too many descriptors.
    pub(super) async fn next(&self, listener: &TcpListener) -> io::Result<Taken> {
        let place = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        Ok(Taken { stream, place })
    }

    /// Serves one connection until it ends.
    pub(super) fn serve(self: &Arc<Self>, Taken { stream, place }: Taken) {
        let lines = Arc::clone(self);
        self.tasks.spawn(async move {
            lines.carry(stream).await;
            drop(place);
        });
    }

    /// Tells clients, answer by answer, to take their next request elsewhere. Nothing is cut.
    pub(super) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leaving.cancel();
    }

    /// Ends connections as soon as they have nothing under way, and waits for that for at most `bound`.
    pub(super) async fn close(&self, bound: Duration) {
        self.leave();
        self.is_closing.store(true, Ordering::Relaxed);
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(bound, self.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.tasks.len(), "connections of clients are cut");
        }
    }

    async fn carry(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        // Until it says what it speaks, it is held to be of the older kind.
        let counted = self.wire.expect(Side::Client, Protocol::Http1);
        let Some(tls) = &self.tls else {
            let spoken = tokio::select! {
                spoken = tokio::time::timeout(self.head_timeout, speaks_http2(&stream)) => spoken,
                () = self.closing.cancelled() => return,
            };
            return match spoken {
                Ok(Ok(true)) => self.carry_http2(stream, counted).await,
                Ok(Ok(false)) => self.carry_http1(stream, counted).await,
                // Gone again.
                Ok(Err(_)) => {}
                Err(_) => self.wire.client_fault(ClientFault::HeadSlow),
            };
        };
        let patience = self.head_timeout.min(HANDSHAKE_TIMEOUT);
        match tokio::time::timeout(patience, tls.accept(stream)).await {
            Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2) => {
                self.carry_http2(stream, counted).await;
            }
            Ok(Ok(stream)) => self.carry_http1(stream, counted).await,
            Ok(Err(error)) => {
                self.wire.client_fault(ClientFault::Tls);
                tracing::debug!(%error, "a client's TLS handshake failed");
            }
            Err(_) => self.wire.client_fault(ClientFault::Tls),
        }
    }

    async fn carry_http1<S>(&self, stream: S, mut counted: OpenConnection)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        counted.speaks(Protocol::Http1);
        let has_served = AtomicBool::new(false);
        let service = service_fn(|request| {
            has_served.store(true, Ordering::Relaxed);
            self.answer(request)
        });
        let mut connection = self.http1.serve_connection(self.patient(stream), service);
        let ended =
            self.drive(&self.closing, &mut connection, http1::Connection::graceful_shutdown);
        let Err(error) = ended.await else { return };
        if error.is_parse_too_large() {
            self.wire.client_fault(ClientFault::HeadTooLarge);
            linger(connection.into_parts().io.into_inner()).await;
        } else if error.is_timeout() && has_served.load(Ordering::Relaxed) {
            // It was idle: nothing is wrong with it.
        } else if error.is_timeout() {
            self.wire.client_fault(ClientFault::HeadSlow);
        } else if error.is_parse() {
            self.wire.client_fault(ClientFault::NotHttp);
        } else {
            tracing::debug!(%error, "a client's connection ended early");
        }
    }

    async fn carry_http2<S>(self: &Arc<Self>, stream: S, mut counted: OpenConnection)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        counted.speaks(Protocol::Http2);
        let lines = Arc::clone(self);
        let service = service_fn(move |request| {
            let lines = Arc::clone(&lines);
            async move { lines.answer(request).await }
        });
        // GOAWAY refuses nothing that is on its way, so it may go out at the first word; but who comes
        // after that word has not had a turn yet.
        let is_late = self.is_leaving.load(Ordering::Relaxed);
        let word = if is_late { &self.closing } else { &self.leaving };
        let mut connection = self.http2.serve_connection(self.patient(stream), service);
        let ended = self.drive(word, &mut connection, http2::Connection::graceful_shutdown);
        if let Err(error) = ended.await {
            tracing::debug!(%error, "a client's connection ended early");
        }
    }

    /// Polls a connection to its end; after `word` it is told to end by itself.
    async fn drive<C: Future + Unpin>(
        &self,
        word: &CancellationToken,
        connection: &mut C,
        end: impl Fn(Pin<&mut C>),
    ) -> C::Output {
        let mut told = pin!(word.cancelled());
        let (mut listens, mut is_told) = (false, false);
        std::future::poll_fn(move |cx| {
            loop {
                if let Poll::Ready(ended) = Pin::new(&mut *connection).poll(cx) {
                    return Poll::Ready(ended);
                }
                // A task has one waker for life: it is left with the token once, and not in the way of
                // every byte.
                let may_be_told = !listens || self.is_leaving.load(Ordering::Relaxed);
                if is_told || !may_be_told || told.as_mut().poll(cx).is_pending() {
                    listens = true;
                    return Poll::Pending;
                }
                is_told = true;
                end(Pin::new(&mut *connection));
            }
        })
        .await
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<ProxyBody>, Infallible> {
        let mut response = Arc::clone(&self.proxy).serve(request).await?;
        if self.is_leaving.load(Ordering::Relaxed) && response.version() < http::Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }

    fn patient<S>(&self, stream: S) -> Patient<TokioIo<S>>
    where
        TokioIo<S>: Read + Write + Unpin,
    {
        Patient::new(TokioIo::new(stream), self.write_timeout, Arc::clone(&self.wire))
    }
}

/// How many connections may be open.
fn room(configured: Option<usize>) -> usize {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let all = descriptors.and_then(|all| usize::try_from(all).ok()).unwrap_or(usize::MAX);
    configured.unwrap_or(all / 4 * 3).clamp(1, Semaphore::MAX_PERMITS)
}

/// Whether a client begins with HTTP/2; takes nothing of what it sent.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    loop {
        let read = stream.peek(&mut start).await?;
        if read == PREFACE.len() || !PREFACE.starts_with(&start[..read]) || read == 0 {
            return Ok(start[..read] == *PREFACE);
        }
        tokio::time::sleep(PREFACE_WAIT).await;
    }
}

/// Reads on for a moment after the last word, or the client's system throws that word away.
async fn linger<S: AsyncRead + Unpin>(stream: TokioIo<S>) {
    let mut stream = stream.into_inner();
    let mut scrap = vec![0; 64 * 1024];
    let mut left = LINGER_BYTES_MAX;
    let drain = async {
        while let Ok(read @ 1..) = stream.read(&mut scrap).await {
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}
