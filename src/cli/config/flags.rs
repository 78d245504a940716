//! `[flags]`: which store holds the flags, how it is reached, and which values lie under its overrides.
//!
//! A key that the chosen kind would ignore is an error, because somebody wrote it for a reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use color_eyre::eyre::{Report, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Loaded;
use crate::admission::Settings;
use crate::flag::{
    EnvoyFlag, EnvoyRuntime, EnvoyValue, Etcd, EtcdLogin, FLAGD_PREFIX, FlagdFile, Store,
    StoreError, Token, Unleash, UnleashPlace, WeirAdmin,
};
use crate::gateway::{FlagScalar, base_settings};

/// What `layered_runtime` usually calls the layer that an Envoy's admin port writes.
const ADMIN_LAYER: &str = "admin";

/// Why a LiteLLM proxy holds no flags. Of 1.108.7: without a database `POST /config/update` answers 400 "No
/// DB Connected" (seen); with one it reads, merges and writes without a revision, and a key's, a team's or
/// a request's own number comes before the stored one (read in its source).
const NO_STORE: &str = "is \"litellm\", which cannot hold weir's flags: without a database LiteLLM changes \
    nothing at run time (\"No DB Connected\"); with one, its settings carry no revision, so that of two \
    writers one is lost unseen, and `num_retries` is overruled by key, team and request, so that what is \
    stored is not what holds";
const NO_STORE_REMEDY: &str = "put weir's gateway before or behind LiteLLM and write `kind = \"weir\"`, or \
    keep the flags in etcd, unleash or flagd for a service that reads them; set LiteLLM's own \
    `num_retries` to 0 in its config.yaml; its metrics stay readable as a [[source]]";

/// `[flags]`: the flag store.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlagStoreEntry {
    /// Which store it is; `weir` unless given.
    #[serde(default)]
    pub kind: FlagStoreKind,
    /// Base URL: of the admission service's admin API (`weir`), of etcd's client port, of Unleash.
    pub url: Option<String>,
    /// For `weir` and `unleash`: environment variable that holds the token.
    pub token_env: Option<String>,
    /// For `weir` and `unleash`: file that holds the token.
    pub token_file: Option<PathBuf>,
    /// For `etcd`: the namespace that the flags lie in, one word.
    pub namespace: Option<String>,
    /// For `etcd`: the user, where etcd's authentication is on.
    pub user: Option<String>,
    /// For `etcd`: environment variable that holds the user's password.
    pub password_env: Option<String>,
    /// For `etcd`: file that holds the user's password.
    pub password_file: Option<PathBuf>,
    /// For `unleash`: the project; `default` unless given.
    pub project: Option<String>,
    /// For `unleash`: the environment; unless given that of this file, else `production`.
    pub environment: Option<String>,
    /// For `unleash` and `flagd`: what stands before a flag's key; `weir.` unless given.
    pub prefix: Option<String>,
    /// For `unleash`: environment variable that holds an SDK token, to see what the SDKs are served.
    pub sdk_token_env: Option<String>,
    /// For `unleash`: file that holds an SDK token.
    pub sdk_token_file: Option<PathBuf>,
    /// For `envoy`: the admin ports of all instances.
    pub instances: Option<Vec<String>>,
    /// For `envoy`: the name of the admin layer in `layered_runtime`; `admin` unless given.
    pub layer: Option<String>,
    /// For `envoy`: which runtime key stands for which flag.
    pub map: Option<BTreeMap<String, RuntimeEntry>>,
    /// For `flagd`: the file.
    pub file: Option<PathBuf>,
    /// Values without an override, for every kind but `weir`; unless given those of `[gateway.flags]`.
    #[schemars(with = "Option<BTreeMap<String, FlagScalar>>")]
    pub base: Option<BTreeMap<String, toml::Value>>,
}

/// The stores that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlagStoreKind {
    /// weir's own admission service.
    #[default]
    Weir,
    /// A namespace of an etcd.
    Etcd,
    /// An environment of an Unleash.
    Unleash,
    /// The runtime of Envoys.
    Envoy,
    /// A file of flag definitions, as flagd reads it.
    Flagd,
    /// A LiteLLM proxy, which can hold no flags: it is known so that weir can say why.
    Litellm,
}

impl FlagStoreKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Etcd => "etcd",
            Self::Unleash => "unleash",
            Self::Envoy => "envoy",
            Self::Flagd => "flagd",
            Self::Litellm => "litellm",
        }
    }
}

/// The runtime key of a flag, and how values are written there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "invalid value: expected a runtime key in quotes, or { key = \"...\" } with `scale` or `values` (a flag's key needs its quotes too)"
)]
pub enum RuntimeEntry {
    /// The runtime key; numbers are written as they are.
    Key(String),
    /// The runtime key, and how values are written.
    Written(WrittenEntry),
}

/// `{ key = "...", scale = 100 }` or `{ key = "...", values = { gateway = 1, client = 0 } }`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WrittenEntry {
    /// The runtime key.
    pub key: String,
    /// A number is written times this: 100 makes a share a percentage.
    pub scale: Option<f64>,
    /// What is written for each value.
    pub values: Option<BTreeMap<String, RuntimeText>>,
}

/// What is written into the runtime.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "invalid value: expected a number, true, false or a text in quotes")]
pub enum RuntimeText {
    /// `true` or `false`.
    Switch(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
}

impl RuntimeText {
    fn text(&self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Whole(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Where the flags are.
pub enum Place {
    /// In weir's own admission service, which also tells the signals.
    Weir(Box<WeirAdmin>),
    /// Somewhere else.
    Other(Arc<dyn Store>),
}

impl Place {
    /// As any store.
    #[must_use]
    pub fn into_store(self) -> Arc<dyn Store> {
        match self {
            Self::Weir(admin) => Arc::from(admin as Box<dyn Store>),
            Self::Other(store) => store,
        }
    }
}

/// `[flags]` while it is checked.
struct Checking<'a> {
    file: &'a Loaded,
    entry: &'a FlagStoreEntry,
}

impl Loaded {
    /// The flag store, if one is configured. Asks it nothing yet.
    ///
    /// # Errors
    /// When a key is wrong, missing, or of another kind of store.
    pub fn flag_store(&self) -> Result<Option<Arc<dyn Store>>> {
        Ok(self.flag_place()?.map(Place::into_store))
    }

    /// As [`Self::flag_store`], told apart by who can say more than flags.
    ///
    /// # Errors
    /// As [`Self::flag_store`].
    pub fn flag_place(&self) -> Result<Option<Place>> {
        let Some(entry) = &self.toml.flags else { return Ok(None) };
        let checking = Checking { file: self, entry };
        if entry.kind == FlagStoreKind::Litellm {
            return Err(checking.no_store());
        }
        checking.no_key_in_vain()?;
        let store: Arc<dyn Store> = match entry.kind {
            FlagStoreKind::Weir => return checking.weir().map(Place::Weir).map(Some),
            FlagStoreKind::Etcd => Arc::new(checking.etcd()?),
            FlagStoreKind::Unleash => Arc::new(checking.unleash()?),
            FlagStoreKind::Envoy => Arc::new(checking.envoy()?),
            FlagStoreKind::Flagd => Arc::new(checking.flagd()?),
            FlagStoreKind::Litellm => return Err(checking.no_store()),
        };
        Ok(Some(Place::Other(store)))
    }
}

impl Checking<'_> {
    fn wrong(&self, key: &str, message: &str, remedy: &str) -> Report {
        self.file.wrong(&format!("flags.{key}"), message, remedy)
    }

    fn missing(&self, key: &str, remedy: &str) -> Report {
        let message = format!("is missing, and `kind = \"{}\"` needs it", self.entry.kind.word());
        self.wrong(key, &message, remedy)
    }

    /// The store's own complaint about an address or a name, at the key that it stands under.
    fn refused(&self, key: &str, error: &StoreError, remedy: &str) -> Report {
        self.wrong(key, &error.to_string(), remedy)
    }

    fn no_store(&self) -> Report {
        self.wrong("kind", NO_STORE, NO_STORE_REMEDY)
    }

    /// Keys that only another kind would heed.
    fn no_key_in_vain(&self) -> Result<()> {
        use FlagStoreKind::{Envoy, Etcd, Flagd, Unleash, Weir};
        let entry = self.entry;
        let keys: [(&str, bool, &[FlagStoreKind]); 18] = [
            ("url", entry.url.is_some(), &[Weir, Etcd, Unleash]),
            ("token_env", entry.token_env.is_some(), &[Weir, Unleash]),
            ("token_file", entry.token_file.is_some(), &[Weir, Unleash]),
            ("namespace", entry.namespace.is_some(), &[Etcd]),
            ("user", entry.user.is_some(), &[Etcd]),
            ("password_env", entry.password_env.is_some(), &[Etcd]),
            ("password_file", entry.password_file.is_some(), &[Etcd]),
            ("project", entry.project.is_some(), &[Unleash]),
            ("environment", entry.environment.is_some(), &[Unleash]),
            ("prefix", entry.prefix.is_some(), &[Unleash, Flagd]),
            ("sdk_token_env", entry.sdk_token_env.is_some(), &[Unleash]),
            ("sdk_token_file", entry.sdk_token_file.is_some(), &[Unleash]),
            ("instances", entry.instances.is_some(), &[Envoy]),
            ("layer", entry.layer.is_some(), &[Envoy]),
            ("map", entry.map.is_some(), &[Envoy]),
            ("file", entry.file.is_some(), &[Flagd]),
            ("base", entry.base.is_some(), &[Etcd, Unleash, Envoy, Flagd]),
            ("kind", true, &[Weir, Etcd, Unleash, Envoy, Flagd]),
        ];
        for (key, is_set, kinds) in keys {
            if is_set && !kinds.contains(&entry.kind) {
                let of: Vec<String> =
                    kinds.iter().map(|kind| format!("`kind = \"{}\"`", kind.word())).collect();
                let of = of.join(" or ");
                let message = format!("is for {of}, and this is \"{}\"", entry.kind.word());
                let remedy = match key {
                    "base" => "write the gateway's own base values into [gateway.flags]",
                    _ => "remove it, or correct `kind`",
                };
                return Err(self.wrong(key, &message, remedy));
            }
        }
        Ok(())
    }

    fn url(&self, remedy: &str) -> Result<&str> {
        self.entry.url.as_deref().ok_or_else(|| self.missing("url", remedy))
    }

    /// The secret that `NAME_env` or `NAME_file` names.
    fn secret(&self, name: &str) -> Result<Option<Token>> {
        let entry = self.entry;
        let (variable, file) = match name {
            "password" => (&entry.password_env, &entry.password_file),
            "sdk_token" => (&entry.sdk_token_env, &entry.sdk_token_file),
            _ => (&entry.token_env, &entry.token_file),
        };
        let secret = self.file.secret("flags", name, variable.as_deref(), file.as_deref())?;
        Ok(secret.map(|secret| Token::new(&secret.reveal())))
    }

    fn token(&self) -> Result<Token> {
        self.secret("token")?.ok_or_else(|| {
            let remedy = "add `token_env` or `token_file`";
            self.file.wrong("flags", "there is no token to change flags with", remedy)
        })
    }

    /// Values without an override.
    fn base(&self) -> Result<Settings> {
        let settings = match (&self.entry.base, &self.file.toml.gateway) {
            (Some(base), _) => base_settings("flags.base", base),
            (None, Some(gateway)) => gateway.base_settings(),
            (None, None) => Ok(Settings::default()),
        };
        settings.map_err(|error| self.file.refused(&error))
    }

    fn weir(&self) -> Result<Box<WeirAdmin>> {
        let remedy = "write the gateway's admin address, such as http://127.0.0.1:9901";
        let url = self.url(remedy)?;
        let admin = WeirAdmin::new(url, self.token()?);
        admin.map(Box::new).map_err(|error| self.refused("url", &error, remedy))
    }

    fn etcd(&self) -> Result<Etcd> {
        let remedy = "write etcd's client address, such as http://127.0.0.1:2379";
        let url = self.url(remedy)?;
        let named = "name the environment in one word, such as payments-prod";
        let namespace = self.entry.namespace.as_deref();
        let namespace = namespace.ok_or_else(|| self.missing("namespace", named))?;
        let login = match (self.entry.user.clone(), self.secret("password")?) {
            (None, None) => EtcdLogin::None,
            (Some(user), Some(password)) => EtcdLogin::Password { user, password },
            (Some(_), None) => {
                let remedy = "add `password_env` or `password_file`";
                return Err(self.wrong("user", "has no password", remedy));
            }
            (None, Some(_)) => {
                let key = if self.entry.password_env.is_some() {
                    "password_env"
                } else {
                    "password_file"
                };
                return Err(self.wrong(key, "is a password of nobody", "add `user`"));
            }
        };
        Etcd::new(url, login, namespace, self.base()?).map_err(|error| match &error {
            StoreError::Address { url: named, .. } if named == namespace => {
                self.refused("namespace", &error, "name the environment in one word")
            }
            _ => self.refused("url", &error, remedy),
        })
    }

    fn unleash(&self) -> Result<Unleash> {
        let remedy = "write the address of Unleash, such as https://unleash.example.org";
        let url = self.url(remedy)?;
        let usual = UnleashPlace::default();
        let entry = self.entry;
        let of_file = self.file.toml.environment.clone();
        let place = UnleashPlace {
            project: entry.project.clone().unwrap_or(usual.project),
            environment: entry.environment.clone().or(of_file).unwrap_or(usual.environment),
            prefix: entry.prefix.clone().unwrap_or(usual.prefix),
        };
        let sdk_token = self.secret("sdk_token")?;
        Unleash::new(url, self.token()?, place.clone(), sdk_token, self.base()?).map_err(|error| {
            let StoreError::Address { url: named, .. } = &error else {
                return self.refused("url", &error, remedy);
            };
            let remedy = "correct the name, or give tokens of the same environment";
            match () {
                () if *named == url || url.starts_with(named.as_str()) => {
                    self.refused("url", &error, "correct the address or its token")
                }
                () if *named == place.environment => self.refused("environment", &error, remedy),
                () if *named == place.project => self.refused("project", &error, remedy),
                () => self.refused("prefix", &error, remedy),
            }
        })
    }

    fn envoy(&self) -> Result<EnvoyRuntime> {
        let remedy = "list the admin ports, such as [\"http://127.0.0.1:9901\"]";
        let instances = self.entry.instances.as_deref().unwrap_or_default();
        if instances.is_empty() {
            return Err(self.missing("instances", remedy));
        }
        let flags = self.map()?;
        let urls: Vec<&str> = instances.iter().map(String::as_str).collect();
        let layer = self.entry.layer.as_deref().unwrap_or(ADMIN_LAYER);
        EnvoyRuntime::new(&urls, layer, flags, self.base()?).map_err(|error| {
            let bad = |url: &str| {
                matches!(&error, StoreError::Address { url: named, .. } if named == url)
            };
            // Of one that is listed twice the second is one too many.
            let at = urls.iter().rposition(|url| bad(url));
            let key = at.map_or("instances".to_owned(), |index| format!("instances[{index}]"));
            self.refused(&key, &error, remedy)
        })
    }

    /// Which runtime key stands for which flag.
    fn map(&self) -> Result<Vec<EnvoyFlag>> {
        let remedy = "add [flags.map] with such as \"retry.max_attempts\" = \"llm.max_retries\"";
        let Some(map) = self.entry.map.as_ref().filter(|map| !map.is_empty()) else {
            return Err(self.missing("map", remedy));
        };
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        let mut flags = Vec::new();
        for (flag, entry) in map {
            let place = format!("map.{flag}");
            let (runtime_key, value) = match entry {
                RuntimeEntry::Key(key) => (key, EnvoyValue::Scale(1.0)),
                RuntimeEntry::Written(WrittenEntry { key, scale, values: None }) => {
                    (key, EnvoyValue::Scale(scale.unwrap_or(1.0)))
                }
                RuntimeEntry::Written(WrittenEntry { key, scale: None, values: Some(values) }) => {
                    let row = |(value, text): (&String, &RuntimeText)| (value.clone(), text.text());
                    (key, EnvoyValue::Table(values.iter().map(row).collect()))
                }
                RuntimeEntry::Written(_) => {
                    let message = "has `scale` and `values`, and a value is written one way";
                    return Err(self.wrong(&place, message, "remove one of the two"));
                }
            };
            if let Some(other) = taken.insert(runtime_key, flag) {
                let message = format!("has the runtime key of `{other}` too");
                return Err(self.wrong(
                    &place,
                    &message,
                    "give each flag a runtime key of its own",
                ));
            }
            let checked = EnvoyFlag::new(flag, runtime_key, value).map_err(|error| {
                self.wrong(&place, &error.to_string(), "correct the flag or how it is written")
            })?;
            flags.push(checked);
        }
        Ok(flags)
    }

    fn flagd(&self) -> Result<FlagdFile> {
        let remedy = "name the file of flag definitions, such as flags.json";
        let Some(file) = &self.entry.file else { return Err(self.missing("file", remedy)) };
        let path = self.file.path(file);
        // The journal tells stores apart by their name, wherever weir is started.
        let path = std::path::absolute(&path).unwrap_or(path);
        let prefix = self.entry.prefix.as_deref().unwrap_or(FLAGD_PREFIX);
        Ok(FlagdFile::new(path, prefix, self.base()?))
    }
}
