//! `[[scope]]` of `weir.toml`: one quota, how its provider counts, and the policy for it.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::config::{ConfigError, positive};
use crate::admission::{Permits, Policy, RampPlan, ScopeConfig, Semantics, WithoutStore};
use crate::dialect::Provider;

/// Most slices of one scope.
const SLICES_MAX: usize = 4;

/// `[[scope]]` of `weir.toml`: one quota.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeEntry {
    /// `provider/account/model`, with `/region` where quotas differ by it.
    pub name: String,
    /// Whose dialect its answers are read in; by the first part of `name` when absent.
    #[serde(default)]
    pub provider: Option<String>,
    /// Who answers for it.
    #[serde(default)]
    pub owner: Option<String>,
    /// Models that are counted on it; none: every model that no other scope names.
    #[serde(default)]
    pub models: Vec<String>,
    /// Requests per minute.
    pub rpm: Option<f64>,
    /// Tokens per minute, of requests and answers together.
    pub tpm: Option<f64>,
    /// Tokens of requests per minute, where the provider counts them apart.
    pub input_tpm: Option<f64>,
    /// Tokens of answers per minute, where the provider counts them apart.
    pub output_tpm: Option<f64>,
    /// Requests per day.
    pub rpd: Option<f64>,
    /// Tokens per day.
    pub tpd: Option<f64>,
    /// Calls that may be open at the same time, over all instances.
    pub concurrency: Option<u32>,
    /// How the provider counts a window. Without it the strictest is assumed, a sliding window.
    #[serde(default)]
    pub semantics: Semantics,
    /// The most that may be used at once, in seconds of the mean rate; 1 without it.
    pub burst_s: Option<f64>,
    /// Slices of the minute, in seconds, that may not hold more than their share of it. Without it
    /// 1 and 10 for windows, none for token buckets.
    pub slices_s: Option<Vec<f64>>,
    /// The provider charges `max_tokens`, not what the answer has.
    #[serde(default)]
    pub counts_max_tokens: bool,
    /// The most attempts that the intended retry owner may make.
    pub max_attempts_configured: Option<u32>,
    /// Price of a million tokens in US dollars, for the spend.
    pub usd_per_million_tokens: Option<f64>,
    /// Share of started tokens that batch work gets while interactive work waits; 0 without it.
    pub batch_trickle_ratio: Option<f64>,
    /// Share of the batch lane's started tokens that backfill gets while production ingest waits; 0
    /// without it.
    pub backfill_trickle_ratio: Option<f64>,
    /// Share of the quota that backfill leaves to production ingest; 0.2 without it.
    pub ingest_reserved_ratio: Option<f64>,
    /// Serve the newest first within a tenant while a lane is over half full.
    #[serde(default)]
    pub adaptive_lifo: bool,
    /// Faults in a row that open the breaker; 5 without it.
    pub breaker_faults_in_row: Option<u32>,
    /// How the number of permits is found, up to `admission.max_in_flight`.
    #[serde(default)]
    pub permits: Permits,
    /// Tokens per minute that retries may spend.
    pub retry_tpm: Option<f64>,
    /// US dollars per minute that retries may spend; needs `usd_per_million_tokens`.
    pub retry_usd_per_minute: Option<f64>,
    /// Come back after a cut by steps: when `admission.rate_factor` is raised again, and when the
    /// breaker closes. Without it, as soon as the rate factor allows.
    pub recovery: Option<RecoveryEntry>,
    /// What each lane does while the shared store cannot be reached.
    #[serde(default)]
    pub without_store: WithoutStoreEntry,
}

/// `recovery` of a scope: steps with a stop rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecoveryEntry {
    /// Size of a step as a share of normal, 0.1 to 0.25; 0.1 without it.
    pub step_ratio: Option<f64>,
    /// How long clients wait, in seconds; 60 without it. Each step is held at least so long.
    pub client_timeout_s: Option<f64>,
    /// The longest cooldown on the way, in seconds; 60 without it.
    pub cooldown_s: Option<f64>,
    /// Never above half as much again in fifteen minutes, as some providers want it.
    #[serde(default)]
    pub limit_growth: bool,
}

impl RecoveryEntry {
    fn plan(&self) -> RampPlan {
        let plan = RampPlan::default();
        let span = |given: Option<f64>, default: Duration| {
            given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(default)
        };
        RampPlan {
            step: self.step_ratio.unwrap_or(plan.step),
            client_timeout: span(self.client_timeout_s, plan.client_timeout),
            cooldown: span(self.cooldown_s, plan.cooldown),
            limit_growth: self.limit_growth,
            ..plan
        }
    }
}

/// `without_store` of a scope.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithoutStoreEntry {
    /// Interactive work: `open` without it.
    pub interactive: Option<WithoutStore>,
    /// Batch work: `closed` without it.
    pub batch: Option<WithoutStore>,
}

impl ScopeEntry {
    /// A scope without limits.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Whose dialect its answers are read in: `provider`, else the first part of the name where that
    /// is a known provider, else that of strangers.
    ///
    /// # Errors
    /// `provider` names nobody that is known.
    pub fn dialect(&self) -> Result<Provider, ConfigError> {
        let Some(named) = &self.provider else {
            let first = self.name.split('/').next().unwrap_or_default();
            return Ok(Provider::named(first).unwrap_or(Provider::GENERIC));
        };
        Provider::named(named).ok_or_else(|| {
            let known = Provider::names().collect::<Vec<_>>().join(", ");
            let message = format!("`{named}` is no provider that weir knows");
            ConfigError::new("provider", message, format!("write one of {known}"))
        })
    }

    /// Whether any limit of it is written.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.rpm.is_some()
            || self.tpm.is_some()
            || self.input_tpm.is_some()
            || self.output_tpm.is_some()
            || self.rpd.is_some()
            || self.tpd.is_some()
            || self.concurrency.is_some()
    }

    /// The scope as the gate takes it.
    #[must_use]
    pub fn to_config(&self) -> ScopeConfig {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let base = ScopeConfig::named(self.name.as_str());
        let slices = match (&self.slices_s, self.semantics) {
            (Some(slices), _) => slices.iter().map(|slice| seconds(*slice)).collect(),
            (None, Semantics::TokenBucket) => Vec::new(),
            (None, _) => base.slices.clone(),
        };
        let policy = Policy::default();
        ScopeConfig {
            rpm: self.rpm,
            tpm: self.tpm,
            input_tpm: self.input_tpm,
            output_tpm: self.output_tpm,
            rpd: self.rpd,
            tpd: self.tpd,
            concurrency: self.concurrency,
            semantics: self.semantics,
            burst: self.burst_s.map_or(base.burst, seconds),
            slices,
            counts_max_tokens: self.counts_max_tokens,
            max_attempts_configured: self.max_attempts_configured,
            owner: self.owner.as_deref().map(Arc::from),
            usd_per_million_tokens: self.usd_per_million_tokens,
            policy: Policy {
                batch_trickle: self.batch_trickle_ratio.unwrap_or(policy.batch_trickle),
                backfill_trickle: self.backfill_trickle_ratio.unwrap_or(policy.backfill_trickle),
                ingest_reserved: self.ingest_reserved_ratio.unwrap_or(policy.ingest_reserved),
                adaptive_lifo: self.adaptive_lifo,
                faults_in_row: self.breaker_faults_in_row.unwrap_or(policy.faults_in_row),
                permits: self.permits,
                retry_tpm: self.retry_tpm,
                retry_usd_per_minute: self.retry_usd_per_minute,
                ramp: self.recovery.as_ref().map(RecoveryEntry::plan),
                interactive_without_store: self
                    .without_store
                    .interactive
                    .unwrap_or(policy.interactive_without_store),
                batch_without_store: self.without_store.batch.unwrap_or(policy.batch_without_store),
                ..policy
            },
            ..base
        }
    }
}

/// Checks what the types of one scope cannot; `place` makes the dotted key of a key.
pub(super) fn check_scope(
    entry: &ScopeEntry,
    place: impl Fn(&str) -> String + Copy,
) -> Result<(), ConfigError> {
    let of = format!(" (scope `{}`)", entry.name);
    let numbers = [
        ("rpm", entry.rpm),
        ("tpm", entry.tpm),
        ("input_tpm", entry.input_tpm),
        ("output_tpm", entry.output_tpm),
        ("rpd", entry.rpd),
        ("tpd", entry.tpd),
        ("burst_s", entry.burst_s),
        ("usd_per_million_tokens", entry.usd_per_million_tokens),
        ("retry_tpm", entry.retry_tpm),
        ("retry_usd_per_minute", entry.retry_usd_per_minute),
    ];
    for (key, value) in numbers {
        value.map_or(Ok(()), |value| positive(&place(key), value, &of))?;
    }
    for slice in entry.slices_s.iter().flatten() {
        if !(0.1..60.0).contains(slice) {
            let message = format!("{slice} s is no slice of a minute{of}");
            let remedy = "write seconds from 0.1 to below 60, such as [1, 10]";
            return Err(ConfigError::new(place("slices_s"), message, remedy));
        }
    }
    if entry.slices_s.as_ref().is_some_and(|slices| slices.len() > SLICES_MAX) {
        let message = format!("more than {SLICES_MAX} slices{of}");
        return Err(ConfigError::new(
            place("slices_s"),
            message,
            "keep those the provider judges by",
        ));
    }
    let shares = [
        ("batch_trickle_ratio", entry.batch_trickle_ratio, 0.5),
        ("backfill_trickle_ratio", entry.backfill_trickle_ratio, 0.5),
        ("ingest_reserved_ratio", entry.ingest_reserved_ratio, 1.0),
    ];
    for (key, share, most) in shares {
        if share.is_some_and(|share| !(0.0..=most).contains(&share)) {
            let message = format!("must be a share from 0 to {most}{of}");
            return Err(ConfigError::new(place(key), message, "correct it"));
        }
    }
    let counts = [
        ("max_attempts_configured", entry.max_attempts_configured, "0 attempts answer nobody"),
        ("breaker_faults_in_row", entry.breaker_faults_in_row, "0 faults would open it at once"),
        ("concurrency", entry.concurrency, "0 calls answer nobody"),
    ];
    for (key, count, why) in counts {
        if count == Some(0) {
            return Err(ConfigError::new(place(key), format!("{why}{of}"), "write 1 or more"));
        }
    }
    if let Some(recovery) = &entry.recovery {
        if recovery.step_ratio.is_some_and(|step| !(0.1..=0.25).contains(&step)) {
            let message = format!("must be from 0.1 to 0.25{of}");
            return Err(ConfigError::new(place("recovery.step_ratio"), message, "correct it"));
        }
        for (key, value) in [
            ("recovery.client_timeout_s", recovery.client_timeout_s),
            ("recovery.cooldown_s", recovery.cooldown_s),
        ] {
            value.map_or(Ok(()), |value| positive(&place(key), value, &of))?;
        }
    }
    if entry.retry_usd_per_minute.is_some() && entry.usd_per_million_tokens.is_none() {
        let message = format!("retries cannot be priced{of}");
        let remedy = "add `usd_per_million_tokens`";
        return Err(ConfigError::new(place("retry_usd_per_minute"), message, remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Meter;

    fn read(text: &str) -> ScopeEntry {
        toml::from_str(&format!("name = 'p/a/m'\n{text}")).expect("well-formed")
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (text, expected) in [
            ("tpd = -1.0", "`scope[0].tpd`: must be a positive number"),
            ("burst_s = 0.0", "`scope[0].burst_s`: must be a positive number"),
            ("slices_s = [1.0, 60.0]", "`scope[0].slices_s`: 60 s is no slice of a minute"),
            ("slices_s = [1, 2, 3, 4, 5]", "more than 4 slices"),
            ("batch_trickle_ratio = 0.6", "`scope[0].batch_trickle_ratio`: must be a share"),
            ("ingest_reserved_ratio = 1.5", "from 0 to 1"),
            ("concurrency = 0", "`scope[0].concurrency`: 0 calls answer nobody"),
            ("breaker_faults_in_row = 0", "0 faults would open it at once"),
            ("retry_usd_per_minute = 1.0", "add `usd_per_million_tokens`"),
            ("recovery = { step_ratio = 0.5 }", "`scope[0].recovery.step_ratio`: must be from 0.1"),
            ("recovery = { cooldown_s = 0.0 }", "`scope[0].recovery.cooldown_s`"),
        ] {
            let place = |key: &str| format!("scope[0].{key}");
            let error = check_scope(&read(text), place).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_nobody_says_is_the_strictest() {
        let limits = |text: &str| {
            let config = read(text).to_config();
            let limit = |one: crate::admission::Allowance| {
                (one.limit.meter, one.limit.window.as_secs(), one.limit.semantics, one.limit.amount)
            };
            config.allowances(0.5).into_iter().map(limit).collect::<Vec<_>>()
        };
        let sliding = Semantics::SlidingWindow;
        let expected = [
            (Meter::Requests, 60, sliding, 300.0),
            (Meter::RequestsPerDay, 86_400, sliding, 5_000.0),
            (Meter::Requests, 1, sliding, 5.0),
            (Meter::Requests, 10, sliding, 50.0),
        ];
        assert_eq!(limits("rpm = 600.0\nrpd = 10_000.0"), expected);
        let bucket = "rpm = 600.0\nsemantics = 'token-bucket'";
        assert_eq!(limits(bucket), [(Meter::Requests, 60, Semantics::TokenBucket, 300.0)]);
    }

    #[test]
    fn a_policy_is_read_whole() {
        let policy = read(
            "permits = 'gradient'\nadaptive_lifo = true\nretry_tpm = 1000.0\n\
             recovery = { step_ratio = 0.2, client_timeout_s = 90.0, limit_growth = true }\n\
             without_store = { interactive = 'closed', batch = 'open' }",
        )
        .to_config()
        .policy;
        let ramp = policy.ramp.expect("by steps");
        assert_eq!((ramp.client_timeout, ramp.limit_growth), (Duration::from_secs(90), true));
        let lanes = (policy.interactive_without_store, policy.batch_without_store);
        assert_eq!(lanes, (WithoutStore::Closed, WithoutStore::Open));
        assert_eq!((policy.permits, policy.adaptive_lifo), (Permits::Gradient, true));
        assert_eq!(policy.retry_tpm, Some(1_000.0));
    }
}
