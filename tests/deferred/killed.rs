//! Gateways that are killed at random moments of a run: every item that a caller was told is stored gets
//! its end, and only what was in hand at a kill reaches the provider twice.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::gateway::{EMBEDDINGS, Sim};
use crate::process::Process;
use crate::redis_server::RedisServer;

const ITEMS: usize = 400;
const KILLS: usize = 5;
const CONCURRENCY: usize = 8;
/// Callers that store at once.
const CALLERS: usize = 8;
/// The longest that the run may take on a machine that has other work.
const RUN_MAX: Duration = Duration::from_secs(120);

type Caller = Client<HttpConnector, Full<Bytes>>;

/// One gateway as a process of its own, always at the same address.
struct Killable {
    home: tempfile::TempDir,
    address: SocketAddr,
    process: Option<Process>,
}

impl Killable {
    fn new(name: &str, provider: SocketAddr, store: &str) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let store = store.replace("HOME", &home.path().display().to_string());
        let config = format!(
            "[gateway]\ninstance = '{name}'\nlisten = '{address}'\nadmin_listen = '127.0.0.1:0'\n\
             upstream = 'http://{provider}'\n[gateway.deferred]\n{store}\n\
             concurrency = {CONCURRENCY}\ncoalesce_inputs = 1\n\
             [[scope]]\nname = 'sim/main/all'\nrpm = 600_000\n"
        );
        std::fs::write(home.path().join("weir.toml"), config).expect("writable");
        let mut made = Self { home, address, process: None };
        made.start();
        made
    }

    fn start(&mut self) {
        let file = self.home.path().join("weir.toml").display().to_string();
        self.process = Some(Process::start(&["gateway", "-c", &file], self.home.path()));
    }

    /// As the kernel does it, in the middle of whatever it does; then anew.
    fn kill_and_restart(&mut self) {
        self.process = None;
        self.start();
    }
}

async fn send(
    caller: &Caller,
    method: Method,
    url: &str,
    key: Option<&str>,
    body: &str,
) -> Option<(StatusCode, Value)> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(key) = key {
        request = request
            .header("x-weir-lane", "batch")
            .header("prefer", "respond-async")
            .header("idempotency-key", key);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let (head, body) = caller.request(request).await.ok()?.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    Some((head.status, serde_json::from_slice(&body).ok()?))
}

/// Stores an item at whichever gateway answers; returns where its status is.
async fn store(caller: &Caller, gateways: &[SocketAddr], number: usize) -> String {
    let body = json!({"model": "m", "input": format!("item {number}")}).to_string();
    let key = format!("item-{number}");
    let mut turn = number;
    loop {
        let url = format!("http://{}{EMBEDDINGS}", gateways[turn % gateways.len()]);
        if let Some((StatusCode::ACCEPTED, page)) =
            send(caller, Method::POST, &url, Some(&key), &body).await
        {
            return page["status_url"].as_str().expect("a place").to_owned();
        }
        turn += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the end of an item; whether it was answered.
async fn ended(caller: &Caller, gateways: &[SocketAddr], place: &str) -> bool {
    let began = Instant::now();
    loop {
        for gateway in gateways {
            let url = format!("http://{gateway}{place}");
            match send(caller, Method::GET, &url, None, "").await {
                Some((StatusCode::OK, page)) if page["status"] == "done" => return true,
                Some((StatusCode::OK, page)) if page["status"] == "dead" => return false,
                Some((StatusCode::NOT_FOUND, _)) => panic!("{place} is lost"),
                _ => {}
            }
        }
        assert!(began.elapsed() < RUN_MAX, "{place} has no end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn run(what: &str, sim: &Sim, mut gateways: Vec<Killable>) {
    let addresses: Arc<[SocketAddr]> = gateways.iter().map(|gateway| gateway.address).collect();
    let caller: Caller = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let callers: Vec<_> = (0..CALLERS)
        .map(|first| {
            let (caller, addresses) = (caller.clone(), Arc::clone(&addresses));
            tokio::spawn(async move {
                let mut places = Vec::new();
                for number in (first..ITEMS).step_by(CALLERS) {
                    places.push(store(&caller, &addresses, number).await);
                }
                places
            })
        })
        .collect();
    for kill in 0..KILLS {
        let random = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        tokio::time::sleep(Duration::from_millis(300 + 3 * random)).await;
        let count = gateways.len();
        let gateway = &mut gateways[kill % count];
        tokio::task::block_in_place(|| gateway.kill_and_restart());
    }
    let mut answered = 0;
    for stored in callers {
        for place in stored.await.expect("a caller") {
            answered += usize::from(ended(&caller, &addresses, &place).await);
        }
    }
    let ledger = sim.ledger().await;
    let count = |name: &str| usize::try_from(ledger[name].as_u64().unwrap_or(0)).unwrap_or(0);
    let duplicates = count("attempts") - count("originals");
    println!(
        "{what}: {ITEMS} stored, {KILLS} kills, {answered} answered, {duplicates} sent twice of {} \
         that could be",
        KILLS * CONCURRENCY
    );
    assert_eq!(answered, ITEMS, "{ledger}");
    assert_eq!(count("originals"), ITEMS, "{ledger}");
    assert!(duplicates <= KILLS * CONCURRENCY, "{ledger}");
}

async fn slow_provider() -> Sim {
    Sim::start("latency = { base_ms = 60, spread_ms = 40, per_open_call_ms = 0 }").await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_a_gateway_with_a_file_is_killed() {
    let sim = slow_provider().await;
    let gateway = Killable::new("one", sim.address, "path = 'HOME/deferred.db'");
    run("embedded", &sim, vec![gateway]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_gateways_on_one_redis_are_killed() {
    let sim = slow_provider().await;
    let server = RedisServer::start();
    let store = format!("redis = '{}'\nlease_s = 2.0", server.url());
    let gateways = ["one", "two"].map(|name| Killable::new(name, sim.address, &store));
    run("redis", &sim, gateways.into()).await;
}
