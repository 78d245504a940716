//! A quota scope as it is configured: its limits, how the provider counts them, and its policy.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::budget::Allowance;
use super::limit::{Limit, Semantics};
use super::recovery::RampPlan;
use crate::dialect::Meter;

/// Seconds of the mean rate that may be used at once, unless configured.
const BURST: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
/// Slices of the minute that are held to their share where the provider's way of counting is not
/// known: Azure judges in slices of 1 s and 10 s.
const SLICES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// A quota scope as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeConfig {
    /// `provider/account/model/region`.
    pub name: Arc<str>,
    /// Requests per minute, if limited.
    pub rpm: Option<f64>,
    /// Tokens per minute of both kinds, if limited.
    pub tpm: Option<f64>,
    /// Tokens of requests per minute, if limited.
    pub input_tpm: Option<f64>,
    /// Tokens of answers per minute, if limited.
    pub output_tpm: Option<f64>,
    /// Requests per day, if limited.
    pub rpd: Option<f64>,
    /// Tokens per day, if limited.
    pub tpd: Option<f64>,
    /// Calls open at the same time over all instances, if the provider limits them.
    pub concurrency: Option<u32>,
    /// How the provider counts.
    pub semantics: Semantics,
    /// The most that may be used at once, in seconds of the mean rate.
    pub burst: Duration,
    /// Slices of the minute that are held to their share of it.
    pub slices: Vec<Duration>,
    /// The provider charges what a request allows its answer (`max_tokens`), not what it has.
    pub counts_max_tokens: bool,
    /// The most attempts that the intended retry owner may make, where that is known.
    pub max_attempts_configured: Option<u32>,
    /// Who answers for this quota.
    pub owner: Option<Arc<str>>,
    /// Price of a million tokens, for the spend.
    pub usd_per_million_tokens: Option<f64>,
    /// What is decided otherwise than by flags.
    pub policy: Policy,
}

/// What is configured of a scope and rarely changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Share of started tokens that batch work gets while interactive work waits.
    pub batch_trickle: f64,
    /// Share of the batch lane's started tokens that backfill gets while production ingest waits.
    pub backfill_trickle: f64,
    /// Share of the quota that backfill may not touch.
    pub ingest_reserved: f64,
    /// Newest first within a tenant while a lane is over half full.
    pub adaptive_lifo: bool,
    /// Faults in a row that open the breaker.
    pub faults_in_row: u32,
    /// How many permits there are.
    pub permits: Permits,
    /// Tokens that retries may spend per minute.
    pub retry_tpm: Option<f64>,
    /// US dollars that retries may spend per minute.
    pub retry_usd_per_minute: Option<f64>,
    /// How the scope comes back after a cut; without one, as soon as the rate factor allows.
    pub ramp: Option<RampPlan>,
    /// Instances that are expected to share the budget: what the share of one that has not heard of
    /// the others is counted from.
    pub instances: u32,
    /// An instance that is silent for longer is gone from the shared budget.
    pub lease: Duration,
    /// What each lane does while the shared budget cannot be reached.
    pub interactive_without_store: WithoutStore,
    /// The same for batch work.
    pub batch_without_store: WithoutStore,
}

/// How the number of permits is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Permits {
    /// `admission.max_in_flight`, always.
    Fixed,
    /// Additive increase, multiplicative decrease on overload, up to `admission.max_in_flight`.
    #[default]
    Aimd,
    /// By the gradient of latency, up to `admission.max_in_flight`.
    Gradient,
}

/// What is done while the shared budget cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutStore {
    /// Admit within a local share: the limit over the instances last seen.
    Open,
    /// Refuse.
    Closed,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            batch_trickle: 0.0,
            backfill_trickle: 0.0,
            ingest_reserved: 0.2,
            adaptive_lifo: false,
            faults_in_row: 5,
            permits: Permits::default(),
            retry_tpm: None,
            retry_usd_per_minute: None,
            ramp: None,
            instances: 1,
            lease: Duration::from_secs(10),
            interactive_without_store: WithoutStore::Open,
            batch_without_store: WithoutStore::Closed,
        }
    }
}

impl ScopeConfig {
    /// A scope without limits and with the default policy.
    #[must_use]
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            rpm: None,
            tpm: None,
            input_tpm: None,
            output_tpm: None,
            rpd: None,
            tpd: None,
            concurrency: None,
            semantics: Semantics::default(),
            burst: BURST,
            slices: SLICES.to_vec(),
            counts_max_tokens: false,
            max_attempts_configured: None,
            owner: None,
            usd_per_million_tokens: None,
            policy: Policy::default(),
        }
    }

    /// The provider: the name up to its first slash.
    #[must_use]
    pub fn provider(&self) -> &str {
        self.name.split('/').next().unwrap_or(&self.name)
    }

    /// The same with meters that refill continuously, which judge no slices.
    #[must_use]
    pub fn with_buckets(self) -> Self {
        Self { semantics: Semantics::TokenBucket, slices: Vec::new(), ..self }
    }

    /// What may be used of every limited meter when `share` of the quota may be.
    #[must_use]
    pub fn allowances(&self, share: f64) -> Vec<Allowance> {
        let minute = [
            (Meter::Requests, self.rpm),
            (Meter::Tokens, self.tpm),
            (Meter::InputTokens, self.input_tpm),
            (Meter::OutputTokens, self.output_tpm),
        ];
        let day = [(Meter::RequestsPerDay, self.rpd), (Meter::TokensPerDay, self.tpd)];
        let allow = |meter: Meter, quota: f64, window: Duration| {
            let (semantics, burst) = (self.semantics, self.burst);
            let amount = quota * share;
            Allowance { limit: Limit { meter, amount, window, semantics, burst }, quota }
        };
        let per_minute = minute.into_iter().filter_map(|(meter, quota)| Some((meter, quota?)));
        let per_day = day.into_iter().filter_map(|(meter, quota)| Some((meter, quota?)));
        let slices = per_minute.clone().flat_map(|(meter, quota)| {
            self.slices.iter().map(move |slice| {
                let part = slice.as_secs_f64() / MINUTE.as_secs_f64();
                let semantics = Semantics::SlidingWindow;
                let limit = Limit {
                    meter,
                    amount: quota * share * part,
                    window: *slice,
                    semantics,
                    burst: self.burst,
                };
                Allowance { limit, quota: quota * part }
            })
        });
        per_minute
            .clone()
            .map(|(meter, quota)| allow(meter, quota, MINUTE))
            .chain(per_day.map(|(meter, quota)| allow(meter, quota, DAY)))
            .chain(slices)
            .collect()
    }
}
