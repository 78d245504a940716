//! A gateway that is ill on purpose: what a drill asks for is what its page shows.

use std::time::{Duration, Instant};

use http::StatusCode;

use crate::support::{Gate, Metrics, Sim, WIDE};

/// A gateway of a drill with these faults, and its provider.
async fn ill(faults: &str) -> (Gate, Sim) {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), &format!("drill = true\n[faults]\n{faults}"), WIDE).await;
    (gate, sim)
}

async fn after(faults: &str, calls: usize) -> Metrics {
    let (gate, _sim) = ill(faults).await;
    for call in 0..calls {
        let reply = gate.embed(&format!("call {call}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{faults}: {}", reply.text());
    }
    gate.metrics().await
}

#[tokio::test]
async fn leaked_permits_are_in_use_and_nothing_is_open() {
    let (gate, sim) = ill("leak = { ratio = 1 }").await;
    for call in ["a", "b", "c"] {
        assert_eq!(gate.embed(call).await.status, StatusCode::OK, "its caller is answered");
    }
    gate.reaches("weir_permits_in_use", &[], 3).await;
    let metrics = gate.metrics().await;
    assert_eq!(metrics.count("weir_upstream_open", &[]), 0);
    assert_eq!(metrics.count("weir_drill_fault_info", &[("fault", "leak")]), 1);
    assert_eq!(sim.attempts().await, 3);
}

#[tokio::test]
async fn what_is_not_read_is_not_known() {
    let provider = [("source", "provider")];
    let sound = after("", 2).await;
    assert!(sound.sum("weir_quota_limit", &provider) > 0.0);
    assert!(!sound.names().contains("weir_drill_fault_info"));
    let blind = after("headers = false", 2).await;
    assert!(blind.sum("weir_quota_limit", &provider) < 1e-9);
    let wrong = after("estimate_factor = 4", 2).await;
    assert!(wrong.sum("weir_tokens_actual_total", &[]) < 1e-9);
    let (guessed, usual) = (
        wrong.sum("weir_tokens_estimated_total", &[]),
        sound.sum("weir_tokens_estimated_total", &[]),
    );
    assert!((guessed - 4.0 * usual).abs() < 1e-6, "{guessed} for {usual}");
}

#[tokio::test]
async fn a_faulty_store_is_counted_and_work_goes_on_without_it() {
    let sound = after("store = { latency_ms = 1 }", 3).await;
    assert_eq!(sound.count("weir_store_errors_total", &[]), 0);
    assert!(sound.count("weir_store_decision_seconds_count", &[]) >= 3);
    let broken = after("store = { error_ratio = 1 }", 3).await;
    assert!(broken.count("weir_store_errors_total", &[]) > 0);
    let late = after("store = { latency_ms = 500 }", 3).await;
    assert!(late.count("weir_store_timeouts_total", &[]) > 0);
}

#[tokio::test]
async fn a_held_breaker_refuses_whatever_the_provider_says() {
    let (gate, sim) = ill("breaker = { held = 'open' }").await;
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let reply = gate.embed("a").await;
            if reply.code() == "weir_breaker_open" {
                return reply.status;
            }
        }
    });
    let status = refused.await.expect("it is refused within the queue's patience");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(sim.attempts().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_loop_takes_requests_one_after_the_other() {
    let (gate, _sim) = ill("stall = { ms = 50 }").await;
    let begun = Instant::now();
    let calls = ["a", "b", "c", "d"].map(|text| gate.embed(text));
    let replies = futures_util::future::join_all(calls).await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    assert!(gate.metrics().await.names().contains("weir_loop_lag_seconds"));
}
