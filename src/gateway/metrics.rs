//! Writes what the gate has counted as Prometheus text. Pure: the same text for the same gate.
//!
//! Counters without variable labels are written from the first scrape on, at zero; label sets that
//! appear with their first event (reasons, codes, statuses) stay lazy and read as zero before.

use std::time::Duration;

use super::calm::Calm;
use super::deferred::DeferredLane;
use super::page::Page;
use super::wire::Wire;
use crate::admission::{
    BreakerState, Calls, Ending, FLAGS, Gate, Histogram, Lane, Mode, Scope, Settings,
    StoreCounters, TenantCounters,
};
use crate::dialect::Since;
use crate::signal::Mono;

mod deferred;
mod quota;
mod recent;
mod store;
mod wire;

type LaneCount = fn(&Scope, Lane) -> u64;
type TenantCount = fn(&TenantCounters) -> f64;
type ModelCount = fn(&Calls) -> u64;
type ScopeHistogram = fn(&Scope) -> &Histogram;

/// What the text says beside the gate's own counts.
#[derive(Clone, Default)]
pub struct Facts<'a> {
    /// Name of this instance.
    pub instance: &'a str,
    /// Start of the process, Unix time in seconds.
    pub process_start_s: f64,
    /// Calls that are open at the provider.
    pub upstream_open: u64,
    /// Revision of the flag table.
    pub flags_revision: u64,
    /// Fingerprint of the configuration, if there is a file behind it.
    pub config_revision: Option<u64>,
    /// Whether the configuration was taken over when it was last read.
    pub config_taken: Option<bool>,
    /// Keys of overridden flags.
    pub overridden: &'a [String],
    /// How late the event loop of the data plane is, where that is measured.
    pub loop_lag: Option<Duration>,
    /// How the store of the shared budget answered, where there is one.
    pub store: Option<&'a StoreCounters>,
    /// What is wrong with this gate on purpose.
    pub faults: &'a [&'static str],
    /// For how long nothing has been repeated, where that is watched.
    pub calm: Option<&'a Calm>,
    /// Requests to the admin plane that were refused, by reason.
    pub admin_refused: Option<[(&'static str, u64); 3]>,
    /// The lane of what is done later, where there is one.
    pub lane: Option<&'a DeferredLane>,
    /// What happened on the sockets, where there are any.
    pub wire: Option<&'a Wire>,
}

/// The exposition of one instance, text format 0.0.4.
#[must_use]
pub fn render(gate: &Gate, facts: &Facts<'_>, now: Mono) -> String {
    let mut page = Page::default();
    page.family("process_start_time_seconds", "gauge", "Start of the process, Unix time.");
    page.sample("process_start_time_seconds", &[], facts.process_start_s);
    page.family("weir_build_info", "gauge", "Version of weir.");
    page.sample("weir_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.family("weir_instance_info", "gauge", "Name of this instance.");
    page.sample("weir_instance_info", &[("instance", facts.instance)], 1.0);
    let scopes = gate.scopes();
    work(&mut page, scopes);
    attempts(&mut page, scopes, now);
    quota::write(&mut page, scopes, now);
    said(&mut page, scopes, now);
    waiting(&mut page, scopes, gate.settings(), facts, now);
    guards(&mut page, scopes, gate.settings(), now);
    if let Some(calm) = facts.calm {
        let help = "For how long attempts per original and repeats of callers have been low.";
        page.gauge(scopes, "weir_calm_seconds", help, |s| calm.seconds(s.name(), now));
    }
    store::write(&mut page, scopes, facts.store, now);
    deferred::write(&mut page, scopes, facts.lane);
    latency(&mut page, scopes);
    people(&mut page, scopes);
    flags(&mut page, gate.settings(), facts);
    if let Some(refused) = facts.admin_refused {
        let help = "Requests to the admin plane that were refused.";
        page.family("weir_admin_refused_total", "counter", help);
        for (reason, count) in refused {
            page.count("weir_admin_refused_total", &[("reason", reason)], count);
        }
    }
    if let Some(counts) = facts.wire {
        wire::write(&mut page, counts);
    }
    on_purpose(&mut page, facts);
    page.text
}

/// A gate that is ill on purpose says so.
fn on_purpose(page: &mut Page, facts: &Facts<'_>) {
    if facts.faults.is_empty() {
        return;
    }
    page.family("weir_drill_fault_info", "gauge", "What is wrong with this gate on purpose.");
    for fault in facts.faults {
        page.sample("weir_drill_fault_info", &[("fault", fault)], 1.0);
    }
}

fn work(page: &mut Page, scopes: &[Scope]) {
    let lanes: [(&str, &str, LaneCount); 4] = [
        ("weir_originals_total", "Distinct originals that arrived.", |scope, lane| {
            scope.counters().originals[lane]
        }),
        ("weir_offered_total", "Requests that arrived, repeats included.", |scope, lane| {
            scope.counters().offered[lane]
        }),
        ("weir_admitted_total", "Requests that were let through.", |scope, lane| {
            scope.counters().admitted[lane]
        }),
        ("weir_deferred_total", "Requests put off for later.", |scope, lane| {
            scope.counters().deferred[lane]
        }),
    ];
    for (name, help, read) in lanes {
        page.family(name, "counter", help);
        for scope in scopes {
            for lane in Lane::ALL {
                let labels = [("scope", &**scope.name()), ("lane", lane.word())];
                page.count(name, &labels, read(scope, lane));
            }
        }
    }
    page.per_scope(scopes, "weir_originals_attempted_total", "Originals with an attempt.", |s| {
        s.counters().originals_attempted()
    });
    let name = "weir_originals_reached_total";
    page.family(name, "counter", "Originals with so many attempts at least.");
    for scope in scopes {
        for (attempts, count) in (1_u32..).zip(scope.counters().originals_reached) {
            let labels = [("scope", &**scope.name()), ("attempts", &attempts.to_string())];
            page.count(name, &labels, count);
        }
    }
    page.per_scope(scopes, "weir_originals_served_total", "Originals answered well.", |s| {
        s.counters().originals_served
    });
    page.family("weir_shed_total", "counter", "Requests that the gate refused.");
    for scope in scopes {
        for ((lane, reason), count) in scope.counters().shed.iter() {
            let status = reason.status().to_string();
            let labels = [
                ("scope", &**scope.name()),
                ("lane", lane.word()),
                ("reason", reason.word()),
                ("status", &status),
            ];
            page.count("weir_shed_total", &labels, count);
        }
    }
    page.by(scopes, "weir_would_shed_total", "Refusals that shadow mode did not make.", |s| {
        s.counters().would_shed.iter().map(|(key, n)| ("reason", key.word(), n)).collect()
    });
    page.by(scopes, "weir_completed_total", "Requests answered by the provider.", |s| {
        s.counters().completed.iter().map(|(key, n)| ("outcome", key.word(), n)).collect()
    });
    page.by(scopes, "weir_cancelled_total", "Requests whose caller went away.", |s| {
        s.counters().cancelled.iter().map(|(key, n)| ("stage", key.word(), n)).collect()
    });
    page.by(scopes, "weir_expired_total", "Requests that became too late to start.", |s| {
        s.counters().expired.iter().map(|(key, n)| ("stage", key.word(), n)).collect()
    });
}

fn attempts(page: &mut Page, scopes: &[Scope], now: Mono) {
    page.by(scopes, "weir_attempts_total", "Requests that reached the provider.", |s| {
        let counters = s.counters();
        vec![("kind", "first", counters.attempts_first), ("kind", "retry", counters.attempts_retry)]
    });
    page.family("weir_attempt_results_total", "counter", "Attempts by what came of them.");
    for scope in scopes {
        for ((class, ending), count) in scope.counters().results.iter() {
            let status = match ending {
                Ending::Status(status) => status.to_string(),
                Ending::Timeout => "timeout".to_owned(),
                Ending::Deadline => "deadline".to_owned(),
                Ending::Transport => "transport".to_owned(),
                Ending::Cancelled => "cancelled".to_owned(),
            };
            let labels = [("scope", &**scope.name()), ("class", class.word()), ("status", &status)];
            page.count("weir_attempt_results_total", &labels, count);
        }
    }
    page.per_scope(
        scopes,
        "weir_upstream_unreachable_total",
        "Tries without a connection to the provider.",
        |s| s.counters().unreachable,
    );
    page.family("weir_provider_refusals_total", "counter", "Refusals in the provider's words.");
    for scope in scopes {
        for (key, count) in &scope.counters().refusals {
            let status = key.status.to_string();
            let labels = [
                ("scope", &**scope.name()),
                ("status", &status),
                ("code", &*key.code),
                ("meter", key.meter),
            ];
            page.count("weir_provider_refusals_total", &labels, *count);
        }
    }
    page.by(scopes, "weir_client_retries_total", "Retries of callers, by evidence.", |s| {
        vec![
            ("evidence", "header", s.counters().retry_marked),
            ("evidence", "repeat", s.counters().client_repeats),
        ]
    });
    page.per_scope(scopes, "weir_retry_marked_total", "Requests with a retry mark above 0.", |s| {
        s.counters().retry_marked
    });
    page.per_scope(scopes, "weir_gate_retries_total", "Retries that the gate made.", |s| {
        s.counters().gate_retries
    });
    page.per_scope(scopes, "weir_retry_success_total", "Later attempts that succeeded.", |s| {
        s.counters().retry_successes
    });
    page.by(scopes, "weir_retries_denied_total", "Retries that were not made.", |s| {
        s.counters().retries_denied.iter().map(|(key, n)| ("reason", key.word(), n)).collect()
    });
    page.family("weir_retry_after_seconds", "summary", "Hints on the provider's refusals.");
    for scope in scopes {
        let labels = [("scope", &**scope.name())];
        page.sample("weir_retry_after_seconds_sum", &labels, scope.counters().hints_sum_s);
        page.count("weir_retry_after_seconds_count", &labels, scope.counters().hints);
    }
    recent::write(page, scopes, now);
}

/// The provider's words beside its meters. Nothing said is no series.
fn said(page: &mut Page, scopes: &[Scope], now: Mono) {
    let date = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%d").to_string();
    let mut deprecated = Vec::new();
    let mut sunset = Vec::new();
    for scope in scopes {
        let name = &**scope.name();
        deprecated.extend(scope.said().deprecated(now).map(|since| match since {
            Since::At(at) => (name, date(at)),
            Since::Undated => (name, "undated".to_owned()),
        }));
        sunset.extend(scope.said().sunset(now).map(|at| (name, date(at))));
    }
    for (name, label, help, rows) in [
        ("weir_provider_deprecated_info", "since", "The provider deprecates this.", deprecated),
        ("weir_provider_sunset_info", "on", "The provider stops answering this.", sunset),
    ] {
        page.family(name, "gauge", help);
        for (scope, date) in rows {
            page.sample(name, &[("scope", scope), (label, &date)], 1.0);
        }
    }
    let name = "weir_model_answers_total";
    page.family(name, "counter", "Good answers by the model asked for and the one they name.");
    for scope in scopes {
        for ((asked, by), count) in scope.said().models() {
            let labels = [("scope", &**scope.name()), ("asked", &**asked), ("model", &**by)];
            page.count(name, &labels, *count);
        }
    }
    let counts: [(&str, &str, ModelCount); 2] = [
        ("weir_model_calls_total", "Calls that were answered, by the model asked for.", |calls| {
            calls.answered
        }),
        (
            "weir_model_429_total",
            "Calls that were answered with 429, by the model asked for.",
            |calls| calls.refused,
        ),
    ];
    for (name, help, read) in counts {
        page.family(name, "counter", help);
        for scope in scopes {
            for (model, calls) in scope.said().asked() {
                page.count(name, &[("scope", &**scope.name()), ("model", &**model)], read(calls));
            }
        }
    }
}

fn waiting(page: &mut Page, scopes: &[Scope], settings: &Settings, facts: &Facts<'_>, now: Mono) {
    for (name, help) in [
        ("weir_queue_depth", "Requests that wait."),
        ("weir_queue_oldest_age_seconds", "Age of the oldest request that waits, 0 if none."),
    ] {
        page.family(name, "gauge", help);
        for scope in scopes {
            for lane in Lane::ALL {
                let labels = [("scope", &**scope.name()), ("lane", lane.word())];
                if name == "weir_queue_depth" {
                    page.sample(name, &labels, size(scope.queue().depth(lane)));
                } else {
                    let age = scope.queue().oldest_age(lane, now).unwrap_or_default();
                    page.sample(name, &labels, age.as_secs_f64());
                }
            }
        }
    }
    page.gauge(scopes, "weir_queue_max_age_seconds", "Longest wait allowed.", |_| {
        settings.queue_max_age_s
    });
    page.gauge(scopes, "weir_queue_max_depth", "Most requests that may wait.", |_| {
        f64::from(settings.queue_max_depth)
    });
    page.gauge(scopes, "weir_permits_in_use", "Permits in use.", |s| f64::from(s.in_flight()));
    // What is not enforced is not limited, and its permits have not been sought yet.
    let enforces = settings.mode == Mode::Enforce;
    page.gauge(scopes, "weir_permits_limit", "Permits.", |s| {
        f64::from(if enforces { s.permits_now() } else { settings.max_in_flight })
    });
    page.gauge(scopes, "weir_pause_remaining_seconds", "Time left of the scope's pause.", |s| {
        s.pause_left(now).as_secs_f64()
    });
    #[expect(clippy::cast_precision_loss, reason = "open calls are few")]
    let open = facts.upstream_open as f64;
    page.family("weir_upstream_open", "gauge", "Calls open at the provider, all scopes.");
    for scope in scopes {
        page.sample("weir_upstream_open", &[("scope", &**scope.name())], open);
    }
    if let Some(lag) = facts.loop_lag {
        page.gauge(scopes, "weir_loop_lag_seconds", "How late the event loop is.", |_| {
            lag.as_secs_f64()
        });
    }
}

fn guards(page: &mut Page, scopes: &[Scope], settings: &Settings, now: Mono) {
    page.family("weir_breaker_state", "gauge", "1 for the state that the breaker is in.");
    for scope in scopes {
        let state = scope.breaker().state(now).word();
        for word in ["closed", "open", "half_open"] {
            let labels = [("scope", &**scope.name()), ("state", word)];
            page.sample("weir_breaker_state", &labels, f64::from(u8::from(word == state)));
        }
    }
    page.gauge(scopes, "weir_breaker_since_seconds", "Seconds in this state.", |s| {
        now.saturating_since(s.breaker().since()).as_secs_f64()
    });
    page.gauge(scopes, "weir_breaker_reset_seconds", "Time that it stays open now.", |s| {
        s.breaker().open_for().as_secs_f64()
    });
    page.family("weir_breaker_probe_age_seconds", "gauge", "Age of the probe that is under way.");
    for scope in scopes {
        if let BreakerState::HalfOpen { probe: Some(started) } = scope.breaker().state(now) {
            let age = now.saturating_since(started).as_secs_f64();
            page.sample("weir_breaker_probe_age_seconds", &[("scope", &**scope.name())], age);
        }
    }
    page.family("weir_breaker_opened_info", "gauge", "Why the breaker last opened.");
    for scope in scopes {
        if let Some(reason) = scope.breaker().reason() {
            let labels = [("scope", &**scope.name()), ("reason", reason.word())];
            page.sample("weir_breaker_opened_info", &labels, 1.0);
        }
    }
    page.family(
        "weir_breaker_success_age_seconds",
        "gauge",
        "Age of the last success that was seen while the breaker was not closed.",
    );
    for scope in scopes {
        if let Some(at) = scope.breaker().last_success() {
            let labels = [("scope", &**scope.name())];
            let age = now.saturating_since(at).as_secs_f64();
            page.sample("weir_breaker_success_age_seconds", &labels, age);
        }
    }
    let help = "Calls that went past an open breaker and succeeded.";
    page.per_scope(scopes, "weir_breaker_success_while_open_total", help, |s| {
        s.counters().served_while_open
    });
    page.by(scopes, "weir_breaker_transitions_total", "Transitions of the breaker.", |s| {
        let [closed, open, half_open] = s.breaker().transitions();
        vec![("to", "closed", closed), ("to", "open", open), ("to", "half_open", half_open)]
    });
    page.gauge(scopes, "weir_retry_budget_remaining", "Retries that may be made now.", |s| {
        s.retries_left(settings, now)
    });
    page.per_scope(scopes, "weir_retry_budget_used_total", "Retries spent, repeats too.", |s| {
        s.retries_used()
    });
    page.gauge(scopes, "weir_adaptive_factor", "Factor on the rate, 1 when all is well.", |s| {
        s.adaptive_factor()
    });
    page.family(
        "weir_max_attempts_configured",
        "gauge",
        "The most attempts that the intended retry owner may make.",
    );
    for scope in scopes {
        if let Some(most) = scope.config().max_attempts_configured {
            let labels = [("scope", &**scope.name())];
            page.sample("weir_max_attempts_configured", &labels, f64::from(most));
        }
    }
}

fn people(page: &mut Page, scopes: &[Scope]) {
    page.family("weir_scope_info", "gauge", "Who answers for a quota scope.");
    for scope in scopes {
        let owner = scope.config().owner.as_deref().unwrap_or("");
        page.sample("weir_scope_info", &[("scope", &**scope.name()), ("owner", owner)], 1.0);
    }
    page.family("weir_spend_usd_total", "counter", "Billed tokens at the configured price.");
    for scope in scopes {
        if let Some(price) = scope.config().usd_per_million_tokens {
            let spend = scope.counters().tokens_actual * price / 1e6;
            page.sample("weir_spend_usd_total", &[("scope", &**scope.name())], spend);
        }
    }
    let families: [(&str, &str, TenantCount); 4] = [
        ("weir_tenant_offered_total", "Requests that arrived, by tenant.", |t| count(t.offered)),
        ("weir_tenant_refused_total", "Requests refused, by tenant.", |t| count(t.refused)),
        ("weir_tenant_failed_total", "Requests that ended in an error, by tenant.", |t| {
            count(t.failed)
        }),
        ("weir_tenant_tokens_total", "Tokens billed, by tenant.", |t| t.tokens),
    ];
    for (name, help, read) in families {
        page.family(name, "counter", help);
        for scope in scopes {
            for (tenant, counters) in scope.counters().tenants() {
                let labels = [("scope", &**scope.name()), ("tenant", &**tenant)];
                page.sample(name, &labels, read(counters));
            }
        }
    }
}

fn latency(page: &mut Page, scopes: &[Scope]) {
    let families: [(&str, &str, ScopeHistogram); 3] = [
        ("weir_attempt_duration_seconds", "One attempt.", |s| &s.counters().attempt_duration),
        (
            "weir_admitted_latency_seconds",
            "Requests answered with a result, arrival to end.",
            |s| &s.counters().admitted_latency,
        ),
        ("weir_offered_latency_seconds", "All requests, arrival to answer.", |s| {
            &s.counters().offered_latency
        }),
    ];
    for (name, help, read) in families {
        page.family(name, "histogram", help);
        for scope in scopes {
            page.histogram(name, &[("scope", &**scope.name())], read(scope));
        }
    }
    page.family("weir_queue_wait_seconds", "histogram", "Waits in the queue.");
    for scope in scopes {
        for (lane, histogram) in scope.counters().queue_wait.iter() {
            let labels = [("scope", &**scope.name()), ("lane", lane.word())];
            page.histogram("weir_queue_wait_seconds", &labels, histogram);
        }
    }
}

fn flags(page: &mut Page, settings: &Settings, facts: &Facts<'_>) {
    page.family("weir_flag_info", "gauge", "Flags and their effective values.");
    for def in FLAGS {
        let Ok(value) = settings.get(def.key) else { continue };
        let value = value.to_string();
        let overridden = facts.overridden.iter().any(|key| key == def.key);
        let overridden = if overridden { "true" } else { "false" };
        let labels = [("key", def.key), ("value", &value), ("overridden", overridden)];
        page.sample("weir_flag_info", &labels, 1.0);
    }
    page.family("weir_flags_revision", "gauge", "Revision of the flag table.");
    #[expect(clippy::cast_precision_loss, reason = "a revision is a small count")]
    page.sample("weir_flags_revision", &[], facts.flags_revision as f64);
    if let Some(revision) = facts.config_revision {
        let help = "Fingerprint of scopes, upstream and base flags.";
        page.family("weir_config_revision", "gauge", help);
        page.count("weir_config_revision", &[], revision);
    }
    if let Some(taken) = facts.config_taken {
        let help = "1 while the configuration is in force that was read last.";
        page.family("weir_config_last_reload_successful", "gauge", help);
        page.count("weir_config_last_reload_successful", &[], u64::from(taken));
    }
}

#[expect(clippy::cast_precision_loss, reason = "requests are counted far below 2^53")]
const fn count(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "queues are bounded far below 2^53")]
const fn size(n: usize) -> f64 {
    n as f64
}
