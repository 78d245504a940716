//! A real Prometheus, pages for it to scrape, and the two roads from pages to signals.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use tempfile::TempDir;
use weir::ingest::prometheus::{Answers, Data, PrometheusApi, PrometheusConfig, PrometheusSource};
use weir::ingest::{Access, Adapter, Adapters, Assembler, OnePage, Page, SourceRules};
use weir::signal::{Mono, Snapshot};

pub use crate::eventually::{PATIENCE, eventually};

/// What rates are taken over.
pub const WINDOW: Duration = Duration::from_secs(6);

/// Pages by path, served over HTTP until the value is dropped.
pub struct Pages {
    pub address: SocketAddr,
    pages: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Pages {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let pages: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let served = Arc::downgrade(&pages);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(pages) = served.upgrade() else { return };
                std::thread::spawn(move || serve(stream, &pages));
            }
        });
        Self { address, pages }
    }

    pub fn set(&self, path: &str, body: String) {
        self.pages.lock().expect("no test panics here").insert(path.to_owned(), body);
    }

    /// The page is gone from now on.
    pub fn remove(&self, path: &str) {
        self.pages.lock().expect("no test panics here").remove(path);
    }
}

fn serve(mut stream: std::net::TcpStream, pages: &Mutex<BTreeMap<String, String>>) {
    let mut head = [0; 4096];
    let Ok(read) = stream.read(&mut head) else { return };
    let head = String::from_utf8_lossy(&head[..read]);
    let path = head.split_whitespace().nth(1).unwrap_or_default().trim_start_matches('/');
    let page = pages.lock().expect("no test panics here").get(path).cloned();
    let (status, body) = page.map_or(("503 Service Unavailable", String::new()), |p| ("200 OK", p));
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

/// A real Prometheus that scrapes every second; it ends with the value.
pub struct Prometheus {
    pub url: String,
    child: Child,
    _data: TempDir,
}

impl Prometheus {
    /// One that scrapes these jobs: name, address, path.
    pub async fn start(jobs: &[(&str, SocketAddr, &str)]) -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let config = data.path().join("prometheus.yml");
        let jobs: Vec<_> = jobs
            .iter()
            .map(|(job, address, path)| {
                serde_json::json!({
                    "job_name": job,
                    "metrics_path": format!("/{path}"),
                    "static_configs": [{ "targets": [address.to_string()] }],
                })
            })
            .collect();
        let global = serde_json::json!({ "scrape_interval": "1s", "scrape_timeout": "1s" });
        // Every JSON document is a YAML document.
        let text = serde_json::json!({ "global": global, "scrape_configs": jobs }).to_string();
        std::fs::write(&config, text).expect("written");
        let port = TcpListener::bind("127.0.0.1:0").expect("loopback").local_addr().expect("bound");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .arg(format!("--web.listen-address={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test runs Prometheus: {error}; install the prometheus package")
            });
        let prometheus = Self { url: format!("http://{port}"), child, _data: data };
        let ready = format!("{}/-/ready", prometheus.url);
        let client = Access::default().client().expect("a client");
        eventually("a Prometheus that is ready", async || {
            client.get(&ready).send().await.ok().filter(|answer| answer.status().is_success())
        })
        .await;
        prometheus
    }

    /// Waits until every target has been scraped for longer than the window.
    pub async fn has_history(&self, targets: usize) {
        let api = PrometheusApi::new("test", &self.url, Access::default()).expect("an address");
        let query = format!("count(up offset {}s) == {targets}", WINDOW.as_secs() + 1);
        eventually("a whole window of scrapes", async || {
            let reply = api.query(&query, None).await.ok()?;
            matches!(reply.answer.data, Data::Vector(series) if !series.is_empty()).then_some(())
        })
        .await;
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The job of this name, read by this adapter.
    pub fn source(&self, job: &str, adapter: &str) -> PrometheusSource {
        source(&self.url, job, adapter)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A job of the server at `url`, read by this adapter.
pub fn source(url: &str, job: &str, adapter: &str) -> PrometheusSource {
    let config = PrometheusConfig {
        name: "gateway".to_owned(),
        url: url.to_owned(),
        select: format!("job=\"{job}\"").parse().expect("matchers"),
        adapter: shipped(adapter),
        access: Access::default(),
        timeout: Duration::from_secs(5),
        window: Some(WINDOW),
    };
    PrometheusSource::new(config).expect("an address")
}

pub fn shipped(adapter: &str) -> Arc<Adapter> {
    Adapters::shipped().get(adapter).expect("ships with weir")
}

/// What answers say about a source, through the same assembler as pages.
pub fn told(answers: Answers, adapter: &str) -> Snapshot {
    let mut assembler = Assembler::new();
    let id = assembler.add("gateway", rules(adapter));
    assembler.answer(id, Arc::new(answers), Mono::START);
    assembler.snapshots(Mono::START).remove(0)
}

fn rules(adapter: &str) -> SourceRules {
    SourceRules { window: WINDOW, ..SourceRules::new(shipped(adapter)) }
}

/// The direct road: pages with their times.
pub struct Direct {
    page: OnePage,
    at: Mono,
}

impl Direct {
    pub fn new(adapter: &str) -> Self {
        Self { page: OnePage::new("gateway", rules(adapter)), at: Mono::START }
    }

    pub fn accept(&mut self, page: &str, at: Mono) {
        self.at = at;
        let report = self.page.accept(Page::text(page), at).expect("small");
        assert!(report.prometheus_accepts(), "{:?}", report.problems);
    }

    pub fn snapshot(&self) -> Snapshot {
        self.page.snapshots(self.at).remove(0)
    }
}

pub fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_none_or(|extension| extension != "gz") {
        return String::from_utf8(bytes).expect("UTF-8");
    }
    let mut text = String::new();
    GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("gzip");
    text
}
