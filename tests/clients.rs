//! The drill's clients against the simulated provider over real sockets: ledgers on both sides agree.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;
use weir::drill::clients_http::{self, ClientsConfig};
use weir::drill::provider_http;
use weir::drill::scenario::Scenario;

/// A storm in small: a quota for a fraction of the questions, and layers that hardly wait.
const SMALL: &str = r#"
name = "small"
title = "a storm in small"
duration_s = 1
onset_s = 0
max_attempts_configured = 3
flags = { "admission.mode" = "off" }

[provider]
requests = { per_minute = 6_000 }
tokens = { per_minute = 600, start = 50 }
latency = { base_ms = 1, spread_ms = 0, refusal_ms = 0 }

[traffic]
tokens = { min = 5, max = 5 }
steps = [{ name = "storm", at_s = 0, rate = 200 }]

[layers]
sdk = { base_s = 0.01, cap_s = 0.02, hint_max_s = 0 }
wrapper = { base_s = 0.01 }
frontend = { after_s = 0.02, probability = 0.5 }

[expect]
cause = "nested-retries"
after_cure = "demand-over-capacity"
"#;

async fn call(address: SocketAddr, method: Method, path: &str) -> (StatusCode, Bytes) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    let (parts, body) = client.request(request).await.expect("an answer").into_parts();
    (parts.status, body.collect().await.expect("a whole body").to_bytes())
}

async fn ledger(address: SocketAddr) -> Value {
    serde_json::from_slice(&call(address, Method::GET, "/ledger").await.1).expect("JSON")
}

async fn start_both(duration: Duration) -> (SocketAddr, SocketAddr) {
    let scenario = Scenario::parse("small.toml", SMALL).expect("it is right");
    let provider = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let clients = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let addresses = (provider.local_addr().expect("bound"), clients.local_addr().expect("bound"));
    let targets = vec![format!("http://{}", addresses.0).parse().expect("a URL")];
    let config = scenario.provider.clone();
    tokio::spawn(provider_http::serve(provider, config, 1, std::future::pending()));
    let config = ClientsConfig { scenario, targets, admin: None, seed: 1, duration };
    tokio::spawn(clients_http::serve(clients, config, std::future::pending()));
    addresses
}

/// Polls the clients' ledger until it satisfies `done`, for at most 20 s.
async fn wait_for(clients: SocketAddr, done: impl Fn(&Value) -> bool) -> Value {
    let polling = async {
        loop {
            let ledger = ledger(clients).await;
            if done(&ledger) {
                return ledger;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), polling).await.expect("it gets there")
}

fn number(ledger: &Value, key: &str) -> u64 {
    ledger[key].as_u64().expect("a count")
}

#[tokio::test]
async fn nothing_is_sent_before_the_start_and_both_ledgers_agree_after_the_end() {
    let (provider, clients) = start_both(Duration::from_secs(1)).await;
    assert_eq!(number(&ledger(clients).await, "originals"), 0);
    assert_eq!(call(clients, Method::POST, "/start").await.0, StatusCode::NO_CONTENT);
    assert_eq!(call(clients, Method::POST, "/start").await.0, StatusCode::CONFLICT);
    let seen = wait_for(clients, |ledger| {
        let ended = number(ledger, "served") + number(ledger, "failed");
        number(ledger, "originals") > 150 && ended == number(ledger, "originals")
    })
    .await;
    let counted = ledger(provider).await;
    assert_eq!(counted["originals"], seen["originals"], "bodies tell originals apart");
    assert_eq!(counted["attempts"], seen["calls"]["sdk"]);
    assert_eq!(number(&counted, "tokens_sent"), 5 * number(&seen, "served"));
    let frontend = number(&seen["calls"], "frontend");
    assert!(number(&seen["calls"], "sdk") > 4 * frontend, "layers multiply: {seen}");
    let metrics = call(clients, Method::GET, "/metrics").await.1;
    let metrics = String::from_utf8(metrics.to_vec()).expect("text");
    let line = format!("simcli_layer_calls_total{{layer=\"frontend\"}} {frontend}");
    assert!(metrics.lines().any(|written| written == line), "{line} in {metrics}");
}

#[tokio::test]
async fn a_stop_ends_new_originals_and_waits() {
    let (provider, clients) = start_both(Duration::from_hours(1)).await;
    call(clients, Method::POST, "/start").await;
    wait_for(clients, |ledger| number(ledger, "originals") > 40).await;
    call(clients, Method::POST, "/stop").await;
    let ended = |ledger: &Value| number(ledger, "served") + number(ledger, "failed");
    let seen = wait_for(clients, |ledger| ended(ledger) == number(ledger, "originals")).await;
    assert_eq!((number(&seen, "in_flight"), number(&seen, "waiting")), (0, 0));
    assert_eq!(ledger(provider).await["attempts"], seen["calls"]["sdk"]);
}
