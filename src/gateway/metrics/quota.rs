//! What is left of every quota, by the provider's words and by the gate's own count, and how far both and the
//! gate's guesses are apart.

use crate::admission::{Metered, Scope};
use crate::gateway::page::Page;
use crate::signal::Mono;

/// Limits, what remains, ages of readings, resets, drift and the error of estimates.
pub(super) fn write(page: &mut Page, scopes: &[Scope], now: Mono) {
    let mut limit = Vec::new();
    let mut remaining = Vec::new();
    let mut age = Vec::new();
    let mut reset = Vec::new();
    for scope in scopes {
        for (meter, dated) in scope.readings() {
            let labels = (&**scope.name(), meter.word(), "provider");
            limit.extend(dated.reading.limit.map(|value| (labels, value)));
            remaining.extend(dated.reading.remaining.map(|value| (labels, value)));
            age.push((labels, now.saturating_since(dated.at).as_secs_f64()));
            reset.extend(dated.reading.reset.map(|value| (labels, value.as_secs_f64())));
        }
        let whole = |meter: &&Metered| meter.limit().window >= std::time::Duration::from_mins(1);
        for meter in scope.budget().meters().iter().filter(whole) {
            let labels = (&**scope.name(), meter.limit().meter.word(), "own");
            limit.push((labels, meter.quota()));
            if let Some((left, seconds)) = scope.own_left(meter, now) {
                remaining.push((labels, left));
                age.push((labels, seconds));
            }
        }
    }
    page.family(
        "weir_quota_drift_ratio",
        "gauge",
        "Own count of what is left minus the provider's, over the limit, at the last reading.",
    );
    // One of several instances cannot tell others' use from drift.
    for scope in scopes.iter().filter(|scope| scope.keeping().is_none()) {
        for meter in scope.budget().meters() {
            let labels = [("scope", &**scope.name()), ("meter", meter.limit().meter.word())];
            if let Some(drift) = meter.drift() {
                page.sample("weir_quota_drift_ratio", &labels, drift);
            }
        }
    }
    page.family(
        "weir_estimate_error_ratio",
        "gauge",
        "Distance of reservations from charges of late, over the charge.",
    );
    for scope in scopes {
        if let Some(error) = scope.estimate_error() {
            page.sample("weir_estimate_error_ratio", &[("scope", &**scope.name())], error);
        }
    }
    for (name, help, rows) in [
        (
            "weir_quota_limit",
            "Limit of a meter in its window: a minute, for those per day a day.",
            limit,
        ),
        ("weir_quota_remaining", "What is left of a meter.", remaining),
        ("weir_quota_reading_age_seconds", "Age of the reading.", age),
        ("weir_quota_reset_seconds", "Time until the meter is full, when it was read.", reset),
    ] {
        page.family(name, "gauge", help);
        for ((scope, meter, source), value) in rows {
            page.sample(name, &[("scope", scope), ("meter", meter), ("source", source)], value);
        }
    }
    for (name, help, read) in [
        (
            "weir_tokens_estimated_total",
            "First guesses of let-through requests.",
            (|scope| scope.counters().tokens_estimated) as fn(&Scope) -> f64,
        ),
        ("weir_tokens_reserved_total", "Tokens reserved.", |s| s.counters().tokens_reserved),
        ("weir_tokens_actual_total", "Tokens billed.", |s| s.counters().tokens_actual),
    ] {
        page.family(name, "counter", help);
        for scope in scopes {
            page.sample(name, &[("scope", &**scope.name())], read(scope));
        }
    }
}
