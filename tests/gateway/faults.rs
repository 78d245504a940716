//! What goes wrong at the provider: who retries, what the caller is told, and what is counted.

use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::support::{EMBEDDINGS, Gate, Hand, Http, Sim, WIDE, answer, input};

const CLIENT_OWNS: &str = "[flags]\n'retry.owner' = 'client'";

#[tokio::test]
async fn the_gate_retries_a_throttle_and_the_caller_never_learns_of_it() {
    let sim = Sim::start("script = 'rate_limit:1'").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status, reply.header("x-weir-attempts")), (StatusCode::OK, Some("2")));
    assert_eq!(sim.attempts().await, 2);
    let metrics = gate.metrics().await;
    for (name, labels, wanted) in [
        ("weir_attempts_total", &[("kind", "first")][..], 1),
        ("weir_attempts_total", &[("kind", "retry")], 1),
        ("weir_gate_retries_total", &[], 1),
        ("weir_retry_success_total", &[], 1),
        ("weir_originals_total", &[], 1),
        ("weir_attempt_results_total", &[("class", "TRANSIENT_RATE_LIMIT"), ("status", "429")], 1),
        ("weir_provider_refusals_total", &[("meter", "requests")], 1),
        ("weir_retry_after_seconds_count", &[], 1),
    ] {
        let sum = metrics.count(name, labels);
        assert_eq!(sum, wanted, "{name}{labels:?}: {sum}");
    }
}

/// One call against a provider that fails every time.
async fn check(script: &str, flags: &str, status: u16, attempts: u64, forbidden: bool) {
    let sim = Sim::start(&format!("script = '{script}:100'")).await;
    let gate = Gate::start(&sim.url(), flags, WIDE).await;
    let reply = gate.embed("a").await;
    let seen = (reply.status.as_u16(), sim.attempts().await, reply.retries_forbidden());
    assert_eq!(seen, (status, attempts, forbidden), "{script} {flags}");
    assert_eq!(reply.header("x-weir-attempts"), Some(&*attempts.to_string()));
    // The provider's own words, not ours.
    assert!(!reply.code().starts_with("weir_"), "{}", reply.text());
    gate.idle().await;
}

#[tokio::test]
async fn a_fault_that_lasts_is_tried_as_often_as_its_owner_may() {
    let three = "[flags]\n'retry.max_attempts' = 3\n'retry.budget_ratio' = 1.0";
    let no_budget = "[flags]\n'retry.budget_ratio' = 0";
    check("rate_limit", "", 429, 2, true).await;
    check("rate_limit", three, 429, 3, true).await;
    check("rate_limit", no_budget, 429, 1, true).await;
    check("rate_limit", CLIENT_OWNS, 429, 1, false).await;
    check("server_error", "", 500, 2, true).await;
    check("server_error", CLIENT_OWNS, 500, 1, false).await;
}

#[tokio::test]
async fn an_empty_account_is_said_once_and_then_the_breaker_speaks() {
    let sim = Sim::start("steps = [{ at_s = 0, hard_quota = true }]").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let first = gate.embed("a").await;
    assert_eq!((first.status.as_u16(), first.code().as_str()), (429, "insufficient_quota"));
    assert_eq!(first.json(), sim.embed("a").await.json(), "the provider's own body");
    assert!(first.retries_forbidden());
    let next = gate.embed("b").await;
    assert_eq!((next.status.as_u16(), next.code().as_str()), (503, "weir_account_exhausted"));
    let wait = next.header("retry-after").and_then(|text| text.parse::<u64>().ok());
    assert!(wait.is_some_and(|seconds| (1..=59).contains(&seconds)), "{wait:?}");
    assert_eq!(sim.attempts().await, 2, "one through the gate, one of this test");
    let metrics = gate.metrics().await;
    let open = metrics.count("weir_breaker_state", &[("state", "open")]);
    assert_eq!(open, 1);
}

#[tokio::test]
async fn with_the_breaker_switched_off_calls_go_on() {
    let sim = Sim::start("steps = [{ at_s = 0, hard_quota = true }]").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'breaker.enabled' = false", WIDE).await;
    for text in ["a", "b"] {
        assert_eq!(gate.embed(text).await.code(), "insufficient_quota");
    }
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    for (flags, attempts) in [("", 2), (CLIENT_OWNS, 1)] {
        let hand = Hand::silent().await;
        let gate =
            Gate::start(&hand.url(), &format!("attempt_timeout_s = 0.1\n{flags}"), WIDE).await;
        let reply = gate.embed("a").await;
        assert_eq!(reply.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(reply.code(), "weir_upstream_timeout");
        assert_eq!(reply.retries_forbidden(), attempts == 2);
        assert_eq!(hand.heads().len(), attempts);
        let results =
            gate.metrics().await.count("weir_attempt_results_total", &[("status", "timeout")]);
        assert_eq!(results, hand.heads().len() as u64);
        gate.idle().await;
    }
}

#[tokio::test]
async fn a_provider_that_does_not_listen_is_named_and_no_attempt_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let flags = "[flags]\n'retry.max_attempts' = 3\n'retry.budget_ratio' = 1.0";
    let gate = Gate::start(&format!("http://{address}"), flags, WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY);
    assert_eq!(reply.code(), "weir_upstream_unreachable");
    assert!(reply.message().contains(&address.to_string()), "{}", reply.text());
    assert_eq!(reply.header("x-weir-attempts"), Some("0"), "nothing reached the provider");
    let metrics = gate.metrics().await;
    for name in ["weir_attempts_total", "weir_originals_attempted_total", "weir_recent_attempts"] {
        assert_eq!(metrics.count(name, &[]), 0, "{name}");
    }
    let retries = metrics.count("weir_retries_denied_total", &[("reason", "attempts")]);
    assert_eq!(retries, 1, "a connection is not tried for ever either");
    gate.idle().await;
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_was_an_attempt() {
    let hand = Hand::start(|_, stream| async move { drop(stream) }).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (502, "weir_upstream_unreachable"));
    assert!(reply.message().contains("broke"), "{}", reply.text());
    assert_eq!(hand.heads().len(), 2);
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_attempts_total", &[]), 2);
    let broken = metrics.count("weir_attempt_results_total", &[("status", "transport")]);
    assert_eq!(broken, 2);
    gate.idle().await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_and_not_a_caller_who_left() {
    let hand = Hand::start(|_, mut stream| async move {
        let part = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"data\":";
        let _ = stream.write_all(part.as_bytes()).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let url = format!("{}{EMBEDDINGS}", gate.data);
    let response = Http::new().open(http::Method::POST, &url, &[], &input("a")).await;
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    assert!(body.is_err(), "the caller must not take a part for the whole");
    gate.reaches("weir_completed_total", &[("outcome", "error")], 1).await;
    let metrics = gate.metrics().await;
    for name in ["weir_cancelled_total", "weir_originals_served_total"] {
        assert_eq!(metrics.count(name, &[]), 0, "{name}");
    }
    gate.idle().await;
}

#[tokio::test]
async fn an_error_that_breaks_off_keeps_its_status() {
    let hand = Hand::start(|_, mut stream| async move {
        let part = "HTTP/1.1 500 Oops\r\ncontent-length: 1000\r\nx-odd: 1\r\n\r\n{\"error\":";
        let _ = stream.write_all(part.as_bytes()).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), CLIENT_OWNS, WIDE).await;
    let reply = gate.embed("a").await;
    assert_eq!((reply.status.as_u16(), reply.header("x-odd")), (500, Some("1")));
    gate.idle().await;
}

#[tokio::test]
async fn a_keep_alive_connection_that_the_provider_closed_costs_no_attempt() {
    let hand = Hand::start(|_, mut stream| async move {
        // Says nothing of closing, and closes.
        let kept = answer("200 OK", "", "{}").replace("connection: close\r\n", "");
        let _ = stream.write_all(kept.as_bytes()).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    for text in ["a", "b", "c"] {
        let reply = gate.embed(text).await;
        assert_eq!((reply.status.as_u16(), reply.header("x-weir-attempts")), (200, Some("1")));
    }
    assert_eq!(hand.heads().len(), 3);
}
