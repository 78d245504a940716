//! What the provider says in headers and answers, from its socket to the signals of the adapter.

use std::time::Duration;

use http::Method;
use serde_json::json;
use weir::ingest::exposition::Format;
use weir::ingest::{Adapters, OnePage, Page, SourceRules};
use weir::signal::{Mono, Quality, Snapshot, Value};

use crate::support::{Gate, Hand, Sim, WIDE, answer};

const EVERY_METER: &str = "\
    date: Sun, 29 Nov 2026 12:00:00 GMT\r\n\
    anthropic-ratelimit-requests-limit: 50\r\n\
    anthropic-ratelimit-requests-remaining: 49\r\n\
    anthropic-ratelimit-requests-reset: 2026-11-29T12:00:02Z\r\n\
    anthropic-ratelimit-input-tokens-limit: 30000\r\n\
    anthropic-ratelimit-input-tokens-remaining: 27000\r\n\
    anthropic-ratelimit-input-tokens-reset: 2026-11-29T12:00:06Z\r\n\
    anthropic-ratelimit-output-tokens-limit: 8000\r\n\
    anthropic-ratelimit-output-tokens-remaining: 800\r\n\
    x-ratelimit-limit-requests-day: 14400\r\n\
    x-ratelimit-remaining-requests-day: 144\r\n\
    x-ratelimit-reset-requests-day: 33011.38\r\n\
    deprecation: @1796000000\r\n\
    sunset: Thu, 31 Dec 2026 00:00:00 GMT\r\n";

fn body(model: &str) -> String {
    let usage = json!({ "prompt_tokens": 3, "total_tokens": 3 });
    json!({ "object": "list", "data": [], "model": model, "usage": usage }).to_string()
}

async fn page(gate: &Gate) -> Vec<u8> {
    let url = format!("{}/metrics", gate.admin);
    gate.http.send(Method::GET, &url, &[], "").await.body.to_vec()
}

/// The signals of two pages a second apart, so that rates are counts.
fn signals(pages: [&[u8]; 2]) -> Snapshot {
    let adapter = Adapters::shipped().get("weir").expect("ships with weir");
    let window = Duration::from_secs(1);
    let mut source = OnePage::new("gateway", SourceRules { window, ..SourceRules::new(adapter) });
    for (second, body) in [0.0, 1.0].into_iter().zip(pages) {
        let page = Page { body, format: Format::Text };
        source.accept(page, Mono::from_secs_f64(second)).expect("small");
    }
    source.snapshots(Mono::from_secs_f64(1.0)).remove(0)
}

/// What a gateway says after one answer with these headers.
async fn after(headers: &str) -> Snapshot {
    let hand = Hand::saying(answer("200 OK", headers, &body("m"))).await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let before = page(&gate).await;
    assert_eq!(gate.embed("a").await.status, 200);
    gate.idle().await;
    signals([&before, &page(&gate).await])
}

#[tokio::test]
async fn every_meter_that_the_provider_tells_is_a_signal_with_its_age() {
    let snapshot = after(EVERY_METER).await;
    for (signal, expected) in [
        ("rpm_limit", 50.0),
        ("rpm_remaining", 49.0),
        ("rpm_headroom", 0.98),
        ("itpm_limit", 30_000.0),
        ("itpm_remaining", 27_000.0),
        ("itpm_headroom", 0.9),
        ("otpm_limit", 8_000.0),
        ("otpm_headroom", 0.1),
        ("rpd_limit", 14_400.0),
        ("rpd_remaining", 144.0),
        ("day_limit", 14_400.0),
        ("day_headroom", 0.01),
    ] {
        let reading = snapshot.get(signal).unwrap_or_else(|| panic!("{signal} is unknown"));
        let value = reading.value.as_number().expect("a number");
        assert!((value - expected).abs() < 1e-9, "{signal}: {value}");
        assert_eq!(reading.quality, Quality::Exact, "{signal}");
        assert!((0.0..20.0).contains(&reading.age_s), "{signal}: {} s old", reading.age_s);
    }
    // A reset counts down from the moment at which it was read.
    for (signal, at_most) in
        [("rpm_reset_s", 2.0), ("itpm_reset_s", 6.0), ("day_reset_s", 33_012.0)]
    {
        let left = snapshot.number(signal).unwrap_or_else(|| panic!("{signal} is unknown"));
        assert!((0.0..at_most).contains(&left) && left > at_most - 20.0, "{signal}: {left}");
    }
    // No token meter and no reset of the output tokens were told.
    for signal in ["tpm_remaining", "tpm_headroom", "tpm_reset_s", "otpm_reset_s", "tpd_limit"] {
        assert!(snapshot.get(signal).is_none(), "{signal}: {:?}", snapshot.get(signal));
        assert!(snapshot.absent.contains_key(signal), "{signal} has no reason");
    }
    let own = snapshot.get("tpm_limit").expect("our own stands in");
    assert_eq!(own.quality, Quality::Inferred);
}

#[tokio::test]
async fn a_part_that_is_missing_stays_unknown_and_is_never_zero() {
    let limit = after("x-ratelimit-limit-tokens: 9000\r\n").await;
    assert_eq!(limit.number("tpm_limit"), Some(9_000.0));
    assert_eq!(limit.get("tpm_limit").map(|limit| limit.quality), Some(Quality::Exact));
    for signal in ["tpm_remaining", "tpm_headroom", "tpm_reset_s", "rpm_remaining"] {
        assert!(limit.get(signal).is_none(), "{signal}: {:?}", limit.get(signal));
    }
    let left =
        after("x-ratelimit-remaining-requests: 7\r\nx-ratelimit-limit-requests: 0\r\n").await;
    assert_eq!(left.number("rpm_remaining"), Some(7.0));
    assert_eq!(left.get("rpm_limit").map(|limit| limit.quality), Some(Quality::Inferred));
    assert!(left.get("rpm_headroom").is_none());
    let nothing =
        after("x-ratelimit-limit-tokens: -1\r\nx-ratelimit-remaining-tokens: -1\r\n").await;
    assert!(nothing.get("tpm_remaining").is_none());
    // The day of a plan that sends it under the name of the minute.
    let day = "x-ratelimit-limit-requests: 200\r\nx-ratelimit-remaining-requests: 197\r\n\
               x-ratelimit-reset-requests: 16m17.764s\r\n";
    let day = after(day).await;
    assert_eq!(day.number("rpd_limit"), Some(200.0));
    assert!(day.get("rpm_remaining").is_none());
}

#[tokio::test]
async fn notices_of_an_end_reach_the_signals() {
    let snapshot = after(EVERY_METER).await;
    let word = |path: &str| snapshot.value(path).and_then(Value::as_text);
    assert_eq!(word("provider_notices.deprecated_since"), Some("2026-11-30"));
    assert_eq!(word("provider_notices.sunset_on"), Some("2026-12-31"));
    let silent = after("").await;
    assert!(silent.get("provider_notices").is_none());
}

#[tokio::test]
async fn a_model_that_is_not_the_one_asked_for_shows() {
    let hand = Hand::start(|number, mut stream| async move {
        use tokio::io::AsyncWriteExt as _;
        // From the third answer on another model answers, and nobody says so.
        let model = if number < 3 { "m" } else { "m-mini" };
        let _ = stream.write_all(answer("200 OK", "", &body(model)).as_bytes()).await;
    })
    .await;
    let gate = Gate::start(&hand.url(), "", WIDE).await;
    let before = page(&gate).await;
    for text in ["a", "b", "c", "d"] {
        assert_eq!(gate.embed(text).await.status, 200);
    }
    gate.idle().await;
    let metrics = gate.metrics().await;
    for model in ["m", "m-mini"] {
        let labels = [("asked", "m"), ("model", model)];
        assert_eq!(metrics.count("weir_model_answers_total", &labels), 2, "{model}");
    }
    let snapshot = signals([&before, &page(&gate).await]);
    let Some(Value::List(models)) = snapshot.value("models") else { panic!("no list of models") };
    let ids: Vec<_> = models
        .iter()
        .map(|model| match model {
            Value::Map(parts) => (parts["id"].as_text(), parts["share"].as_number()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [(Some("m"), Some(0.5)), (Some("m-mini"), Some(0.5))]);
}

#[tokio::test]
async fn originals_are_told_by_their_attempts_and_refusals_by_the_model_asked_for() {
    let sim = Sim::start("").await;
    let scope = format!("{WIDE}max_attempts_configured = 3\n");
    let gate = Gate::start(
        &sim.url(),
        "[flags]\n'retry.max_attempts' = 3\n'retry.budget_ratio' = 1.0",
        &scope,
    )
    .await;
    let before = page(&gate).await;
    // One original at a time: the first two are refused once and served then, the third twice.
    for (text, refusals) in [("a", 1), ("b", 1), ("c", 2), ("d", 0), ("e", 0)] {
        if refusals > 0 {
            sim.script(&format!("rate_limit:{refusals}")).await;
        }
        assert_eq!(gate.embed(text).await.status, 200, "{text}");
    }
    gate.idle().await;
    let metrics = gate.metrics().await;
    for (attempts, expected) in [("1", 5), ("2", 3), ("3", 1), ("4", 0)] {
        let labels = [("attempts", attempts)];
        assert_eq!(metrics.count("weir_originals_reached_total", &labels), expected, "{attempts}");
    }
    let snapshot = signals([&before, &page(&gate).await]);
    for (tries, expected) in [("1", 2.0), ("2", 2.0), ("3", 1.0), ("4+", 0.0)] {
        let path = format!("attempts_histogram.{tries}");
        assert_eq!(snapshot.number(&path), Some(expected), "{tries}");
    }
    let Some(Value::List(models)) = snapshot.value("models_asked") else { panic!("no models") };
    let [Value::Map(model)] = &models[..] else { panic!("{models:?}") };
    // Nine calls, four of them refused.
    assert_eq!(model["refused_share"].as_number(), Some(4.0 / 9.0));
    assert_eq!(model["share"].as_number(), Some(1.0));
}
