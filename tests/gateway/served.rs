//! A provider that speaks HTTP/1.1 and HTTP/2, with and without TLS, and clients that do; and the
//! certificates for both.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::server::conn;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::support::{EMBEDDINGS, input};

/// Certificates of an authority that nobody knows, in files.
pub struct Pki {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.distinguished_name.push(DnType::CommonName, "an authority of a test");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = ca.self_signed(&key).expect("signed").pem();
        std::fs::write(folder.path().join("ca.pem"), pem).expect("written");
        Self { folder, issuer: Issuer::new(ca, key) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file, as TOML has it.
    pub fn quoted(&self, name: &str) -> String {
        format!("'{}'", self.path(name).display())
    }

    /// Writes `NAME.pem` and `NAME.key` for a host; `year` is that of the last day.
    pub fn issue(&self, name: &str, host: &str, year: i32) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).expect("written");
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).expect("written");
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = std::fs::read(self.path(&format!("{name}.key"))).expect("issued");
        let key = PrivateKeyDer::from_pem_slice(&key).expect("a key");
        let mut config = rustls::ServerConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(certificates(&self.path(&format!("{name}.pem"))), key)
            .expect("they belong together");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// A TLS connection to a gateway, with what is offered to speak on it.
    pub async fn connect(&self, host: &str, alpn: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in certificates(&self.path("ca.pem")) {
            roots.add(certificate).expect("an authority");
        }
        let mut config = rustls::ClientConfig::builder_with_provider(ring())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(host).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("a handshake")
    }
}

fn ring() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    let pem = std::fs::read(file).expect("issued");
    CertificateDer::pem_slice_iter(&pem).map(|one| one.expect("PEM")).collect()
}

/// What a provider saw.
#[derive(Default)]
pub struct Seen {
    pub connections: AtomicUsize,
    /// Requests that are being answered.
    pub open: AtomicUsize,
    /// Most requests at once on one connection.
    pub crowd: AtomicUsize,
    cut: tokio::sync::Notify,
}

/// How a provider is to be.
pub struct Manner<'a> {
    /// The certificate that it shows, or none.
    pub tls: Option<(&'a Pki, &'a str)>,
    /// Without TLS: speaks HTTP/2 from the first byte.
    pub http2: bool,
    pub streams_max: u32,
    /// Never answers.
    pub hangs: bool,
}

impl Default for Manner<'_> {
    fn default() -> Self {
        Self { tls: None, http2: false, streams_max: 100, hangs: false }
    }
}

/// A provider over real protocols. Its answer says how it was asked.
pub struct Served {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    pub async fn start(manner: Manner<'_>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Seen::default());
        let acceptor = manner.tls.map(|(pki, name)| pki.acceptor(name));
        let Manner { http2, streams_max, hangs, .. } = manner;
        let watched = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, acceptor) = (Arc::clone(&watched), acceptor.clone());
                tokio::spawn(async move {
                    let Some(acceptor) = acceptor else {
                        return speak(stream, http2, streams_max, hangs, seen).await;
                    };
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    speak(stream, is_http2, streams_max, hangs, seen).await;
                });
            }
        });
        Self { address, seen, task }
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.seen.cut.notify_waiters();
    }

    pub fn open(&self) -> usize {
        self.seen.open.load(Ordering::Relaxed)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts a request for as long as it is answered.
struct Counted<'a>(&'a AtomicUsize, &'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn speak<S>(stream: S, is_http2: bool, streams_max: u32, hangs: bool, seen: Arc<Seen>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    seen.connections.fetch_add(1, Ordering::Relaxed);
    let here = Arc::new(AtomicUsize::new(0));
    let watched = Arc::clone(&seen);
    let cut = watched.cut.notified();
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, here) = (Arc::clone(&seen), Arc::clone(&here));
        async move {
            seen.open.fetch_add(1, Ordering::Relaxed);
            seen.crowd.fetch_max(here.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let _counted = Counted(&seen.open, &here);
            let said = format!(
                r#"{{"version":"{:?}","uri":"{}","has_host":{}}}"#,
                request.version(),
                request.uri(),
                request.headers().contains_key("host"),
            );
            let _ = request.into_body().collect().await;
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(said))))
        }
    });
    let io = TokioIo::new(stream);
    let served = async move {
        if is_http2 {
            let mut builder = conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_concurrent_streams(streams_max);
            builder.serve_connection(io, service).await
        } else {
            conn::http1::Builder::new().serve_connection(io, service).await
        }
    };
    tokio::select! {
        _ = served => {}
        () = cut => {}
    }
}

/// A client on one HTTP/2 connection.
pub async fn http2_on<S>(stream: S) -> http2::SendRequest<Full<Bytes>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A client on one HTTP/1.1 connection.
pub async fn http1_on<S>(stream: S) -> http1::SendRequest<Full<Bytes>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A request for embeddings, as it goes on a connection.
pub fn asking(host: &str, text: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(format!("http://{host}{EMBEDDINGS}"))
        .header("host", host)
        .body(Full::new(Bytes::from(input(text))))
        .expect("a request")
}
