//! What the gate is told of a request: which original it is, whether it may be repeated, how often it was.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;

use super::caller;
use crate::admission::Identity;

/// What is read of a request's body. Values of any type: a wrong one is the provider's to refuse and
/// must not hide the others.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Peek {
    pub(super) model: Value,
    max_tokens: Value,
    max_completion_tokens: Value,
    max_output_tokens: Value,
}

impl Peek {
    pub(super) fn output_tokens(&self) -> u64 {
        [&self.max_completion_tokens, &self.max_output_tokens, &self.max_tokens]
            .into_iter()
            .find_map(Value::as_u64)
            .unwrap_or(0)
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Paths whose calls only read: the same question gives an answer and leaves nothing behind.
const READS: [&str; 6] = [
    "/v1/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/moderations",
    "/v1/rerank",
    "/v1/messages",
];

/// Whether it does no harm that the provider runs a request twice.
pub(super) fn repeatable(parts: &http::request::Parts) -> bool {
    parts.method.is_safe()
        || READS.contains(&parts.uri.path())
        || parts.headers.contains_key("idempotency-key")
}

/// How often the caller says it has retried: Stainless SDKs count from 0, AWS SDKs from 1.
pub(super) fn retry_mark(headers: &HeaderMap) -> u32 {
    if let Some(count) = text(headers, "x-stainless-retry-count") {
        return count.trim().parse().unwrap_or(0);
    }
    text(headers, "amz-sdk-request")
        .and_then(|fields| {
            fields.split(';').find_map(|field| field.trim().strip_prefix("attempt="))
        })
        .and_then(|attempt| attempt.parse::<u32>().ok())
        .map_or(0, |attempt| attempt.saturating_sub(1))
}

/// The same idempotency key of the same caller is the same original; without one, the same caller,
/// path and body.
pub(super) fn identity(parts: &http::request::Parts, body: &Bytes) -> Identity {
    let mut hasher = blake3::Hasher::new();
    let caller = caller::key(&parts.headers).map_or(&b""[..], HeaderValue::as_bytes);
    hasher.update(caller);
    hasher.update(&[0]);
    if let Some(key) = parts.headers.get("idempotency-key") {
        hasher.update(b"key");
        hasher.update(key.as_bytes());
    } else {
        hasher.update(parts.method.as_str().as_bytes());
        hasher.update(parts.uri.path().as_bytes());
        hasher.update(&[0]);
        hasher.update(body);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    Identity::from_be_bytes(first)
}
