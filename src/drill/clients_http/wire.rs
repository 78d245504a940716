//! What a call looks like on the wire, and what its client reads of the answer.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Clients;
use crate::drill::upstream::Upstream;
use crate::signal::{Mono, Tokens};
use crate::sim::arrivals::{Arrival, Lane};
use crate::sim::layers::{AnswerSeen, Code, Mark, Written};

/// Paths at the simulated provider.
const EMBEDDINGS_PATH: &str = "/v1/embeddings";
const CHAT_PATH: &str = "/v1/chat/completions";
/// The model of the first scope at the simulated provider.
const FIRST_MODEL: &str = "sim-embedding";
/// Largest metrics page of the gate.
const PAGE_LEN_MAX: usize = 8 * 1024 * 1024;
/// Longest error whose code is looked for.
const ERROR_LEN_MAX: usize = 64 * 1024;
const PAGE_TIMEOUT: Duration = Duration::from_secs(1);
/// One more token of a request.
const WORD: &str = " words";

pub(super) type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(super) fn http_client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(Duration::from_secs(5)));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .build(connector)
}

/// The model that a quota scope counts, at the simulated provider.
#[must_use]
pub fn model_of(scope: usize, name: &str) -> String {
    if scope == 0 { FIRST_MODEL.to_owned() } else { format!("sim-{name}") }
}

/// Refuses targets that no request can be sent to, and none at all.
pub(super) fn check_targets(targets: &[Uri], upstream: Option<&Upstream>) -> io::Result<()> {
    if targets.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no target"));
    }
    let path = upstream.map_or(EMBEDDINGS_PATH, |upstream| &upstream.path);
    targets.iter().try_for_each(|target| endpoint(target, path).map(drop))
}

fn endpoint(target: &Uri, path: &str) -> io::Result<Uri> {
    let fail = |error: http::Error| {
        let message =
            format!("target `{target}` with `{path}` is no http://HOST:PORT/PATH: {error}");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|error| fail(http::Error::from(error)))?);
    Uri::from_parts(parts).map_err(|error| fail(error.into()))
}

/// What every request of one call has in common.
pub(super) struct Original {
    body: Bytes,
    name: String,
    arrival: Arrival,
    path: String,
    authorization: HeaderValue,
    lane: Option<&'static str>,
    /// What a provider may charge for it.
    pub(super) tokens: Tokens,
    deadline: Option<Mono>,
}

impl Original {
    /// `index` tells the calls of one run apart.
    pub(super) fn new(
        clients: &Clients,
        caller: usize,
        arrival: &Arrival,
        index: u64,
        deadline: Option<Mono>,
    ) -> Self {
        let config = &clients.callers[caller];
        let upstream = clients.config.scenario.upstream.as_ref();
        let scope = clients.scope_of(config);
        let model = upstream.map_or_else(
            || model_of(scope, &clients.scopes[scope]),
            |upstream| upstream.model.clone(),
        );
        // Tenants of further callers are tenants of their own.
        let of_caller = if caller == 0 { String::new() } else { format!("{}-", config.name) };
        let key = format!("Bearer sk-drill-{of_caller}{}", config.tenant_name(arrival.tenant));
        let path = match (upstream, arrival.output) {
            (Some(upstream), _) => &upstream.path,
            (None, Tokens(0)) => EMBEDDINGS_PATH,
            (None, _) => CHAT_PATH,
        };
        let name = format!("q{}-{index}", clients.config.seed);
        Self {
            // Every word more is one token; of the first, a byte is one at most.
            tokens: Tokens(name.len() as u64 + arrival.tokens.0.saturating_sub(1)) + arrival.output,
            body: body(&name, arrival, &model),
            name,
            arrival: *arrival,
            path: path.to_owned(),
            authorization: HeaderValue::from_str(&key)
                .unwrap_or_else(|_| HeaderValue::from_static("Bearer sk-drill")),
            lane: match (arrival.lane, config.backfill) {
                (Lane::Interactive, _) => None,
                (Lane::Batch, false) => Some("batch"),
                (Lane::Batch, true) => Some("backfill"),
            },
            deadline,
        }
    }

    /// `model`: another than the call's own, where a fallback chose one.
    pub(super) fn request(
        &self,
        target: &Uri,
        mark: Mark,
        model: Option<&str>,
        now: Mono,
    ) -> Request<Full<Bytes>> {
        let body = model.map(|model| body(&self.name, &self.arrival, model));
        let body = body.unwrap_or_else(|| self.body.clone());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = endpoint(target, &self.path)
            .expect("the targets were checked, and the paths are legal");
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match mark {
            Mark::None => {}
            Mark::Stainless(count) => {
                headers.insert("x-stainless-retry-count", HeaderValue::from(count));
            }
            Mark::Amz { attempt, max } => {
                let mark = HeaderValue::try_from(format!("attempt={attempt}; max={max}"));
                headers.insert("amz-sdk-request", mark.expect("digits are legal in a header"));
            }
        }
        if let Some(lane) = self.lane {
            headers.insert("x-weir-lane", HeaderValue::from_static(lane));
        }
        if let Some(deadline) = self.deadline {
            let left_ms = deadline.saturating_since(now).as_millis().max(1);
            let left_ms = HeaderValue::from(u64::try_from(left_ms).unwrap_or(u64::MAX));
            headers.insert("x-weir-deadline-ms", left_ms);
        }
        request
    }
}

/// A body whose input has exactly as many words as the call has tokens, and no other call's: `name` is
/// the first. What can never succeed has an input that no provider takes.
fn body(name: &str, arrival: &Arrival, model: &str) -> Bytes {
    let mut input = name.to_owned();
    for _ in 1..arrival.tokens.0 {
        input.push_str(WORD);
    }
    let body = match (arrival.poisoned, arrival.output) {
        (true, Tokens(0)) => json!({ "model": model, "input": [], "user": name }),
        (true, _) => json!({ "model": model, "messages": "none", "user": name }),
        (false, Tokens(0)) => json!({ "model": model, "input": input }),
        (false, Tokens(output)) => json!({
            "model": model,
            "messages": [{ "role": "user", "content": input }],
            "max_tokens": output,
        }),
    };
    Bytes::from(Value::to_string(&body))
}

/// One request and its whole answer, with the attempts that the gate made of it if it says so; `None`
/// when there was no answer.
pub(super) async fn exchange(
    http: &HttpClient,
    request: Request<Full<Bytes>>,
) -> Option<(AnswerSeen, Option<u64>)> {
    let response = http.request(request).await.ok()?;
    let (parts, body) = response.into_parts();
    // The body is read to its end, else the connection cannot be used again.
    let body = body.collect().await.ok()?.to_bytes();
    let code = if parts.status.is_success() { None } else { code(&body) };
    let seen = AnswerSeen { code, ..seen(parts.status, &parts.headers, Utc::now()) };
    Some((seen, parsed(&parts.headers, "x-weir-attempts")))
}

/// The metrics page of the gate.
pub(super) async fn page(http: &HttpClient, admin: &Uri) -> Option<String> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = endpoint(admin, "/metrics").ok()?;
    let read = async {
        let body = http.request(request).await.ok()?.into_body();
        let body = Limited::new(body, PAGE_LEN_MAX).collect().await.ok()?;
        String::from_utf8(body.to_bytes().to_vec()).ok()
    };
    timeout(PAGE_TIMEOUT, read).await.ok().flatten()
}

fn parsed<T: std::str::FromStr>(headers: &HeaderMap, name: &str) -> Option<T> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn seen(status: StatusCode, headers: &HeaderMap, now: DateTime<Utc>) -> AnswerSeen {
    let written = |name| {
        // What is no text is nothing that a client could read, but it is there.
        let text = |value: &HeaderValue| value.to_str().map_or(String::new(), str::to_owned);
        headers.get(name).map(|value| Written::parse(&text(value), now))
    };
    let reset_ms =
        |epoch_s: i64| epoch_s.saturating_mul(1_000).saturating_sub(now.timestamp_millis());
    AnswerSeen {
        status: status.as_u16(),
        should_retry: parsed(headers, "x-should-retry"),
        retry_after_ms: written("retry-after-ms"),
        retry_after: written("retry-after"),
        reset_in_ms: parsed(headers, "x-ratelimit-reset").map(reset_ms),
        code: None,
    }
}

/// The code of an error in the form of `OpenAI`, if a policy reads it.
fn code(body: &[u8]) -> Option<Code> {
    if body.len() > ERROR_LEN_MAX {
        return None;
    }
    let error: Value = serde_json::from_slice(body).ok()?;
    Code::read(error.pointer("/error/code")?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::gated::BODY_BYTES_PER_TOKEN;

    #[test]
    fn a_body_grows_by_as_many_bytes_per_token_as_on_the_virtual_clock() {
        assert_eq!(WORD.len() as u64, BODY_BYTES_PER_TOKEN);
        assert_eq!(WORD.split_whitespace().count(), 1, "a word is a token");
    }
}
