//! Pages of real gateways, replayed to a real Prometheus: both roads say the same, to the last digit.
//!
//! They can, because the pages stand still at both ends of the window: what a counter gained is the
//! difference of two scrapes on either road.

use std::time::Duration;

use weir::signal::{Mono, Quality, Snapshot, Value};

use super::support::{Direct, PATIENCE, Pages, Prometheus, WINDOW, eventually, text, told};

/// Job and adapter, the page before, the page after.
#[rustfmt::skip]
const REPLAYED: &[(&str, &str, &str, &str)] = &[
    ("envoy-healthy", "envoy", "captures/envoy-healthy-t1.prom.gz", "captures/envoy-healthy-t2.prom.gz"),
    ("envoy-storm", "envoy", "captures/envoy-storm-t1.prom.gz", "captures/envoy-storm-t2.prom.gz"),
    ("litellm-shed", "litellm", "captures/litellm-shed-t1.prom.gz", "captures/litellm-shed-t2.prom.gz"),
    ("litellm-storm", "litellm", "captures/litellm-storm-t1.prom.gz", "captures/litellm-storm-t2.prom.gz"),
    ("smg-storm", "smg", "captures/smg-storm-t1.prom.gz", "captures/smg-storm-t2.prom.gz"),
    ("agentgateway", "agentgateway", "", "adapters/agentgateway.prom"),
    ("apisix", "apisix", "", "adapters/apisix.prom"),
    ("bifrost", "bifrost", "", "adapters/bifrost.prom"),
    ("envoy-ai-gateway", "envoy-ai-gateway", "", "adapters/envoy-ai-gateway.prom"),
    ("kong", "kong", "", "adapters/kong.prom"),
    ("otel-genai", "otel-genai", "", "adapters/otel-genai.prom"),
    ("sglang", "sglang", "", "adapters/sglang.prom"),
    ("vllm", "vllm", "", "adapters/vllm.prom"),
    ("vllm-router", "vllm-router", "", "adapters/vllm-router.prom"),
];

/// Counted over an hour, of which neither road has seen more than seconds: a bound on both.
const OVER_AN_HOUR: &str = "breaker_opens_per_hour";

fn page(path: &str) -> String {
    if path.is_empty() { "# nothing yet\n".to_owned() } else { text(path) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_roads_say_the_same_of_the_same_pages() {
    let pages = Pages::start();
    let jobs: Vec<_> = REPLAYED.iter().map(|(job, ..)| (*job, pages.address, *job)).collect();
    for (job, _, before, _) in REPLAYED {
        pages.set(job, page(before));
    }
    let prometheus = Prometheus::start(&jobs).await;
    prometheus.has_history(jobs.len()).await;
    for (job, _, _, after) in REPLAYED {
        pages.set(job, page(after));
    }
    // Every target is scraped within an interval, and all are asked within the window.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    for (job, adapter, before, after) in REPLAYED {
        let answers = prometheus.source(job, adapter).poll().await;
        let answers = answers.unwrap_or_else(|error| panic!("{job}: {error}"));
        assert_eq!(answers.instances(), Some((1, 1)), "{job}");
        assert!(answers.age_s() < 2.5, "{job}: {} s", answers.age_s());
        let mut direct = Direct::new(adapter);
        direct.accept(&page(before), Mono::START);
        direct.accept(&page(after), Mono::from_start(WINDOW));
        agree(job, &told(answers, adapter), &direct.snapshot());
    }
    a_target_that_is_down_is_named(&pages, &prometheus).await;
    a_restart_makes_an_estimate(&pages, &prometheus).await;
    history_has_no_more_than_there_was(&prometheus).await;
}

fn agree(what: &str, prometheus: &Snapshot, direct: &Snapshot) {
    for (name, reading) in direct.signals.iter().filter(|(name, _)| *name != OVER_AN_HOUR) {
        let got = prometheus.get(name);
        let got = got.unwrap_or_else(|| panic!("{what} {name}: {:?}", prometheus.absent.get(name)));
        let (theirs, ours) = (&got.value, &reading.value);
        assert!(is_close(theirs, ours), "{what} {name}: {theirs:?}, from pages {ours:?}");
        assert_eq!(got.quality, reading.quality, "{what} {name}: {:?}", got.note);
    }
    for (name, why) in &direct.absent {
        let got = prometheus.get(name);
        assert!(got.is_none(), "{what} {name}: {got:?}, from pages {why}");
        assert!(!prometheus.absent[name].is_empty(), "{what} {name}");
    }
    if let Some(reading) = prometheus.get(OVER_AN_HOUR) {
        assert_eq!(reading.quality, Quality::LowerBound, "{what}");
    }
}

/// Equal but for the order in which floats were added up.
fn is_close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => (a - b).abs() <= 1e-9 * b.abs(),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((key, a), (other, b))| key == other && is_close(a, b))
        }
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_close(a, b))
        }
        (a, b) => a == b,
    }
}

async fn a_target_that_is_down_is_named(pages: &Pages, prometheus: &Prometheus) {
    pages.remove("kong");
    let source = prometheus.source("kong", "kong");
    let (why, warnings) = eventually("kong is down", async || {
        let answers = source.poll().await.ok().filter(|one| one.instances() == Some((0, 1)))?;
        let warnings = answers.warnings().to_vec();
        // The list of targets, which knows why, is asked after the first answer that shows it down.
        let why = told(answers, "kong").absent.remove("offered_rps")?;
        why.contains("503").then_some((why, warnings))
    })
    .await;
    let reason =
        format!("Prometheus cannot scrape {}: server returned HTTP status 503", pages.address);
    assert!(why.starts_with(&format!("gateway: {reason}")), "{why}");
    assert!(warnings.iter().any(|warning| warning.starts_with(&reason)), "{warnings:?}");
}

async fn a_restart_makes_an_estimate(pages: &Pages, prometheus: &Prometheus) {
    pages.set("smg-storm", page("captures/smg-storm-t1.prom.gz"));
    let source = prometheus.source("smg-storm", "smg");
    let note = eventually("a restart", async || {
        let snapshot = told(source.poll().await.ok()?, "smg");
        let reading = snapshot.get("offered_rps")?;
        (reading.quality == Quality::Inferred).then(|| reading.note.clone())?
    })
    .await;
    assert!(note.contains("estimated: a restart"), "{note}");
    // While the restart leaves the window, no difference reaches back over it.
    eventually("a rate that is counted again", async || {
        let snapshot = told(source.poll().await.ok()?, "smg");
        let reading = snapshot.get("offered_rps")?;
        let rate = reading.value.as_number()?;
        assert!(rate >= 0.0, "{reading:?}");
        (reading.quality == Quality::Exact).then_some(())
    })
    .await;
}

async fn history_has_no_more_than_there_was(prometheus: &Prometheus) {
    let source = prometheus.source("envoy-storm", "envoy");
    let span = Duration::from_hours(1);
    let history = source.backfill(span, Duration::from_secs(1)).await;
    let history = history.unwrap_or_else(|error| panic!("{error}"));
    let ages: Vec<f64> = history.iter().map(|(ago_s, _)| *ago_s).collect();
    // Steps of 15 s at least, and an hour of which most has no data.
    assert_eq!(ages.last(), Some(&0.0), "{ages:?}");
    let most = PATIENCE.as_secs_f64() * 4.0;
    assert!(ages.iter().all(|ago_s| ago_s % 15.0 == 0.0 && *ago_s < most), "{ages:?}");
    let newest = told(history.last().expect("not empty").1.clone(), "envoy");
    assert!(newest.number("attempts_rps").is_some(), "{:?}", newest.absent);
}
