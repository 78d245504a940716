//! OpenAI's dialect, and that of the many servers that copy it: status, `error.code`, `error.type` and
//! prose, in this order of trust.
//!
//! Status alone never decides a 429: an exhausted account, a full meter and a request that can never
//! fit all share it.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

use crate::dialect::class::{Answer, Class, Classified, Meter};
use crate::dialect::hint::read_hint;
use crate::dialect::limits::read_ratelimit_headers;
use crate::dialect::provider::Provider;

/// How much of a body is looked at.
const BODY_LEN_MAX: usize = 64 * 1024;
/// How much of a code or type is kept; real ones have about 30 characters.
const CODE_LEN_MAX: usize = 64;

/// Codes that say that money, not time, is needed.
const QUOTA_CODES: [&str; 6] = [
    "insufficient_quota",
    "credit_balance_exhausted",
    "organization_spend_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "billing_hard_limit_reached",
];

/// The error of a body, as far as it could be read.
#[derive(Debug, Default)]
struct ErrorBody {
    message: String,
    code: Option<String>,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Envelope {
    error: Value,
}

/// Says what an answer of `provider` means. `now` is used only for dates in an answer without a `Date`
/// of its own.
#[must_use]
pub fn classify(
    answer: &Answer<'_>,
    _provider: Provider,
    now: Option<DateTime<Utc>>,
) -> Classified {
    let body = &answer.body[..answer.body.len().min(BODY_LEN_MAX)];
    let error = if answer.status < 400 { ErrorBody::default() } else { read_error(body) };
    let meters = read_ratelimit_headers(answer.headers, now);
    let hint = read_hint(answer.headers, &error.message, now);
    let (class, meter, why) = judge(answer.status, &error);
    let meter = meter.or_else(|| {
        let is_empty = |remaining: Option<f64>| remaining.is_some_and(|left| left <= 0.0);
        let binding = meters.iter().find(|reading| is_empty(reading.remaining));
        binding.filter(|_| class == Class::TransientRateLimit).map(|reading| reading.meter)
    });
    let should_retry = answer.headers.get("x-should-retry").and_then(|value| {
        value.to_str().ok().and_then(|text| text.trim().to_ascii_lowercase().parse().ok())
    });
    Classified {
        class,
        hint: hint.map(|(span, _)| span),
        hint_source: hint.map(|(_, source)| source),
        code: error.code,
        kind: error.kind,
        meter,
        meters,
        should_retry,
        why: format!("{} {why}", answer.status),
    }
}

/// Class, meter and the rule that decided.
fn judge(status: u16, error: &ErrorBody) -> (Class, Option<Meter>, &'static str) {
    let is_quota =
        |word: &Option<String>| word.as_deref().is_some_and(|word| QUOTA_CODES.contains(&word));
    if (200..300).contains(&status) {
        return (Class::Success, None, "is a success");
    }
    if status == 402 || is_quota(&error.code) || is_quota(&error.kind) {
        return (Class::PermanentQuota, Some(Meter::Spend), "says that the account is exhausted");
    }
    match status {
        401 | 403 => (Class::AuthOrPermission, None, "refuses the key"),
        429 if asks_more_than_the_limit(&error.message) => {
            (Class::BadRequest, named_meter(error), "asks for more than the whole limit")
        }
        429 => (Class::TransientRateLimit, named_meter(error), "is a limit that refills"),
        408 => (Class::TemporaryOverload, None, "is the provider's own timeout"),
        499 => (Class::Cancelled, None, "says that the caller went away"),
        400..500 => (Class::BadRequest, None, "refuses the request itself"),
        // Also what is no valid status at all: the provider, or a box in front of it, is not well.
        _ => (Class::TemporaryOverload, None, "is the provider's fault"),
    }
}

fn read_error(body: &[u8]) -> ErrorBody {
    let Ok(Envelope { error }) = serde_json::from_slice(body) else {
        return ErrorBody::default();
    };
    let word = |key: &str| match &error[key] {
        Value::String(text) if !text.is_empty() => Some(text.chars().take(CODE_LEN_MAX).collect()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let message = error["message"].as_str().or_else(|| error.as_str()).unwrap_or_default();
    ErrorBody { message: message.to_owned(), code: word("code"), kind: word("type") }
}

/// The meter that a refusal names: by type, by code, else by its prose.
fn named_meter(error: &ErrorBody) -> Option<Meter> {
    let says = |words: &str| error.message.contains(words);
    let per_day = says("per day") || says("(RPD)") || says("(TPD)");
    let in_code = |words: &str| error.code.as_deref().is_some_and(|code| code.contains(words));
    let tokens = if per_day { Meter::TokensPerDay } else { Meter::Tokens };
    let requests = if per_day { Meter::RequestsPerDay } else { Meter::Requests };
    match error.kind.as_deref() {
        Some("tokens") => Some(tokens),
        Some("requests") => Some(requests),
        _ if in_code("concurren") || says("max organization concurrency") => {
            Some(Meter::Concurrency)
        }
        _ if says("tokens per") || says("(TPM)") || says("(TPD)") => Some(tokens),
        _ if says("requests per") || says("(RPM)") || says("(RPD)") => Some(requests),
        _ => None,
    }
}

/// "Request too large ... Limit 30000, Requested 30601": no wait will make it fit.
fn asks_more_than_the_limit(message: &str) -> bool {
    match (number_after(message, "Limit"), number_after(message, "Requested")) {
        (Some(limit), Some(requested)) => requested > limit,
        _ => false,
    }
}

fn number_after(text: &str, word: &str) -> Option<u64> {
    let after = text.split_once(word)?.1.trim_start_matches([':', ' ']);
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use proptest::prelude::*;

    fn error(kind: &str, code: &str, message: &str) -> String {
        serde_json::json!({ "error": { "message": message, "type": kind, "code": code } })
            .to_string()
    }

    fn check(status: u16, body: &str, class: Class, meter: Option<Meter>) {
        let headers = HeaderMap::new();
        let answer = Answer { status, headers: &headers, body: body.as_bytes() };
        let classified = classify(&answer, Provider::GENERIC, None);
        assert_eq!((classified.class, classified.meter), (class, meter), "{status} {body}");
    }

    #[test]
    fn the_same_status_has_three_meanings() {
        let rate = "rate_limit_exceeded";
        let tpm = error("tokens", rate, "Limit 30000, Used 29937, Requested 385. Please try again");
        check(429, &tpm, Class::TransientRateLimit, Some(Meter::Tokens));
        let rpm = error("requests", rate, "Rate limit reached on requests per min (RPM)");
        check(429, &rpm, Class::TransientRateLimit, Some(Meter::Requests));
        let rpd =
            error("requests", rate, "on requests per day (RPD): Limit 200, Used 200, Requested 1");
        check(429, &rpd, Class::TransientRateLimit, Some(Meter::RequestsPerDay));
        let quota =
            error("insufficient_quota", "insufficient_quota", "You exceeded your current quota");
        check(429, &quota, Class::PermanentQuota, Some(Meter::Spend));
        let newer = error("insufficient_quota", "credit_balance_exhausted", "");
        check(429, &newer, Class::PermanentQuota, Some(Meter::Spend));
        let large =
            error("tokens", rate, "Request too large for gpt-4o: Limit 30000, Requested 30601.");
        check(429, &large, Class::BadRequest, Some(Meter::Tokens));
        let cap = error("concurrency", "concurrency_limit_exceeded", "");
        check(429, &cap, Class::TransientRateLimit, Some(Meter::Concurrency));
        check(429, "Too Many Requests", Class::TransientRateLimit, None);
        check(429, "", Class::TransientRateLimit, None);
    }

    #[test]
    fn other_statuses() {
        let billing = error("invalid_request_error", "billing_hard_limit_reached", "");
        check(400, &billing, Class::PermanentQuota, Some(Meter::Spend));
        check(402, "", Class::PermanentQuota, Some(Meter::Spend));
        for status in [400, 404, 413, 422] {
            check(status, "{}", Class::BadRequest, None);
        }
        for status in [401, 403] {
            check(status, "<html>", Class::AuthOrPermission, None);
        }
        for status in [408, 500, 502, 503, 504, 529, 0] {
            check(status, "", Class::TemporaryOverload, None);
        }
        check(200, "not even read", Class::Success, None);
        check(499, "", Class::Cancelled, None);
    }

    #[test]
    fn an_empty_meter_is_named_when_the_body_names_none() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-limit-tokens", http::HeaderValue::from_static("100"));
        headers.insert("x-ratelimit-remaining-tokens", http::HeaderValue::from_static("0"));
        headers.insert("x-should-retry", http::HeaderValue::from_static("false"));
        let classified = classify(
            &Answer { status: 429, headers: &headers, body: b"" },
            Provider::GENERIC,
            None,
        );
        assert_eq!(classified.meter, Some(Meter::Tokens));
        assert_eq!(classified.should_retry, Some(false));
    }

    #[test]
    fn only_the_first_part_of_a_body_is_read() {
        let quota = |padding: usize| {
            let padding = " ".repeat(padding);
            error("insufficient_quota", "insufficient_quota", "").replacen(
                '{',
                &format!("{{{padding}"),
                1,
            )
        };
        let fits = BODY_LEN_MAX - quota(0).len();
        check(429, &quota(fits), Class::PermanentQuota, Some(Meter::Spend));
        check(429, &quota(fits + 1), Class::TransientRateLimit, None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(status: u16, body: Vec<u8>, hint: Vec<u8>) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(&hint) {
                headers.insert("retry-after", value.clone());
                headers.insert("x-ratelimit-limit-requests", value);
            }
            let classified = classify(&Answer { status, headers: &headers, body: &body }, Provider::GENERIC, None);
            prop_assert_eq!(classified.class == Class::Success, (200..300).contains(&status));
        }

        #[test]
        fn no_message_panics(message in "\\PC{0,200}") {
            let body = error("tokens", "rate_limit_exceeded", &format!("Limit {message} Requested {message}"));
            let headers = HeaderMap::new();
            let answer = Answer { status: 429, headers: &headers, body: body.as_bytes() };
            let _ = classify(&answer, Provider::GENERIC, None);
        }
    }
}
