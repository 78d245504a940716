//! Adapters of real gateways against the truth: what the provider and the clients counted themselves.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value as Json;
use weir::diagnosis::{Standing, diagnose_once};
use weir::ingest::exposition::{self, Format};
use weir::ingest::{Adapters, OnePage, Page, SourceRules, degraded};
use weir::runbook;
use weir::signal::{Mono, Quality, Snapshot};

/// Truth was read a moment after the scrape, while the load went on.
const EDGE_TOLERANCE: f64 = 0.10;

const CAPTURES: &[&str] = &[
    "envoy-healthy",
    "envoy-storm",
    "litellm-healthy",
    "litellm-shed",
    "litellm-storm",
    "smg-healthy",
    "smg-storm",
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn text(name: &str) -> String {
    let path = data().join("captures").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page(capture: &str, moment: &str) -> Vec<u8> {
    let path = data().join("captures").join(format!("{capture}-{moment}.prom.gz"));
    let mut body = Vec::new();
    let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    GzDecoder::new(file).read_to_end(&mut body).expect("gzip");
    body
}

fn nothing_yet() -> Vec<u8> {
    Vec::new()
}

/// The signals of two pages one second apart, so that rates are counts.
fn signals(adapter: &str, from: &[u8], to: &[u8]) -> Snapshot {
    let adapter = Adapters::shipped().get(adapter).expect("ships with weir");
    let window = Duration::from_secs(1);
    let rules = SourceRules { window, ..SourceRules::new(adapter) };
    let mut source = OnePage::new("gateway", rules);
    let at = Mono::from_start(window);
    for (body, at) in [(from, Mono::START), (to, at)] {
        source.accept(Page { body, format: Format::Text }, at).expect("small");
    }
    source.snapshots(at).remove(0)
}

/// What both providers had counted at a scrape, under one key.
fn provider(capture: &str, moment: &str, key: &str) -> f64 {
    let lines = text(&format!("{capture}-truth.jsonl"));
    let rows = lines.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    let row = rows.into_iter().find(|row| row["scrape"] == moment).expect("the scrape is there");
    let count = |side: &str| row[side]["counters"][key].as_f64().unwrap_or(0.0);
    count("east") + count("west")
}

/// What the clients counted in the whole run.
fn clients(capture: &str, key: &str) -> f64 {
    let driver: Json =
        serde_json::from_str(&text(&format!("{capture}-driver.json"))).expect("JSON");
    driver["counters"][key].as_f64().unwrap_or(0.0)
}

/// Signals that the provider's own counters are the truth of.
const AT_PROVIDER: &[(&str, &str)] = &[
    ("attempts_rps", "attempts"),
    ("success_rps", "resp_200"),
    ("provider_429_rps", "resp_429"),
    ("provider_503_rps", "resp_503"),
];

/// Holds one reading against the truth, by what it claims to be.
fn check(what: &str, snapshot: &Snapshot, signal: &str, truth: f64, tolerance: f64) {
    let Some(reading) = snapshot.get(signal) else {
        let why = snapshot.absent.get(signal);
        assert!(why.is_some_and(|why| !why.is_empty()), "{what} {signal}: absent without a reason");
        return;
    };
    let value = reading.value.as_number().expect("a number");
    let slack = tolerance * truth + 1e-6;
    let fits = match reading.quality {
        Quality::Exact => (value - truth).abs() <= slack,
        Quality::LowerBound => value <= truth + slack,
        // Inferred still has to be worth showing.
        Quality::Inferred => (value - truth).abs() <= EDGE_TOLERANCE * truth + 1e-6,
    };
    assert!(fits, "{what} {signal}: {value}, truth {truth}, {:?}", reading.quality);
}

#[test]
fn every_signal_keeps_its_word_on_the_captures() {
    for capture in CAPTURES {
        let (adapter, _) = capture.split_once('-').expect("a gateway and a situation");
        let pages = ["t1", "t2", "final"].map(|moment| (moment, page(capture, moment)));
        let [(_, t1), (_, t2), (_, last)] = &pages;

        let whole = signals(adapter, &nothing_yet(), last);
        let what = format!("{capture} final");
        for (signal, key) in AT_PROVIDER {
            check(&what, &whole, signal, provider(capture, "final", key), 0.0);
        }
        let shed = match adapter {
            // The gateways' own refusals carry a hint, the provider's that they pass on do not.
            "litellm" | "smg" => clients(capture, "resp_with_retry_after"),
            _ => 0.0,
        };
        let attempts = provider(capture, "final", "attempts");
        let requests = clients(capture, "client_http_requests");
        let originals = clients(capture, "originals");
        // Refused requests and those with a wrong key never got as far as an attempt.
        let tried = originals.min(requests - shed) - clients(capture, "orig_failed_500");
        for (signal, truth) in [
            ("offered_rps", requests),
            ("delivered_rps", provider(capture, "final", "resp_200")),
            ("shed_rps", shed),
            // The provider counts a hang when it begins, so that only the end compares.
            ("timeout_rps", provider(capture, "final", "hung")),
            ("gate_429_rps", shed),
            ("gate_503_rps", 0.0),
            ("queue_depth", 0.0),
            ("inflight_actual", 0.0),
        ] {
            check(&what, &whole, signal, truth, 0.0);
        }
        // Both are about originals, which no gateway sees: bounds at best.
        for (signal, truth) in [
            ("amplification", attempts / tried),
            ("served_share", clients(capture, "orig_ok") / originals),
        ] {
            let reading = whole.get(signal).expect("said");
            assert_ne!(reading.quality, Quality::Exact, "{what} {signal}");
            if reading.quality == Quality::LowerBound {
                check(&what, &whole, signal, truth, 0.0);
            }
        }

        for (from, to, first, second) in [("t1", "t2", t1, t2), ("t1", "final", t1, last)] {
            let between = signals(adapter, first, second);
            let what = format!("{capture} {from} to {to}");
            for (signal, key) in AT_PROVIDER {
                let truth = provider(capture, to, key) - provider(capture, from, key);
                check(&what, &between, signal, truth, EDGE_TOLERANCE);
            }
        }
    }
}

#[test]
fn what_can_be_exact_is_exact() {
    for (capture, exact, lower_bound) in [
        (
            "envoy-storm",
            &["offered_rps", "attempts_rps", "success_rps", "provider_429_rps", "shed_rps"][..],
            &["amplification", "retries_share"][..],
        ),
        (
            "litellm-storm",
            &["offered_rps", "success_rps", "shed_rps", "gate_429_rps"],
            &["attempts_rps", "provider_429_rps", "provider_503_rps", "amplification"],
        ),
        (
            "smg-storm",
            &["offered_rps", "admitted_rps", "shed_rps", "delivered_rps", "queue_depth"],
            &["amplification", "served_share"],
        ),
    ] {
        let (adapter, _) = capture.split_once('-').expect("a gateway and a situation");
        let snapshot = signals(adapter, &page(capture, "t1"), &page(capture, "t2"));
        let quality = |signal: &&str| snapshot.get(signal).map(|reading| reading.quality);
        for signal in exact {
            assert_eq!(quality(signal), Some(Quality::Exact), "{capture} {signal}");
        }
        for signal in lower_bound {
            let reading = snapshot.get(signal).unwrap_or_else(|| panic!("{capture} {signal}"));
            assert_eq!(reading.quality, Quality::LowerBound, "{capture} {signal}");
            assert!(reading.note.is_some(), "{capture} {signal}: why only a bound?");
        }
        for signal in ["originals_rps", "client_multiplication", "rpm_headroom"] {
            assert!(snapshot.absent.contains_key(signal), "{capture} {signal}");
        }
    }
}

#[test]
fn placeholders_are_no_numbers() {
    let snapshot = signals("litellm", &page("litellm-storm", "t1"), &page("litellm-storm", "t2"));
    let remaining = snapshot.number("rpm_remaining").expect("said by the provider's headers");
    assert!((1.0..=999.0).contains(&remaining), "{remaining}");
    let tenants = snapshot.value("tenants").expect("keys have aliases");
    assert!(!format!("{tenants:?}").contains("None"), "{tenants:?}");
    let page = "litellm_remaining_requests_metric{model_id=\"a\"} 9.223372036854775807e18\n\
                litellm_remaining_tokens_metric{model_id=\"a\"} -1\n\
                litellm_remaining_tokens_metric{model_id=\"b\"} +Inf\n";
    let snapshot = signals("litellm", page.as_bytes(), page.as_bytes());
    for signal in ["rpm_remaining", "tpm_remaining"] {
        assert!(snapshot.absent[signal].contains("placeholders"), "{signal}");
    }
}

#[test]
fn a_page_of_something_else_gives_no_zeros() {
    let other = page("smg-storm", "t2");
    for adapter in ["envoy", "litellm", "weir"] {
        let snapshot = signals(adapter, &other, &other);
        assert!(snapshot.signals.is_empty(), "{adapter}: {:?}", snapshot.signals.keys());
        assert!(snapshot.absent.values().all(|why| !why.is_empty()), "{adapter}");
    }
}

#[test]
fn milliseconds_become_seconds() {
    let snapshot = signals("envoy", &nothing_yet(), &page("envoy-storm", "final"));
    let p95 = snapshot.number("latency_p95_s").expect("observed");
    assert!((0.05..5.0).contains(&p95), "{p95}");
}

fn sample(adapter: &str) -> Vec<u8> {
    let path = data().join("adapters").join(format!("{adapter}.prom"));
    let body = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let report = exposition::parse(&body, Format::Text, |_| {}).expect("small");
    assert_eq!(degraded(&report), [], "{adapter}");
    body
}

/// What each adapter that was not run here makes of the page composed for it.
#[rustfmt::skip]
const COMPOSED: &[(&str, &[(&str, f64)])] = &[
    ("vllm-router", &[
        ("attempts_rps", 400.0), ("success_rps", 80.0), ("offered_rps", 150.0),
        ("amplification", 400.0 / 150.0), ("cooldown.in_cooldown", 1.0), ("cooldown.total", 2.0),
    ]),
    ("vllm", &[
        ("attempts_rps", 120.0), ("success_rps", 90.0), ("cancelled_rps", 10.0), ("queue_depth", 9.0),
        ("inflight_actual", 32.0), ("tokens_per_request", 300.0), ("client_abort_share", 0.1),
    ]),
    ("sglang", &[
        ("attempts_rps", 140.0), ("success_rps", 100.0), ("provider_429_rps", 30.0),
        ("provider_503_rps", 10.0), ("queue_depth", 40.0), ("tokens_per_request", 300.0),
    ]),
    ("kong", &[
        ("offered_rps", 100.0), ("shed_rps", 10.0), ("admitted_rps", 90.0), ("gate_429_rps", 8.0),
        ("gate_503_rps", 2.0), ("success_rps", 60.0), ("provider_429_rps", 30.0),
        ("tokens_per_request", 300.0), ("latency_offered_p95_s", 1.9), ("cooldown.in_cooldown", 1.0),
        ("cooldown.total", 2.0),
    ]),
    ("apisix", &[
        ("offered_rps", 100.0), ("shed_rps", 10.0), ("success_rps", 60.0), ("provider_429_rps", 30.0),
        ("tokens_per_request", 300.0), ("inflight_actual", 4.0), ("latency_offered_p95_s", 1.9),
    ]),
    ("agentgateway", &[
        ("offered_rps", 120.0), ("shed_rps", 20.0), ("attempts_rps", 200.0), ("amplification", 2.0),
        ("retries_share", 0.5), ("provider_429_rps", 30.0), ("timeout_rps", 10.0),
        ("error_codes.gate:RateLimit", 15.0), ("tokens_per_request", 300.0),
    ]),
    ("bifrost", &[
        ("offered_rps", 100.0), ("attempts_rps", 200.0), ("amplification", 200.0 / 90.0),
        ("shed_rps", 10.0), ("provider_429_rps", 30.0), ("tokens_per_request", 300.0),
        ("cooldown.in_cooldown", 1.0),
    ]),
    ("envoy-ai-gateway", &[
        ("attempts_rps", 200.0), ("success_rps", 60.0), ("tokens_per_request", 300.0),
    ]),
    ("otel-genai", &[
        ("own_client_counted_rps", 100.0), ("error_codes.RateLimitError", 40.0),
        ("tokens_per_request", 300.0),
    ]),
];

#[test]
fn adapters_from_documents_read_the_pages_composed_for_them() {
    for (adapter, expected) in COMPOSED {
        let snapshot = signals(adapter, &nothing_yet(), &sample(adapter));
        for (path, expected) in *expected {
            let value = snapshot.number(path);
            let fits = value.is_some_and(|value| (value - expected).abs() < 1e-9 * expected.abs());
            assert!(fits, "{adapter} {path}: {value:?}, expected {expected}");
        }
        // Every signal that it promises is there: no name in it is misspelt.
        let promised = Adapters::shipped().get(adapter).expect("ships with weir");
        for (signal, entry) in &promised.signals {
            let known = snapshot.get(signal).is_some();
            assert_eq!(
                known,
                entry.quality().is_some(),
                "{adapter} {signal}: {:?}",
                snapshot.absent
            );
        }
    }
}

#[test]
fn every_shipped_adapter_says_what_it_rests_on_and_why_not() {
    for name in Adapters::shipped().names() {
        let adapter = Adapters::shipped().get(&name).expect("listed");
        assert!(!adapter.about.trim().is_empty() && !adapter.title.is_empty(), "{name}");
        for (signal, entry) in &adapter.signals {
            let is_bound = entry.quality().is_some_and(|quality| quality == Quality::LowerBound);
            let explained = entry.note().is_some_and(|note| !note.is_empty());
            assert!(explained || (entry.quality().is_some() && !is_bound), "{name} {signal}");
        }
    }
}

/// What the clients' and the providers' own counts show: who was asked for how much, and who multiplied.
#[test]
fn the_captures_have_a_cause_that_fits_their_truth() {
    let check = |capture: &str, cause: &str, lacks: &[&str]| {
        let adapter = capture.split('-').next().expect("the gateway's name");
        let snapshot = signals(adapter, &page(capture, "t1"), &page(capture, "t2"));
        let verdict = diagnose_once(&runbook::embedded(), &snapshot);
        let named = (verdict.cause.as_str(), verdict.standing);
        // None of them tells enough to be sure.
        assert_eq!(named, (cause, Standing::Likely), "{capture}: {:?}", verdict.path);
        for signal in lacks {
            let is_missing = verdict.missing.iter().any(|missing| missing.signal == *signal);
            assert!(is_missing, "{capture} does not tell {signal}: {:?}", verdict.missing);
        }
    };
    check("envoy-healthy", "healthy", &["loop_lag_s"]);
    check("litellm-healthy", "healthy", &["unreachable_rps"]);
    check("smg-healthy", "healthy", &["unreachable_rps"]);
    // 12 originals a second against 4 that the provider serves. Envoy repeats few, within its budget;
    // SMG makes three attempts of each call; LiteLLM parks a deployment for each 429 and refuses then.
    check("envoy-storm", "demand-over-capacity", &["client_multiplication"]);
    check("smg-storm", "nested-retries", &["max_attempts_configured"]);
    check("litellm-storm", "breaker-stuck", &["cooldown_share"]);
}
