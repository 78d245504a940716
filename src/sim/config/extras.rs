//! What a simulated provider may have beside its two meters: a day, a ramp, a budget, deployments.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use serde::Deserialize;

use super::{ConfigError, ProviderConfig, refuse, within};

/// Most deployments of one quota.
const DEPLOYMENTS_MAX: usize = 32;
/// Latest reset of a day: a day.
const RESET_S_MAX: f64 = 86_400.0;
/// The shortest and the longest period of a ramp rule.
const PERIOD_S: (f64, f64) = (10.0, 86_400.0);
const GROWTH_MAX: f64 = 100.0;
const USD_MAX: f64 = 1e9;

/// Meters of the day; at least one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DayConfig {
    /// Requests per day.
    pub requests: Option<NonZeroU64>,
    /// Tokens per day.
    pub tokens: Option<NonZeroU64>,
    /// Share that is used up at the start, 0 to 1.
    #[serde(default)]
    pub used_ratio: f64,
    /// Seconds from the start until they are full again.
    #[serde(default = "default_resets_in_s")]
    pub resets_in_s: f64,
}

const fn default_resets_in_s() -> f64 {
    36_000.0
}

/// Above a free rate demand may grow by a factor per period.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RampConfig {
    /// Tokens per minute that demand counts as having had, if it had fewer.
    pub tokens_per_minute: NonZeroU64,
    /// At most so many times what was used one period ago, 1 to 100.
    pub growth: f64,
    /// Length of the period in seconds.
    pub per_s: f64,
}

/// What the account may spend; then every call is refused with `insufficient_quota`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpendConfig {
    /// US dollars at the start.
    pub usd: f64,
    /// Price of a million tokens.
    pub usd_per_million_tokens: f64,
}

/// One deployment of a quota.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentConfig {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its weight in a weighted router.
    #[serde(default = "default_share")]
    pub share: f64,
    /// Its requests per minute; an even part of the quota's unless said.
    pub requests_per_minute: Option<NonZeroU64>,
    /// Its tokens per minute; an even part of the quota's unless said.
    pub tokens_per_minute: Option<NonZeroU64>,
}

const fn default_share() -> f64 {
    1.0
}

/// How calls find their deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Router {
    /// By chance, each by its share.
    #[default]
    Weighted,
    /// All to one until it refuses, then all to the next.
    Herd,
}

pub(super) fn check(config: &ProviderConfig) -> Result<(), ConfigError> {
    if let Some(day) = &config.day {
        if day.requests.is_none() && day.tokens.is_none() {
            return Err(refuse("day", "it limits nothing", "write `requests`, `tokens` or both"));
        }
        within("day.used_ratio", day.used_ratio, 0.0, 1.0, "a share from 0 to 1")?;
        let allowed = "seconds from 1 to 86400";
        within("day.resets_in_s", day.resets_in_s, 1.0, RESET_S_MAX, allowed)?;
    }
    if let Some(ramp) = &config.ramp {
        within("ramp.growth", ramp.growth, 1.0, GROWTH_MAX, "a factor from 1 to 100")?;
        within("ramp.per_s", ramp.per_s, PERIOD_S.0, PERIOD_S.1, "seconds from 10 to 86400")?;
    }
    if let Some(spend) = &config.spend {
        let allowed = "dollars from 0 to 1e9";
        within("spend.usd", spend.usd, 0.0, USD_MAX, allowed)?;
        let price = spend.usd_per_million_tokens;
        within("spend.usd_per_million_tokens", price, 0.0, USD_MAX, allowed)?;
    }
    check_deployments(config)
}

fn check_deployments(config: &ProviderConfig) -> Result<(), ConfigError> {
    let deployments = &config.deployments;
    if deployments.is_empty() {
        let allowed = "add `deployments`, or leave it out";
        let herds = config.router == Router::Herd;
        return if herds { Err(refuse("router", "nothing to route", allowed)) } else { Ok(()) };
    }
    if deployments.len() > DEPLOYMENTS_MAX {
        let problem = format!("{} of them", deployments.len());
        return Err(refuse("deployments", problem, "at most 32"));
    }
    let mut names = BTreeSet::new();
    for (index, one) in deployments.iter().enumerate() {
        let key = |name: &str| format!("deployments[{index}].{name}");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if one.name.is_empty() || !one.name.chars().all(is_plain) {
            let problem = format!("`{}` is no plain name", one.name);
            return Err(refuse(&key("name"), problem, "letters, digits, `-`, `_` and `.`"));
        }
        if !names.insert(&one.name) {
            let problem = format!("`{}` is there twice", one.name);
            return Err(refuse(&key("name"), problem, "a name of its own for each"));
        }
        within(&key("share"), one.share, 0.0, 1_000.0, "a weight from 0 to 1000")?;
    }
    if deployments.iter().all(|one| one.share <= 0.0) {
        return Err(refuse("deployments", "none has a share", "one `share` above 0"));
    }
    Ok(())
}
