//! What the stores that are asked over HTTP share: one request per call, a time-out, no retry, no redirect.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};

use super::super::store::StoreError;

/// Longest wait for an answer. A flip that takes longer is better re-read than waited for.
pub const TIMEOUT: Duration = Duration::from_secs(3);

/// Largest answer that is read; a flag table takes a few kilobytes.
const BODY_BYTES_MAX: usize = 4 << 20;

/// An access token that never shows itself.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Takes a token; surrounding white space, as a file's last newline, is not part of it.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// The token itself, for a header.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

/// What came back: status and body, or why nothing usable did.
pub(super) type Answer = Result<(StatusCode, Vec<u8>), String>;

/// Connections to one address.
#[derive(Clone, Debug)]
pub(super) struct Client {
    base: String,
    place: String,
    http: reqwest::Client,
}

impl Client {
    /// A client of `base_url`, which should be the address of `what`, as `example` is. Sends nothing yet.
    pub(super) fn new(
        base_url: &str,
        what: &'static str,
        example: &'static str,
        token: &Token,
    ) -> Result<Self, StoreError> {
        let bad =
            |why: String| StoreError::Address { url: base_url.to_owned(), what, why, example };
        let url = reqwest::Url::parse(base_url).map_err(|error| bad(error.to_string()))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        if !matches!(url.scheme(), "http" | "https") || host.is_empty() {
            return Err(bad("no http or https host".to_owned()));
        }
        if http::HeaderValue::from_str(&token.0).is_err() {
            return Err(bad("the token has characters that a header cannot carry".to_owned()));
        }
        // Somebody else may have installed it already; either way one is there afterwards.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder =
            reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        // A proxy for the outside world must not see the token of a service on this machine.
        let loopback = matches!(host.as_str(), "localhost" | "[::1]") || host.starts_with("127.");
        let builder = if loopback { builder.no_proxy() } else { builder };
        let http = builder.build().map_err(|error| bad(chain(&error)))?;
        let base = base_url.trim_end_matches('/').to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(Self { base, place: format!("{host}:{port}"), http })
    }

    /// Host and port, for the store's name.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// A request for `path`, which begins with a slash.
    pub(super) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }
}

/// Sends once, and reads the whole answer.
pub(super) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let mut response = request.send().await.map_err(|error| chain(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(format!("the answer is larger than {BODY_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body))
}

/// An error with its causes: reqwest's own text stops at "error sending request".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
