//! `upstream` of `[gateway]`: the address of the provider, alone or in a table that says how it is spoken to.

use std::fmt;
use std::path::PathBuf;

use http::header::AUTHORIZATION;
use http::uri::Scheme;
use http::{HeaderName, HeaderValue, Uri};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::config::ConfigError;
use super::tls;
use crate::dialect::Provider;

/// What stands behind the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamKind {
    /// A model API: paths under `/v1/`, models in the body, tokens.
    #[default]
    Llm,
    /// Any other HTTP API, such as a search: every path, one request is one request, no tokens.
    Http,
}

/// The provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// `http://...` or `https://...`, without a path.
    pub url: String,
    /// What it is.
    pub kind: UpstreamKind,
    /// The header that the provider reads its key from.
    pub key_header: Option<String>,
    /// Authorities in PEM that are trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether it is spoken to in HTTP/2; `None` leaves it to the TLS handshake.
    pub http2: Option<bool>,
}

/// The table, as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpstreamTable {
    /// The provider, `http://...` or `https://...`, without a path.
    url: String,
    /// `llm` for a model API, `http` for any other, such as a search.
    #[serde(default)]
    kind: UpstreamKind,
    /// The header that the provider reads its key from; by the scopes' provider unless given.
    key_header: Option<String>,
    /// File with authorities in PEM that are trusted beside the system's.
    ca_file: Option<PathBuf>,
    /// HTTP/2: `true` for always, without TLS too, `false` for never; the TLS handshake decides unless
    /// given.
    http2: Option<bool>,
}

/// The two ways to write it, for the schema alone.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "its schema is all that is read of it")]
pub(super) enum UpstreamWritten {
    /// The provider, `http://...` or `https://...`, without a path.
    Url(String),
    /// The same with more to say.
    Table(UpstreamTable),
}

impl From<UpstreamTable> for UpstreamConfig {
    fn from(table: UpstreamTable) -> Self {
        let UpstreamTable { url, kind, key_header, ca_file, http2 } = table;
        Self { url, kind, key_header, ca_file, http2 }
    }
}

impl<'de> Deserialize<'de> for UpstreamConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = UpstreamConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address such as https://api.openai.com, or a table with `url`")
            }

            fn visit_str<E>(self, url: &str) -> Result<Self::Value, E> {
                Ok(UpstreamConfig::at(url))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                UpstreamTable::deserialize(MapAccessDeserializer::new(map))
                    .map(UpstreamConfig::from)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl UpstreamConfig {
    /// A model API of which only the address is said.
    fn at(url: &str) -> Self {
        let url = url.to_owned();
        Self { url, kind: UpstreamKind::default(), key_header: None, ca_file: None, http2: None }
    }

    /// Checks what the types cannot, the file of authorities included.
    ///
    /// # Errors
    /// [`ConfigError`] names the key and what is allowed.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let uri = self.uri()?;
        self.key_style(Provider::GENERIC)?;
        let Some(file) = &self.ca_file else { return Ok(()) };
        if uri.scheme() != Some(&Scheme::HTTPS) {
            let message = format!("is never asked: `{}` is not https://", self.url);
            let remedy = "write https://, or take it out";
            return Err(ConfigError::new("gateway.upstream.ca_file", message, remedy));
        }
        tls::authorities(file).map(drop)
    }

    /// The address.
    ///
    /// # Errors
    /// [`ConfigError`] where it is none of a provider.
    pub fn uri(&self) -> Result<Uri, ConfigError> {
        let wrong = || {
            let remedy = "write http://host[:port] or https://host[:port], without a path";
            let message = format!("`{}` is no address of a provider", self.url);
            ConfigError::new("gateway.upstream", message, remedy)
        };
        let uri: Uri = self.url.parse().map_err(|_| wrong())?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_bare = uri.host().is_some() && matches!(uri.path(), "" | "/");
        if known && is_bare && uri.query().is_none() { Ok(uri) } else { Err(wrong()) }
    }

    /// The header of the provider's key, and what stands in it before the key.
    ///
    /// # Errors
    /// [`ConfigError`] where the configured one is no name of a header.
    pub fn key_style(&self, provider: Provider) -> Result<(HeaderName, &'static str), ConfigError> {
        let header = match &self.key_header {
            Some(name) => name.parse().map_err(|_| {
                let message = format!("`{name}` is no name of a header");
                let remedy = "write it as the provider's documents have it, such as x-api-key";
                ConfigError::new("gateway.upstream.key_header", message, remedy)
            })?,
            None => provider.key_header().cloned().unwrap_or(AUTHORIZATION),
        };
        let before = if header == AUTHORIZATION { "Bearer " } else { "" };
        Ok((header, before))
    }
}

/// A key as it stands in its header; never shown in a log.
///
/// # Errors
/// [`ConfigError`] where it cannot stand in one.
pub(super) fn key_value(
    before: &str,
    key: &str,
    variable: &str,
) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::from_str(&format!("{before}{key}")).map_err(|_| {
        let message = format!("what `{variable}` holds cannot stand in a header");
        ConfigError::new("gateway.upstream_key_env", message, "look for a line end in it")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Holder {
        upstream: UpstreamConfig,
    }

    fn read(text: &str) -> Result<UpstreamConfig, String> {
        let holder: Result<Holder, _> = toml::from_str(text);
        holder.map(|holder| holder.upstream).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_alone_and_a_table_are_both_read() {
        let alone = read("upstream = 'https://api.openai.com'").expect("right");
        assert_eq!((alone.url.as_str(), alone.kind), ("https://api.openai.com", UpstreamKind::Llm));
        let table = read("[upstream]\nurl = 'https://s.example'\nkind = 'http'").expect("right");
        assert_eq!(table.kind, UpstreamKind::Http);
        for (text, expected) in [
            ("upstream = 7", "an address such as https://api.openai.com"),
            ("[upstream]\nurl = 'https://a'\nkid = 1", "unknown field `kid`"),
            ("[upstream]\nurl = 'https://a'\nkind = 'ftp'", "unknown variant `ftp`"),
            ("[upstream]\nkind = 'http'", "missing field `url`"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        for url in ["https://a/b", "ftp://a", "a", "https://", "https://a/?b"] {
            let entry = UpstreamConfig { url: url.to_owned(), ..alone.clone() };
            assert!(entry.uri().is_err(), "{url}");
        }
    }

    #[test]
    fn a_key_stands_where_its_provider_looks_for_it() {
        let provider = |name: &str| Provider::named(name).unwrap_or(Provider::GENERIC);
        let mut entry = read("upstream = 'https://a'").expect("right");
        for (name, header, before) in [
            ("openai", "authorization", "Bearer "),
            ("anthropic", "x-api-key", ""),
            ("azure-openai", "api-key", ""),
            ("gemini", "x-goog-api-key", ""),
        ] {
            let (found, prefix) = entry.key_style(provider(name)).expect("known");
            assert_eq!((found.as_str(), prefix), (header, before), "{name}");
        }
        entry.key_header = Some("X-Mine".to_owned());
        assert_eq!(entry.key_style(Provider::GENERIC).expect("a name").0.as_str(), "x-mine");
        entry.key_header = Some("x mine".to_owned());
        let error = entry.key_style(Provider::GENERIC).expect_err("no name").to_string();
        assert!(error.contains("key_header"), "{error}");
    }
}
