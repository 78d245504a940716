//! What the gateway's tests share: a gateway, providers for it, and a client that shows everything.
//!
//! Everything listens on a free loopback port and ends with the value that holds it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use weir::drill::{provider_http, scenario};
use weir::gateway::{Gateway, GatewayConfig, ScopeEntry};
use weir::ingest::exposition;

pub use crate::eventually::{PATIENCE, eventually};

/// Where embeddings are made.
pub const EMBEDDINGS: &str = "/v1/embeddings";

/// One scope without a tight quota, for every model.
pub const WIDE: &str = "name = 'sim/main/all'\nrpm = 600_000\ntpm = 600_000_000\n";

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("visible text"))
    }

    /// The code of an error in OpenAI's shape.
    pub fn code(&self) -> String {
        let body = self.json();
        let error = &body["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        assert!(error.get("param").is_some(), "{body}");
        error["code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub fn retries_forbidden(&self) -> bool {
        self.header("x-should-retry") == Some("false")
    }
}

/// A client over keep-alive connections.
#[derive(Clone)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    pub async fn open(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> http::Response<hyper::body::Incoming> {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
        self.0.request(request).await.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let (parts, body) = self.open(method, url, headers, body).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }
}

/// The body of an embeddings request.
pub fn input(text: &str) -> String {
    json!({ "model": "m", "input": text }).to_string()
}

/// The simulated provider.
pub struct Sim {
    pub address: SocketAddr,
    http: Http,
    _stop: oneshot::Sender<()>,
}

impl Sim {
    /// A provider that answers at once and has plenty of quota; `config` comes first.
    pub async fn start(config: &str) -> Self {
        let latency = if config.contains("latency") {
            ""
        } else {
            "latency = { base_ms = 1, spread_ms = 0, per_open_call_ms = 0 }\n"
        };
        let meters = "requests = { per_minute = 600_000 }\ntokens = { per_minute = 600_000_000 }\n";
        let text = format!("{latency}{config}\n{meters}");
        let config = scenario::parse_provider("provider.toml", &text).expect("it is right");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let end = async {
            let _ = stopped.await;
        };
        tokio::spawn(provider_http::serve(listener, config, 1, end));
        Self { address, http: Http::new(), _stop: stop }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn embed(&self, text: &str) -> Reply {
        let url = format!("{}{EMBEDDINGS}", self.url());
        self.http.send(Method::POST, &url, &[], &input(text)).await
    }

    pub async fn script(&self, script: &str) {
        let url = format!("{}/script", self.url());
        let set = self.http.send(Method::POST, &url, &[], script).await;
        assert_eq!(set.status, StatusCode::NO_CONTENT, "{}", set.text());
    }

    pub async fn ledger(&self) -> Value {
        self.http.send(Method::GET, &format!("{}/ledger", self.url()), &[], "").await.json()
    }

    pub async fn attempts(&self) -> u64 {
        self.ledger().await["attempts"].as_u64().expect("a count")
    }
}

/// A provider made by hand: reads one request of each connection, then does as it is told.
pub struct Hand {
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Hand {
    /// `then` gets the number of the request, from 1, and the connection to answer on.
    pub async fn start<F>(then: impl Fn(usize, TcpStream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("bound");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let then = Arc::new(then);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (seen, then) = (Arc::clone(&seen), Arc::clone(&then));
                tokio::spawn(async move {
                    let Some(head) = read_request(&mut stream).await else { return };
                    let number = {
                        let mut seen = seen.lock().expect("no test panics here");
                        seen.push(head);
                        seen.len()
                    };
                    then(number, stream).await;
                });
            }
        });
        Self { address, heads, task }
    }

    /// Answers every request with these bytes and closes the connection.
    pub async fn saying(answer: String) -> Self {
        Self::start(move |_, mut stream| {
            let answer = answer.clone();
            async move {
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await
    }

    /// Takes every request and never answers.
    pub async fn silent() -> Self {
        Self::start(|_, stream| async move {
            tokio::time::sleep(PATIENCE * 2).await;
            drop(stream);
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Heads of the requests so far, names in small letters.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no test panics here").clone()
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The head of a request, once its body has come too.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse::<usize>().ok())
                .unwrap_or(0);
            if bytes.len() >= head.len() + 4 + length {
                return Some(head.to_owned());
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// An answer with a known length, after which the connection closes.
pub fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// A gateway under test.
pub struct Gate {
    pub data: String,
    pub admin: String,
    pub token: String,
    pub http: Http,
    _stop: oneshot::Sender<()>,
}

impl Gate {
    /// A gateway in front of `upstream`; `config` goes into `[gateway]`, one scope into `scope`.
    pub async fn start(upstream: &str, config: &str, scope: &str) -> Self {
        Self::with_scopes(upstream, config, &[scope]).await
    }

    pub async fn with_scopes(upstream: &str, config: &str, scopes: &[&str]) -> Self {
        // A configuration that says more of the provider has a table for it, with UPSTREAM as its address.
        let upstream_key = if config.contains("UPSTREAM") {
            String::new()
        } else {
            format!("upstream = '{upstream}'\n")
        };
        let config = config.replace("UPSTREAM", upstream);
        let text = format!(
            "listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n{upstream_key}seed = 1\n{config}"
        );
        let config: GatewayConfig = toml::from_str(&text).expect("a well-formed [gateway]");
        let scopes: Vec<ScopeEntry> = scopes
            .iter()
            .map(|scope| toml::from_str(scope).expect("a well-formed scope"))
            .collect();
        let gateway = Gateway::start(&config, &scopes).await.expect("the gateway starts");
        let data = format!("http://{}", gateway.data_address());
        let admin = format!("http://{}", gateway.admin_address());
        let token = gateway.token().to_owned();
        let (stop, stopped) = oneshot::channel::<()>();
        let end = async {
            let _ = stopped.await;
        };
        tokio::spawn(gateway.run(end, Duration::ZERO));
        Self { data, admin, token, http: Http::new(), _stop: stop }
    }

    /// `host:port` of the data plane.
    pub fn data_host(&self) -> &str {
        self.data.strip_prefix("http://").expect("as written above")
    }

    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.http.send(Method::POST, &format!("{}{path}", self.data), headers, body).await
    }

    pub async fn embed(&self, text: &str) -> Reply {
        self.post(EMBEDDINGS, &[], &input(text)).await
    }

    pub async fn embed_with(&self, headers: &[(&str, &str)], text: &str) -> Reply {
        self.post(EMBEDDINGS, headers, &input(text)).await
    }

    /// Sends to the admin plane, with the first token unless the headers hold another.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let bearer = format!("Bearer {}", self.token);
        let mut all = headers.to_vec();
        if !all.iter().any(|(name, _)| *name == "authorization") {
            all.push(("authorization", bearer.as_str()));
        }
        self.http.send(method, &format!("{}{path}", self.admin), &all, body).await
    }

    pub async fn metrics(&self) -> Metrics {
        let url = format!("{}/metrics", self.admin);
        Metrics::read(&self.http.send(Method::GET, &url, &[], "").await.body)
    }

    /// Waits until nothing is open, queued or held.
    pub async fn idle(&self) {
        eventually("an idle gate", async || {
            let tally = self.ask(Method::GET, "/admin/v1/tally", &[], "").await.json();
            let metrics = self.metrics().await;
            let held = ["weir_permits_in_use", "weir_upstream_open", "weir_queue_depth"]
                .map(|name| metrics.count(name, &[]));
            (tally["open"] == 0 && held == [0; 3]).then_some(())
        })
        .await;
    }

    /// Waits until the sum of these samples is `wanted`.
    pub async fn reaches(&self, name: &str, labels: &[(&str, &str)], wanted: u64) {
        eventually(&format!("{name} {labels:?} {wanted}"), async || {
            (self.metrics().await.count(name, labels) >= wanted).then_some(())
        })
        .await;
    }
}

/// Samples of one scrape.
pub struct Metrics(Vec<(String, BTreeMap<String, String>, f64)>);

impl Metrics {
    pub fn read(body: &[u8]) -> Self {
        let mut samples = Vec::new();
        let report = exposition::parse(body, exposition::Format::Text, |sample| {
            let labels =
                sample.labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            samples.push((sample.name.to_string(), labels.collect(), sample.value));
        })
        .expect("small");
        assert!(report.prometheus_accepts() && !report.cut, "{:?}", report.problems);
        Self(samples)
    }

    /// As [`Self::sum`], of counts.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small whole numbers, which is asserted"
    )]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let sum = self.sum(name, labels);
        assert!(sum >= 0.0 && sum.fract().abs() < f64::EPSILON, "{name}{labels:?}: {sum}");
        sum as u64
    }

    /// The sum of the samples of this name that have these labels; zero when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |own: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| own.get(*label).is_some_and(|own| own == value))
        };
        self.0
            .iter()
            .filter(|(own, at, _)| own == name && fits(at))
            .map(|(_, _, value)| value)
            .sum()
    }

    pub fn names(&self) -> std::collections::BTreeSet<&str> {
        self.0.iter().map(|(name, ..)| name.as_str()).collect()
    }
}
