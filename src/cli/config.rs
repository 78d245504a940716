//! `weir.toml`: where it is looked for, how it is read, and what is said when it is wrong.

mod access;
mod flags;
mod source;
mod ui;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Report, Result, eyre};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::diagnosis::{Library, Owners};
use crate::gateway::{ConfigError, GatewayConfig, ScopeEntry};
use crate::ingest::{Access, Adapters, page_url};
use crate::runbook;
use crate::signal::{TomlError, toml_error};

use access::AccessKeys;
pub use access::{BasicEntry, HeaderEntry, TlsEntry};
pub use flags::{FlagStoreEntry, FlagStoreKind, Place};
pub use source::SourceEntry;
pub use ui::UiEntry;

/// `weir.toml`: what weir reads, and what it may change.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
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
    /// Whose alerts and silences are shown.
    pub alertmanager: Option<AlertmanagerEntry>,
    /// Folder with a team's own runbooks, from that of this file.
    pub runbooks: Option<PathBuf>,
    /// How the dashboard looks.
    pub ui: Option<UiEntry>,
    /// Keys by the name of their action, in place of its own: `freeze = ["x", "ctrl-r"]`.
    #[serde(default)]
    pub keys: BTreeMap<String, Vec<String>>,
}

/// `[alertmanager]`: whose alerts and silences are shown.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertmanagerEntry {
    /// Base address of an Alertmanager with the v2 API: `http://alertmanager:9093`.
    pub url: String,
    /// Environment variable that holds a bearer token.
    pub token_env: Option<String>,
    /// File that holds a bearer token; it is read again every few seconds while it is used.
    pub token_file: Option<PathBuf>,
    /// User and password.
    pub basic: Option<BasicEntry>,
    /// Headers of every request, such as `X-Scope-OrgID`.
    pub headers: Option<BTreeMap<String, HeaderEntry>>,
    /// Whom to trust and which certificate to show.
    pub tls: Option<TlsEntry>,
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

    /// The folder of this file, which its paths are taken from.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        Path::new(&self.name).parent().unwrap_or(Path::new("")).to_owned()
    }

    /// What stands in it as plain TOML, to compare one with another.
    #[must_use]
    pub fn table(&self) -> toml::Table {
        self.text.parse().unwrap_or_default()
    }

    /// The gateway's complaint about this file.
    pub fn refused(&self, error: &ConfigError) -> Report {
        self.wrong(&error.key, &error.message, &error.remedy)
    }

    /// The runbooks: the built-in ones, with those of `named` or of `runbooks` beside them.
    ///
    /// # Errors
    /// When a file cannot be read or has errors.
    pub fn library(&self, named: Option<&Path>) -> Result<Arc<Library>> {
        let own = self.toml.runbooks.as_deref().map(|dir| self.path(dir));
        Ok(match named.map(Path::to_owned).or(own) {
            Some(dir) => runbook::load_dir(&dir)?,
            None => runbook::embedded(),
        })
    }

    /// The name of the environment, where nothing else is said `production`.
    pub fn environment_name(&self) -> String {
        self.toml.environment.clone().unwrap_or_else(|| "production".to_owned())
    }

    /// Who answers for which quota scope.
    pub fn owners(&self) -> Owners {
        let named = |scope: &ScopeEntry| Some((scope.name.clone(), scope.owner.clone()?));
        self.toml.scopes.iter().filter_map(named).collect()
    }

    /// Where alerts are read, if anywhere.
    ///
    /// # Errors
    /// When the address or an access key is wrong.
    pub fn alertmanager(&self) -> Result<Option<(String, Access)>> {
        let Some(entry) = &self.toml.alertmanager else { return Ok(None) };
        page_url(&entry.url).map_err(|message| {
            self.wrong("alertmanager.url", &message, "write such as http://alertmanager:9093")
        })?;
        let keys = AccessKeys {
            token_env: entry.token_env.as_deref(),
            token_file: entry.token_file.as_deref(),
            basic: entry.basic.as_ref(),
            headers: entry.headers.as_ref(),
            tls: entry.tls.as_ref(),
            server_name: None,
        };
        Ok(Some((entry.url.clone(), self.access("alertmanager", keys)?)))
    }

    /// A path of this file, which is taken from the file's folder.
    fn path(&self, path: &Path) -> PathBuf {
        self.folder().join(path)
    }

    fn environment(&self, key: &str, variable: &str) -> Result<String> {
        std::env::var(variable)
            .ok()
            .filter(|value| !value.is_empty())
            .ok_or_else(|| self.refused(&ConfigError::not_in_environment(key, variable)))
    }
}

/// A time in seconds that is one: positive, and not beyond all bounds.
fn seconds(given: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(given).ok().filter(|time| !time.is_zero())
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
        eyre!("cannot read {name}: {error}; name a file with -c FILE, or make one with `weir init` or `weir config template`")
    })?;
    match toml::from_str(&text) {
        Ok(toml) => Ok(Loaded { name, text, toml }),
        Err(error) => Err(toml_error(&name, &text, &error).into()),
    }
}
