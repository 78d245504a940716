//! `[gateway.deferred]` of `weir.toml`: where requests wait that are done later, and within what bounds.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::gateway::config::{ConfigError, positive};

/// `[gateway.deferred]`: with it callers may ask for later (`Prefer: respond-async`); without it they
/// are answered inline as ever.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeferredConfig {
    /// File of the embedded store, an `SQLite` database of this instance alone.
    pub path: Option<PathBuf>,
    /// In place of a file: `redis://HOST:PORT[/DB]`, shared by all instances.
    pub redis: Option<String>,
    /// Environment variable that holds the Redis URL, password and all.
    pub redis_env: Option<String>,
    /// Requests of each scope that are open at the gate and the provider at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    /// Requests that may wait; beyond that the lane refuses new ones.
    #[serde(default = "default_items_max")]
    pub items_max: u64,
    /// Largest size of the embedded store in bytes.
    #[serde(default = "default_bytes_max")]
    pub bytes_max: u64,
    /// Seconds for which a result, or the words of a dead letter, can be asked for.
    #[serde(default = "default_result_ttl_s")]
    pub result_ttl_s: f64,
    /// Attempts at the provider after which a request is a dead letter.
    #[serde(default = "default_attempts_max")]
    pub attempts_max: u32,
    /// Seconds after which other instances take over what one that is silent had in hand. Redis only.
    #[serde(default = "default_lease_s")]
    pub lease_s: f64,
    /// Inputs that small embedding requests of one tenant may make together; 1 for none together.
    #[serde(default = "default_coalesce_inputs")]
    pub coalesce_inputs: usize,
    /// Tokens that they may have together, by the gate's first guess.
    #[serde(default = "default_coalesce_tokens")]
    pub coalesce_tokens: u64,
}

const fn default_concurrency() -> usize {
    8
}

const fn default_items_max() -> u64 {
    1_000_000
}

const fn default_bytes_max() -> u64 {
    16 * 1024 * 1024 * 1024
}

const fn default_result_ttl_s() -> f64 {
    86_400.0
}

const fn default_attempts_max() -> u32 {
    20
}

const fn default_lease_s() -> f64 {
    30.0
}

/// What OpenAI takes in one embeddings request.
const fn default_coalesce_inputs() -> usize {
    2_048
}

/// The same for the sum of its tokens.
const fn default_coalesce_tokens() -> u64 {
    300_000
}

/// Where the lane keeps what waits.
pub(super) enum Place {
    /// A file of this instance.
    File(PathBuf),
    /// A Redis, by its URL.
    Redis(String),
}

impl DeferredConfig {
    /// The one place that is configured; a Redis URL may come from the environment.
    ///
    /// # Errors
    /// [`ConfigError`] when there is none, or several.
    pub(super) fn place(&self) -> Result<Place, ConfigError> {
        match (&self.path, &self.redis, &self.redis_env) {
            (Some(path), None, None) => Ok(Place::File(path.clone())),
            (None, Some(url), None) => Ok(Place::Redis(url.clone())),
            (None, None, Some(variable)) => {
                std::env::var(variable).map(Place::Redis).map_err(|_| {
                    ConfigError::not_in_environment("gateway.deferred.redis_env", variable)
                })
            }
            (None, None, None) => {
                let remedy = "add `path` for a file, or `redis` for a server that instances share";
                Err(ConfigError::new("gateway.deferred.path", "is missing", remedy))
            }
            _ => {
                let message = "`path`, `redis` and `redis_env` exclude each other";
                Err(ConfigError::new("gateway.deferred.path", message, "keep one of them"))
            }
        }
    }

    /// How long results can be asked for.
    pub(super) fn result_ttl(&self) -> Duration {
        Duration::try_from_secs_f64(self.result_ttl_s).unwrap_or(Duration::MAX)
    }

    /// How long an instance may be silent before others take over.
    pub(super) fn lease(&self) -> Duration {
        Duration::try_from_secs_f64(self.lease_s).unwrap_or(Duration::MAX)
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`ConfigError`] names the key and what is allowed.
    pub(in crate::gateway) fn check(&self) -> Result<(), ConfigError> {
        let places = [self.path.is_some(), self.redis.is_some(), self.redis_env.is_some()];
        if places.into_iter().filter(|given| *given).count() != 1 {
            self.place()?;
        }
        positive("gateway.deferred.result_ttl_s", self.result_ttl_s, "")?;
        if !(1.0..=3_600.0).contains(&self.lease_s) {
            let message = format!("{} is not from 1 to 3600", self.lease_s);
            let remedy = "write seconds, longer than a pause of the process";
            return Err(ConfigError::new("gateway.deferred.lease_s", message, remedy));
        }
        let counts = [
            ("concurrency", self.concurrency == 0),
            ("items_max", self.items_max == 0),
            ("attempts_max", self.attempts_max == 0),
            ("coalesce_inputs", self.coalesce_inputs == 0),
            ("coalesce_tokens", self.coalesce_tokens == 0),
        ];
        if let Some((key, _)) = counts.into_iter().find(|(_, is_zero)| *is_zero) {
            let key = format!("gateway.deferred.{key}");
            return Err(ConfigError::new(key, "is 0", "write 1 or more"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        let config: DeferredConfig = toml::from_str(text).expect("known keys");
        config.check().map_err(|error| error.to_string())
    }

    #[test]
    fn one_place_is_named_and_numbers_mean_something() {
        assert_eq!(check("path = 'a.db'"), Ok(()));
        assert_eq!(check("redis = 'redis://h'\nlease_s = 1.0"), Ok(()));
        assert_eq!(check("path = 'a.db'\nlease_s = 3600.0\nconcurrency = 1"), Ok(()));
        for (text, expected) in [
            ("", "`gateway.deferred.path`: is missing"),
            ("path = 'a'\nredis = 'redis://h'", "exclude each other"),
            ("path = 'a'\nredis_env = 'X'", "exclude each other"),
            ("path = 'a'\nlease_s = 0.5", "gateway.deferred.lease_s"),
            ("path = 'a'\nlease_s = 3600.5", "gateway.deferred.lease_s"),
            ("path = 'a'\nresult_ttl_s = 0.0", "gateway.deferred.result_ttl_s"),
            ("path = 'a'\nconcurrency = 0", "`gateway.deferred.concurrency`: is 0"),
            ("path = 'a'\nattempts_max = 0", "attempts_max"),
            ("path = 'a'\ncoalesce_inputs = 0", "coalesce_inputs"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
