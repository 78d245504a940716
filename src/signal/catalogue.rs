//! The signal catalogue: every name that a snapshot, predicate, adapter or screen may use.
//!
//! A test holds the table free of duplicates. Add signals where a cause needs them; never rename one.

/// What a signal's number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Events per second.
    PerSecond,
    /// Things per minute.
    PerMinute,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// A dimensionless ratio; shares and headroom lie in 0..1, multiplications start at 1.
    Ratio,
    /// Percent, 100 is the whole.
    Percent,
    /// A count or gauge without a unit.
    Count,
    /// Language-model tokens.
    Tokens,
    /// US dollars.
    Usd,
    /// A word.
    Text,
    /// A map or a list with parts of its own.
    Record,
}

impl Unit {
    /// The word for it, as runbooks write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::PerSecond => "1/s",
            Self::PerMinute => "1/min",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
            Self::Ratio => "ratio",
            Self::Percent => "percent",
            Self::Count => "count",
            Self::Tokens => "tok",
            Self::Usd => "usd",
            Self::Text => "text",
            Self::Record => "record",
        }
    }
}

/// One entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// The name, unit included (`_rps`, `_s`, `_share`).
    pub name: &'static str,
    /// What the number counts.
    pub unit: Unit,
    /// The chapter it stands in.
    pub group: &'static str,
    /// What it says, in a few words.
    pub meaning: &'static str,
}

const fn row(
    name: &'static str,
    unit: Unit,
    group: &'static str,
    meaning: &'static str,
) -> Definition {
    Definition { name, unit, group, meaning }
}

/// Looks a signal up by name.
#[must_use]
pub fn definition(name: &str) -> Option<&'static Definition> {
    CATALOGUE.iter().find(|definition| definition.name == name)
}

/// Every signal, by chapter.
#[rustfmt::skip]
pub const CATALOGUE: &[Definition] = &[
    row("window_s", Unit::Seconds, "Work", "what the rates are averaged over"),
    row("originals_rps", Unit::PerSecond, "Work", "units of work users asked for"),
    row("originals_rps_15m_ago", Unit::PerSecond, "Work", "units of work users asked for, now and before"),
    row("originals_rps_1h_ago", Unit::PerSecond, "Work", "units of work users asked for, now and before"),
    row("amplification", Unit::Ratio, "Work", "attempts per distinct original with at least one attempt in the window"),
    row("client_multiplication", Unit::Ratio, "Work", "offered requests per original"),
    row("offered_rps", Unit::PerSecond, "Work", "requests that arrived at the gate, client retries included (in the case files, which describe other people's gateways, often equal to originals; in our drill with the gate off, equal to attempts)"),
    row("admitted_rps", Unit::PerSecond, "Work", "let through"),
    row("shed_rps", Unit::PerSecond, "Work", "refused by the gate"),
    row("deferred_rps", Unit::PerSecond, "Work", "stored for later"),
    row("cancelled_rps", Unit::PerSecond, "Work", "the caller went away"),
    row("expired_rps", Unit::PerSecond, "Work", "too late to start"),
    row("served_share", Unit::Ratio, "Work", "originals served / originals"),
    row("retry_success_share", Unit::Ratio, "Work", "retries that ended in success"),
    row("attempts_histogram", Unit::Record, "Work", "originals by number of attempts"),
    row("attempts_rps", Unit::PerSecond, "Work", "requests that reached the provider"),
    row("attempts_rps_15m_ago", Unit::PerSecond, "Work", "requests that reached the provider"),
    row("success_rps", Unit::PerSecond, "Work", "attempts that the provider answered with a usable result"),
    row("delivered_rps", Unit::PerSecond, "Work", "answers that reached a caller"),
    row("provider_completed_rps", Unit::PerSecond, "Work", "answers that the provider finished"),
    row("calls_per_original", Unit::Count, "Work", "successful calls per original, share of calls that ended a task (runaway loops)"),
    row("final_answer_share", Unit::Ratio, "Work", "successful calls per original, share of calls that ended a task (runaway loops)"),
    row("fallback_hops_per_original", Unit::Count, "Work", "the fallback walk"),
    row("distinct_models_per_original", Unit::Count, "Work", "the fallback walk"),
    row("wasted_per_original_s", Unit::Seconds, "Work", "the fallback walk"),
    row("retries_to_other_deployment_share", Unit::Ratio, "Work", "whether retries go elsewhere"),
    row("failover_on_429", Unit::Count, "Work", "whether retries go elsewhere"),
    row("max_attempts_configured", Unit::Count, "Work", "the most attempts that one layer, the intended retry owner, may make per original; never the product of layers"),
    row("retry_header_share", Unit::Ratio, "Work", "offered requests that carry a retry mark above zero; 0 proves nothing"),
    row("logged_attempts_rps", Unit::PerSecond, "Work", "attempts by the caller's own log or meter"),
    row("own_client_counted_rps", Unit::PerSecond, "Work", "attempts by the caller's own log or meter"),
    row("provider_429_rps", Unit::PerSecond, "Refusals", "429 answers of the provider"),
    row("provider_503_rps", Unit::PerSecond, "Refusals", "503 answers of the provider"),
    row("provider_5xx_other_rps", Unit::PerSecond, "Refusals", "other 5xx answers of the provider"),
    row("provider_4xx_other_rps", Unit::PerSecond, "Refusals", "other 4xx answers of the provider"),
    row("unreachable_rps", Unit::PerSecond, "Refusals", "tries for which there was no connection to the provider"),
    row("timeout_rps", Unit::PerSecond, "Refusals", "attempts that timed out"),
    row("gate_429_rps", Unit::PerSecond, "Refusals", "refusals made by our own gate or router"),
    row("gate_503_rps", Unit::PerSecond, "Refusals", "refusals made by our own gate or router"),
    row("gate_403_rps", Unit::PerSecond, "Refusals", "refusals made by our own gate or router"),
    row("gate_500_rps", Unit::PerSecond, "Refusals", "refusals made by our own gate or router"),
    row("error_codes", Unit::Record, "Refusals", "map from the provider's code to a count in the window; our gate's codes begin with `gate:`"),
    row("disguised_share", Unit::Ratio, "Refusals", "refusals inside another status"),
    row("error_body_share", Unit::Ratio, "Refusals", "refusals inside another status"),
    row("billed_error_share", Unit::Ratio, "Refusals", "refusals inside another status"),
    row("could_have_served_share", Unit::Ratio, "Refusals", "sampled gate refusals that the next stage could have served"),
    row("same_fingerprint_share", Unit::Ratio, "Refusals", "failures that come from the three commonest request fingerprints"),
    row("progress_items_per_min", Unit::PerMinute, "Refusals", "items of a job finished"),
    row("rpm_headroom", Unit::Ratio, "Quota", "remaining / limit of the request meter"),
    row("tpm_headroom", Unit::Ratio, "Quota", "remaining / limit of the token meter"),
    row("provider_429_requests_rps", Unit::PerSecond, "Quota", "by the meter that the refusal names"),
    row("provider_429_tokens_rps", Unit::PerSecond, "Quota", "by the meter that the refusal names"),
    row("rpm_limit", Unit::Count, "Quota", "requests per minute, limit"),
    row("rpm_remaining", Unit::Count, "Quota", "requests per minute, remaining"),
    row("tpm_limit", Unit::Tokens, "Quota", "tokens per minute, limit"),
    row("tpm_remaining", Unit::Tokens, "Quota", "tokens per minute, remaining"),
    row("itpm_limit", Unit::Tokens, "Quota", "input tokens per minute, limit"),
    row("itpm_remaining", Unit::Tokens, "Quota", "input tokens per minute, remaining"),
    row("otpm_limit", Unit::Tokens, "Quota", "output tokens per minute, limit"),
    row("otpm_remaining", Unit::Tokens, "Quota", "output tokens per minute, remaining"),
    row("day_limit", Unit::Count, "Quota", "day meter, limit"),
    row("day_remaining", Unit::Count, "Quota", "day meter, remaining"),
    row("windows_seen_in_period", Unit::Count, "Quota", "windows seen in period"),
    row("account_rpm_headroom", Unit::Ratio, "Quota", "account rpm headroom"),
    row("provider_concurrency_limit", Unit::Count, "Quota", "provider concurrency limit"),
    row("reset_s", Unit::Seconds, "Quota", "reset s"),
    row("reset_header_s", Unit::Seconds, "Quota", "reset header s"),
    row("reset_time_drift_s", Unit::Seconds, "Quota", "reset time drift s"),
    row("quota_window_s", Unit::Seconds, "Quota", "quota window s"),
    row("window_len_s", Unit::Seconds, "Quota", "window len s"),
    row("window_age_s", Unit::Seconds, "Quota", "window age s"),
    row("retry_after_s", Unit::Seconds, "Quota", "the hint on refusals"),
    row("pool_limit_scope", Unit::Text, "Quota", "a pool that others share"),
    row("other_keys_share", Unit::Ratio, "Quota", "a pool that others share"),
    row("own_tokens_per_minute", Unit::PerMinute, "Quota", "a pool that others share"),
    row("header_unchanged_s", Unit::Seconds, "Quota", "the quota header has not moved for so long under load"),
    row("quota_units_per_request", Unit::Count, "Quota", "quota units per request"),
    row("items_per_request", Unit::Count, "Quota", "items per request"),
    row("provider_status", Unit::Text, "Quota", "the provider's own word"),
    row("provider_recovered_s", Unit::Seconds, "Quota", "the provider's own word"),
    row("own_used_ratio", Unit::Ratio, "Quota", "used / limit by our counters and by the provider's"),
    row("provider_used_ratio", Unit::Ratio, "Quota", "used / limit by our counters and by the provider's"),
    row("own_view_sum_ratio", Unit::Ratio, "Quota", "sum of all instances' counters over the provider's limit"),
    row("replicas", Unit::Count, "Quota", "instances of the gate"),
    row("limiter_store", Unit::Record, "Quota", "the limiter's shared store: p95_s, error_rps, timeouts_rps"),
    row("limiter_mode", Unit::Text, "Quota", "the shared store of the limiter"),
    row("tokens_per_request", Unit::Tokens, "Tokens", "tokens per request"),
    row("tokens_per_request_baseline", Unit::Tokens, "Tokens", "tokens per request baseline"),
    row("est_tokens_per_request", Unit::Tokens, "Tokens", "est tokens per request"),
    row("actual_tokens_per_request", Unit::Tokens, "Tokens", "actual tokens per request"),
    row("reserved_tokens_per_request", Unit::Tokens, "Tokens", "reserved tokens per request"),
    row("actual_output_tokens", Unit::Tokens, "Tokens", "actual output tokens"),
    row("requested_tokens_p50", Unit::Tokens, "Tokens", "requested tokens p50"),
    row("requested_tokens_max", Unit::Tokens, "Tokens", "requested tokens max"),
    row("cached_share", Unit::Ratio, "Tokens", "cached share"),
    row("queue_depth", Unit::Count, "Waiting", "requests waiting at the gate"),
    row("queue_oldest_age_s", Unit::Seconds, "Waiting", "age of the oldest waiting request"),
    row("client_timeout_s", Unit::Seconds, "Waiting", "client timeout s"),
    row("timeout_mode_s", Unit::Seconds, "Waiting", "timeout mode s"),
    row("edge_timeout_share", Unit::Ratio, "Waiting", "edge timeout share"),
    row("abandoned_share", Unit::Ratio, "Waiting", "queued or running work whose caller is gone"),
    row("inflight_actual", Unit::Count, "Waiting", "open upstream calls"),
    row("inflight_gauge", Unit::Count, "Waiting", "what the permit counter says"),
    row("inflight_limit", Unit::Count, "Waiting", "the permit limit"),
    row("pool_wait_s", Unit::Seconds, "Waiting", "connection pool, permit, event-loop stalls"),
    row("sem_wait_s", Unit::Seconds, "Waiting", "connection pool, permit, event-loop stalls"),
    row("loop_lag_s", Unit::Seconds, "Waiting", "connection pool, permit, event-loop stalls"),
    row("worker_threads_busy", Unit::Count, "Waiting", "worker threads busy"),
    row("worker_threads_total", Unit::Count, "Waiting", "worker threads total"),
    row("cpu_busy_ratio", Unit::Ratio, "Waiting", "cpu busy ratio"),
    row("pod_restarts_10m", Unit::Count, "Waiting", "pod restarts 10m"),
    row("uptime_h", Unit::Hours, "Waiting", "uptime h"),
    row("latency_p50_s", Unit::Seconds, "Latency", "end to end, admitted"),
    row("latency_p95_s", Unit::Seconds, "Latency", "end to end, admitted"),
    row("provider_latency_p95_s", Unit::Seconds, "Latency", "one attempt at the provider"),
    row("stages_p95_s", Unit::Seconds, "Latency", "map from stage (llm, retrieval, tools, refine, ...) to seconds"),
    row("stages_p95_baseline_s", Unit::Seconds, "Latency", "map from stage (llm, retrieval, tools, refine, ...) to seconds"),
    row("sources", Unit::Record, "Latency", "sources"),
    row("slowest_source_share", Unit::Ratio, "Latency", "slowest source share"),
    row("retry_wait_p50_s", Unit::Seconds, "Retry clock", "retry wait p50 s"),
    row("retry_sync_share", Unit::Ratio, "Retry clock", "retry sync share"),
    row("retry_budget_s", Unit::Seconds, "Retry clock", "retry budget s"),
    row("give_up_share", Unit::Ratio, "Retry clock", "give up share"),
    row("breaker_opens_per_hour", Unit::Count, "Breakers and pools", "repeated or long openings"),
    row("breaker_open_ratio_1h", Unit::Ratio, "Breakers and pools", "repeated or long openings"),
    row("breaker", Unit::Record, "Breakers and pools", "state, open_since_s, reset_timeout_s, probe_age_s, probes_in_flight, opened_for, success_age_s"),
    row("cooldown", Unit::Record, "Breakers and pools", "in_cooldown, total, cooldown_s, entered_within_s"),
    row("cooldown_flaps_per_min", Unit::PerMinute, "Breakers and pools", "cooldown flaps per min"),
    row("same_account_success_during_cooldown", Unit::Count, "Breakers and pools", "same account success during cooldown"),
    row("fallback_success_share", Unit::Ratio, "Breakers and pools", "fallback success share"),
    row("primary_dead_s", Unit::Seconds, "Breakers and pools", "primary dead s"),
    row("deployments", Unit::Record, "Breakers and pools", "id, share, headroom, state"),
    row("tenants", Unit::Record, "Who", "id, share_requests, share_tokens, share_failed, latency_p95_s, refused_share"),
    row("lanes", Unit::Record, "Who", "interactive and batch: share_tokens, refused_share"),
    row("top_caller_share", Unit::Ratio, "Who", "top caller share"),
    row("top_feature", Unit::Text, "Who", "top feature"),
    row("top_feature_share", Unit::Ratio, "Who", "top feature share"),
    row("new_model_share", Unit::Ratio, "Who", "new model share"),
    row("new_source_share", Unit::Ratio, "Who", "new source share"),
    row("probe_rps", Unit::PerSecond, "Who", "health checks and extras"),
    row("probe_tokens_share", Unit::Ratio, "Who", "health checks and extras"),
    row("aux_rps", Unit::PerSecond, "Who", "health checks and extras"),
    row("aux_share", Unit::Ratio, "Who", "health checks and extras"),
    row("aux_refused_share", Unit::Ratio, "Who", "health checks and extras"),
    row("duplicate_job_id_share", Unit::Ratio, "Who", "duplicate job id share"),
    row("embeds_per_original", Unit::Count, "Who", "embeds per original"),
    row("minutes_since_deploy", Unit::Minutes, "Change", "minutes since deploy"),
    row("ramp_pct_15m", Unit::Percent, "Change", "ramp pct 15m"),
    row("peak_1s_rps", Unit::PerSecond, "Change", "peak 1s rps"),
    row("cache", Unit::Record, "Cache", "hit_ratio, fast_share, wrong_share, age_p95_s, ..."),
    row("log_bytes_per_request", Unit::Count, "Cache", "log bytes per request"),
    row("citation_valid_share", Unit::Ratio, "Outcome quality", "of admitted answers; a release gate for anything that changes admission"),
    row("retrieval_coverage", Unit::Count, "Outcome quality", "of admitted answers; a release gate for anything that changes admission"),
    row("grounded_share", Unit::Ratio, "Outcome quality", "of admitted answers; a release gate for anything that changes admission"),
    row("spend_remaining_usd", Unit::Usd, "Quota", "money left"),
    row("spend_rate_x_baseline", Unit::Ratio, "Quota", "spending rate over its usual rate"),
    row("interactive_queue_depth", Unit::Count, "Waiting", "requests waiting in the interactive lane"),
    row("batch_queue_depth", Unit::Count, "Waiting", "requests waiting in the batch lane"),
    row("interactive_queue_oldest_age_s", Unit::Seconds, "Waiting", "oldest age in the interactive lane"),
    row("batch_queue_oldest_age_s", Unit::Seconds, "Waiting", "oldest age in the batch lane"),
    row("client_abort_share", Unit::Ratio, "Waiting", "requests whose client went away"),
    row("caller_latency_p95_s", Unit::Seconds, "Latency", "end to end as the layers above the gate see it, their waits and retries included"),
    row("latency_offered_p95_s", Unit::Seconds, "Latency", "end to end, of everything offered, refusals included"),
    row("retries_denied_rps", Unit::PerSecond, "Retry clock", "retries that the gate refused to make"),
    row("layer_multiplication", Unit::Ratio, "Work", "map from client layer to its calls per call of the layer above"),
    row("retries_share", Unit::Ratio, "Work", "attempts after the first, of all attempts"),
    row("gate_rate_factor", Unit::Ratio, "Quota", "how far our gate has lowered its own rate because of the provider's refusals; 1 when it has not"),
    row("retried_originals_share", Unit::Ratio, "Work", "originals that needed two attempts or more, of those with one at least"),
    row("own_tpm_headroom", Unit::Ratio, "Quota", "what our own token budget has left"),
    row("own_rpm_headroom", Unit::Ratio, "Quota", "what our own request budget has left"),
    row("provider_refused_rps", Unit::PerSecond, "Refusals", "429 and 503 answers of the provider"),
    row("provider_refused_share", Unit::Ratio, "Refusals", "attempts that the provider refused with 429 or 503"),
    row("provider_429_share", Unit::Ratio, "Refusals", "attempts that ended in a provider's 429"),
    row("provider_503_share", Unit::Ratio, "Refusals", "attempts that ended in a provider's 503"),
    row("provider_5xx_share", Unit::Ratio, "Refusals", "attempts that ended in another 5xx"),
    row("provider_4xx_share", Unit::Ratio, "Refusals", "attempts that ended in another 4xx"),
    row("timeout_share", Unit::Ratio, "Refusals", "attempts that timed out"),
    row("gate_refused_rps", Unit::PerSecond, "Refusals", "refusals of our own gate, whatever the status"),
    row("gate_refused_share", Unit::Ratio, "Refusals", "offered requests that our own gate refused"),
    row("itpm_headroom", Unit::Ratio, "Quota", "remaining / limit of the input-token meter"),
    row("otpm_headroom", Unit::Ratio, "Quota", "remaining / limit of the output-token meter"),
    row("day_headroom", Unit::Ratio, "Quota", "remaining / limit of the day meter"),
    row("tpm_demand_ratio", Unit::Ratio, "Quota", "tokens that the originals ask for per minute, over the limit"),
    row("rpm_demand_ratio", Unit::Ratio, "Quota", "requests that the originals ask for per minute, over the limit"),
    row("tpm_use_ratio", Unit::Ratio, "Quota", "tokens of successful calls per minute, over the limit"),
    row("rpm_use_ratio", Unit::Ratio, "Quota", "requests of successful calls per minute, over the limit"),
    row("estimate_error", Unit::Ratio, "Tokens", "actual over estimated tokens"),
    row("calm_s", Unit::Seconds, "Work", "for how long attempts per original and repeats of callers have been low"),
    row("top_tenant", Unit::Text, "Who", "the largest tenant by tokens"),
    row("top_tenant_share", Unit::Ratio, "Who", "share of tokens of the largest tenant"),
    row("failing_tenant", Unit::Text, "Who", "the tenant whose requests end in an error most often"),
    row("failing_tenant_share", Unit::Ratio, "Who", "share of the errors that the failing tenant gets"),
    row("others_refused_share", Unit::Ratio, "Who", "largest share of refusals among the other tenants"),
    row("deployment_headroom_min", Unit::Ratio, "Breakers and pools", "headroom of the emptiest deployment"),
    row("deployment_headroom_max", Unit::Ratio, "Breakers and pools", "headroom of the freest deployment"),
    row("cooldown_share", Unit::Ratio, "Breakers and pools", "deployments in cooldown"),
    row("rpm_reset_s", Unit::Seconds, "Quota", "time until the request meter is full"),
    row("tpm_reset_s", Unit::Seconds, "Quota", "time until the token meter is full"),
    row("itpm_reset_s", Unit::Seconds, "Quota", "time until the input-token meter is full"),
    row("otpm_reset_s", Unit::Seconds, "Quota", "time until the output-token meter is full"),
    row("day_reset_s", Unit::Seconds, "Quota", "time until the day meter is full"),
    row("rpd_limit", Unit::Count, "Quota", "requests per day, limit"),
    row("rpd_remaining", Unit::Count, "Quota", "requests per day, remaining"),
    row("rpd_headroom", Unit::Ratio, "Quota", "remaining / limit of the requests of the day"),
    row("tpd_limit", Unit::Tokens, "Quota", "tokens per day, limit"),
    row("tpd_remaining", Unit::Tokens, "Quota", "tokens per day, remaining"),
    row("tpd_headroom", Unit::Ratio, "Quota", "remaining / limit of the tokens of the day"),
    row("provider_notices", Unit::Record, "Change", "what the provider announces: deprecated_since, sunset_on"),
    row("models", Unit::Record, "Change", "models that answered in the window: id, share"),
    row("models_asked", Unit::Record, "Refusals", "models asked for in the window: id, share, refused_share (429 of its calls)"),
    row("queue_wait_p50_s", Unit::Seconds, "Waiting", "how long requests waited at the gate, median"),
    row("queue_wait_p95_s", Unit::Seconds, "Waiting", "how long requests waited at the gate, p95"),
    row("gate_pause_s", Unit::Seconds, "Waiting", "how long the gate starts nothing yet, because the provider said so"),
    row("retry_budget_left", Unit::Count, "Retry clock", "retries that the gate may make now"),
    row("spend_usd_per_min", Unit::Usd, "Quota", "billed tokens at the configured price, per minute"),
    row("stage_slowdown", Unit::Ratio, "Latency", "largest p95 over its usual one among the stages other than the model"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = CATALOGUE.iter().map(|definition| definition.name).collect();
        assert_eq!(names.len(), CATALOGUE.len(), "a signal is defined twice");
    }
}
