//! What a client sees of an answer: the status and the few words that retry policies read.
//!
//! A header is kept in the form in which it was written, since clients differ in what they can read of
//! the same text. Decides nothing.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::dialect::parse_http_date;
use crate::sim::provider::Reply;

/// What a client sees of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerSeen {
    /// HTTP status.
    pub status: u16,
    /// `x-should-retry`.
    pub should_retry: Option<bool>,
    /// `retry-after-ms`, in milliseconds.
    pub retry_after_ms: Option<Written>,
    /// `retry-after`, in seconds.
    pub retry_after: Option<Written>,
    /// Milliseconds until the instant that `x-ratelimit-reset` names, which is written in seconds since
    /// 1970.
    pub reset_in_ms: Option<i64>,
    /// The error's code, if a policy reads it.
    pub code: Option<Code>,
}

impl From<&Reply> for AnswerSeen {
    /// The provider's answer, passed on unchanged.
    fn from(reply: &Reply) -> Self {
        let malformed = reply.has_malformed_hint().then_some(Written::Garbage);
        Self {
            status: reply.status(),
            retry_after_ms: reply.retry_after_ms().map(Written::from),
            retry_after: reply.retry_after_s().map(Written::from).or(malformed),
            code: Code::read(reply.outcome.response_key().code),
            ..Self::default()
        }
    }
}

/// A number or a date in a header, by what it takes to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Digits, perhaps with a sign.
    Whole(i64),
    /// A decimal fraction or an exponent; its value in thousandths.
    Decimal(i64),
    /// A number with something after it (`3, 7`), of which JavaScript's `parseFloat` reads the number;
    /// its value in thousandths.
    Leading(i64),
    /// An HTTP date, this many milliseconds after the answer; before it if negative.
    Date(i64),
    /// None of these.
    Garbage,
}

impl From<u64> for Written {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl Written {
    /// Tells the form of a header's text. Dates are counted from `now`, as clients do it.
    #[must_use]
    pub fn parse(text: &str, now: DateTime<Utc>) -> Self {
        let text = text.trim();
        if let Some(whole) = whole(text) {
            return Self::Whole(whole);
        }
        if let Some(thousandths) = thousandths(text) {
            return Self::Decimal(thousandths);
        }
        if let Some(at) = parse_http_date(text) {
            return Self::Date((at - now).num_milliseconds());
        }
        let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+');
        let end = text.bytes().position(|byte| !is_number(byte)).unwrap_or(text.len());
        thousandths(&text[..end]).map_or(Self::Garbage, Self::Leading)
    }
}

/// A run of digits with a sign; what does not fit is as large as can be.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let most = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text.parse().unwrap_or(most))
}

#[expect(clippy::cast_possible_truncation, reason = "a cast from a float saturates")]
fn thousandths(text: &str) -> Option<i64> {
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some((number * 1_000.0) as i64)
}

/// The codes of errors that retry policies read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Code {
    /// The account has no money or quota left (`OpenAI`).
    #[serde(rename = "insufficient_quota")]
    InsufficientQuota,
    /// Too many requests or tokens (AWS; some services send it with status 400).
    #[serde(rename = "ThrottlingException")]
    Throttling,
    /// A quota of the account, not a rate (AWS).
    #[serde(rename = "ServiceQuotaExceededException")]
    ServiceQuotaExceeded,
}

impl Code {
    /// The code with this name; `None` for all that no policy reads.
    #[must_use]
    pub fn read(name: &str) -> Option<Self> {
        match name {
            "insufficient_quota" => Some(Self::InsufficientQuota),
            "ThrottlingException" => Some(Self::Throttling),
            "ServiceQuotaExceededException" => Some(Self::ServiceQuotaExceeded),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{Mono, Tokens};
    use crate::sim::config::ProviderConfig;
    use crate::sim::provider::{Call, CallKind, Provider};

    #[test]
    fn the_form_of_a_header_is_told() {
        let now = "2026-11-29T12:00:00Z".parse().expect("a date");
        for (text, expected) in [
            ("30", Written::Whole(30)),
            (" -1 ", Written::Whole(-1)),
            ("99999999999999999999", Written::Whole(i64::MAX)),
            ("-99999999999999999999", Written::Whole(i64::MIN)),
            ("0.5", Written::Decimal(500)),
            ("1e3", Written::Decimal(1_000_000)),
            ("3, 7", Written::Leading(3_000)),
            ("30s", Written::Leading(30_000)),
            ("Sun, 29 Nov 2026 12:00:05 GMT", Written::Date(5_000)),
            ("Sun, 29 Nov 2026 11:59:00 GMT", Written::Date(-60_000)),
            ("soon", Written::Garbage),
            ("", Written::Garbage),
            ("inf", Written::Garbage),
            ("-", Written::Garbage),
        ] {
            assert_eq!(Written::parse(text, now), expected, "{text:?}");
        }
    }

    #[test]
    fn a_providers_answer_is_seen_as_it_is() {
        let config: ProviderConfig = toml::from_str(
            "requests = { per_minute = 60, start = 0 }\ntokens = { per_minute = 600 }\n\
             steps = [{ at_s = 1, hint = 'malformed' }, { at_s = 2, hard_quota = true }]",
        )
        .expect("a provider");
        let mut provider = Provider::new(&config, 1, Mono::START);
        let mut seen = |at_s| {
            let call = Call::new(1, Tokens(1), CallKind::Embeddings);
            AnswerSeen::from(&provider.handle_request(&call, Mono::from_secs_f64(at_s)))
        };
        let refused = seen(0.0);
        assert_eq!(refused.retry_after, Some(Written::Whole(1)));
        assert_eq!(refused.retry_after_ms, Some(Written::Whole(1_000)));
        seen(1.0);
        assert_eq!(seen(1.0).retry_after, Some(Written::Garbage));
        let dead = seen(2.0);
        assert_eq!((dead.status, dead.code), (429, Some(Code::InsufficientQuota)));
        assert_eq!(dead.retry_after, None);
    }
}
