//! Small embedding requests go together, and one that is bad does not take the others with it.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use crate::gateway::{EMBEDDINGS, Gate, LATER, Sim, WIDE, becomes, lane, page, ticket};

const ITEMS: usize = 40;

/// A gate whose lane is switched off, so that a load gathers.
async fn gathering(folder: &std::path::Path, sim: &Sim, more: &str) -> Gate {
    let off = "[flags]\n'lane.batch.enabled' = false";
    Gate::start(&sim.url(), &lane(folder, off, more), WIDE).await
}

async fn go(gate: &Gate) {
    let change = json!({"value": true, "reason": "test", "actor": "test", "request_id": "go",
        "on_expire": "remind"});
    let path = "/admin/v1/flags/lane.batch.enabled";
    let on = gate.ask(Method::PUT, path, &[("if-match", "\"0\"")], &change.to_string()).await;
    assert_eq!(on.status, StatusCode::OK, "{}", on.text());
}

fn text(number: usize) -> String {
    json!({"model": "m", "input": format!("text number {number}")}).to_string()
}

#[tokio::test]
async fn many_small_requests_make_few_and_each_gets_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = gathering(folder.path(), &sim, "").await;
    let mut places = Vec::new();
    for number in 0..ITEMS {
        places.push(ticket(&gate.post(EMBEDDINGS, &LATER, &text(number)).await));
    }
    go(&gate).await;
    let mut used = 0;
    for (number, place) in places.iter().enumerate() {
        let done = becomes(&gate, place, "done").await;
        let body = &done["response"]["body"];
        let alone = gate.post(EMBEDDINGS, &[], &text(number)).await.json();
        assert_eq!(body["data"], alone["data"], "{number}");
        used += body["usage"]["total_tokens"].as_u64().expect("usage");
    }
    let attempts = sim.attempts().await - ITEMS as u64;
    assert!(attempts <= 3, "{attempts} requests for {ITEMS}");
    let alone = gate.metrics().await.count("weir_tokens_actual_total", &[]);
    assert!(used > 0 && alone > used, "{used} of {alone}");
    gate.reaches("weir_deferred_joined_total", &[], ITEMS as u64 - 3).await;
}

#[tokio::test]
async fn a_limit_of_inputs_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let sim = Sim::start("").await;
    let gate = gathering(folder.path(), &sim, "coalesce_inputs = 10").await;
    let mut places = Vec::new();
    for number in 0..ITEMS {
        places.push(ticket(&gate.post(EMBEDDINGS, &LATER, &text(number)).await));
    }
    go(&gate).await;
    for place in &places {
        becomes(&gate, place, "done").await;
    }
    assert_eq!(sim.attempts().await, 4);
}

#[tokio::test]
async fn a_bad_one_is_found_among_good_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    // Refuses any request that has an empty text in it, as OpenAI does.
    let sim = picky().await;
    let gate = Gate::start(
        &sim.url(),
        &lane(folder.path(), "[flags]\n'lane.batch.enabled' = false", ""),
        WIDE,
    )
    .await;
    let mut places = Vec::new();
    for number in 0..20 {
        let body = if number == 7 {
            json!({"model": "m", "input": "POISON"}).to_string()
        } else {
            text(number)
        };
        places.push(ticket(&gate.post(EMBEDDINGS, &LATER, &body).await));
    }
    go(&gate).await;
    for (number, place) in places.iter().enumerate() {
        let wanted = if number == 7 { "dead" } else { "done" };
        let page = becomes(&gate, place, wanted).await;
        if number == 7 {
            assert_eq!(page["response"]["status_code"], 400);
            assert_eq!(page["response"]["body"]["error"]["message"], "no poison please");
        }
    }
    let requests = sim.requests();
    assert!(requests <= 12, "{requests} requests to find one of 20");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(page(&gate, &places[7], &[]).await.json()["status"], "dead");
}

/// An embeddings API that answers by the number of inputs, unless one of them is poison.
struct Picky {
    address: std::net::SocketAddr,
    requests: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Picky {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(std::sync::atomic::Ordering::Relaxed)
    }
}

async fn picky() -> Picky {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let requests = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&requests);
    let answer = move |body: String| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let one = [body["input"].clone()];
            let inputs = body["input"].as_array().map_or(&one[..], Vec::as_slice);
            if inputs.iter().any(|input| input == "POISON") {
                let error = json!({"error": {"message": "no poison please",
                    "type": "invalid_request_error", "param": "input", "code": null}});
                return (StatusCode::BAD_REQUEST, axum::Json(error));
            }
            let data: Vec<_> = (0..inputs.len())
                .map(|index| json!({"object": "embedding", "index": index, "embedding": [0.5]}))
                .collect();
            let usage = json!({"prompt_tokens": inputs.len(), "total_tokens": inputs.len()});
            (StatusCode::OK, axum::Json(json!({"data": data, "model": "m", "usage": usage})))
        }
    };
    let router = axum::Router::new().route(EMBEDDINGS, axum::routing::post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Picky { address, requests }
}
