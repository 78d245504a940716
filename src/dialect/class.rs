//! The words for what an answer means: its class, its hint, and what a request without an answer means.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

use crate::dialect::meter::{Meter, MeterReading};

/// What an answer means for the request that got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A usable result.
    Success,
    /// A quota that refills by itself refused it. The provider is healthy, we are early.
    TransientRateLimit,
    /// The provider is overloaded or failed. It says nothing about our quota.
    TemporaryOverload,
    /// Money or a calendar quota is used up; waiting minutes does not help.
    PermanentQuota,
    /// The key is wrong or may not do this.
    AuthOrPermission,
    /// The request can never succeed as it is.
    BadRequest,
    /// The caller went away.
    Cancelled,
    /// The caller's own deadline passed.
    DeadlineExpired,
}

impl Class {
    /// Every class, in the order of the metrics.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::TransientRateLimit,
        Self::TemporaryOverload,
        Self::PermanentQuota,
        Self::AuthOrPermission,
        Self::BadRequest,
        Self::Cancelled,
        Self::DeadlineExpired,
    ];

    /// The word used in JSON and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::TransientRateLimit => "TRANSIENT_RATE_LIMIT",
            Self::TemporaryOverload => "TEMPORARY_OVERLOAD",
            Self::PermanentQuota => "PERMANENT_QUOTA",
            Self::AuthOrPermission => "AUTH_OR_PERMISSION",
            Self::BadRequest => "BAD_REQUEST",
            Self::Cancelled => "CANCELLED",
            Self::DeadlineExpired => "DEADLINE_EXPIRED",
        }
    }

    /// Whether a later try of the same request can succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::TransientRateLimit | Self::TemporaryOverload)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which part of the answer the hint was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintSource {
    /// `retry-after-ms`
    RetryAfterMs,
    /// `x-ms-retry-after-ms`, of Azure.
    XMsRetryAfterMs,
    /// `x-amz-retry-after`, milliseconds, of AWS.
    XAmzRetryAfter,
    /// `retry-after` as a number.
    RetryAfter,
    /// `retry-after` as an HTTP date.
    RetryAfterDate,
    /// `RetryInfo.retryDelay` in the error's details.
    RetryDelay,
    /// `quotaResetDelay` in the error's details.
    QuotaResetDelay,
    /// The error's message.
    Message,
    /// `estimated_time` until a model is loaded.
    EstimatedTime,
}

impl HintSource {
    /// The word used in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::RetryAfterMs => "retry-after-ms",
            Self::XMsRetryAfterMs => "x-ms-retry-after-ms",
            Self::XAmzRetryAfter => "x-amz-retry-after",
            Self::RetryAfter => "retry-after",
            Self::RetryAfterDate => "retry-after-date",
            Self::RetryDelay => "body.retryDelay",
            Self::QuotaResetDelay => "body.quotaResetDelay",
            Self::Message => "body.message",
            Self::EstimatedTime => "body.estimated_time",
        }
    }
}

/// An HTTP answer of a provider, borrowed for classification.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, or its first part; only the first 64 kB are looked at.
    pub body: &'a [u8],
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq)]
pub struct Classified {
    /// Its class.
    pub class: Class,
    /// How long the provider asks us to wait, literally, whatever the class.
    pub hint: Option<Duration>,
    /// Where the hint was read.
    pub hint_source: Option<HintSource>,
    /// Whether the hint is longer than anybody means; it must be capped before it is obeyed.
    pub absurd: bool,
    /// The provider's own `error.code`.
    pub code: Option<String>,
    /// The provider's own `error.type`.
    pub kind: Option<String>,
    /// The meter that refused, if the answer names one.
    pub meter: Option<Meter>,
    /// Every meter that the headers show, each once.
    pub meters: Vec<MeterReading>,
    /// What negative counts of `remaining` were, by meter: overdrawn, or a placeholder.
    pub negative: Vec<(Meter, f64)>,
    /// `x-should-retry`, if sent.
    pub should_retry: Option<bool>,
    /// The rule that decided and the words it went by, for a person.
    pub why: String,
}

/// What a request without an answer means, by the word for how it ended: `deadline_elapsed` and
/// `client_cancelled` are the caller's, a bad certificate is a fault of the configuration, and all
/// else is the provider's or the network's.
#[must_use]
pub fn class_without_answer(word: &str) -> Class {
    const CLASSES: [(&str, Class); 10] = [
        ("deadline", Class::DeadlineExpired),
        ("cancel", Class::Cancelled),
        ("client", Class::Cancelled),
        ("caller", Class::Cancelled),
        // A connection is aborted by its other end (ECONNABORTED), a request by its caller.
        ("connection_abort", Class::TemporaryOverload),
        ("econnabort", Class::TemporaryOverload),
        ("abort", Class::Cancelled),
        ("tls", Class::BadRequest),
        ("cert", Class::BadRequest),
        ("invalid_url", Class::BadRequest),
    ];
    let word = word.to_ascii_lowercase().replace([' ', '-'], "_");
    let found = CLASSES.iter().find(|(part, _)| word.contains(part));
    found.map_or(Class::TemporaryOverload, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_a_request_that_has_no_answer() {
        for (word, class) in [
            ("deadline_elapsed", Class::DeadlineExpired),
            ("client_cancelled", Class::Cancelled),
            ("caller_aborted", Class::Cancelled),
            ("AbortError", Class::Cancelled),
            ("connection_aborted", Class::TemporaryOverload),
            ("connection aborted", Class::TemporaryOverload),
            ("ECONNABORTED", Class::TemporaryOverload),
            ("tls_error", Class::BadRequest),
            ("connection_reset", Class::TemporaryOverload),
            ("read_timeout", Class::TemporaryOverload),
            ("", Class::TemporaryOverload),
        ] {
            assert_eq!(class_without_answer(word), class, "{word}");
        }
    }
}
