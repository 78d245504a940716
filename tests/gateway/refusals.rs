//! Refusals of the gate itself: which limit of which scope, in OpenAI's shape, and when to come back.

use http::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{EMBEDDINGS, Gate, Hand, Reply, Sim, WIDE, answer, input};

/// What every refusal has, whatever its reason.
fn check(reply: &Reply, status: u16, code: &str, retry_after: bool) {
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code), "{}", reply.text());
    assert!(reply.message().contains("scope sim/main/all"), "{}", reply.text());
    let reason = code.strip_prefix("weir_").expect("the gate's own code");
    let decision = reply.header("x-weir-decision").expect("a decision");
    assert_eq!(decision, format!("refused; reason={reason}"));
    let wait = reply.header("retry-after").map(|text| text.parse::<u64>().expect("whole seconds"));
    assert_eq!(wait.is_some(), retry_after, "{code}: {wait:?}");
    assert!(wait.is_none_or(|seconds| (1..=59).contains(&seconds)), "{code}: {wait:?}");
}

/// A gateway whose only permit is taken, and the task that holds it.
async fn full(flags: &str) -> (Gate, Hand, tokio::task::JoinHandle<Reply>) {
    let hand = Hand::silent().await;
    let config = format!("[flags]\n'admission.max_in_flight' = 1\n{flags}");
    let gate = Gate::start(&hand.url(), &config, WIDE).await;
    let (http, url) = (gate.http.clone(), format!("{}{EMBEDDINGS}", gate.data));
    let holder =
        tokio::spawn(async move { http.send(Method::POST, &url, &[], &input("held")).await });
    gate.reaches("weir_upstream_open", &[], 1).await;
    (gate, hand, holder)
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let (gate, _hand, holder) = full("'queue.max_depth' = 1").await;
    let (http, url) = (gate.http.clone(), format!("{}{EMBEDDINGS}", gate.data));
    let waiter =
        tokio::spawn(async move { http.send(Method::POST, &url, &[], &input("waits")).await });
    gate.reaches("weir_queue_depth", &[("lane", "interactive")], 1).await;
    let refused = gate.embed("too many").await;
    check(&refused, 503, "weir_queue_full", true);
    assert!(refused.message().contains("queue.max_depth"), "how to change it");
    assert!(refused.retries_forbidden(), "the gate owns retries");
    let labels = [("reason", "queue_full"), ("lane", "interactive"), ("status", "503")];
    assert_eq!(gate.metrics().await.count("weir_shed_total", &labels), 1);
    holder.abort();
    waiter.abort();
}

#[tokio::test]
async fn a_wait_that_is_too_long_ends_in_the_queue() {
    let (gate, _hand, holder) = full("'queue.max_age_s' = 0.1").await;
    let refused = gate.embed("waits").await;
    check(&refused, 503, "weir_queue_expired", false);
    gate.reaches("weir_expired_total", &[("stage", "queue")], 1).await;
    holder.abort();
}

#[tokio::test]
async fn a_repeat_of_what_runs_is_refused() {
    let (gate, _hand, holder) = full("").await;
    check(&gate.embed("held").await, 429, "weir_original_in_progress", true);
    holder.abort();
}

#[tokio::test]
async fn without_a_queue_what_can_start_at_once_still_starts() {
    for flags in ["'queue.max_depth' = 0", "'queue.max_age_s' = 0"] {
        let sim = Sim::start("").await;
        let gate = Gate::start(&sim.url(), &format!("[flags]\n{flags}"), WIDE).await;
        // The meters start empty.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let reply = gate.embed("a").await;
        assert_eq!(reply.status, StatusCode::OK, "{flags}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_quota_that_stays_spent_refuses_and_says_which() {
    let flags = "[flags]\n'queue.max_age_s' = 0.5";
    let client = "[flags]\n'queue.max_age_s' = 0.5\n'retry.owner' = 'client'";
    // The first of a slow meter need not wait for its refill.
    for (meters, flags, code, forbidden) in [
        ("rpm = 6", flags, "weir_quota_requests", true),
        ("tpm = 60", flags, "weir_quota_tokens", true),
        ("rpm = 6\ntpm = 600_000\nslices_s = []", client, "weir_quota_requests", false),
    ] {
        let sim = Sim::start("").await;
        let gate =
            Gate::start(&sim.url(), flags, &format!("name = 'sim/main/all'\n{meters}")).await;
        gate.embed("first").await;
        let refused = gate.embed("a").await;
        check(&refused, 429, code, true);
        assert_eq!(refused.retries_forbidden(), forbidden, "{code}");
        assert_eq!(sim.attempts().await, 1, "{meters}");
    }
}

#[tokio::test]
async fn what_can_never_pass_is_final() {
    let sim = Sim::start("").await;
    let flags = "[flags]\n'admission.max_request_tokens' = 100\n'retry.owner' = 'client'";
    let gate = Gate::start(&sim.url(), flags, WIDE).await;
    let refused = gate.embed(&"w ".repeat(300)).await;
    check(&refused, 429, "weir_request_too_large", false);
    assert!(refused.retries_forbidden(), "whoever owns retries");
    let body = json!({ "model": "m", "messages": [], "max_tokens": 5_000 }).to_string();
    let refused = gate.post("/v1/chat/completions", &[], &body).await;
    check(&refused, 429, "weir_request_too_large", false);
}

#[tokio::test]
async fn the_batch_lane_can_be_closed() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'lane.batch.enabled' = false", WIDE).await;
    let refused = gate.embed_with(&[("x-weir-lane", "batch")], "a").await;
    check(&refused, 429, "weir_lane_off", false);
    assert_eq!(gate.embed("a").await.status, StatusCode::OK);
}

#[tokio::test]
async fn attempts_of_one_original_are_counted_over_its_requests() {
    let sim = Sim::start("script = 'server_error'").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'retry.budget_ratio' = 1.0", WIDE).await;
    assert_eq!(gate.embed("a").await.status.as_u16(), 500, "after both of its attempts");
    let refused = gate.embed("a").await;
    check(&refused, 429, "weir_attempts_exhausted", false);
    assert!(refused.retries_forbidden());
    assert_eq!(gate.embed("another").await.status.as_u16(), 500);
    assert_eq!(sim.attempts().await, 4);
}

#[tokio::test]
async fn a_repeat_spends_the_scopes_retry_budget() {
    let sim = Sim::start("script = 'server_error'").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'retry.budget_ratio' = 0", WIDE).await;
    assert_eq!(gate.embed("a").await.status.as_u16(), 500, "without a retry of the gate's");
    let refused = gate.embed("a").await;
    check(&refused, 429, "weir_retry_budget", false);
    assert!(refused.retries_forbidden());
}

#[tokio::test]
async fn a_client_that_owns_its_retries_may_use_them_all() {
    let sim = Sim::start("script = 'server_error'").await;
    let gate = Gate::start(&sim.url(), "[flags]\n'retry.owner' = 'client'", WIDE).await;
    for _ in 0..5 {
        assert_eq!(gate.embed("a").await.status.as_u16(), 500);
    }
    assert_eq!(sim.attempts().await, 5);
}

#[tokio::test]
async fn a_gate_that_goes_down_refuses_what_comes() {
    let (gate, _hand, holder) = full("").await;
    let (http, url) = (gate.http.clone(), format!("{}{EMBEDDINGS}", gate.data));
    let waiter =
        tokio::spawn(async move { http.send(Method::POST, &url, &[], &input("waits")).await });
    gate.reaches("weir_queue_depth", &[], 1).await;
    let drained = gate.ask(Method::POST, "/admin/v1/drain", &[], "").await;
    assert_eq!(drained.status, StatusCode::ACCEPTED);
    check(&waiter.await.expect("it ends"), 503, "weir_draining", true);
    check(&gate.embed("late").await, 503, "weir_draining", true);
    let url = format!("{}/readyz", gate.admin);
    let ready = gate.http.send(Method::GET, &url, &[], "").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    holder.abort();
}

#[tokio::test]
async fn paths_and_models_that_are_not_ours_are_told_so() {
    let sim = Sim::start("").await;
    let scope = "name = 'sim/main/m'\nmodels = ['m']\nrpm = 600_000\n";
    let gate = Gate::start(&sim.url(), "", scope).await;
    for path in ["/", "/metrics", "/v2/embeddings", "/v1", "/admin/v1/flags"] {
        let reply = gate.post(path, &[], &input("a")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (404, "weir_not_found"),
            "{path}"
        );
    }
    let reply = gate.post(EMBEDDINGS, &[], r#"{"model":"gpt-9","input":"a"}"#).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "weir_no_scope"));
    assert!(reply.message().contains("`gpt-9`"), "{}", reply.text());
    assert_eq!(sim.attempts().await, 0);
    // The model decides alone: what is odd beside it is the provider's to judge.
    for odd in [r#"{"model":"m","max_tokens":-1}"#, r#"{"model":"m","max_tokens":"many"}"#] {
        let reply = gate.post("/v1/chat/completions", &[], odd).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
        assert!(!reply.code().starts_with("weir_"), "{}", reply.text());
    }
}

#[tokio::test]
async fn the_scope_of_the_model_is_used_and_the_open_scope_takes_the_rest() {
    let sim = Sim::start("").await;
    let scopes =
        ["name = 'big'\nmodels = ['m']\nrpm = 600_000\n", "name = 'rest'\nrpm = 600_000\n"];
    let gate = Gate::with_scopes(&sim.url(), "", &scopes).await;
    gate.embed("a").await;
    gate.post(EMBEDDINGS, &[], r#"{"model":"other","input":"a"}"#).await;
    gate.http.send(Method::GET, &format!("{}/v1/models", gate.data), &[], "").await;
    let metrics = gate.metrics().await;
    for (scope, wanted) in [("big", 1), ("rest", 2)] {
        let offered = metrics.count("weir_offered_total", &[("scope", scope)]);
        assert_eq!(offered, wanted, "{scope}: {offered}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "body_max = 1000", WIDE).await;
    let reply = gate.embed(&"w".repeat(2_000)).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (413, "weir_body_too_large"));
    assert!(reply.message().contains("1000 bytes"), "{}", reply.text());
    assert_eq!(gate.embed(&"w".repeat(900)).await.status, StatusCode::OK);
    assert_eq!(sim.attempts().await, 1);
}

#[tokio::test]
async fn a_body_that_ends_early_is_no_request() {
    let sim = Sim::start("").await;
    let gate = Gate::start(&sim.url(), "", WIDE).await;
    let mut stream = tokio::net::TcpStream::connect(gate.data_host()).await.expect("it listens");
    let part = "POST /v1/embeddings HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(part.as_bytes()).await.expect("it reads");
    stream.shutdown().await.expect("open until now");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(sim.attempts().await, 0);
    gate.idle().await;
}

#[tokio::test]
async fn an_account_that_is_spent_is_402_where_that_is_configured() {
    let body = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
    let passing = r#"{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#;
    for (config, said, status) in [
        ("payment_required = true", body, 402),
        ("payment_required = true", passing, 429),
        ("", body, 429),
    ] {
        let hand = Hand::saying(answer("429 Too Many Requests", "", said)).await;
        let config = format!("{config}\n[flags]\n'retry.max_attempts' = 1");
        let gate = Gate::start(&hand.url(), &config, WIDE).await;
        let passed_on = gate.embed("a").await;
        assert_eq!((passed_on.status.as_u16(), passed_on.text()), (status, said.to_owned()));
        assert_eq!(hand.heads().len(), 1);
        if said == body {
            // From now on the gate itself says so, and sends nothing.
            let refused = gate.embed("b").await;
            assert_eq!(refused.code(), "weir_account_exhausted", "{}", refused.text());
            assert_eq!(refused.status.as_u16(), if status == 402 { 402 } else { 503 });
            assert!(refused.retries_forbidden());
            assert_eq!(hand.heads().len(), 1);
        }
    }
}
