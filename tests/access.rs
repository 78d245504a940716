//! How weir proves itself: to a real Prometheus behind client certificates and passwords, and to small
//! peers on loopback that write down what they are sent, and lead elsewhere.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value as Json;
use weir::ingest::{Access, Basic, ScrapeError, Scraper, Secret, Target, Tls, TlsFiles, read_page};

/// Bytes of a request's head that a peer reads.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Longest start of a real server.
const START: Duration = Duration::from_secs(20);
/// `test`, as Prometheus' own documentation hashes it.
const PASSWORD_HASH: &str = "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay";

/// What a peer answers, by the head of the request.
type Answer = dyn Fn(&str) -> Vec<u8> + Send + Sync;

/// A peer that serves one request per connection and keeps the heads that it was sent.
struct Peer {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    /// Serves in the clear.
    fn plain(answer: Box<Answer>) -> Self {
        Self::serving(move |mut stream, heads| serve(&mut stream, heads, &answer))
    }

    /// Serves over TLS, with a certificate of `folder`.
    fn over_tls(folder: &Folder, answer: Box<Answer>) -> Self {
        let read = |name: &str| fs::read(folder.path(name)).expect("written before");
        let pem = read("server.pem");
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.expect("certificates");
        let key = PrivateKeyDer::from_pem_slice(&read("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("they belong together");
        let config = Arc::new(config);
        Self::serving(move |stream, heads| {
            let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
            serve(&mut rustls::StreamOwned::new(session, stream), heads, &answer);
        })
    }

    fn serving(serve: impl Fn(TcpStream, &Mutex<Vec<String>>) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &kept);
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no peer panics").clone()
    }
}

fn serve(stream: &mut (impl Read + Write), heads: &Mutex<Vec<String>>, answer: &Answer) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            // A client that does not like our certificate hangs up.
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let answer = answer(&head);
    heads.lock().expect("no peer panics").push(head);
    let _ = stream.write_all(&answer).and_then(|()| stream.flush());
}

fn ok(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n{headers}\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn redirect(to: &str) -> Vec<u8> {
    let head = "HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\nconnection: close\r\n";
    format!("{head}location: {to}\r\n\r\n").into_bytes()
}

/// A folder with an authority, a server's certificate for `localhost`, and a client's.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let ca_key = KeyPair::generate().expect("a key");
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.distinguished_name.push(DnType::CommonName, "weir's test authority");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).expect("signed").pem();
        let issuer = Issuer::new(ca, ca_key);
        for name in ["server", "client"] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, &issuer).expect("signed");
            folder.write(&format!("{name}.pem"), &certificate.pem());
            folder.write(&format!("{name}.key"), &key.serialize_pem());
        }
        folder.write("ca.pem", &ca_pem);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    /// TLS that trusts the authority.
    fn tls(&self, server_name: Option<&str>) -> Tls {
        let ca = self.path("ca.pem");
        Tls::read(TlsFiles { ca: Some(&ca), server_name, identity: None }).expect("readable")
    }
}

async fn scrape(url: String, access: Access) -> Result<usize, ScrapeError> {
    let timeout = Duration::from_secs(10);
    let target = Target { timeout, access, ..Target::new("gateway", url) };
    let (body, format) = Scraper::new()?.fetch(&target).await?;
    let scrape = read_page(&target.name, &body, format)?;
    Ok(scrape.series)
}

async fn error(url: String, access: Access) -> String {
    scrape(url, access).await.expect_err("refused").to_string()
}

fn with_everything() -> Access {
    let org = HeaderName::from_static("x-scope-orgid");
    Access {
        bearer: Some(Secret::new("the-token")),
        headers: vec![(org, HeaderValue::from_static("tenant-7"))],
        ..Access::default()
    }
}

#[tokio::test]
async fn credentials_and_headers_are_sent_and_follow_a_redirect_within_the_host() {
    let peer = Peer::plain(Box::new(|head| {
        if head.starts_with("get /metrics/ ") { ok("", b"a 1\n") } else { redirect("/metrics/") }
    }));
    let url = format!("http://{}/metrics", peer.address);
    assert_eq!(scrape(url, with_everything()).await.expect("metrics"), 1);
    let heads = peer.heads();
    assert_eq!(heads.len(), 2);
    for head in heads {
        for line in ["authorization: bearer the-token\r\n", "x-scope-orgid: tenant-7\r\n"] {
            assert!(head.contains(line), "{head}");
        }
        let encodings = head.lines().find(|line| line.starts_with("accept-encoding:"));
        let encodings = encodings.unwrap_or_else(|| panic!("none offered: {head}"));
        assert!(encodings.contains("gzip") && encodings.contains("zstd"), "{encodings}");
    }
    let basic = Basic { user: "me".to_owned(), password: Secret::new("word") };
    let access = Access { basic: Some(basic), ..Access::default() };
    let url = format!("http://{}/metrics/", peer.address);
    assert_eq!(scrape(url, access).await.expect("metrics"), 1);
    let last = peer.heads().pop().expect("a request");
    assert!(last.contains("authorization: basic bwu6d29yza==\r\n"), "{last}");
}

#[tokio::test]
async fn credentials_never_leave_the_host() {
    let elsewhere = Peer::plain(Box::new(|_| ok("", b"a 1\n")));
    let port = elsewhere.address.port();
    let peer =
        Peer::plain(Box::new(move |_| redirect(&format!("http://localhost:{port}/metrics"))));
    let error = error(format!("http://{}/metrics", peer.address), with_everything()).await;
    assert!(error.contains("redirects at http://127.0.0.1:"), "{error}");
    assert!(error.contains("to `localhost`, which is not followed"), "{error}");
    assert!(!error.contains("the-token") && !error.contains("tenant-7"), "{error}");
    assert_eq!(peer.heads().len(), 1);
    assert!(elsewhere.heads().is_empty(), "nobody else is asked");
}

#[tokio::test]
async fn a_redirect_out_of_tls_is_not_followed() {
    let folder = Folder::new();
    let plain = Peer::plain(Box::new(|_| ok("", b"a 1\n")));
    let port = plain.address.port();
    let peer = Peer::over_tls(
        &folder,
        Box::new(move |_| redirect(&format!("http://localhost:{port}/metrics"))),
    );
    let access = Access { tls: Some(folder.tls(None)), ..with_everything() };
    let error = error(format!("https://localhost:{}/metrics", peer.address.port()), access).await;
    assert!(error.contains("to `http://localhost`, which is not followed"), "{error}");
    assert!(plain.heads().is_empty(), "nothing is sent in the clear");
}

#[tokio::test]
async fn zstd_is_read() {
    let body = zstd::encode_all(&b"a 1\nb 2\n"[..], 0).expect("memory");
    let peer = Peer::plain(Box::new(move |_| ok("content-encoding: zstd\r\n", &body)));
    let url = format!("http://{}/metrics", peer.address);
    assert_eq!(scrape(url, Access::default()).await.expect("metrics"), 2);
}

#[tokio::test]
async fn a_server_is_known_by_its_authority_and_its_name() {
    let folder = Folder::new();
    let peer = Peer::over_tls(&folder, Box::new(|_| ok("", b"a 1\n")));
    let port = peer.address.port();
    let url = |host: &str| format!("https://{host}:{port}/metrics");
    let with = |server_name| Access { tls: Some(folder.tls(server_name)), ..Access::default() };
    assert_eq!(scrape(url("localhost"), with(None)).await.expect("trusted"), 1);
    let stranger = error(url("localhost"), Access::default()).await;
    assert!(stranger.contains("TLS fails") && stranger.contains("`tls.ca_file`"), "{stranger}");
    let misnamed = error(url("127.0.0.1"), with(None)).await;
    assert!(misnamed.contains("`tls.server_name`"), "{misnamed}");
    assert_eq!(scrape(url("127.0.0.1"), with(Some("localhost"))).await.expect("named"), 1);
    let other = error(url("localhost"), with(Some("other.example"))).await;
    assert!(other.contains("`tls.server_name`"), "{other}");
    // A server without TLS answers what it cannot read at once.
    let clear = Peer::serving(|mut stream, _| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
    let clear = error(format!("https://{}/metrics", clear.address), with(None)).await;
    assert!(clear.contains("does it speak TLS"), "{clear}");
}

#[test]
fn wrong_files_are_named() {
    let folder = Folder::new();
    folder.write("empty.pem", "");
    folder.write("junk.pem", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    let [ca, certificate, key] = ["ca.pem", "client.pem", "client.key"].map(|n| folder.path(n));
    let [empty, junk, gone] = ["empty.pem", "junk.pem", "gone.pem"].map(|name| folder.path(name));
    let server_key = folder.path("server.key");
    let read = |ca: &Path, identity: (&Path, &Path), server_name| {
        Tls::read(TlsFiles { ca: Some(ca), identity: Some(identity), server_name })
    };
    assert!(read(&ca, (&certificate, &key), None).is_ok());
    for (ca, identity, server_name, expected) in [
        (&empty, (&certificate, &key), None, "empty.pem holds no certificate in PEM"),
        (&junk, (&certificate, &key), None, "junk.pem holds no certificate"),
        (&gone, (&certificate, &key), None, "cannot read "),
        (&ca, (&empty, &key), None, "empty.pem holds no certificate in PEM"),
        (&ca, (&certificate, &certificate), None, "client.pem holds no private key in PEM"),
        (&ca, (&certificate, &server_key), None, "cannot be used together"),
        (&ca, (&certificate, &key), Some("no name"), "`no name` is no name of a server"),
    ] {
        let error = read(ca, (identity.0, identity.1), server_name).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A Prometheus that asks for a client certificate and a password. Ends with the test.
struct Prometheus {
    process: Child,
    port: u16,
}

impl Prometheus {
    fn behind_mtls(folder: &Folder) -> Self {
        folder.write("prometheus.yml", "scrape_configs: []\n");
        folder.write(
            "web.yml",
            &format!(
                "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  \
                 client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n\
                 basic_auth_users:\n  me: {PASSWORD_HASH}\n"
            ),
        );
        let port = free_port();
        let process = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--web.config.file=web.yml")
            .arg("--storage.tsdb.path=data")
            .arg("--log.level=error")
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .current_dir(folder.path("."))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("prometheus cannot be run: {error}; install it"));
        let started = Self { process, port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < START, "Prometheus does not listen");
            thread::yield_now();
        }
        started
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// What the doctor says about a source that is asked with `keys`.
fn diagnosed(folder: &Folder, port: u16, keys: &str) -> Json {
    let adapters = folder.path("adapters");
    fs::create_dir_all(&adapters).expect("created");
    let adapter = "[adapter]\ntitle = \"ours\"\nabout = \"a\"\nrole = \"gateway\"\n\
                   verified = \"run\"\n[signals.offered_rps]\nquality = \"exact\"\n\
                   value = 'rate(prometheus_http_requests_total)'\n";
    fs::write(adapters.join("ours.toml"), adapter).expect("written");
    let source = "[[source]]\nname = \"prom\"\nadapter = \"ours\"\n";
    folder.write(
        "weir.toml",
        &format!("{source}url = \"https://localhost:{port}/metrics\"\n{keys}\n"),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["doctor", "--json", "-c"])
        .arg(folder.path("weir.toml"))
        .env("XDG_STATE_HOME", folder.path("state"))
        .env("PROM_WORD", "test")
        .output()
        .expect("weir starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Json =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    report["sources"][0].clone()
}

#[test]
fn a_real_prometheus_asks_for_certificate_and_password_and_gets_both() {
    let folder = Folder::new();
    let prometheus = Prometheus::behind_mtls(&folder);
    let trust = "tls = { ca_file = \"ca.pem\" }";
    let tls =
        "tls = { ca_file = \"ca.pem\", cert_file = \"client.pem\", key_file = \"client.key\" }";
    let basic = "basic = { user = \"me\", password_env = \"PROM_WORD\" }";
    let error = |keys: &str| {
        let source = diagnosed(&folder, prometheus.port, keys);
        source["error"].as_str().unwrap_or_else(|| panic!("no error: {source}")).to_owned()
    };
    let bare = error(&format!("{trust}\n{basic}"));
    assert!(bare.contains("does it ask for a client certificate (`tls.cert_file`"), "{bare}");
    let nameless = error(tls);
    assert!(nameless.contains("answered HTTP 401") && nameless.contains("key?"), "{nameless}");
    let both = diagnosed(&folder, prometheus.port, &format!("{tls}\n{basic}"));
    assert!(both["error"].is_null(), "{both}");
    assert!(both["scrape"]["samples"].as_u64().is_some_and(|samples| samples > 100), "{both}");
    folder.write("word", "test\n");
    let from_file = "basic = { user = \"me\", password_file = \"word\" }";
    let both = diagnosed(&folder, prometheus.port, &format!("{tls}\n{from_file}"));
    assert!(both["error"].is_null(), "{both}");
}
