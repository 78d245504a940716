//! `[gateway.store]`: where the budgets of several instances are kept together. Opens no connection.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::config::ConfigError;

/// `[gateway.store]`: a Redis, or one that speaks as it does, that all instances share.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// `redis://HOST:PORT[/DB]`, or `rediss://` for TLS. A password belongs into `url_env`.
    pub url: Option<String>,
    /// Environment variable that holds the URL, password and all.
    pub url_env: Option<String>,
    /// Milliseconds that one decision may take, at most 50; then the gate decides locally.
    #[serde(default = "default_decision_ms")]
    pub decision_ms: u64,
    /// Instances that are expected at least: an instance that cannot reach the store from its start
    /// takes the share of one of so many.
    #[serde(default = "default_instances")]
    pub instances: u32,
    /// Seconds after which the share of a silent instance goes back to the others.
    #[serde(default = "default_lease_s")]
    pub lease_s: f64,
}

const fn default_decision_ms() -> u64 {
    45
}

const fn default_instances() -> u32 {
    1
}

const fn default_lease_s() -> f64 {
    10.0
}

impl StoreConfig {
    /// The URL, from the file or from the environment.
    ///
    /// # Errors
    /// [`ConfigError`] when there is none, or two.
    pub fn url(&self) -> Result<String, ConfigError> {
        let key = "gateway.store.url";
        match (&self.url, &self.url_env) {
            (Some(url), None) => Ok(url.clone()),
            (None, Some(variable)) => std::env::var(variable)
                .map_err(|_| ConfigError::not_in_environment("gateway.store.url_env", variable)),
            (Some(_), Some(_)) => {
                Err(ConfigError::new(key, "stands beside `url_env`", "keep one of the two"))
            }
            (None, None) => {
                let remedy = "write redis://HOST:PORT, or `url_env` with the name of a variable";
                Err(ConfigError::new(key, "is missing", remedy))
            }
        }
    }

    /// Longest time of one decision.
    #[must_use]
    pub const fn limit(&self) -> Duration {
        Duration::from_millis(self.decision_ms)
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=50).contains(&self.decision_ms) {
            let message = format!("{} is not from 1 to 50", self.decision_ms);
            let remedy = "write how long a request may wait for a decision";
            return Err(ConfigError::new("gateway.store.decision_ms", message, remedy));
        }
        if self.instances == 0 {
            let message = "0 instances share nothing";
            return Err(ConfigError::new("gateway.store.instances", message, "write 1 or more"));
        }
        if !(1.0..=300.0).contains(&self.lease_s) {
            let message = format!("{} is not from 1 to 300", self.lease_s);
            let remedy = "write seconds, longer than a pause of the process";
            return Err(ConfigError::new("gateway.store.lease_s", message, remedy));
        }
        Ok(())
    }
}
