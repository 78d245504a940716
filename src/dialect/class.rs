//! The words for what an answer means: its class, the meter it names, and the readings it carries.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;

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

/// One counter of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Meter {
    /// Requests per minute.
    Requests,
    /// Tokens per minute, of whatever kind.
    Tokens,
    /// Tokens of requests per minute.
    InputTokens,
    /// Tokens of answers per minute.
    OutputTokens,
    /// Requests per day.
    RequestsPerDay,
    /// Tokens per day.
    TokensPerDay,
    /// Calls open at the same time.
    Concurrency,
    /// Money.
    Spend,
}

impl Meter {
    /// The word used in JSON and metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::RequestsPerDay => "requests_per_day",
            Self::TokensPerDay => "tokens_per_day",
            Self::Concurrency => "concurrency",
            Self::Spend => "spend",
        }
    }
}

/// One meter as the provider shows it. A missing number is unknown, never zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterReading {
    /// Which meter.
    pub meter: Meter,
    /// Its limit per window.
    pub limit: Option<f64>,
    /// What is left of it.
    pub remaining: Option<f64>,
    /// Time until the meter is full again.
    pub reset: Option<Duration>,
}

impl MeterReading {
    /// A meter of which nothing is known yet.
    #[must_use]
    pub const fn unknown(meter: Meter) -> Self {
        Self { meter, limit: None, remaining: None, reset: None }
    }
}

/// Which part of the answer the hint was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintSource {
    /// `retry-after-ms`
    RetryAfterMs,
    /// `retry-after` as a number.
    RetryAfter,
    /// `retry-after` as an HTTP date.
    RetryAfterDate,
    /// The error's message.
    Message,
}

impl HintSource {
    /// The word used in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::RetryAfterMs => "retry-after-ms",
            Self::RetryAfter => "retry-after",
            Self::RetryAfterDate => "retry-after-date",
            Self::Message => "body.message",
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
    /// The provider's own `error.code`.
    pub code: Option<String>,
    /// The provider's own `error.type`.
    pub kind: Option<String>,
    /// The meter that refused, if the answer names one.
    pub meter: Option<Meter>,
    /// Every meter that the headers show.
    pub meters: Vec<MeterReading>,
    /// `x-should-retry`, if sent.
    pub should_retry: Option<bool>,
    /// The rule that decided, for a person.
    pub why: String,
}
