//! One HTTP scrape: bounded in time and size, and an error that names the source and what came instead.
//!
//! Everything that is not an exposition is an error here, however it looks: an HTML login page, an
//! empty body, half a line, a body without end. A body with some bad lines is not: it comes back with
//! its good lines and a report.

use std::time::Duration;

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::{Action, Attempt, Policy};
use thiserror::Error;

use super::exposition::{BODY_BYTES_MAX, Format, Report};
use super::parsed::{ParsedScrape, degraded};

/// Redirects that are followed: some gateways answer `/metrics` with one to `/metrics/`.
const REDIRECTS_MAX: usize = 3;
/// Characters of a refusing answer that an error shows.
const SNIPPET_CHARS_MAX: usize = 60;
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
    /// Sent as `Authorization: Bearer`, where the source asks for it. Never shown.
    pub bearer: Option<String>,
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
            bearer: None,
            body_max: BODY_BYTES_MAX,
        }
    }
}

/// Why a scrape gave nothing. Every message begins with the source's name.
#[derive(Debug, Error)]
pub enum ScrapeError {
    /// The HTTP client itself could not be built.
    #[error("cannot build the HTTP client")]
    Client(#[source] reqwest::Error),
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
    /// A redirect away from the host that was named.
    #[error(
        "{source_name}: redirects{} to another host, `{host}`, which is not followed: name that \
         address if it is meant",
        at(source_name, url)
    )]
    OtherHost {
        /// The source.
        source_name: String,
        /// Where it began.
        url: String,
        /// Where it led.
        host: String,
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

/// An HTTP client for scrapes. Cheap to clone; connections are kept between scrapes.
#[derive(Clone, Debug)]
pub struct Scraper {
    client: reqwest::Client,
}

impl Scraper {
    /// A client for all targets.
    ///
    /// # Errors
    ///
    /// When the system's TLS set-up does not allow for one.
    pub fn new() -> Result<Self, ScrapeError> {
        // Another part of the process may have installed the same provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::custom(same_host))
            // Metrics ports are inside; a proxy set for the outside would answer for them.
            .no_proxy()
            .gzip(true)
            .build()
            .map_err(ScrapeError::Client)?;
        Ok(Self { client })
    }

    /// Scrapes `target` once.
    ///
    /// # Errors
    ///
    /// When no answer comes in time, or what comes holds no sample at all.
    pub async fn scrape(&self, target: &Target) -> Result<ParsedScrape, ScrapeError> {
        let (body, format) = self.fetch(target).await?;
        read(&body, format, &target.name)
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
        let mut request = self
            .client
            .get(&target.url)
            .header(ACCEPT, ACCEPTED)
            .header("x-prometheus-scrape-timeout-seconds", format!("{timeout_s}"));
        if let Some(bearer) = &target.bearer {
            request = request.bearer_auth(bearer);
        }
        let mut response = request.send().await.map_err(|error| no_answer(target, &error))?;
        let status = response.status();
        let content_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .map_or_else(|| "no content type".to_owned(), str::to_owned);
        let body = bounded(&mut response, target).await?;
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

/// Where a redirect led that is not followed. Metrics of a stranger are no metrics of the source.
#[derive(Debug, Error)]
#[error("{0}")]
struct Elsewhere(String);

/// Follows redirects on one host: a peer does not choose whom weir talks to.
fn same_host(attempt: Attempt<'_>) -> Action {
    let first = attempt.previous().first();
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error("too many");
    }
    match attempt.url().host_str() {
        host if host == first.and_then(|url| url.host_str()) => attempt.follow(),
        host => {
            let host = host.unwrap_or_default().to_owned();
            attempt.error(Elsewhere(host))
        }
    }
}

/// The whole body, up to the target's limit: what a peer announces or compresses does not matter.
async fn bounded(response: &mut Response, target: &Target) -> Result<Vec<u8>, ScrapeError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => {
                return Err(ScrapeError::Cut {
                    source_name: target.name.clone(),
                    bytes: body.len(),
                    cause: innermost(&error),
                });
            }
        }
        if body.len() > target.body_max {
            return Err(ScrapeError::TooLarge {
                source_name: target.name.clone(),
                limit: target.body_max,
            });
        }
    }
}

/// Parses a body that was fetched, where at least one sample must come out.
fn read(body: &[u8], format: Format, source_name: &str) -> Result<ParsedScrape, ScrapeError> {
    let scrape = ParsedScrape::parse(body, format).map_err(|_| ScrapeError::TooLarge {
        source_name: source_name.to_owned(),
        limit: BODY_BYTES_MAX,
    })?;
    no_sample(source_name, &scrape.report).map_or(Ok(scrape), Err)
}

/// The error that a page is which has bad lines and no sample at all.
pub(super) fn no_sample(source_name: &str, report: &Report) -> Option<ScrapeError> {
    if report.samples > 0 {
        return None;
    }
    let (line, reason) = degraded(report).into_iter().next()?;
    Some(ScrapeError::NoSample { source_name: source_name.to_owned(), line, reason })
}

fn timed_out(target: &Target) -> ScrapeError {
    ScrapeError::Timeout { source_name: target.name.clone(), limit: target.timeout }
}

fn no_answer(target: &Target, error: &reqwest::Error) -> ScrapeError {
    let source_name = target.name.clone();
    let url = target.url.clone();
    let cause = innermost(error);
    if error.is_timeout() {
        timed_out(target)
    } else if let Some(Elsewhere(host)) = elsewhere(error) {
        ScrapeError::OtherHost { source_name, url, host: host.clone() }
    } else if error.is_redirect() {
        ScrapeError::Redirects { source_name, url }
    } else if error.is_connect() {
        ScrapeError::Connect { source_name, url, cause }
    } else {
        ScrapeError::Http { source_name, url, cause }
    }
}

fn elsewhere(error: &reqwest::Error) -> Option<&Elsewhere> {
    let mut cause = std::error::Error::source(error);
    while let Some(found) = cause {
        if let Some(elsewhere) = found.downcast_ref() {
            return Some(elsewhere);
        }
        cause = found.source();
    }
    None
}

/// ` at URL`, unless the source is named by its URL.
fn at(source_name: &str, url: &str) -> String {
    if source_name == url { String::new() } else { format!(" at {url}") }
}

/// The last cause of an error, which is what the system or the peer said.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
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

fn snippet(body: &[u8]) -> String {
    let head = &body[..body.len().min(4 * SNIPPET_CHARS_MAX)];
    let words: Vec<_> =
        String::from_utf8_lossy(head).split_whitespace().map(str::to_owned).collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(SNIPPET_CHARS_MAX).collect()
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
