//! The simulated provider's page of metrics, `simprov_*`: the same text live and on the virtual clock.
//!
//! Tells only what the model counted. What does not apply (no day, no price, no deployments) has no
//! series: unknown, not zero.

use std::time::Duration;

use super::metrics_text::{Histogram, MetricsText};
use crate::dialect::MeterReading;
use crate::signal::Mono;
use crate::sim::ledger::Ledger;
use crate::sim::provider::{CallKind, Provider};

/// A deployment that refused a call within so long counts as refusing.
const REFUSES_FOR: Duration = Duration::from_secs(10);

type Part = fn(&MeterReading) -> Option<f64>;

/// What the page says beside the model's own counts.
pub(super) struct PageFacts<'a> {
    /// Start of the process, Unix time in seconds.
    pub process_start_s: f64,
    /// How long calls took by the shell's clock, where there is a shell.
    pub latency: Option<&'a Histogram>,
    /// The quota scope that it stands for, where there are several.
    pub scope: Option<&'a str>,
}

/// The exposition of one provider.
pub(super) fn render(provider: &mut Provider, facts: &PageFacts<'_>, now: Mono) -> String {
    let mut meters = provider.meters(now).to_vec();
    meters.extend(provider.day_meters(now));
    let mut text = MetricsText::of_scope(facts.scope);
    text.single("process_start_time_seconds", "gauge", facts.process_start_s);
    counted(&mut text, provider.ledger());
    gauge_by_meter(&mut text, "simprov_meter_limit", &meters, |reading| reading.limit);
    gauge_by_meter(&mut text, "simprov_meter_remaining", &meters, |reading| reading.remaining);
    gauge_by_meter(&mut text, "simprov_meter_reset_seconds", &meters, |reading| {
        reading.reset.map(|reset| reset.as_secs_f64())
    });
    text.single("simprov_others_tokens_total", "counter", provider.tokens_of_others());
    text.single("simprov_in_flight", "gauge", provider.in_flight());
    let recent = provider.recent();
    known(&mut text, "simprov_concurrency_cap", provider.concurrency_cap().map(f64::from));
    known(&mut text, "simprov_spend_left_usd", provider.spend_left_usd());
    known(&mut text, "simprov_peak_rps", recent.peak_rps(now).map(as_f64));
    known(&mut text, "simprov_request_tokens_max", recent.tokens_max(now).map(as_f64));
    known(&mut text, "simprov_commonest_failures_ratio", recent.commonest_share(now));
    deployments(&mut text, provider, now);
    if let Some(latency) = facts.latency {
        text.histogram("simprov_latency_seconds", latency);
    }
    text.into_text()
}

/// The pages of several scopes of one process as one.
pub(super) fn as_one(pages: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for page in pages {
        if text.is_empty() {
            text = page;
            continue;
        }
        // The families have been declared, and the process has started once.
        let is_sample =
            |line: &&str| !line.starts_with('#') && !line.starts_with("process_start_time");
        for line in page.lines().filter(is_sample) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

fn counted(text: &mut MetricsText, ledger: &Ledger) {
    text.family("simprov_attempts_total", "counter");
    for (kind, count) in ledger.attempts_by_kind() {
        let path = match kind {
            CallKind::Embeddings => "/v1/embeddings",
            CallKind::ChatCompletions => "/v1/chat/completions",
            CallKind::Other => "other",
        };
        text.sample("simprov_attempts_total", &[("path", path)], count);
    }
    text.single("simprov_originals_total", "counter", ledger.originals());
    text.family("simprov_responses_total", "counter");
    for (key, count) in ledger.responses() {
        let status = key.status.to_string();
        let labels = [("status", status.as_str()), ("code", key.code), ("type", key.kind)];
        text.sample("simprov_responses_total", &labels, count);
    }
    text.single("simprov_completed_total", "counter", ledger.completed());
    text.single("simprov_disguised_total", "counter", ledger.disguised());
    text.single("simprov_tokens_total", "counter", ledger.tokens());
    text.single("simprov_charged_requests_total", "counter", ledger.charged_requests());
    text.single("simprov_items_total", "counter", ledger.items());
    let (hints, sum_s) = ledger.hints();
    text.family("simprov_retry_after_seconds", "summary");
    text.sample("simprov_retry_after_seconds_sum", &[], sum_s);
    text.sample("simprov_retry_after_seconds_count", &[], hints);
}

fn deployments(text: &mut MetricsText, provider: &Provider, now: Mono) {
    let all: Vec<_> = provider.deployments().collect();
    if all.is_empty() {
        return;
    }
    text.family("simprov_deployment_calls_total", "counter");
    for one in &all {
        text.sample("simprov_deployment_calls_total", &[("deployment", one.name)], one.calls);
    }
    text.family("simprov_deployment_refuses", "gauge");
    for one in &all {
        let refuses = one.refused_at.is_some_and(|at| now.saturating_since(at) < REFUSES_FOR);
        let labels = [("deployment", one.name)];
        text.sample("simprov_deployment_refuses", &labels, u8::from(refuses));
    }
    let parts: [(&str, Part); 2] = [
        ("simprov_deployment_limit", |reading| reading.limit),
        ("simprov_deployment_remaining", |reading| reading.remaining),
    ];
    for (name, part) in parts {
        text.family(name, "gauge");
        for one in &all {
            for reading in &one.meters {
                let labels = [("deployment", one.name), ("meter", reading.meter.word())];
                if let Some(value) = part(reading) {
                    text.sample(name, &labels, value);
                }
            }
        }
    }
}

/// A gauge of its own where its value is known.
fn known(text: &mut MetricsText, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        text.single(name, "gauge", value);
    }
}

fn gauge_by_meter(
    text: &mut MetricsText,
    name: &str,
    meters: &[MeterReading],
    value: impl Fn(&MeterReading) -> Option<f64>,
) {
    text.family(name, "gauge");
    for reading in meters {
        if let Some(value) = value(reading) {
            text.sample(name, &[("meter", reading.meter.word())], value);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "calls and tokens of a minute stay below 2^53")]
const fn as_f64(count: u64) -> f64 {
    count as f64
}
