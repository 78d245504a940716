//! What a simulated provider is told to be: quota, latency, and what goes wrong when.
//!
//! These types are what `provider.toml` and a scenario's `[provider]` table hold. Unknown keys are
//! errors. `check` refuses what the model cannot mean, so the model itself never has to.

use std::num::NonZeroU64;

use serde::Deserialize;
use thiserror::Error;

use crate::dialect::Dialect;
use crate::sim::script;

mod extras;
mod step;
#[cfg(test)]
mod tests;

pub use extras::{DayConfig, DeploymentConfig, RampConfig, Router, SpendConfig};
pub use step::{ErrorKind, ProviderStep};

/// Longest latency that is simulated: ten minutes, the longest patience of a client SDK.
const LATENCY_MS_MAX: f64 = 600_000.0;
/// Latest instant of a step: a day.
const AT_S_MAX: f64 = 86_400.0;

const SLICE_ALLOWED: &str = "a slice lasts from 1 to 60 seconds";
const LATENCY_ALLOWED: &str = "milliseconds from 0 to 600000";
const STEP_ALLOWED: &str = "steps stand in order, from 0 to 86400 seconds after the start";

/// A simulated provider.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Whose headers and errors it writes: `openai`, `azure`, `anthropic`, `gemini`, `ietf` or, with the
    /// older three fields, `ietf-fields`. The ledger and the metrics keep the words of `openai`.
    #[serde(default)]
    pub dialect: Dialect,
    /// Calls that may be open at once; absent means no cap.
    pub concurrency_cap: Option<u32>,
    /// Largest call in tokens; a larger one is answered with 400 for ever. Absent means any size.
    pub max_request_tokens: Option<NonZeroU64>,
    /// Every input of a batch counts as a request.
    #[serde(default)]
    pub counts_items: bool,
    /// A call whose caller hangs up is finished all the same.
    #[serde(default)]
    pub completes_after_hangup: bool,
    /// What the first calls get, whatever the meters say: `rate_limit:2,timeout,ok`.
    #[serde(default)]
    pub script: String,
    /// The request meter.
    pub requests: MeterConfig,
    /// The token meter.
    pub tokens: MeterConfig,
    /// Meters of the day, beside those of the minute.
    pub day: Option<DayConfig>,
    /// How fast demand may grow.
    pub ramp: Option<RampConfig>,
    /// What the account may spend.
    pub spend: Option<SpendConfig>,
    /// Deployments that the quota is split over, each with meters of its own; absent means one.
    #[serde(default)]
    pub deployments: Vec<DeploymentConfig>,
    /// How calls find their deployment.
    #[serde(default)]
    pub router: Router,
    /// How long answers take.
    #[serde(default)]
    pub latency: LatencyConfig,
    /// What changes when, oldest first.
    #[serde(default)]
    pub steps: Vec<ProviderStep>,
}

/// One meter: a bucket that refills continuously.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterConfig {
    /// Permits that come back per minute.
    pub per_minute: NonZeroU64,
    /// The most that the bucket holds; absent means one minute's worth.
    pub capacity: Option<NonZeroU64>,
    /// What it holds at the start; absent means full.
    pub start: Option<u64>,
    /// Lengths in seconds of shorter windows that are checked too, each holding its share of the minute.
    #[serde(default)]
    pub slices_s: Vec<u32>,
}

/// How long answers take.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LatencyConfig {
    /// The shortest answer.
    pub base_ms: f64,
    /// Up to this much more, uniformly.
    pub spread_ms: f64,
    /// Added for each call that is already open.
    pub per_open_call_ms: f64,
    /// The quickest refusal.
    pub refusal_ms: f64,
    /// Up to this much more, uniformly.
    pub refusal_spread_ms: f64,
    /// How long a call hangs that the script lets time out.
    pub timeout_ms: f64,
}

impl Default for LatencyConfig {
    fn default() -> Self {
        Self {
            base_ms: 120.0,
            spread_ms: 60.0,
            per_open_call_ms: 0.5,
            refusal_ms: 0.0,
            refusal_spread_ms: 0.0,
            timeout_ms: 30_000.0,
        }
    }
}

/// Why a provider cannot be simulated as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{key}`: {problem}; {allowed}")]
pub struct ConfigError {
    /// The key at fault, dotted.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl ProviderConfig {
    /// A provider with these two meters and nothing else.
    #[must_use]
    pub fn new(requests: MeterConfig, tokens: MeterConfig) -> Self {
        Self {
            dialect: Dialect::default(),
            concurrency_cap: None,
            max_request_tokens: None,
            counts_items: false,
            completes_after_hangup: false,
            script: String::new(),
            requests,
            tokens,
            day: None,
            ramp: None,
            spend: None,
            deployments: Vec::new(),
            router: Router::default(),
            latency: LatencyConfig::default(),
            steps: Vec::new(),
        }
    }

    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        script::parse(&self.script).map_err(|element| script::error(&element))?;
        for (name, meter) in [("requests", &self.requests), ("tokens", &self.tokens)] {
            for slice_s in &meter.slices_s {
                within(&format!("{name}.slices_s"), f64::from(*slice_s), 1.0, 60.0, SLICE_ALLOWED)?;
            }
        }
        let latency = &self.latency;
        for (key, value) in [
            ("latency.base_ms", latency.base_ms),
            ("latency.spread_ms", latency.spread_ms),
            ("latency.per_open_call_ms", latency.per_open_call_ms),
            ("latency.refusal_ms", latency.refusal_ms),
            ("latency.refusal_spread_ms", latency.refusal_spread_ms),
            ("latency.timeout_ms", latency.timeout_ms),
        ] {
            within(key, value, 0.0, LATENCY_MS_MAX, LATENCY_ALLOWED)?;
        }
        extras::check(self)?;
        check_ascending("steps", self.steps.iter().map(|step| step.at_s))?;
        for (index, step) in self.steps.iter().enumerate() {
            step.check(self).map_err(|error| ConfigError {
                key: format!("steps[{index}].{}", error.key),
                ..error
            })?;
        }
        Ok(())
    }
}

/// Refuses a number outside its bounds, NaN included.
pub(in crate::sim) fn within(
    key: &str,
    value: f64,
    min: f64,
    max: f64,
    allowed: &'static str,
) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(ConfigError { key: key.to_owned(), problem: format!("{value} is out of bounds"), allowed })
}

/// Refuses what has no meaning; `problem` says why.
fn refuse(key: &str, problem: impl Into<String>, allowed: &'static str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.into(), allowed }
}

/// Refuses steps that are out of order or more than a day away.
pub(in crate::sim) fn check_ascending(
    key: &str,
    instants_s: impl Iterator<Item = f64>,
) -> Result<(), ConfigError> {
    let mut earlier_s = 0.0;
    for (index, at_s) in instants_s.enumerate() {
        within(&format!("{key}[{index}].at_s"), at_s, earlier_s, AT_S_MAX, STEP_ALLOWED)?;
        earlier_s = at_s;
    }
    Ok(())
}
