//! The gateway's part of `weir.toml`: where it listens, whom it forwards to, scopes, keys, flags.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use super::admin_token::AdminTokenConfig;
use crate::admission::{FlagError, FlagValue, ScopeConfig, Settings, flag};
use crate::sim::gate::GateFaults;

pub use super::config_scope::ScopeEntry;
use super::config_scope::check_scope;
pub use super::config_store::StoreConfig;
pub use super::config_transport::{TlsConfig, TransportConfig};
pub use super::config_upstream::{UpstreamConfig, UpstreamKind};
use super::deferred::DeferredConfig;
use super::tls;

/// Largest request body that is read, unless configured otherwise.
const BODY_MAX: usize = 32 * 1024 * 1024;

/// `[gateway]` of `weir.toml`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Name of this instance, shown with flags and metrics.
    #[serde(default = "default_instance")]
    pub instance: String,
    /// Address of the data plane.
    pub listen: SocketAddr,
    /// Address of the admin plane and `/metrics`; loopback unless there is a reason.
    pub admin_listen: SocketAddr,
    /// The provider: its address, or a table.
    #[schemars(with = "super::config_upstream::UpstreamWritten")]
    pub upstream: UpstreamConfig,
    /// Key that is sent to the provider in place of the caller's; named by environment variable.
    pub upstream_key_env: Option<String>,
    /// Environment variable that holds the admin bearer token.
    pub admin_token_env: Option<String>,
    /// More tokens for the admin plane, each with a role: people, scripts and screens apart.
    #[serde(default, rename = "admin_token")]
    pub admin_tokens: Vec<AdminTokenConfig>,
    /// Requests to the admin plane that one token may make, per second; twice as many at once.
    #[serde(default = "default_admin_requests_per_s")]
    pub admin_requests_per_s: f64,
    /// Environment variable that holds the second token: with it and a reason, a change passes
    /// interlocks. Without one nothing does.
    pub break_glass_token_env: Option<String>,
    /// The same in a file.
    pub break_glass_token_file: Option<std::path::PathBuf>,
    /// Seconds that one attempt may take.
    #[serde(default = "default_attempt_timeout_s")]
    pub attempt_timeout_s: f64,
    /// Seconds that a request may take end to end when its caller does not say. Zero is refused.
    #[serde(default = "default_deadline_s")]
    pub default_deadline_s: f64,
    /// Largest request body in bytes.
    #[serde(default = "default_body_max")]
    pub body_max: usize,
    /// Answer 402 in place of 429 where the account's quota is spent for good: at 402 every client stops,
    /// at 429 most try again.
    #[serde(default)]
    pub payment_required: bool,
    /// TLS of the data plane; without it the gateway speaks in the clear.
    pub tls: Option<TlsConfig>,
    /// Limits and patience of the sockets.
    #[serde(default)]
    pub transport: TransportConfig,
    /// Where the budgets of all instances are kept together; without it every instance has its own.
    pub store: Option<StoreConfig>,
    /// Where requests wait that callers ask for later; without it all are answered inline.
    pub deferred: Option<DeferredConfig>,
    /// File that keeps overrides over a restart.
    pub state_file: Option<std::path::PathBuf>,
    /// Known callers. Without any, every key is a tenant of its own.
    #[serde(default, rename = "key")]
    pub keys: Vec<KeyConfig>,
    /// Base values of flags.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, FlagScalar>")]
    pub flags: BTreeMap<String, toml::Value>,
    /// Seed of every jitter; from the operating system unless given.
    pub seed: Option<u64>,
    /// This gateway is part of a drill: `faults` may be wrong with it. Never in production.
    #[serde(default)]
    pub drill: bool,
    /// For drills: what is wrong with this gateway on purpose.
    #[serde(default)]
    pub faults: GateFaults,
}

/// The values that a flag may have, for the schema alone: [`flag_value`] reads them.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum FlagScalar {
    /// `true` or `false`.
    Switch(bool),
    /// A number.
    Number(f64),
    /// One of the flag's words.
    Word(String),
}

/// A caller's key and what it may say about itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// Environment variable that holds the key.
    pub key_env: String,
    /// Tenant of requests with this key.
    pub tenant: String,
    /// May name another tenant in `x-weir-tenant`.
    #[serde(default)]
    pub trusted: bool,
    /// The tenant's share against others that wait: 1 without it.
    pub weight: Option<f64>,
}

fn default_instance() -> String {
    "weir-1".to_owned()
}

const fn default_attempt_timeout_s() -> f64 {
    60.0
}

const fn default_deadline_s() -> f64 {
    120.0
}

const fn default_admin_requests_per_s() -> f64 {
    200.0
}

const fn default_body_max() -> usize {
    BODY_MAX
}

/// What is wrong with a configuration that could be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{key}`: {message}; {remedy}")]
pub struct ConfigError {
    /// The dotted key in `weir.toml`: `scope[1].rpm`.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What is allowed, or what to do.
    pub remedy: String,
}

impl ConfigError {
    pub(super) fn new(
        key: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), message: message.into(), remedy: remedy.into() }
    }

    /// An environment variable that `key` names and that is not set.
    #[must_use]
    pub fn not_in_environment(key: impl Into<String>, variable: &str) -> Self {
        let message = format!("names the environment variable `{variable}`, which is not set");
        Self::new(key, message, format!("export {variable}, or name another"))
    }

    /// A store that cannot be set up.
    pub(super) fn store(why: &str) -> Self {
        Self::new("gateway.store.url", why, "correct it")
    }
}

impl GatewayConfig {
    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`ConfigError`] names the key and what is allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (key, value) in [
            ("gateway.attempt_timeout_s", self.attempt_timeout_s),
            ("gateway.default_deadline_s", self.default_deadline_s),
            ("gateway.admin_requests_per_s", self.admin_requests_per_s),
        ] {
            positive(key, value, "")?;
        }
        if !self.admin_listen.ip().is_loopback() && self.admin_token_env.is_none() {
            return Err(ConfigError::new(
                "gateway.admin_listen",
                format!("{} is not loopback, and there is no token", self.admin_listen),
                "add `admin_token_env` to [gateway]",
            ));
        }
        self.store.as_ref().map_or(Ok(()), StoreConfig::check)?;
        self.deferred.as_ref().map_or(Ok(()), DeferredConfig::check)?;
        self.transport.check()?;
        self.upstream.check()?;
        self.tls.as_ref().map_or(Ok(()), tls::check)?;
        self.check_faults()?;
        for (index, key) in self.keys.iter().enumerate() {
            let place = format!("gateway.key[{index}].weight");
            key.weight.map_or(Ok(()), |weight| positive(&place, weight, ""))?;
        }
        self.base_settings().map(drop)
    }

    fn check_faults(&self) -> Result<(), ConfigError> {
        if !self.drill && !self.faults.is_none() {
            let message = "makes this gateway ill on purpose, and it is not part of a drill";
            let remedy = "take the table out, or add `drill = true` to [gateway]";
            return Err(ConfigError::new("gateway.faults", message, remedy));
        }
        self.faults.check().map_err(|error| {
            ConfigError::new(format!("gateway.faults.{}", error.key), error.problem, error.allowed)
        })
    }

    /// The settings before any override.
    ///
    /// # Errors
    /// [`ConfigError`] for an unknown flag or a value that does not fit.
    pub fn base_settings(&self) -> Result<Settings, ConfigError> {
        base_settings("gateway.flags", &self.flags)
    }

    /// A number that instances with the same upstream, base flags and scopes share, and hardly any
    /// others. It has 48 bits, so that a sample's float carries it whole.
    #[must_use]
    pub fn revision(&self, scopes: &[ScopeEntry]) -> u64 {
        let parts = format!("{:?} {:?} {scopes:?}", self.upstream.url, self.flags);
        let digest = blake3::hash(parts.as_bytes());
        digest.as_bytes()[..6].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Longest time of one attempt.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.attempt_timeout_s).unwrap_or(Duration::MAX)
    }

    /// End-to-end deadline of a caller who does not say.
    #[must_use]
    pub fn default_deadline(&self) -> Duration {
        Duration::try_from_secs_f64(self.default_deadline_s).unwrap_or(Duration::MAX)
    }
}

/// The settings before any override, by the table at `place`: the defaults where it says nothing.
///
/// # Errors
/// [`ConfigError`] for an unknown flag or a value that does not fit.
pub fn base_settings(
    place: &str,
    flags: &BTreeMap<String, toml::Value>,
) -> Result<Settings, ConfigError> {
    let mut settings = Settings::default();
    for (key, value) in flags {
        let place = format!("{place}.{key}");
        if let (Err(_), Some(table)) = (flag(key), value.as_table()) {
            return Err(no_quotes(&place, key, table.keys().next()));
        }
        let wrong = |error: FlagError| wrong_flag(&place, error);
        let def = flag(key).map_err(wrong)?;
        let value = flag_value(value).ok_or_else(|| {
            let message = format!("a {} is no value of a flag", value.type_str());
            ConfigError::new(&*place, message, format!("write {}", def.kind))
        })?;
        settings.set(key, value).map_err(wrong)?;
    }
    Ok(settings)
}

/// `retry.owner = 1` without quotes is a table `retry` to TOML.
fn no_quotes(place: &str, key: &str, inner: Option<&String>) -> ConfigError {
    let inner = inner.map_or("...", String::as_str);
    let remedy = format!("put the whole key in quotes: \"{key}.{inner}\" = ...");
    ConfigError::new(place, "is a table and no flag", remedy)
}

/// Checks the scopes of a file and turns them into the gate's.
///
/// # Errors
/// [`ConfigError`] names the scope and what is wrong with it.
pub fn scopes(entries: &[ScopeEntry]) -> Result<Vec<ScopeConfig>, ConfigError> {
    if entries.is_empty() {
        let remedy = "add [[scope]] with `name`, and `rpm` or `tpm`";
        return Err(ConfigError::new("scope", "there is none", remedy));
    }
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names = std::collections::BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let place = |key: &str| format!("scope[{index}].{key}");
        check_name(&place("name"), &entry.name)?;
        if !names.insert(&entry.name) {
            let message = format!("`{}` is defined twice", entry.name);
            let remedy = "give every quota one [[scope]], with all its models";
            return Err(ConfigError::new(place("name"), message, remedy));
        }
        check_scope(entry, place)?;
        entry.dialect().map_err(|error| ConfigError { key: place(&error.key), ..error })?;
        for (number, model) in entry.models.iter().enumerate() {
            if let Some(first) = owners.insert(model, &entry.name) {
                let both =
                    format!("`{model}` is named by two scopes, `{first}` and `{}`", entry.name);
                let key = place(&format!("models[{number}]"));
                return Err(ConfigError::new(key, both, "name every model once"));
            }
        }
    }
    Ok(entries.iter().map(ScopeEntry::to_config).collect())
}

/// A flag's value as TOML writes it.
#[must_use]
pub fn flag_value(value: &toml::Value) -> Option<FlagValue> {
    match value {
        toml::Value::Boolean(on) => Some(FlagValue::Bool(*on)),
        #[expect(clippy::cast_precision_loss, reason = "flags are bounded far below 2^53")]
        toml::Value::Integer(number) => Some(FlagValue::Number(*number as f64)),
        toml::Value::Float(number) => Some(FlagValue::Number(*number)),
        toml::Value::String(word) => Some(FlagValue::Word(word.clone())),
        _ => None,
    }
}

pub(super) fn positive(key: &str, value: f64, of: &str) -> Result<(), ConfigError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("must be a positive number, not {value}{of}"), "correct it"))
}

/// A scope's name stands in metrics, headers and on screens.
fn check_name(key: &str, name: &str) -> Result<(), ConfigError> {
    let message = if name.trim().is_empty() {
        "is empty".to_owned()
    } else if name.contains(char::is_control) {
        format!("{name:?} has control characters")
    } else {
        return Ok(());
    };
    Err(ConfigError::new(key, message, "write provider/account/model in plain characters"))
}

/// What is wrong with a base value, without naming its key twice.
fn wrong_flag(place: &str, error: FlagError) -> ConfigError {
    match error {
        FlagError::UnknownKey { known, .. } => {
            ConfigError::new(place, "no such flag", format!("flags are: {known}"))
        }
        FlagError::BadValue { value, allowed, .. } => {
            ConfigError::new(place, format!("does not take `{value}`"), format!("write {allowed}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, models: &[&str]) -> ScopeEntry {
        ScopeEntry {
            models: models.iter().map(|model| (*model).to_owned()).collect(),
            rpm: Some(60.0),
            ..ScopeEntry::named(name)
        }
    }

    #[test]
    fn bad_scopes_are_named() {
        let rpm = |rpm| ScopeEntry { rpm: Some(rpm), ..entry("a", &[]) };
        let none = ScopeEntry { max_attempts_configured: Some(0), ..entry("a", &[]) };
        let stranger = ScopeEntry { provider: Some("acme".to_owned()), ..entry("a", &[]) };
        let cases: [(&[ScopeEntry], &str); 10] = [
            (&[], "add [[scope]]"),
            (&[entry("a", &[]), entry("a", &[])], "`scope[1].name`: `a` is defined twice"),
            (&[entry("a", &["m"]), entry("b", &["m"])], "`scope[1].models[0]`: `m` is named by"),
            (&[rpm(0.0)], "`scope[0].rpm`: must be a positive number, not 0 (scope `a`)"),
            (&[entry("b", &[]), rpm(-5.0)], "`scope[1].rpm`: must be a positive number, not -5"),
            (&[rpm(f64::NAN)], "not NaN"),
            (&[none], "`scope[0].max_attempts_configured`: 0 attempts"),
            (&[entry("a\u{1b}[2J", &[])], "control characters"),
            (&[entry(" ", &[])], "`scope[0].name`: is empty"),
            (&[stranger], "`scope[0].provider`: `acme` is no provider that weir knows"),
        ];
        for (entries, expected) in cases {
            let error = scopes(entries).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_scope_is_read_in_the_dialect_that_it_or_its_name_says() {
        let dialect = |name: &str, provider: Option<&str>| {
            let provider = provider.map(str::to_owned);
            let entry = ScopeEntry { provider, ..entry(name, &[]) };
            entry.dialect().expect("known").name()
        };
        assert_eq!(dialect("anthropic/team-a/opus", None), "anthropic");
        assert_eq!(dialect("acme/team-a/model", None), "generic");
        assert_eq!(dialect("anthropic/team-a/opus", Some("openai")), "openai");
    }

    #[test]
    fn the_revision_is_that_of_what_instances_share() {
        let config = |upstream: &str, listen: u16| -> GatewayConfig {
            let text = format!(
                "listen = '127.0.0.1:{listen}'\nadmin_listen = '127.0.0.1:0'\nupstream = '{upstream}'"
            );
            toml::from_str(&text).expect("well-formed")
        };
        let scopes = [entry("a", &["m"])];
        let revision = config("http://x", 1).revision(&scopes);
        assert_eq!(config("http://x", 2).revision(&scopes), revision);
        assert_ne!(config("http://y", 1).revision(&scopes), revision);
        assert_ne!(config("http://x", 1).revision(&[entry("b", &["m"])]), revision);
    }

    #[test]
    fn a_bad_flag_or_upstream_is_refused_with_what_is_allowed() {
        let text =
            |extra: &str| format!("listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\n{extra}");
        let cases = [
            ("upstream = 'ftp://x'", "write http://host"),
            ("upstream = 'http://x/v1'", "write http://host"),
            ("upstream = 'http://x'\n[flags]\n'retry.max_attempts' = 9", "from 1 to 4"),
            ("upstream = 'http://x'\n[flags]\n'retry.owners' = 9", "flags are: admission.mode"),
            ("upstream = 'http://x'\n[flags]\nretry.owner = 9", "in quotes: \"retry.owner\""),
            ("upstream = 'http://x'\n[flags]\n'retry.owner' = []", "write gateway, client"),
            ("upstream = 'http://x'\nattempt_timeout_s = 0.0", "positive"),
            (
                "upstream = 'http://x'\n[faults]\nheaders = false",
                "`gateway.faults`: makes this gateway ill on purpose",
            ),
            (
                "upstream = 'http://x'\ndrill = true\n[faults]\nleak = { ratio = 2 }",
                "`gateway.faults.leak.ratio`: 2 is out of bounds; a share from 0 to 1",
            ),
        ];
        for (extra, expected) in cases {
            let config: GatewayConfig = toml::from_str(&text(extra)).expect("well-formed");
            let error = config.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
