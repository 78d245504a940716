//! `weir.toml`: where it is looked for, how it is read, and what is said when it is wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use color_eyre::eyre::{Report, Result, eyre};
use serde::Deserialize;

use crate::gateway::{ConfigError, GatewayConfig, ScopeEntry};
use crate::ingest::{Access, Adapters, Secret, SourceConfig, Target};
use crate::signal::{TomlError, toml_error};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeirToml {
    /// Name of the environment, in the title of every dialog.
    pub environment: Option<String>,
    /// Never change a flag from the dashboard.
    #[serde(default)]
    pub read_only: bool,
    /// What is polled.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceEntry>,
    /// Quota scopes, their limits and owners.
    #[serde(default, rename = "scope")]
    pub scopes: Vec<ScopeEntry>,
    /// The admission service, for `weir gateway`.
    pub gateway: Option<GatewayConfig>,
    /// Where flags are read and changed.
    pub flags: Option<FlagStoreEntry>,
}

/// `[[source]]`: one metrics page.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    /// Its name on screen.
    pub name: String,
    /// Which adapter reads it: one that ships with weir, or the stem of a file in `adapters/` beside
    /// this file.
    pub adapter: String,
    /// Where it is.
    pub url: String,
    /// Seconds that one scrape may take.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: f64,
    /// Environment variable that holds a bearer token.
    pub token_env: Option<String>,
}

/// `[flags]`: the flag store.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlagStoreEntry {
    /// Base URL of the admission service's admin API.
    pub url: String,
    /// Environment variable that holds its bearer token.
    pub token_env: Option<String>,
    /// File that holds it.
    pub token_file: Option<PathBuf>,
}

const fn default_timeout_s() -> f64 {
    0.8
}

impl SourceEntry {
    /// How long one scrape may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::from_secs(1))
    }
}

/// A file that could be read, with its text, so that a later check can name the line.
#[derive(Debug)]
pub struct Loaded {
    name: String,
    text: String,
    /// What stands in it.
    pub toml: WeirToml,
}

impl Loaded {
    /// A complaint about a key of this file.
    pub fn wrong(&self, key: &str, message: &str, remedy: &str) -> Report {
        TomlError::at_key(&self.name, &self.text, key, message, remedy).into()
    }

    /// The gateway's complaint about this file.
    pub fn refused(&self, error: &ConfigError) -> Report {
        self.wrong(&error.key, &error.message, &error.remedy)
    }

    /// What to poll for the source at `index`.
    ///
    /// # Errors
    /// When its adapter, its timeout or its token is wrong.
    pub fn source(&self, index: usize, adapters: &Adapters) -> Result<SourceConfig> {
        let entry = &self.toml.sources[index];
        let wrong = |key: &str, message: &str, remedy: &str| {
            let of = format!("{message} (source `{}`)", entry.name);
            self.wrong(&format!("source[{index}].{key}"), &of, remedy)
        };
        let adapter = adapters
            .get(&entry.adapter)
            .map_err(|error| wrong("adapter", &error.to_string(), "use one of the words named"))?;
        if !(entry.timeout_s.is_finite() && entry.timeout_s > 0.0) {
            let message = format!("must be a positive number, not {}", entry.timeout_s);
            return Err(wrong("timeout_s", &message, "write seconds, such as 0.8"));
        }
        let target = Target {
            timeout: entry.timeout(),
            access: Access {
                bearer: self.source_token(index)?.map(|token| Secret::new(&token)),
                ..Access::default()
            },
            ..Target::new(&entry.name, &entry.url)
        };
        Ok(SourceConfig::page(target, adapter))
    }

    /// The bearer token that the source at `index` asks for, if it does.
    ///
    /// # Errors
    /// When the variable that it names is not set.
    fn source_token(&self, index: usize) -> Result<Option<String>> {
        let variable = self.toml.sources[index].token_env.as_deref();
        let place = format!("source[{index}].token_env");
        variable.map(|variable| self.environment(&place, variable)).transpose()
    }

    /// The bearer token of the flag store.
    ///
    /// # Errors
    /// When the variable is not set or the file cannot be read.
    pub fn flags_token(&self, flags: &FlagStoreEntry) -> Result<String> {
        match (&flags.token_env, &flags.token_file) {
            (Some(variable), _) => self.environment("flags.token_env", variable),
            (None, Some(path)) => std::fs::read_to_string(path)
                .map(|token| token.trim().to_owned())
                .map_err(|error| {
                    let message = format!("cannot read {}: {error}", path.display());
                    self.wrong("flags.token_file", &message, "name a file that holds the token")
                }),
            (None, None) => {
                let remedy = "add `token_env` or `token_file`";
                Err(self.wrong("flags", "there is no token to change flags with", remedy))
            }
        }
    }

    fn environment(&self, key: &str, variable: &str) -> Result<String> {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
            .ok_or_else(|| self.refused(&ConfigError::not_in_environment(key, variable)))
    }
}

/// The adapters for a configuration file: the user's own beside it come first.
#[must_use]
pub fn adapters(path: &Path) -> Adapters {
    Adapters::beside(path.parent().unwrap_or(Path::new("")))
}

/// Reads a file of this shape.
///
/// # Errors
/// Names file, line, key and what is allowed.
pub fn load(path: &Path) -> Result<Loaded> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        eyre!("cannot read {name}: {error}; name a file with -c FILE (an example is in the README)")
    })?;
    match toml::from_str(&text) {
        Ok(toml) => Ok(Loaded { name, text, toml }),
        Err(error) => Err(toml_error(&name, &text, &error).into()),
    }
}
