//! One HTTP scrape: bounded in time and size, and an error that names the source and what came instead.
//!
//! Everything that is not an exposition is an error here, however it looks: an HTML login page, an
//! empty body, half a line, a body without end. A body with some bad lines is not: it comes back with
//! its good lines and a report.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use thiserror::Error;

use super::access::{Access, AccessError, Tls};
use super::exposition::{BODY_BYTES_MAX, Format, Report};
use super::page::degraded;
use super::transport::{REDIRECTS_MAX, TransportError, snippet, whole_body};

/// The dialects in order of preference. The answer's own content type decides.
const ACCEPTED: &str = "application/openmetrics-text;version=1.0.0;q=0.9,\
                        text/plain;version=0.0.4;q=0.8,*/*;q=0.1";

/// Default limit of one scrape, below the interval of 1 s so that scrapes never overlap.
pub const TIMEOUT: Duration = Duration::from_millis(800);

/// What to scrape.
#[derive(Clone, Debug)]
pub struct Target {
    /// The source's name on screen and in errors.
    pub name: String,
    /// Where its metrics are.
    pub url: String,
    /// Limit of the whole scrape, connecting included.
    pub timeout: Duration,
    /// What the source asks of its readers.
    pub access: Access,
    /// Most bytes of the body, after decompression.
    pub body_max: usize,
}

impl Target {
    /// A target with the default limits and no key.
    #[must_use]
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            timeout: TIMEOUT,
            access: Access::default(),
            body_max: BODY_BYTES_MAX,
        }
    }
}

/// Why a scrape gave nothing. Every message begins with the source's name.
#[derive(Debug, Error)]
pub enum ScrapeError {
    /// The HTTP client itself could not be built.
    #[error(transparent)]
    Client(#[from] AccessError),
    /// Nothing listens there.
    #[error("{source_name}: nothing answers{} ({cause}): is it running?", at(source_name, url))]
    Connect {
        /// The source.
        source_name: String,
        /// Its address.
        url: String,
        /// What the system says.
        cause: String,
    },
    /// TLS could not be agreed on.
    #[error("{source_name}: TLS fails{} ({cause}): {remedy}", at(source_name, url))]
    Tls {
        /// The source.
        source_name: String,
        /// Its address.
        url: String,
        /// What the library or the peer says.
        cause: String,
        /// What to do.
        remedy: &'static str,
    },
    /// No whole answer in time.
    #[error("{source_name}: no whole answer within {} ms", limit.as_millis())]
    Timeout {
        /// The source.
        source_name: String,
        /// The limit.
        limit: Duration,
    },
    /// Redirects without end.
    #[error("{source_name}: more than {REDIRECTS_MAX} redirects{}", at(source_name, url))]
    Redirects {
        /// The source.
        source_name: String,
        /// Where they began.
        url: String,
    },
    /// A redirect away from the host that was named, or out of TLS.
    #[error(
        "{source_name}: redirects{} to `{place}`, which is not followed: name that address if it \
         is meant",
        at(source_name, url)
    )]
    Elsewhere {
        /// The source.
        source_name: String,
        /// Where it began.
        url: String,
        /// Where it led.
        place: String,
    },
    /// An answer with another status than 200.
    #[error("{source_name}: answered HTTP {status}{}", hint(*status, snippet))]
    Status {
        /// The source.
        source_name: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of what it said.
        snippet: String,
    },
    /// An answer that is no exposition.
    #[error(
        "{source_name}: answered {what}, not metrics ({content_type}, {}): is that the metrics port?",
        size(*bytes)
    )]
    NotMetrics {
        /// The source.
        source_name: String,
        /// What it looks like.
        what: &'static str,
        /// Its content type, or `no content type`.
        content_type: String,
        /// Bytes of the body.
        bytes: usize,
    },
    /// No line of the answer is a sample.
    #[error("{source_name}: no line of the answer is a metric (line {line}: {reason})")]
    NoSample {
        /// The source.
        source_name: String,
        /// The first bad line.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing in the answer.
    #[error("{source_name}: answered with an empty body")]
    Empty {
        /// The source.
        source_name: String,
    },
    /// The answer ended early.
    #[error("{source_name}: the answer was cut after {} ({cause})", size(*bytes))]
    Cut {
        /// The source.
        source_name: String,
        /// Bytes that came.
        bytes: usize,
        /// What the connection says.
        cause: String,
    },
    /// More than the limit.
    #[error("{source_name}: the answer is over {}, the limit for one scrape", size(*limit))]
    TooLarge {
        /// The source.
        source_name: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The address or the answer breaks HTTP.
    #[error("{source_name}: cannot scrape{}: {cause}", at(source_name, url))]
    Http {
        /// The source.
        source_name: String,
        /// Its address.
        url: String,
        /// What is wrong.
        cause: String,
    },
}

/// An HTTP client for scrapes of any target. Cheap to clone; connections are kept between scrapes.
#[derive(Clone, Debug)]
pub struct Scraper {
    client: reqwest::Client,
}

impl Scraper {
    /// A client for all targets. A target with TLS of its own brings a client of its own.
    ///
    /// # Errors
    ///
    /// When the system's TLS set-up does not allow for one.
    pub fn new() -> Result<Self, ScrapeError> {
        Ok(Self { client: Access::default().client()? })
    }

    /// Fetches the body of `target` and tells its dialect, without parsing it.
    ///
    /// # Errors
    ///
    /// When no answer comes in time, or it is no exposition by its status, content type or size.
    pub async fn fetch(&self, target: &Target) -> Result<(Vec<u8>, Format), ScrapeError> {
        tokio::time::timeout(target.timeout, self.answer(target))
            .await
            .map_err(|_| timed_out(target))?
    }

    async fn answer(&self, target: &Target) -> Result<(Vec<u8>, Format), ScrapeError> {
        let source_name = || target.name.clone();
        let timeout_s = target.timeout.as_secs_f64();
        let client = target.access.tls.as_ref().map_or(&self.client, Tls::client);
        let request = client
            .get(&target.url)
            .header(ACCEPT, ACCEPTED)
            .header("x-prometheus-scrape-timeout-seconds", format!("{timeout_s}"));
        let answer = target.access.apply(request).send().await;
        let mut response = answer.map_err(|error| failed(target, TransportError::of(&error)))?;
        let status = response.status();
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .map_or_else(|| "no content type".to_owned(), str::to_owned);
        let body = whole_body(&mut response, target.body_max).await;
        let body = body.map_err(|error| failed(target, error))?;
        if status.as_u16() != 200 {
            let snippet = snippet(&body);
            return Err(ScrapeError::Status {
                source_name: source_name(),
                status: status.as_u16(),
                snippet,
            });
        }
        if let Some(what) = looks_like(&content_type, &body) {
            let bytes = body.len();
            return Err(ScrapeError::NotMetrics {
                source_name: source_name(),
                what,
                content_type,
                bytes,
            });
        }
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(ScrapeError::Empty { source_name: source_name() });
        }
        Ok((body, Format::of_content_type(&content_type)))
    }
}

/// The error that a page is of which nothing was kept, if it has a bad line to show.
pub(super) fn no_sample(source_name: &str, kept: usize, report: &Report) -> Option<ScrapeError> {
    let (line, reason) = degraded(report).into_iter().next().filter(|_| kept == 0)?;
    Some(ScrapeError::NoSample { source_name: source_name.to_owned(), line, reason })
}

fn timed_out(target: &Target) -> ScrapeError {
    ScrapeError::Timeout { source_name: target.name.clone(), limit: target.timeout }
}

fn failed(target: &Target, error: TransportError) -> ScrapeError {
    let source_name = target.name.clone();
    let url = target.url.clone();
    match error {
        TransportError::Connect(cause) => ScrapeError::Connect { source_name, url, cause },
        TransportError::Tls { cause, remedy } => {
            ScrapeError::Tls { source_name, url, cause, remedy }
        }
        TransportError::Timeout => timed_out(target),
        TransportError::Redirects => ScrapeError::Redirects { source_name, url },
        TransportError::Elsewhere(place) => ScrapeError::Elsewhere { source_name, url, place },
        TransportError::Cut { bytes, cause } => ScrapeError::Cut { source_name, bytes, cause },
        TransportError::TooLarge { limit } => ScrapeError::TooLarge { source_name, limit },
        TransportError::Http(cause) => ScrapeError::Http { source_name, url, cause },
    }
}

/// ` at URL`, unless the source is named by its URL.
fn at(source_name: &str, url: &str) -> String {
    if source_name == url { String::new() } else { format!(" at {url}") }
}

/// What an answer is that cannot be an exposition, if one can tell.
fn looks_like(content_type: &str, body: &[u8]) -> Option<&'static str> {
    let start = body.trim_ascii_start();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type.to_ascii_lowercase().as_str() {
        "text/html" | "application/xhtml+xml" => Some("HTML"),
        "application/json" => Some("JSON"),
        "application/vnd.google.protobuf" => Some("protobuf"),
        _ if start.starts_with(b"<") => Some("HTML"),
        // A quoted metric name begins with a brace as well, but never closes it on a `:`.
        _ if serde_json::from_slice::<serde::de::IgnoredAny>(start).is_ok()
            && start.starts_with(b"{") =>
        {
            Some("JSON")
        }
        _ => None,
    }
}

fn hint(status: u16, snippet: &str) -> String {
    let said = if snippet.is_empty() { String::new() } else { format!(" ({snippet})") };
    match status {
        401 | 403 => format!("{said}: does it need a key?"),
        404 => format!("{said}: is the path right?"),
        _ => said,
    }
}

fn size(bytes: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let bytes_f = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes_f / 1e3),
        _ => format!("{:.1} MB", bytes_f / 1e6),
    }
}
