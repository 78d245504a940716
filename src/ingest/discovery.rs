//! Which instances a source has: a list, the addresses of a DNS name, or Prometheus `file_sd` files.
//!
//! Answers once per call and keeps nothing: the poller asks again and keeps the last list over an
//! error. Never more than [`INSTANCES_MAX`], sorted, each page once.

mod file_sd;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use thiserror::Error;
use tokio::task::spawn_blocking;

/// Most instances of one source. A larger fleet is Prometheus' to scrape, and weir reads it there.
pub const INSTANCES_MAX: usize = 1_000;
/// Longest wait for the addresses of a name.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);

/// One instance of a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Its name among the others: `host:port`, or its `instance` label.
    pub name: String,
    /// Its metrics page.
    pub url: String,
}

/// Where a source's instances are listed.
#[derive(Clone, Debug)]
pub enum Discovery {
    /// In the configuration.
    Static(Vec<Instance>),
    /// In DNS: every A and AAAA record of a host is an instance.
    Dns {
        /// The name that is looked up.
        host: String,
        /// Port of every instance.
        port: u16,
        /// How and where each instance is asked.
        endpoint: Endpoint,
    },
    /// In files that others keep up to date, in Prometheus' `file_sd` form (JSON).
    FileSd {
        /// The files; the last component of a path may have `*`.
        patterns: Vec<PathBuf>,
        /// What holds for a target whose labels do not say otherwise.
        endpoint: Endpoint,
    },
}

/// How an address becomes a metrics page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// The path, such as `/metrics`; a query may follow.
    pub path: String,
}

/// How an instance is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The scheme of that word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|scheme| scheme.word() == word)
    }
}

/// Why the instances of a source are not known. Every message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DiscoveryError {
    /// The name has no address, or the resolver says nothing.
    #[error(
        "cannot look up `{host}`: {why}; is the name right, and does its service have instances?"
    )]
    Dns {
        /// The name.
        host: String,
        /// What the resolver says.
        why: String,
    },
    /// No file has a name like that.
    #[error("no file matches {}; correct `file_sd`, or write the file", pattern.display())]
    NoFile {
        /// The pattern.
        pattern: PathBuf,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {}: {why}; make it readable, or name another in `file_sd`", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file holds something else.
    #[error("{}:{line}:{column}: {message}; write [{{\"targets\": [\"host:port\"], \"labels\": {{}}}}]", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// Line from 1.
        line: usize,
        /// Column from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// The reader of the files itself has failed.
    #[error("cannot read `file_sd`: {0}; this is weir's fault: report it")]
    Reader(String),
    /// More than one machine should scrape.
    #[error(
        "{found} instances are over {INSTANCES_MAX}, the limit; let Prometheus scrape them and name \
         it with `prometheus`"
    )]
    TooMany {
        /// How many there are.
        found: usize,
    },
}

impl Discovery {
    /// A list of metrics pages. Addresses that [`page_url`] refuses are left out, so check them first.
    #[must_use]
    pub fn of_urls<'a>(urls: impl IntoIterator<Item = &'a str>) -> Self {
        let pages = urls.into_iter().filter_map(|url| page_url(url).ok());
        Self::Static(named(pages.map(|url| (None, url)).collect()))
    }

    /// The instances now, sorted by name, each page once.
    ///
    /// # Errors
    /// [`DiscoveryError`] says what is wrong where, and what to do.
    pub async fn instances(&self) -> Result<Vec<Instance>, DiscoveryError> {
        let found = match self {
            Self::Static(list) => list.clone(),
            Self::Dns { host, port, endpoint } => named(addresses(host, *port, endpoint).await?),
            Self::FileSd { patterns, endpoint } => {
                let (patterns, endpoint) = (patterns.clone(), endpoint.clone());
                let read = spawn_blocking(move || file_sd::targets(&patterns, &endpoint)).await;
                named(read.unwrap_or_else(|error| Err(DiscoveryError::Reader(error.to_string())))?)
            }
        };
        if found.len() > INSTANCES_MAX {
            return Err(DiscoveryError::TooMany { found: found.len() });
        }
        Ok(found)
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static(list) => match list.as_slice() {
                [only] => f.write_str(&only.url),
                list => write!(f, "{} addresses", list.len()),
            },
            Self::Dns { host, port, endpoint } => {
                write!(f, "{}://{host}:{port}{} (DNS)", endpoint.scheme.word(), endpoint.path)
            }
            Self::FileSd { patterns, .. } => {
                let shown: Vec<_> = patterns.iter().map(|p| p.display().to_string()).collect();
                f.write_str(&shown.join(", "))
            }
        }
    }
}

/// A metrics page with the name that somebody gave it.
type Found = (Option<String>, Url);

/// The address of a metrics page, or what is wrong with it.
///
/// # Errors
/// In words, after which a remedy can follow.
pub fn page_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{text}` is no address ({error})"))?;
    if Scheme::of_word(url.scheme()).is_none() || !url.has_host() {
        return Err(format!("`{text}` is no http or https address"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The address is shown on screens; it is not repeated here either.
        return Err("has a user or a password in the address, where it would be shown".to_owned());
    }
    Ok(url)
}

/// The page at an address `host`, `host:port` or `[v6]:port`.
fn page_at(address: &str, endpoint: &Endpoint) -> Result<Url, String> {
    if address.contains(['/', '?', '#', '@']) || address.is_empty() {
        return Err(format!("`{address}` is no host:port"));
    }
    page_url(&format!("{}://{address}{}", endpoint.scheme.word(), endpoint.path))
        .map_err(|_| format!("`{address}` is no host:port"))
}

async fn addresses(
    host: &str,
    port: u16,
    endpoint: &Endpoint,
) -> Result<Vec<Found>, DiscoveryError> {
    let failed = |why: String| DiscoveryError::Dns { host: host.to_owned(), why };
    let lookup = tokio::time::timeout(DNS_TIMEOUT, tokio::net::lookup_host((host, port))).await;
    let lookup =
        lookup.map_err(|_| failed(format!("no answer within {} s", DNS_TIMEOUT.as_secs())))?;
    let addresses = lookup.map_err(|error| failed(error.to_string()))?;
    let pages = addresses.map(|address| page_at(&address.to_string(), endpoint));
    let pages: Vec<Found> = pages.filter_map(Result::ok).map(|url| (None, url)).collect();
    if pages.is_empty() { Err(failed("it has no address".to_owned())) } else { Ok(pages) }
}

/// Sorts, takes each page once, and names those that have no name: by host and port, or by the whole
/// address where that would name two.
fn named(found: Vec<Found>) -> Vec<Instance> {
    let pages: BTreeMap<Url, Option<String>> =
        found.into_iter().map(|(name, url)| (url, name)).collect();
    let short = |url: &Url, name: &Option<String>| name.clone().unwrap_or_else(|| host_port(url));
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for (url, name) in &pages {
        *uses.entry(short(url, name)).or_default() += 1;
    }
    let mut instances: Vec<Instance> = pages
        .iter()
        .map(|(url, name)| {
            let name = short(url, name);
            let is_unique = uses.get(&name) == Some(&1);
            Instance { name: if is_unique { name } else { url.to_string() }, url: url.to_string() }
        })
        .collect();
    instances.sort();
    instances
}

fn host_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests;
