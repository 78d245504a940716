//! Answers of the data plane: the provider's as far as they must be read before the gate speaks, and
//! those that the gateway writes itself. Decides nothing.

use std::borrow::Cow;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chrono::Utc;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full};
use serde_json::{Value, json};

use super::ProxyBody;
use crate::admission::{Head, Refusal};
use crate::dialect::{self, Provider};
use crate::gateway::config::UpstreamKind;
use crate::gateway::upstream::{Answer as UpstreamBody, UpstreamError};

/// Bytes of an error body that are read before it is classified.
const ERROR_BODY_MAX: usize = 1024 * 1024;
/// How much of the start of a good answer is looked through for an error.
const ERROR_LOOK_MAX: usize = 1024;

/// An answer that waits for the gate's word.
pub(super) enum Held {
    /// The bytes that were read, and the body that the rest comes from.
    Stream(http::response::Parts, Bytes, Box<UpstreamBody>),
    Whole(http::response::Parts, Bytes),
    Fault(Fault),
}

/// What the caller is told when there is no answer of the provider.
pub(super) struct Fault {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) why: Cow<'static, str>,
}

impl Fault {
    /// The gate wants to answer and nothing was tried.
    pub(super) const UNKNOWN: Self = Self {
        status: StatusCode::BAD_GATEWAY,
        code: "weir_upstream_unreachable",
        why: Cow::Borrowed("the provider did not answer"),
    };

    pub(super) fn of(error: &UpstreamError) -> Self {
        let why = error.to_string().into();
        Self { status: StatusCode::BAD_GATEWAY, code: error.code(), why }
    }

    pub(super) const fn late(why: String) -> Self {
        let (status, code) = (StatusCode::GATEWAY_TIMEOUT, "weir_upstream_timeout");
        Self { status, code, why: Cow::Owned(why) }
    }
}

/// Reads the body of an error as far as a classification looks at it; the rest stays a stream.
pub(super) async fn read_error(mut head: http::response::Parts, mut body: UpstreamBody) -> Held {
    let mut read = BytesMut::new();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => read.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            None => return Held::Whole(head, read.freeze()),
            Some(Err(error)) => {
                tracing::debug!(%error, "an error of the provider broke off");
                head.headers.remove(CONTENT_LENGTH);
                return Held::Whole(head, read.freeze());
            }
        }
        if read.len() >= ERROR_BODY_MAX {
            return Held::Stream(head, read.freeze(), Box::new(body));
        }
    }
}

/// A good answer up to its first part, in which some providers say that it is an error.
pub(super) async fn first_part(
    head: http::response::Parts,
    mut body: UpstreamBody,
) -> Result<Held, UpstreamError> {
    let read = match body.frame().await {
        Some(frame) => frame?.into_data().unwrap_or_default(),
        None => Bytes::new(),
    };
    Ok(Held::Stream(head, read, Box::new(body)))
}

/// Whether the first part of a good answer speaks of an error: a cheap look, before anything is parsed.
pub(super) fn may_hold_error(read: &[u8]) -> bool {
    let start = &read[..read.len().min(ERROR_LOOK_MAX)];
    [&b"\"error\""[..], b"event: error", b"event:error"]
        .iter()
        .any(|word| memchr::memmem::find(start, word).is_some())
}

pub(super) fn classified(answer: &dialect::Answer<'_>, provider: Provider) -> Head {
    let seen = dialect::classify(answer, provider, Some(Utc::now()));
    Head {
        status: answer.status,
        class: seen.class,
        hint: seen.hint,
        code: seen.code,
        meter: seen.meter,
        forbids_retry: seen.should_retry == Some(false),
        meters: seen.meters,
    }
}

/// Says what it took to get the answer.
pub(super) fn annotate(
    headers: &mut HeaderMap,
    number: u64,
    forbid_retry: bool,
    attempts: u32,
    queued: Duration,
) {
    let waited = u64::try_from(queued.as_millis()).unwrap_or(u64::MAX);
    headers.insert("x-weir-attempts", HeaderValue::from(attempts));
    headers.insert("x-weir-queue-ms", HeaderValue::from(waited));
    headers.insert("x-weir-request-id", HeaderValue::from(number));
    if forbid_retry {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
}

/// What belongs to the provider's connection and not to the caller's (RFC 9110, section 7.6.1). `trailer`
/// stays: it says what comes after the body.
const NOT_PASSED_ON: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];

pub(super) fn passed_on(mut head: http::response::Parts) -> http::response::Parts {
    let headers = &mut head.headers;
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> =
            headers.keys().filter(|name| is_listed(headers, name)).cloned().collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
    // The provider's protocol is not the caller's.
    head.version = http::Version::default();
    head
}

/// Whether `Connection` names this header as one of the connection's own.
pub(super) fn is_listed(headers: &HeaderMap, name: &HeaderName) -> bool {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut listed = listed.flat_map(|list| list.split(','));
    listed.any(|one| one.trim().eq_ignore_ascii_case(name.as_str()))
}

/// The shape of the errors that a caller's client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `{"error": {"message", "type", "param", "code"}}`.
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`, with the code beside them.
    Anthropic,
}

impl Shape {
    /// That of the API that a path belongs to.
    pub(super) fn of(kind: UpstreamKind, path: &str) -> Self {
        let is_anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
        if kind == UpstreamKind::Llm && is_anthropic { Self::Anthropic } else { Self::OpenAi }
    }

    pub(super) fn body(self, status: StatusCode, code: &str, message: &str) -> Value {
        let status = status.as_u16();
        match self {
            Self::OpenAi => {
                let kind = match status {
                    429 => "rate_limit_error",
                    400..=499 => "invalid_request_error",
                    _ => "server_error",
                };
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            Self::Anthropic => {
                let kind = match status {
                    404 => "not_found_error",
                    413 => "request_too_large",
                    429 => "rate_limit_error",
                    400..=499 => "invalid_request_error",
                    503 | 529 => "overloaded_error",
                    504 => "timeout_error",
                    _ => "api_error",
                };
                json!({
                    "type": "error",
                    "error": {"type": kind, "message": message, "code": code},
                })
            }
        }
    }
}

pub(super) fn refuse(
    shape: Shape,
    scope: &str,
    refusal: &Refusal,
    attempts: u32,
) -> Response<ProxyBody> {
    let reason = refusal.reason;
    let status = StatusCode::from_u16(reason.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let message = format!("weir, scope {scope}: {}", reason.advice());
    let mut response = error(shape, status, reason.code(), &message);
    let headers = response.headers_mut();
    headers.insert("x-weir-attempts", HeaderValue::from(attempts));
    if let Ok(decision) = HeaderValue::from_str(&format!("refused; reason={}", reason.word())) {
        headers.insert("x-weir-decision", decision);
    }
    if refusal.forbid_retry {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    if let Some(seconds) = refusal.retry_after_header() {
        headers.insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// An error in the shape of the API that the caller speaks.
pub(super) fn error(
    shape: Shape,
    status: StatusCode,
    code: &str,
    message: &str,
) -> Response<ProxyBody> {
    let body = shape.body(status, code, message);
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body.to_string()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
