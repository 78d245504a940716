//! `[[source]]`: its keys, and what they come to on each of the two roads.
//!
//! Every source has exactly one place that its numbers come from. A key that the place would ignore is
//! an error, because somebody wrote it for a reason.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use color_eyre::eyre::{Report, Result};
use schemars::JsonSchema;
use serde::Deserialize;

use super::access::{AccessKeys, BasicEntry, HeaderEntry, TlsEntry};
use super::{Loaded, seconds};
use crate::ingest::prometheus::{PrometheusConfig, PrometheusSource, Select, SelectError};
use crate::ingest::{
    Adapters, Discovery, Endpoint, INSTANCES_MAX, Road, Scheme, SourceConfig, TIMEOUT, Target,
    page_url,
};

/// Most `file_sd` patterns of one source.
const PATTERNS_MAX: usize = 32;
/// From scrape to scrape, in seconds.
const SCRAPE_INTERVAL_S: f64 = 1.0;
/// From question to question at Prometheus, which itself scrapes every 15 s or so.
const PROMETHEUS_INTERVAL_S: f64 = 5.0;
/// How long Prometheus may take for all questions of one round.
const PROMETHEUS_TIMEOUT: Duration = Duration::from_secs(4);

/// `[[source]]`: one gateway, provider or client, whose numbers are read. One of `url`, `urls`, `dns`,
/// `file_sd` and `prometheus` says where they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceEntry {
    /// Its name on screen.
    pub name: String,
    /// Which adapter reads it: one that ships with weir, or the stem of a file in `adapters/` beside
    /// this file.
    pub adapter: String,
    /// Its metrics page.
    pub url: Option<String>,
    /// The metrics pages of its instances.
    pub urls: Option<Vec<String>>,
    /// `name:port`; every address that DNS has for the name is an instance.
    pub dns: Option<String>,
    /// Files in Prometheus' `file_sd` form (JSON) that list its instances; `*` may stand in the last
    /// part of a path.
    pub file_sd: Option<Vec<PathBuf>>,
    /// How instances from `dns` and `file_sd` are asked; `http` unless given.
    pub scheme: Option<SchemeEntry>,
    /// Where their metrics pages are; `/metrics` unless given.
    pub path: Option<String>,
    /// Base address of the Prometheus that scrapes it, or of another with its query API.
    pub prometheus: Option<String>,
    /// Label matchers that select its series there: `job="litellm"`.
    pub select: Option<String>,
    /// Seconds that one scrape, or one round of questions, may take; 0.8 and 4 unless given.
    pub timeout_s: Option<f64>,
    /// Seconds from one to the next, from 1 to 60; 1 and, for `prometheus`, 5 unless given.
    pub interval_s: Option<f64>,
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

/// `http` or `https`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchemeEntry {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// The source at one place of the file, while it is checked.
struct Checking<'a> {
    file: &'a Loaded,
    index: usize,
    entry: &'a SourceEntry,
}

/// Where the numbers of a source come from.
#[derive(Clone, Copy)]
enum Place<'a> {
    Pages(Pages<'a>),
    Prometheus(&'a str),
}

/// Where the metrics pages of a source are.
#[derive(Clone, Copy)]
enum Pages<'a> {
    Url(&'a str),
    Urls(&'a [String]),
    Dns(&'a str),
    FileSd(&'a [PathBuf]),
}

impl Loaded {
    /// The source at `index`, ready to be read.
    ///
    /// # Errors
    /// When a key is wrong, missing, or one too many.
    pub fn source(&self, index: usize, adapters: &Adapters) -> Result<SourceConfig> {
        let entry = &self.toml.sources[index];
        let checking = Checking { file: self, index, entry };
        checking.name()?;
        let adapter = adapters.get(&entry.adapter).map_err(|error| {
            checking.wrong("adapter", &error.to_string(), "use one of the words named")
        })?;
        let place = checking.place()?;
        checking.no_key_in_vain(place)?;
        let access = self.access(&format!("source[{index}]"), checking.access_keys(place))?;
        match place {
            Place::Prometheus(url) => {
                page_url(url).map_err(|message| {
                    checking.wrong("prometheus", &message, "write http://host:9090")
                })?;
                let timeout = checking.timeout()?.unwrap_or(PROMETHEUS_TIMEOUT);
                let queries = PrometheusSource::new(PrometheusConfig {
                    name: entry.name.clone(),
                    url: url.to_owned(),
                    select: checking.select()?,
                    adapter: Arc::clone(&adapter),
                    access,
                    timeout,
                    window: None,
                })
                .map_err(|error| {
                    checking.wrong("prometheus", &error.kind.to_string(), "write http://host:9090")
                })?;
                Ok(SourceConfig {
                    name: entry.name.clone(),
                    url: url.to_owned(),
                    adapter,
                    interval: checking.interval(PROMETHEUS_INTERVAL_S)?,
                    timeout,
                    road: Road::Queries(Arc::new(queries)),
                })
            }
            Place::Pages(pages) => {
                let instances = checking.instances(pages)?;
                let target = Target {
                    timeout: checking.timeout()?.unwrap_or(TIMEOUT),
                    access,
                    ..Target::new(&entry.name, instances.to_string())
                };
                let interval = checking.interval(SCRAPE_INTERVAL_S)?;
                let page = SourceConfig::page(target.clone(), adapter);
                Ok(match pages {
                    Pages::Url(_) => SourceConfig { interval, ..page },
                    _ => SourceConfig {
                        interval,
                        road: Road::Pages { target: Box::new(target), instances },
                        ..page
                    },
                })
            }
        }
    }
}

impl<'a> Checking<'a> {
    fn wrong(&self, key: &str, message: &str, remedy: &str) -> Report {
        let of = format!("{message} (source `{}`)", self.entry.name);
        self.file.wrong(&format!("source[{}].{key}", self.index), &of, remedy)
    }

    /// A name on screen tells sources apart.
    fn name(&self) -> Result<()> {
        let before = &self.file.toml.sources[..self.index];
        if before.iter().any(|other| other.name == self.entry.name) {
            return Err(self.wrong("name", "is another source's too", "give each its own name"));
        }
        Ok(())
    }

    /// The one place that the numbers come from.
    fn place(&self) -> Result<Place<'a>> {
        let entry = self.entry;
        let pages = [
            ("url", entry.url.as_deref().map(Pages::Url)),
            ("urls", entry.urls.as_deref().map(Pages::Urls)),
            ("dns", entry.dns.as_deref().map(Pages::Dns)),
            ("file_sd", entry.file_sd.as_deref().map(Pages::FileSd)),
        ];
        let pages = pages.into_iter().filter_map(|(key, it)| Some((key, Place::Pages(it?))));
        let api = entry.prometheus.as_deref().map(|url| ("prometheus", Place::Prometheus(url)));
        let given: Vec<_> = pages.chain(api).collect();
        match given.as_slice() {
            [(_, only)] => Ok(*only),
            [] => {
                let remedy = "add one of `url`, `urls`, `dns`, `file_sd`, `prometheus`";
                let key = format!("source[{}]", self.index);
                let message = format!("source `{}` does not say where it is", entry.name);
                Err(self.file.wrong(&key, &message, remedy))
            }
            [(first, _), (second, _), ..] => {
                let message = format!("stands beside `{first}`, and a source is in one place");
                Err(self.wrong(second, &message, "remove one, or write two sources"))
            }
        }
    }

    /// Keys that only another place would heed.
    fn no_key_in_vain(&self, place: Place<'_>) -> Result<()> {
        let entry = self.entry;
        let is_listed = matches!(place, Place::Pages(Pages::Dns(_) | Pages::FileSd(_)));
        let is_prometheus = matches!(place, Place::Prometheus(_));
        for (key, is_in_vain, of) in [
            ("scheme", entry.scheme.is_some() && !is_listed, "`dns` or `file_sd`"),
            ("path", entry.path.is_some() && !is_listed, "`dns` or `file_sd`"),
            ("select", entry.select.is_some() && !is_prometheus, "`prometheus`"),
        ] {
            if is_in_vain {
                let message = format!("is for sources with {of}");
                return Err(self.wrong(key, &message, "remove it"));
            }
        }
        Ok(())
    }

    fn timeout(&self) -> Result<Option<Duration>> {
        let Some(given) = self.entry.timeout_s else { return Ok(None) };
        let timeout = seconds(given).ok_or_else(|| {
            let message = format!("must be a positive number, not {given}");
            self.wrong("timeout_s", &message, "write seconds, such as 0.8")
        })?;
        Ok(Some(timeout))
    }

    fn interval(&self, usual_s: f64) -> Result<Duration> {
        let interval_s = self.entry.interval_s.unwrap_or(usual_s);
        let interval = seconds(interval_s).filter(|_| (1.0..=60.0).contains(&interval_s));
        interval.ok_or_else(|| {
            let message = format!("must be from 1 to 60, not {interval_s}");
            self.wrong("interval_s", &message, "write seconds, such as 5")
        })
    }

    fn select(&self) -> Result<Select> {
        let text = self.entry.select.as_deref().unwrap_or_default();
        text.parse().map_err(|error: SelectError| {
            self.wrong("select", &error.to_string(), "correct the matchers")
        })
    }

    fn endpoint(&self) -> Result<Endpoint> {
        let scheme = match self.entry.scheme {
            Some(SchemeEntry::Https) => Scheme::Https,
            Some(SchemeEntry::Http) | None => Scheme::Http,
        };
        let path = self.entry.path.clone().unwrap_or_else(|| "/metrics".to_owned());
        if !path.starts_with('/') {
            let message = format!("begins with `/`, unlike `{path}`");
            return Err(self.wrong("path", &message, "write a path such as /metrics"));
        }
        Ok(Endpoint { scheme, path })
    }

    /// Host and port of `dns`.
    fn host_and_port(&self, dns: &'a str) -> Result<(&'a str, u16)> {
        let parts =
            dns.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'));
        parts.and_then(|(host, port)| Some((host, port.parse().ok()?))).ok_or_else(|| {
            let message = format!("`{dns}` is no name:port");
            self.wrong("dns", &message, "write a name and a port, such as gateway.internal:4000")
        })
    }

    fn access_keys(&self, place: Place<'a>) -> AccessKeys<'a> {
        let entry = self.entry;
        // An address from DNS is on no certificate, but the name that was looked up is.
        let server_name = match (place, entry.scheme) {
            (Place::Pages(Pages::Dns(dns)), Some(SchemeEntry::Https)) => {
                self.host_and_port(dns).ok().map(|(host, _)| host)
            }
            _ => None,
        };
        AccessKeys {
            token_env: entry.token_env.as_deref(),
            token_file: entry.token_file.as_deref(),
            basic: entry.basic.as_ref(),
            headers: entry.headers.as_ref(),
            tls: entry.tls.as_ref(),
            server_name,
        }
    }

    fn instances(&self, pages: Pages<'a>) -> Result<Discovery> {
        match pages {
            Pages::Url(url) => self.pages("url", &[url.to_owned()]),
            Pages::Urls([]) => Err(self.wrong("urls", "is empty", "write at least one address")),
            Pages::Urls(urls) => self.pages("urls", urls),
            Pages::Dns(dns) => {
                let (host, port) = self.host_and_port(dns)?;
                Ok(Discovery::Dns { host: host.to_owned(), port, endpoint: self.endpoint()? })
            }
            Pages::FileSd(patterns) => self.files(patterns),
        }
    }

    fn pages(&self, key: &str, urls: &[String]) -> Result<Discovery> {
        if urls.len() > INSTANCES_MAX {
            let message = format!("{} instances are over {INSTANCES_MAX}, the limit", urls.len());
            let remedy = "let Prometheus scrape them and name it with `prometheus`";
            return Err(self.wrong(key, &message, remedy));
        }
        for (number, url) in urls.iter().enumerate() {
            let place = if key == "urls" { format!("urls[{number}]") } else { key.to_owned() };
            let remedy = "write http://host:port/metrics, and `basic` for a user";
            page_url(url).map_err(|message| self.wrong(&place, &message, remedy))?;
        }
        Ok(Discovery::of_urls(urls.iter().map(String::as_str)))
    }

    fn files(&self, patterns: &[PathBuf]) -> Result<Discovery> {
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            let message = format!("has {} patterns, not 1 to {PATTERNS_MAX}", patterns.len());
            return Err(self.wrong("file_sd", &message, "write such as [\"targets/*.json\"]"));
        }
        for (number, pattern) in patterns.iter().enumerate() {
            if pattern.parent().is_some_and(|folder| folder.to_string_lossy().contains('*')) {
                let key = format!("file_sd[{number}]");
                let message = "has a `*` in a folder's name";
                return Err(self.wrong(&key, message, "write `*` in the last part only"));
            }
        }
        let patterns = patterns.iter().map(|pattern| self.file.path(pattern)).collect();
        Ok(Discovery::FileSd { patterns, endpoint: self.endpoint()? })
    }
}
