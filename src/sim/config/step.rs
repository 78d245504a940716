//! What a step of a simulated provider changes.
//!
//! A step at 0 says how it begins. What a step does not name stays as it was.

use std::num::NonZeroU64;

use serde::Deserialize;

use super::{ConfigError, ProviderConfig, refuse, within};
use crate::sim::outcome::{Disguise, HintForm};

const SHARE_ALLOWED: &str = "a share from 0 to 1";
const FACTOR_ALLOWED: &str = "a factor from 0 to 1000";
const FACTOR_MAX: f64 = 1_000.0;
/// Longest hint of an overload: a day.
const HINT_S_MAX: f64 = 86_400.0;
/// Most money that an account is given.
const USD_MAX: f64 = 1e9;

/// How calls fail that `error_ratio` picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// 503, or the dialect's own status: more to do than it can.
    #[default]
    Overloaded,
    /// 500
    Failed,
    /// No answer within `latency.timeout_ms`.
    Timeout,
}

/// A change of behaviour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderStep {
    /// Seconds after the start.
    pub at_s: f64,
    /// Share of calls that fail, 0 to 1.
    pub error_ratio: Option<f64>,
    /// How they fail; `overloaded` unless said.
    pub error_kind: Option<ErrorKind>,
    /// Seconds that an overload asks to wait; 0 says nothing.
    pub error_hint_s: Option<f64>,
    /// Share of calls that are refused with `slow_down`, whatever the meters say.
    pub slow_down_ratio: Option<f64>,
    /// Whether every call is refused with `insufficient_quota`.
    pub hard_quota: Option<bool>,
    /// US dollars that the account has from now on; needs `spend`.
    pub spend_usd: Option<f64>,
    /// What latencies are multiplied with.
    pub latency_factor: Option<f64>,
    /// Share of answers that are slower than the rest, 0 to 1.
    pub slow_ratio: Option<f64>,
    /// What the latency of those is multiplied with besides; 10 unless said.
    pub slow_factor: Option<f64>,
    /// The request meter's new limit; its capacity changes in proportion.
    pub requests_per_minute: Option<NonZeroU64>,
    /// The token meter's new limit; its capacity changes in proportion.
    pub tokens_per_minute: Option<NonZeroU64>,
    /// Tokens per minute that others ask for out of the same pool.
    pub others_tokens_per_minute: Option<u64>,
    /// Every meter is full at this instant.
    #[serde(default)]
    pub reset_meters: bool,
    /// The new cap on open calls.
    pub concurrency_cap: Option<u32>,
    /// The new largest call.
    pub max_request_tokens: Option<NonZeroU64>,
    /// Inside which status refusals come.
    pub disguise: Option<Disguise>,
    /// How refusals say how long to wait.
    pub hint: Option<HintForm>,
}

impl ProviderStep {
    /// Refuses what cannot be simulated; keys are those within the step.
    pub(super) fn check(&self, config: &ProviderConfig) -> Result<(), ConfigError> {
        for (key, share) in [
            ("error_ratio", self.error_ratio),
            ("slow_down_ratio", self.slow_down_ratio),
            ("slow_ratio", self.slow_ratio),
        ] {
            within(key, share.unwrap_or(0.0), 0.0, 1.0, SHARE_ALLOWED)?;
        }
        for (key, factor) in
            [("latency_factor", self.latency_factor), ("slow_factor", self.slow_factor)]
        {
            within(key, factor.unwrap_or(1.0), 0.0, FACTOR_MAX, FACTOR_ALLOWED)?;
        }
        let hint_s = self.error_hint_s.unwrap_or(0.0);
        within("error_hint_s", hint_s, 0.0, HINT_S_MAX, "seconds from 0 to 86400")?;
        let usd = self.spend_usd.unwrap_or(0.0);
        within("spend_usd", usd, 0.0, USD_MAX, "dollars from 0 to 1e9")?;
        if self.spend_usd.is_some() && config.spend.is_none() {
            let allowed =
                "add `spend = { usd = ..., usd_per_million_tokens = ... }` to the provider";
            return Err(refuse("spend_usd", "calls have no price", allowed));
        }
        Ok(())
    }
}
