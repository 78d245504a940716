//! Answers of the provider on their way to the caller: passed on whole, counted, never improved.

use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::support::{EMBEDDINGS, Gate, Hand, Http, Sim, WIDE, answer, input};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn a_success_keeps_the_providers_headers_and_gains_the_gates() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let direct = sim.embed("one two three").await;
    let through = gate.embed("one two three").await;
    assert_eq!(through.status, StatusCode::OK);
    assert_eq!(through.json()["data"], direct.json()["data"]);
    assert_eq!(through.header("x-ratelimit-limit-tokens"), Some("600000000"));
    assert!(through.header("x-request-id").is_some_and(|id| id.starts_with("req_sim")));
    assert_eq!(through.header("x-weir-attempts"), Some("1"));
    assert_eq!(through.header("x-weir-request-id"), Some("1"));
    let waited = through.header("x-weir-queue-ms").expect("how long it waited");
    assert!(waited.parse::<u64>().is_ok_and(|ms| ms < 5_000), "{waited}");
    assert_eq!(through.header("x-should-retry"), None);
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_tokens_actual_total", &[]), 3);
    gate.idle().await;
}

#[tokio::test]
async fn only_what_belongs_to_the_request_goes_to_the_provider() {
    let hand = Hand::saying(answer("200 OK", "", "{}")).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let headers = [
        ("authorization", "Bearer caller"),
        ("openai-organization", "org"),
        ("x-weir-lane", "batch"),
        ("x-weir-tenant", "somebody"),
        ("keep-alive", "timeout=5"),
    ];
    gate.post("/v1/embeddings?dry=1", &headers, &input("a")).await;
    let head = hand.heads().concat();
    assert!(head.starts_with("post /v1/embeddings?dry=1 http/1.1"), "{head}");
    assert!(head.contains(&format!("host: {}", hand.address)), "{head}");
    assert!(head.contains("authorization: bearer caller"), "{head}");
    assert!(head.contains("openai-organization: org"), "{head}");
    for gone in ["x-weir-lane", "x-weir-tenant", "keep-alive"] {
        assert!(!head.contains(gone), "{gone} in {head}");
    }
}

#[tokio::test]
async fn a_stream_passes_chunk_by_chunk() {
    let (after_first, first_was_read) = oneshot::channel::<()>();
    let first_was_read = Arc::new(Mutex::new(Some(first_was_read)));
    let hand = Hand::start(move |_, mut stream| {
        let first_was_read = first_was_read.lock().expect("nothing panics").take();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        transfer-encoding: chunked\r\n\r\n";
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            let first = format!("{head}{}", chunk("data: {\"n\":1}\n\n"));
            stream.write_all(first.as_bytes()).await.expect("the gateway listens");
            // The rest exists only once the caller has the first part.
            first_was_read.expect("one request").await.expect("the caller got it");
            let usage = "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4,\
                         \"total_tokens\":11}}\n\n";
            let rest = format!("{}{}0\r\n\r\n", chunk(usage), chunk("data: [DONE]\n\n"));
            stream.write_all(rest.as_bytes()).await.expect("the gateway listens");
        }
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let body = json!({ "model": "m", "messages": [], "stream": true }).to_string();
    let url = format!("{}{CHAT}", gate.data);
    let mut response = Http::new().open(Method::POST, &url, &[], &body).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let first = response.frame().await.expect("a part").expect("unbroken");
    assert_eq!(first.into_data().expect("data"), "data: {\"n\":1}\n\n");
    after_first.send(()).expect("the provider waits for it");
    let rest = response.collect().await.expect("the rest").to_bytes();
    assert!(rest.ends_with(b"data: [DONE]\n\n"));
    gate.reaches("weir_tokens_actual_total", &[], 11).await;
    gate.idle().await;
}

#[tokio::test]
async fn the_usage_of_a_simulated_stream_is_what_the_provider_charged() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let body = json!({
        "model": "m", "messages": [{ "role": "user", "content": "hello there" }],
        "stream": true, "stream_options": { "include_usage": true },
    });
    let stream = gate.post(CHAT, &[], &body.to_string()).await;
    assert!(stream.body.ends_with(b"data: [DONE]\n\n"), "{}", stream.text());
    gate.reaches("weir_tokens_actual_total", &[], 10).await;
    assert_eq!(sim.ledger().await["tokens_sent"], 10);
    let estimated = gate.metrics().await.count("weir_tokens_estimated_total", &[]);
    assert!(estimated > 10, "bytes overstate words: {estimated}");
}

#[tokio::test]
async fn an_answer_without_a_body_is_a_success_too() {
    for head in ["200 OK\r\ncontent-length: 0", "204 No Content"] {
        let hand = Hand::saying(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n")).await;
        let gate = Gate::start(&hand.url(), "", WIDE).await;
        let url = format!("{}/v1/files/f", gate.data);
        let reply = gate.http.send(Method::DELETE, &url, &[], "").await;
        assert!(reply.status.is_success() && reply.body.is_empty(), "{reply:?}");
        gate.reaches("weir_completed_total", &[("outcome", "success")], 1).await;
        let cancelled = gate.metrics().await.count("weir_cancelled_total", &[]);
        assert_eq!(cancelled, 0, "nobody went away: {head}");
        gate.idle().await;
    }
}

#[tokio::test]
async fn a_head_request_is_answered_with_the_length_and_no_body() {
    let said = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n";
    let hand = Hand::saying(said.to_owned()).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let url = format!("{}/v1/models", gate.data);
    let reply = gate.http.send(Method::HEAD, &url, &[], "").await;
    assert_eq!((reply.status, reply.header("content-length")), (StatusCode::OK, Some("12")));
    gate.idle().await;
}

#[tokio::test]
async fn switched_off_it_changes_nothing_of_what_the_provider_says() {
    let off = "[flags]\n'admission.mode' = 'off'";
    let large = format!("{{\"error\":\"{}\"}}", "x".repeat(3 << 20));
    let json = "content-type: application/json\r\n";
    let hinted = format!(
        "{json}retry-after: 75\r\nretry-after-ms: 74100\r\nx-should-retry: true\r\nx-odd: 1\r\n"
    );
    for (status, headers, body) in [
        (
            "429 Too Many Requests",
            hinted.as_str(),
            "{\"error\":{\"code\":\"rate_limit_exceeded\"}}",
        ),
        ("500 Internal Server Error", json, large.as_str()),
        ("503 Service Unavailable", "content-type: text/html\r\n", "<h1>busy</h1>"),
        ("302 Found", "location: https://elsewhere/\r\n", ""),
        ("400 Bad Request", json, "{"),
    ] {
        let hand = Hand::saying(answer(status, headers, body)).await;
        let gate = Gate::start(&hand.url(), off, WIDE).await;
        let url = format!("{}{EMBEDDINGS}", hand.url());
        let direct = gate.http.send(Method::POST, &url, &[], &input("a")).await;
        let through = gate.embed("a").await;
        assert_eq!(through.status, direct.status);
        assert!(through.body == direct.body, "{status}: {} bytes", through.body.len());
        for name in direct.headers.keys().filter(|name| *name != "connection" && *name != "date") {
            assert_eq!(through.headers.get(name), direct.headers.get(name), "{status}: {name}");
        }
        assert_eq!(hand.heads().len(), 2, "one attempt each");
        gate.idle().await;
    }
}

#[tokio::test]
async fn switched_off_it_neither_holds_back_nor_joins_nor_refuses() {
    let sim = Sim::start("script = 'rate_limit:3'").await;
    let tight = "name = 's'\nrpm = 1\ntpm = 1\n";
    let gate = Gate::start(&sim.url(), "[flags]\n'admission.mode' = 'off'", tight).await;
    for expected in [429, 429, 429, 200, 200] {
        let reply = gate.embed("the same").await;
        assert_eq!(reply.status.as_u16(), expected);
        assert_eq!(reply.header("x-should-retry"), None);
    }
    assert_eq!(sim.attempts().await, 5);
}
