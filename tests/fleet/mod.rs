//! A fleet under test: a provider and gateways as processes of their own, and a load on all of them.
//!
//! Everything listens on a free loopback port, and ends with the value that holds it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::process::Process;

/// From one request of a load to the next, at the least.
const STEP: Duration = Duration::from_millis(5);

/// A client over keep-alive connections.
#[derive(Clone)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Client::builder(TokioExecutor::new()).build(connector))
    }

    /// `None` where nobody answers.
    async fn send(&self, request: Request<Full<Bytes>>) -> Option<(StatusCode, HeaderMap, Bytes)> {
        let (head, body) = self.0.request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some((head.status, head.headers, body))
    }

    async fn get(&self, url: String) -> Bytes {
        let request = Request::get(&url).body(Full::default()).expect("a request");
        self.send(request).await.unwrap_or_else(|| panic!("nobody answers at {url}")).2
    }
}

/// Starts a process of weir with a configuration of its own.
fn start(home: &Path, config: &str, command: &[&str]) -> Process {
    let file = home.join("config.toml");
    std::fs::write(&file, config).expect("the folder can be written to");
    let file = file.display().to_string();
    Process::start(&[command, &["-c", &file]].concat(), home)
}

fn url(process: &Process, key: &str) -> String {
    format!("http://{}", process.address(key))
}

/// What the provider counted between two looks, and how long that was.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub served: f64,
    pub refused: f64,
    pub seconds: f64,
}

impl Counted {
    pub fn per_second(&self) -> f64 {
        self.served / self.seconds
    }
}

/// A simulated provider and gateways in front of it that share a store.
pub struct Fleet {
    http: Http,
    provider: Process,
    gateways: Vec<Option<Process>>,
    _homes: Vec<tempfile::TempDir>,
}

impl Fleet {
    /// `provider` is its configuration; `scopes` follow `[gateway]` in that of each gateway.
    pub fn start(count: usize, provider: &str, store: &str, scopes: &str) -> Self {
        let homes: Vec<_> = (0..=count).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let args = ["provider", "--listen", "127.0.0.1:0"];
        let provider = start(homes[count].path(), provider, &args);
        let upstream = url(&provider, "listening");
        let gateway = |number: usize| {
            let config = format!(
                "[gateway]\ninstance = 'g{number}'\nlisten = '127.0.0.1:0'\n\
                 admin_listen = '127.0.0.1:0'\nupstream = '{upstream}'\nseed = {number}\n{store}\n\
                 {scopes}"
            );
            Some(start(homes[number].path(), &config, &["gateway"]))
        };
        let gateways = (0..count).map(gateway).collect();
        Self { http: Http::new(), provider, gateways, _homes: homes }
    }

    /// As by the kernel: no word to anybody.
    pub fn kill(&mut self, gateway: usize) {
        self.gateways[gateway] = None;
    }

    /// A gauge of a gateway for one scope.
    pub async fn gauge(&self, gateway: usize, name: &str, scope: &str) -> f64 {
        let process = self.gateways[gateway].as_ref().expect("it lives");
        let page = self.http.get(format!("{}/metrics", url(process, "admin"))).await;
        let page = String::from_utf8_lossy(&page).into_owned();
        let sample = format!("{name}{{scope=\"{scope}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&sample));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {sample}\n{page}"))
    }

    /// Whether this gauge has this value at every gateway that lives.
    pub async fn all_say(&self, name: &str, scope: &str, wanted: f64) -> bool {
        for (gateway, process) in self.gateways.iter().enumerate() {
            if process.is_some()
                && (self.gauge(gateway, name, scope).await - wanted).abs() > f64::EPSILON
            {
                return false;
            }
        }
        true
    }

    /// Attempts and refusals that the provider has counted so far.
    async fn ledger(&self) -> (f64, f64) {
        let ledger = self.http.get(format!("{}/ledger", url(&self.provider, "listening"))).await;
        let ledger: Value = serde_json::from_slice(&ledger).expect("JSON");
        let count = |key: &str| ledger[key].as_f64().expect("a count");
        (count("attempts"), count("provider_429"))
    }

    /// Waits for so long, and says what the provider counted meanwhile.
    pub async fn watch(&self, span: Duration) -> Counted {
        let (before, begun) = (self.ledger().await, Instant::now());
        tokio::time::sleep(span).await;
        let (after, seconds) = (self.ledger().await, begun.elapsed().as_secs_f64());
        let refused = after.1 - before.1;
        Counted { served: after.0 - before.0 - refused, refused, seconds }
    }

    /// Offers every gateway so many requests a second, each a new original, until the load is dropped.
    pub fn offer(&self, load: &Load) -> Offered {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (gateway, process) in self.gateways.iter().enumerate() {
            let Some(process) = process else { continue };
            let url = format!("{}/v1/embeddings", url(process, "data"));
            let (http, seen, load) = (self.http.clone(), Arc::clone(&seen), *load);
            tasks.spawn(async move { http.offer(url, gateway, load, &seen).await });
        }
        Offered { seen, _tasks: tasks }
    }
}

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub lane: &'static str,
    /// Of each gateway.
    pub per_second: f64,
}

/// One request that was answered.
#[derive(Clone, Debug)]
pub struct Seen {
    pub gateway: usize,
    pub asked: Instant,
    pub took: Duration,
    pub status: u16,
    /// Of a refusal of the gateway's own.
    pub code: Option<String>,
    /// `x-weir-budget`
    pub budget: Option<String>,
}

/// A load, and the answers to it.
pub struct Offered {
    seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Offered {
    /// The answers so far to what was asked in this span.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no test panics here");
        seen.iter().filter(|one| one.asked >= from && one.asked < to).cloned().collect()
    }
}

impl Http {
    async fn offer(&self, url: String, gateway: usize, load: Load, seen: &Arc<Mutex<Vec<Seen>>>) {
        let (begun, mut sent) = (Instant::now(), 0.0);
        loop {
            while sent < begun.elapsed().as_secs_f64() * load.per_second {
                sent += 1.0;
                let input = format!("{gateway} {} {sent}", load.lane);
                let body = json!({ "model": "m", "input": input }).to_string();
                let request = Request::post(&url)
                    .header("x-weir-lane", load.lane)
                    .body(Full::from(body))
                    .expect("a request");
                let (http, seen) = (self.clone(), Arc::clone(seen));
                tokio::spawn(async move {
                    if let Some(one) = http.one(request, gateway).await {
                        seen.lock().expect("no test panics here").push(one);
                    }
                });
            }
            tokio::time::sleep(STEP).await;
        }
    }

    async fn one(&self, request: Request<Full<Bytes>>, gateway: usize) -> Option<Seen> {
        let asked = Instant::now();
        let (status, headers, body) = self.send(request).await?;
        let took = asked.elapsed();
        let error = serde_json::from_slice::<Value>(&body).ok();
        let code = error.and_then(|body| Some(body["error"]["code"].as_str()?.to_owned()));
        let budget = headers.get("x-weir-budget").and_then(|value| value.to_str().ok());
        let budget = budget.map(str::to_owned);
        Some(Seen { gateway, asked, took, status: status.as_u16(), code, budget })
    }
}
