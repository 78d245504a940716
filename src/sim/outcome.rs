//! What a call to the simulated provider is, and what it gets.
//!
//! Words and numbers only: who gets which is decided in `provider`, how it looks on a wire in `dialect`.

use std::time::Duration;

use serde::Deserialize;

use crate::dialect::{Fault, Meter, MeterReading};
use crate::signal::Tokens;
use crate::sim::ledger::ResponseKey;

/// What a hint of [`HintForm::Absurd`] says, in seconds: an instant of 2030 in a field for a wait, as
/// servers send it that mix the two up.
const ABSURD_S: u64 = 1_893_456_000;
/// What [`HintForm::TooEarly`] divides the wait by.
const TOO_EARLY: u32 = 10;

/// What kind of call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// Anything else under `/v1/`.
    Other,
}

/// One call as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The original that it belongs to.
    pub identity: u128,
    /// What it will be charged.
    pub tokens: Tokens,
    /// Its kind.
    pub kind: CallKind,
    /// Inputs in it, at least 1: some providers count each as a request.
    pub items: u32,
}

impl Call {
    /// A sound call with one input.
    #[must_use]
    pub const fn new(identity: u128, tokens: Tokens, kind: CallKind) -> Self {
        Self { identity, tokens, kind, items: 1 }
    }
}

/// A call that is open at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result; the tokens were charged.
    Ok {
        /// What was charged.
        tokens: Tokens,
    },
    /// 429: a meter of the minute or of the day has too little left.
    RateLimited {
        /// The meter that lacks most.
        meter: Meter,
        /// Time until this very call fits.
        wait: Duration,
        /// The meter's limit per window.
        limit: u64,
        /// What is used of it.
        used: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// 429 `slow_down`: demand grew faster than the provider likes, inside every limit.
    SlowDown {
        /// Time until the next call may pass.
        wait: Duration,
    },
    /// 429 that waiting never cures: the call is larger than the meter.
    TooLarge {
        /// The meter's limit per minute.
        limit: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// 400 that waiting never cures: the call is larger than the model takes.
    TooLong {
        /// The most that one call may have.
        limit: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// 429 `insufficient_quota`.
    InsufficientQuota,
    /// 429: too many calls open at once.
    ConcurrencyCap {
        /// The cap.
        cap: u32,
    },
    /// 503: the provider has more to do than it can.
    Overloaded {
        /// When it wants to be asked again, if it says so.
        wait: Option<Duration>,
    },
    /// 500, or another status of a provider that failed.
    ServerError {
        /// The status.
        status: u16,
    },
    /// No answer while anyone waits.
    Timeout,
    /// 400 or 404: not a request that this provider understands.
    Rejected {
        /// The status.
        status: u16,
    },
}

impl Outcome {
    /// The HTTP status; 504 stands for a timeout.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Ok { .. } => 200,
            Self::RateLimited { .. }
            | Self::SlowDown { .. }
            | Self::TooLarge { .. }
            | Self::InsufficientQuota
            | Self::ConcurrencyCap { .. } => 429,
            Self::TooLong { .. } => 400,
            Self::Overloaded { .. } => 503,
            Self::ServerError { status } | Self::Rejected { status } => status,
            Self::Timeout => 504,
        }
    }

    /// Status, code and type, as the error body has them.
    #[must_use]
    pub const fn response_key(self) -> ResponseKey {
        let (code, kind) = match self {
            Self::Ok { .. } => ("none", "none"),
            Self::RateLimited { meter: Meter::Requests | Meter::RequestsPerDay, .. } => {
                ("rate_limit_exceeded", "requests")
            }
            Self::RateLimited { .. } | Self::TooLarge { .. } => ("rate_limit_exceeded", "tokens"),
            Self::SlowDown { .. } => ("slow_down", "slow_down"),
            Self::TooLong { .. } => ("context_length_exceeded", "invalid_request_error"),
            Self::InsufficientQuota => ("insufficient_quota", "insufficient_quota"),
            Self::ConcurrencyCap { .. } => ("concurrency_limit_exceeded", "concurrency"),
            Self::Overloaded { .. } => ("server_is_overloaded", "server_error"),
            Self::ServerError { .. } | Self::Timeout => ("none", "server_error"),
            Self::Rejected { .. } => ("none", "invalid_request_error"),
        };
        ResponseKey { status: self.status(), code, kind }
    }

    /// A quota, a cap or a ramp refused it: what a [`Disguise`] hides.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::RateLimited { .. }
                | Self::SlowDown { .. }
                | Self::TooLarge { .. }
                | Self::InsufficientQuota
                | Self::ConcurrencyCap { .. }
        )
    }

    /// How long the provider would have it wait, if it knows.
    #[must_use]
    pub const fn wait(self) -> Option<Duration> {
        match self {
            Self::RateLimited { wait, .. } | Self::SlowDown { wait } => Some(wait),
            Self::Overloaded { wait } => wait,
            _ => None,
        }
    }
}

/// In which form a refusal says how long to wait. For other forms than [`Self::Exact`] the error's own
/// words say nothing of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HintForm {
    /// The time until this very call fits.
    #[default]
    Exact,
    /// Nothing is said.
    None,
    /// A header that is no number and no date.
    Malformed,
    /// An instant where a wait belongs.
    Absurd,
    /// A tenth of the time.
    TooEarly,
}

/// Inside which status refusals are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Disguise {
    /// Their own.
    #[default]
    #[serde(rename = "none")]
    None,
    /// 200, with an error for a body.
    #[serde(rename = "200")]
    Success,
    /// 403
    #[serde(rename = "403")]
    Forbidden,
    /// 500
    #[serde(rename = "500")]
    Failure,
}

/// The answer to one call.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// To be named in [`Provider::finish`](crate::sim::provider::Provider::finish).
    pub call: CallId,
    /// How long the answer takes.
    pub latency: Duration,
    /// What it is.
    pub outcome: Outcome,
    /// The meters right after it, for its headers: requests, then tokens.
    pub meters: [MeterReading; 2],
    /// How it says how long to wait.
    pub hint_form: HintForm,
    /// Inside which status it comes.
    pub disguise: Disguise,
}

impl Reply {
    /// The HTTP status as its caller sees it.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self.disguise {
            _ if !self.outcome.is_refusal() => self.outcome.status(),
            Disguise::None => self.outcome.status(),
            Disguise::Success => 200,
            Disguise::Forbidden => 403,
            Disguise::Failure => 500,
        }
    }

    /// Whether the refusal comes inside another status. Such an answer has neither meters nor a hint.
    #[must_use]
    pub const fn is_disguised(&self) -> bool {
        self.status() != self.outcome.status()
    }

    /// The wait that it asks for and that can be read.
    #[must_use]
    pub fn hint(&self) -> Option<Duration> {
        if self.is_disguised() {
            return None;
        }
        let wait = self.outcome.wait()?;
        match self.hint_form {
            HintForm::Exact => Some(wait),
            HintForm::TooEarly => Some(wait / TOO_EARLY),
            HintForm::Absurd => Some(Duration::from_secs(ABSURD_S)),
            HintForm::None | HintForm::Malformed => None,
        }
    }

    /// `retry-after-ms`: the hint, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.hint().map(|wait| {
            let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
            u64::try_from(ms).unwrap_or(u64::MAX)
        })
    }

    /// `retry-after`: the same in whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_ms().map(|ms| ms.div_ceil(1_000))
    }

    /// Whether it has a hint that nobody can read.
    #[must_use]
    pub const fn has_malformed_hint(&self) -> bool {
        matches!(self.hint_form, HintForm::Malformed)
            && self.outcome.wait().is_some()
            && !self.is_disguised()
    }

    /// An answer that is no success, as the fault that a dialect words; `complaint` is what is wrong
    /// with a request that is not understood.
    #[must_use]
    pub fn fault<'a>(&self, complaint: Option<&'a str>) -> Fault<'a> {
        let said = |wait: Duration| {
            let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
            let wait = Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX));
            (self.hint_form == HintForm::Exact && !self.is_disguised()).then_some(wait)
        };
        match self.outcome {
            Outcome::RateLimited { meter, wait, limit, used, requested } => {
                Fault::RateLimited { meter, limit, used, requested, wait: said(wait) }
            }
            Outcome::SlowDown { .. } => Fault::SlowDown,
            Outcome::TooLarge { limit, requested } => Fault::TooLarge { limit, requested },
            Outcome::TooLong { limit, requested } => Fault::TooLong { limit, requested },
            Outcome::InsufficientQuota => Fault::AccountExhausted,
            Outcome::ConcurrencyCap { cap } => Fault::TooManyOpen { cap },
            Outcome::Overloaded { .. } => Fault::Overloaded,
            Outcome::ServerError { .. } => Fault::Failed,
            Outcome::Timeout => Fault::TimedOut,
            Outcome::Rejected { .. } | Outcome::Ok { .. } => {
                let complaint = complaint.unwrap_or("Invalid request.");
                Fault::Rejected { status: self.outcome.status(), complaint }
            }
        }
    }
}
