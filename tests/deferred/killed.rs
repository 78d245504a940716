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

/// How long a run is.
#[derive(Clone, Copy)]
struct Plan {
    items: usize,
    kills: usize,
    /// The shortest from one kill to the next; random times up to three times as long.
    every: Duration,
    /// The longest that it may take on a machine that has other work.
    most: Duration,
}

const SHORT: Plan =
    Plan { items: 400, kills: 5, every: Duration::from_millis(300), most: Duration::from_mins(2) };

/// As long as the variable `WEIR_KILL_ITEMS` says, some 40 items a second.
fn long() -> Plan {
    let items = std::env::var("WEIR_KILL_ITEMS").ok().and_then(|items| items.parse().ok());
    let items = items.unwrap_or(10_000);
    Plan {
        items,
        kills: (items / 500).max(2),
        every: Duration::from_secs(4),
        most: Duration::from_mins(20),
    }
}

const CONCURRENCY: usize = 8;
/// Callers that store at once.
const CALLERS: usize = 8;

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
async fn ended(caller: &Caller, gateways: &[SocketAddr], place: &str, until: Instant) -> bool {
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
        assert!(Instant::now() < until, "{place} has no end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[expect(clippy::print_stdout, reason = "figures, for a person who reads them")]
async fn run(what: &str, plan: Plan, sim: &Sim, mut gateways: Vec<Killable>) {
    let began = Instant::now();
    let addresses: Arc<[SocketAddr]> = gateways.iter().map(|gateway| gateway.address).collect();
    let caller: Caller = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let callers: Vec<_> = (0..CALLERS)
        .map(|first| {
            let (caller, addresses) = (caller.clone(), Arc::clone(&addresses));
            tokio::spawn(async move {
                let mut places = Vec::new();
                for number in (first..plan.items).step_by(CALLERS) {
                    places.push(store(&caller, &addresses, number).await);
                }
                places
            })
        })
        .collect();
    for kill in 0..plan.kills {
        let random = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 128.0;
        tokio::time::sleep(plan.every.mul_f64(1.0 + random)).await;
        let count = gateways.len();
        let gateway = &mut gateways[kill % count];
        tokio::task::block_in_place(|| gateway.kill_and_restart());
    }
    let mut answered = 0;
    for stored in callers {
        for place in stored.await.expect("a caller") {
            answered += usize::from(ended(&caller, &addresses, &place, began + plan.most).await);
        }
    }
    let ledger = sim.ledger().await;
    let count = |name: &str| usize::try_from(ledger[name].as_u64().unwrap_or(0)).unwrap_or(0);
    let duplicates = count("attempts") - count("originals");
    println!(
        "{what}: {} stored, {} kills, {answered} answered, {duplicates} sent twice of {} that could \
         be, in {:.0} s",
        plan.items,
        plan.kills,
        plan.kills * CONCURRENCY,
        began.elapsed().as_secs_f64()
    );
    assert_eq!(answered, plan.items, "{ledger}");
    assert_eq!(count("originals"), plan.items, "{ledger}");
    assert!(duplicates <= plan.kills * CONCURRENCY, "{ledger}");
}

async fn with_a_file(plan: Plan, base_ms: u32) {
    let sim = slow_provider(base_ms).await;
    let gateway = Killable::new("one", sim.address, "path = 'HOME/deferred.db'");
    run("embedded", plan, &sim, vec![gateway]).await;
}

async fn with_redis(plan: Plan, base_ms: u32) {
    let sim = slow_provider(base_ms).await;
    let server = RedisServer::start();
    let store = format!("redis = '{}'\nlease_s = 2.0", server.url());
    let gateways = ["one", "two"].map(|name| Killable::new(name, sim.address, &store));
    run("redis", plan, &sim, gateways.into()).await;
}

async fn slow_provider(base_ms: u32) -> Sim {
    let latency = format!("base_ms = {base_ms}, spread_ms = 40, per_open_call_ms = 0");
    Sim::start(&format!("latency = {{ {latency} }}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_a_gateway_with_a_file_is_killed() {
    with_a_file(SHORT, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_gateways_on_one_redis_are_killed() {
    with_redis(SHORT, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; tests/bench/deferred_kill.sh runs it"]
async fn a_long_run_with_a_file() {
    with_a_file(long(), 200).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; tests/bench/deferred_kill.sh runs it"]
async fn a_long_run_with_redis() {
    with_redis(long(), 200).await;
}
