//! What a simulated provider is told to be: quota, latency, and what goes wrong when.
//!
//! These types are what `provider.toml` and a scenario's `[provider]` table hold. Unknown keys are
//! errors. `check` refuses what the model cannot mean, so the model itself never has to.

use std::num::NonZeroU64;

use serde::Deserialize;
use thiserror::Error;

use crate::dialect::Dialect;
use crate::sim::script;

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
    /// What the first calls get, whatever the meters say: `rate_limit:2,timeout,ok`.
    #[serde(default)]
    pub script: String,
    /// The request meter.
    pub requests: MeterConfig,
    /// The token meter.
    pub tokens: MeterConfig,
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

/// A change of behaviour. What a step does not name stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderStep {
    /// Seconds after the start.
    pub at_s: f64,
    /// Share of calls that end in 503, 0 to 1.
    pub error_ratio: Option<f64>,
    /// Whether every call is refused with `insufficient_quota`.
    pub hard_quota: Option<bool>,
    /// What latencies are multiplied with.
    pub latency_factor: Option<f64>,
    /// The request meter's new limit; its capacity changes in proportion.
    pub requests_per_minute: Option<NonZeroU64>,
    /// The token meter's new limit; its capacity changes in proportion.
    pub tokens_per_minute: Option<NonZeroU64>,
    /// The new cap on open calls.
    pub concurrency_cap: Option<u32>,
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
        check_ascending("steps", self.steps.iter().map(|step| step.at_s))?;
        for (index, step) in self.steps.iter().enumerate() {
            let key = |name: &str| format!("steps[{index}].{name}");
            let ratio = step.error_ratio.unwrap_or(0.0);
            within(&key("error_ratio"), ratio, 0.0, 1.0, "a share from 0 to 1")?;
            let factor = step.latency_factor.unwrap_or(1.0);
            within(&key("latency_factor"), factor, 0.0, 1_000.0, "a factor from 0 to 1000")?;
        }
        Ok(())
    }
}

/// Refuses a number outside its bounds, NaN included.
pub(super) fn within(
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

/// Refuses steps that are out of order or more than a day away.
pub(super) fn check_ascending(
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

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "requests = { per_minute = 60 }\ntokens = { per_minute = 600 }\n";

    fn check(more: &str, expected_key: Option<&str>) {
        let config: ProviderConfig =
            toml::from_str(&format!("{more}\n{BASE}")).expect("the text fits the types");
        let key = config.check().err().map(|error| error.key);
        assert_eq!(key.as_deref(), expected_key, "{more}");
    }

    #[test]
    fn bounds_are_checked_on_both_sides() {
        check("", None);
        check("script = 'ok:2'", None);
        check("script = 'sometimes'", Some("script"));
        check("latency = { base_ms = 600000 }", None);
        check("latency = { base_ms = 600001 }", Some("latency.base_ms"));
        check("latency = { spread_ms = nan }", Some("latency.spread_ms"));
        check("steps = [{ at_s = 1, error_ratio = 1.0 }]", None);
        check("steps = [{ at_s = 1, error_ratio = 1.1 }]", Some("steps[0].error_ratio"));
        check("steps = [{ at_s = 2 }, { at_s = 1 }]", Some("steps[1].at_s"));
        check("steps = [{ at_s = 86401 }]", Some("steps[0].at_s"));
    }

    #[test]
    fn a_limit_of_zero_is_no_limit_and_refused() {
        let text = "requests = { per_minute = 0 }\ntokens = { per_minute = 1 }";
        assert!(toml::from_str::<ProviderConfig>(text).is_err());
    }
}
