//! The keys of `weir.toml` that say how weir proves itself, and the [`Access`] that they make.
//!
//! Secrets do not stand in the file: a key names an environment variable or a file. Paths are taken
//! from the folder of `weir.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use color_eyre::eyre::Result;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Loaded;
use crate::ingest::{Access, AccessError, Basic, Secret, Tls, TlsFiles};

/// Most headers of one source.
const HEADERS_MAX: usize = 32;

/// `basic`: a user and where the password is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicEntry {
    /// The user.
    pub user: String,
    /// Environment variable that holds the password.
    pub password_env: Option<String>,
    /// File that holds the password; it is read again every few seconds while it is used.
    pub password_file: Option<PathBuf>,
}

/// A header's value: the text itself, or where it is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "invalid value: expected a text in quotes, or { env = \"VARIABLE\" }"
)]
pub enum HeaderEntry {
    /// The value itself, for what is no secret, such as a tenant.
    Text(String),
    /// Environment variable that holds the value.
    Variable(VariableEntry),
}

/// `{ env = "VARIABLE" }`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VariableEntry {
    /// Name of the environment variable.
    pub env: String,
}

/// `tls`: whom to trust and which certificate to show, in PEM files.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsEntry {
    /// Certificates of the authorities that are trusted, in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate (with its chain) that weir shows; needs `key_file`.
    pub cert_file: Option<PathBuf>,
    /// Key of that certificate, without a password.
    pub key_file: Option<PathBuf>,
    /// Name that the server's certificate must have, where that is not the host of the address.
    pub server_name: Option<String>,
}

/// The access keys of one table, wherever it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AccessKeys<'a> {
    pub(super) token_env: Option<&'a str>,
    pub(super) token_file: Option<&'a Path>,
    pub(super) basic: Option<&'a BasicEntry>,
    pub(super) headers: Option<&'a BTreeMap<String, HeaderEntry>>,
    pub(super) tls: Option<&'a TlsEntry>,
    /// Name that the server's certificate must have unless `tls` says another.
    pub(super) server_name: Option<&'a str>,
}

impl Loaded {
    /// What the keys of the table at `place` come to.
    ///
    /// # Errors
    /// Names the key that is wrong, and never a secret.
    pub(super) fn access(&self, place: &str, keys: AccessKeys<'_>) -> Result<Access> {
        let bearer = self.secret(place, "token", keys.token_env, keys.token_file)?;
        let basic = keys.basic.map(|entry| self.basic(&format!("{place}.basic"), entry));
        let basic = basic.transpose()?;
        let headers =
            keys.headers.map(|entries| self.headers(&format!("{place}.headers"), entries));
        let headers = headers.transpose()?.unwrap_or_default();
        let in_headers = headers.iter().any(|(name, _)| *name == AUTHORIZATION);
        let ways = [bearer.is_some(), basic.is_some(), in_headers];
        if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
            let message = "has two ways to say who is asking, and one request carries one";
            let remedy = "keep the token, `basic`, or the `Authorization` header";
            return Err(self.wrong(place, message, remedy));
        }
        let tls = self.tls(&format!("{place}.tls"), keys)?;
        Ok(Access { bearer, basic, headers, tls })
    }

    /// The secret that `NAME_env` or `NAME_file` of the table at `place` names.
    ///
    /// # Errors
    /// When both do, or nothing is there.
    pub(super) fn secret(
        &self,
        place: &str,
        name: &str,
        variable: Option<&str>,
        file: Option<&Path>,
    ) -> Result<Option<Secret>> {
        let key = |end: &str| format!("{place}.{name}_{end}");
        match (variable, file) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => {
                let message =
                    format!("stands beside `{name}_env`, and one of them would be ignored");
                Err(self.wrong(&key("file"), &message, "remove one of the two"))
            }
            (Some(variable), None) => {
                let value = self.environment(&key("env"), variable)?;
                if HeaderValue::from_str(value.trim()).is_err() {
                    let message = format!("`{variable}` has characters that a header cannot carry");
                    return Err(self.wrong(&key("env"), &message, "set it to one line of text"));
                }
                Ok(Some(Secret::new(&value)))
            }
            (None, Some(file)) => Secret::from_file(&self.path(file)).map(Some).map_err(|error| {
                let remedy = format!("name a file that holds the {name}");
                self.wrong(&key("file"), &error.to_string(), &remedy)
            }),
        }
    }

    fn basic(&self, place: &str, entry: &BasicEntry) -> Result<Basic> {
        let file = entry.password_file.as_deref();
        let password = self.secret(place, "password", entry.password_env.as_deref(), file)?;
        let password = password.ok_or_else(|| {
            let remedy = "add `password_env` or `password_file`";
            self.wrong(place, "has a user and no password", remedy)
        })?;
        Ok(Basic { user: entry.user.clone(), password })
    }

    fn headers(
        &self,
        place: &str,
        entries: &BTreeMap<String, HeaderEntry>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>> {
        if entries.len() > HEADERS_MAX {
            let message = format!("has {} headers, over {HEADERS_MAX}, the limit", entries.len());
            return Err(self.wrong(place, &message, "keep those that the source asks for"));
        }
        let header = |(name, entry): (&String, &HeaderEntry)| {
            let key = format!("{place}.{name}");
            let parsed: HeaderName = name.parse().map_err(|_| {
                let remedy = "write a name such as \"X-Scope-OrgID\"";
                self.wrong(&key, "is no name of a header", remedy)
            })?;
            let text = match entry {
                HeaderEntry::Text(text) => text.clone(),
                HeaderEntry::Variable(VariableEntry { env }) => self.environment(&key, env)?,
            };
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                let message = "has characters that a header cannot carry";
                self.wrong(&key, message, "write one line of plain text")
            })?;
            // Even a tenant's name says more than an error message should.
            value.set_sensitive(true);
            Ok((parsed, value))
        };
        entries.iter().map(header).collect()
    }

    fn tls(&self, place: &str, keys: AccessKeys<'_>) -> Result<Option<Tls>> {
        let path = |file: Option<&PathBuf>| file.map(|file| self.path(file));
        let ca = path(keys.tls.and_then(|tls| tls.ca_file.as_ref()));
        let certificate = path(keys.tls.and_then(|tls| tls.cert_file.as_ref()));
        let key = path(keys.tls.and_then(|tls| tls.key_file.as_ref()));
        let server_name = keys.tls.and_then(|tls| tls.server_name.as_deref()).or(keys.server_name);
        if keys.tls.is_none() && server_name.is_none() {
            return Ok(None);
        }
        let identity = match (&certificate, &key) {
            (Some(certificate), Some(key)) => Some((certificate.as_path(), key.as_path())),
            (None, None) => None,
            _ => {
                let message = "has one of `cert_file` and `key_file`, which need each other";
                return Err(self.wrong(place, message, "name both, or neither"));
            }
        };
        let files = TlsFiles { ca: ca.as_deref(), identity, server_name };
        let tls = Tls::read(files).map_err(|error| {
            let keys = [("ca_file", &ca), ("cert_file", &certificate), ("key_file", &key)];
            let named = keys.iter().find(|(_, path)| path.as_deref() == error.file());
            let place = match (&error, named) {
                (AccessError::ServerName(_), _) => format!("{place}.server_name"),
                (_, Some((name, Some(_)))) => format!("{place}.{name}"),
                _ => place.to_owned(),
            };
            self.wrong(&place, &error.to_string(), "name PEM files that belong together")
        })?;
        Ok(Some(tls))
    }
}
