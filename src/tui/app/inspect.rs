//! Which signals a screen shows, and where the one that was asked for comes from.
//!
//! Asked once a second while it is looked at: the answer is what was scraped last. Knows no layout.

use crate::ingest::Origin;
use crate::signal::CATALOGUE;
use crate::tui::app::Model;
use crate::tui::app::mode::Mode;
use crate::tui::app::page::{Listed, Page};

/// A signal whose origin was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Sought {
    /// The quota scope.
    pub scope: String,
    /// The signal.
    pub signal: String,
    /// What came back; `None` while it is asked for the first time.
    pub answer: Option<Result<Origin, String>>,
}

/// What the overview shows, in order of reading.
const OVERVIEW: &[&str] = &[
    "amplification",
    "max_attempts_configured",
    "client_multiplication",
    "retry_header_share",
    "retries_share",
    "retry_success_share",
    "retries_denied_rps",
    "originals_rps",
    "offered_rps",
    "admitted_rps",
    "shed_rps",
    "deferred_rps",
    "cancelled_rps",
    "expired_rps",
    "attempts_rps",
    "success_rps",
    "provider_completed_rps",
    "delivered_rps",
    "served_share",
    "provider_429_rps",
    "provider_503_rps",
    "gate_429_rps",
    "gate_503_rps",
    "tpm_headroom",
    "tpm_limit",
    "own_tpm_headroom",
    "rpm_headroom",
    "rpm_limit",
    "own_rpm_headroom",
    "reset_s",
    "retry_after_s",
    "tokens_per_request",
    "est_tokens_per_request",
    "actual_tokens_per_request",
    "queue_depth",
    "queue_oldest_age_s",
    "interactive_queue_depth",
    "interactive_queue_oldest_age_s",
    "batch_queue_depth",
    "batch_queue_oldest_age_s",
    "inflight_actual",
    "inflight_limit",
    "inflight_gauge",
    "breaker",
    "latency_p95_s",
    "latency_offered_p95_s",
    "caller_latency_p95_s",
];

/// What the page of scopes shows.
const SCOPES: &[&str] = &[
    "tpm_headroom",
    "tpm_limit",
    "tpm_reset_s",
    "own_tpm_headroom",
    "rpm_headroom",
    "rpm_limit",
    "rpm_reset_s",
    "own_rpm_headroom",
    "itpm_headroom",
    "itpm_limit",
    "itpm_reset_s",
    "otpm_headroom",
    "otpm_limit",
    "otpm_reset_s",
    "tpd_headroom",
    "tpd_limit",
    "rpd_headroom",
    "rpd_limit",
    "day_headroom",
    "day_reset_s",
    "reset_s",
    "retry_after_s",
    "gate_rate_factor",
    "own_used_ratio",
    "own_view_sum_ratio",
    "inflight_actual",
    "provider_concurrency_limit",
];

/// What the page of retries shows.
const RETRIES: &[&str] = &[
    "originals_rps",
    "client_multiplication",
    "offered_rps",
    "admitted_rps",
    "amplification",
    "attempts_rps",
    "max_attempts_configured",
    "success_rps",
    "provider_completed_rps",
    "delivered_rps",
    "retry_header_share",
    "retries_share",
    "attempts_histogram",
    "retried_originals_share",
    "retry_success_share",
    "retries_denied_rps",
    "retry_budget_left",
    "retry_budget_s",
    "give_up_share",
    "retry_sync_share",
    "retry_wait_p50_s",
    "retry_after_s",
    "provider_429_rps",
    "provider_429_tokens_rps",
    "provider_429_requests_rps",
    "provider_503_rps",
    "provider_5xx_other_rps",
    "provider_4xx_other_rps",
    "timeout_rps",
    "gate_429_rps",
    "gate_503_rps",
    "error_codes",
    "models_asked",
    "models",
];

/// What the page of queue shows.
const QUEUE: &[&str] = &[
    "queue_depth",
    "queue_oldest_age_s",
    "interactive_queue_depth",
    "interactive_queue_oldest_age_s",
    "batch_queue_depth",
    "batch_queue_oldest_age_s",
    "lanes",
    "queue_wait_p50_s",
    "queue_wait_p95_s",
    "client_timeout_s",
    "expired_rps",
    "cancelled_rps",
    "client_abort_share",
    "abandoned_share",
    "admitted_rps",
    "inflight_actual",
    "inflight_limit",
    "inflight_gauge",
    "sem_wait_s",
    "pool_wait_s",
    "gate_pause_s",
    "loop_lag_s",
    "latency_p95_s",
    "latency_offered_p95_s",
];

/// What the page of breakers shows.
const BREAKERS: &[&str] = &[
    "breaker",
    "breaker_opens_per_hour",
    "cooldown",
    "cooldown_flaps_per_min",
    "same_account_success_during_cooldown",
    "deployments",
    "fallback_success_share",
    "primary_dead_s",
    "unreachable_rps",
    "offered_rps",
    "success_rps",
    "provider_completed_rps",
    "delivered_rps",
];

/// What the page of tenants shows.
const TENANTS: &[&str] = &[
    "tenants",
    "lanes",
    "top_caller_share",
    "top_feature_share",
    "new_source_share",
    "new_model_share",
    "same_fingerprint_share",
    "duplicate_job_id_share",
    "aux_rps",
    "aux_share",
    "probe_rps",
    "probe_tokens_share",
];

/// What the page of goodput shows.
const GOODPUT: &[&str] = &[
    "offered_rps",
    "admitted_rps",
    "shed_rps",
    "deferred_rps",
    "cancelled_rps",
    "expired_rps",
    "originals_rps",
    "attempts_rps",
    "success_rps",
    "provider_completed_rps",
    "delivered_rps",
    "served_share",
    "retries_share",
    "retry_success_share",
    "est_tokens_per_request",
    "actual_tokens_per_request",
    "tpm_limit",
    "spend_usd_per_min",
    "spend_remaining_usd",
    "billed_error_share",
    "error_body_share",
    "citation_valid_share",
    "grounded_share",
    "retrieval_coverage",
    "latency_p50_s",
    "latency_p95_s",
    "latency_offered_p95_s",
    "caller_latency_p95_s",
    "provider_latency_p95_s",
];

impl Page {
    /// The signals that it shows, in order of reading; empty where it shows whatever there is.
    const fn signals(self) -> &'static [&'static str] {
        match self {
            Self::Scopes => SCOPES,
            Self::Retries => RETRIES,
            Self::Queue => QUEUE,
            Self::Breakers => BREAKERS,
            Self::Tenants => TENANTS,
            Self::Goodput => GOODPUT,
            Self::Sources | Self::Trace | Self::Signals => &[],
        }
    }
}

impl Model {
    /// The signals on the screen; empty where it shows none by itself.
    #[must_use]
    pub fn signals_on_screen(&self) -> Vec<String> {
        let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        match self.screen() {
            Mode::Overview => listed(OVERVIEW),
            Mode::Page(page, _) => listed(page.signals()),
            Mode::Diagnose(_) | Mode::Guide(_) => {
                let mut names: Vec<String> = Vec::new();
                let evidence = self.verdict().map_or(&[][..], |verdict| &verdict.evidence);
                for one in evidence {
                    let root = one.signal.split('.').next().unwrap_or(&one.signal);
                    if !names.iter().any(|known| known == root) {
                        names.push(root.to_owned());
                    }
                }
                names
            }
            _ => Vec::new(),
        }
    }

    /// The signals of the scope on the screen, by name: those that are known, then the others, each in
    /// the order of the catalogue; of a list that is confined to some, those in their order.
    #[must_use]
    pub fn signal_names(&self, list: &Listed) -> Vec<String> {
        if !list.only.is_empty() {
            return list.only.clone();
        }
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        let known = |name: &str| snapshot.get(name).is_some();
        let catalogue = || CATALOGUE.iter().map(|definition| definition.name);
        let others = snapshot.signals.keys().map(String::as_str);
        let others = others.filter(|name| !catalogue().any(|listed| listed == *name));
        let first = catalogue().filter(|name| known(name)).chain(others);
        let rest = catalogue().filter(|name| !known(name) && snapshot.absent.contains_key(*name));
        first.chain(rest).map(str::to_owned).collect()
    }

    /// The scope and the signal to ask for, while somebody looks at where one comes from.
    #[must_use]
    pub fn looked_into(&self) -> Option<(String, String)> {
        let sought = self.sought.as_ref()?;
        let is_seen = self.modes.iter().any(|mode| matches!(mode, Mode::Origin(_)));
        (is_seen && self.frozen.is_none()).then(|| (sought.scope.clone(), sought.signal.clone()))
    }
}
