//! What goes into the gate and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use super::identity::Identity;
use super::queue::Lane;
use super::refusal::Refusal;
use super::shared::{Claim, Demand, Report};
use crate::dialect::{Class, Meter, MeterReading};
use crate::signal::Mono;

/// One request at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

impl RequestId {
    #[cfg(test)]
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number in this instance.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// One attempt of a request at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The request that it is made for.
    pub request: RequestId,
    /// 1 for the request's first.
    pub number: u32,
}

/// Which scope, by its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub usize);

/// A request that arrives.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The scope whose quota it uses.
    pub scope: ScopeId,
    /// What makes it the same as another.
    pub identity: Identity,
    /// Its lane.
    pub lane: Lane,
    /// Batch work that gives way to other batch work: a corpus that is embedded anew.
    pub backfill: bool,
    /// Who asks.
    pub tenant: Arc<str>,
    /// The tenant's share against others': 1 unless configured.
    pub weight: f64,
    /// First guess of its tokens, see `guess_tokens`.
    pub guess: Demand,
    /// To run it twice does no harm: it only reads, or carries an idempotency key.
    pub repeatable: bool,
    /// What cannot be answered in time may be done later and asked for.
    pub deferrable: bool,
    /// When its caller stops waiting, end to end.
    pub deadline: Option<Mono>,
    /// How often the caller says it has retried.
    pub retry_mark: u32,
}

/// The head of a provider's answer, as `dialect` reads it.
#[derive(Clone, Debug)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// What it means.
    pub class: Class,
    /// How long the provider asks to wait.
    pub hint: Option<Duration>,
    /// The provider's code, for the label.
    pub code: Option<String>,
    /// The meter that refused, if it names one.
    pub meter: Option<Meter>,
    /// It says itself that a retry is of no use (`x-should-retry: false`).
    pub forbids_retry: bool,
    /// Every meter that it tells.
    pub meters: Vec<MeterReading>,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send the request to the provider. Report `handle_sent` once its head is written.
    Send {
        /// Which attempt this is.
        attempt: AttemptId,
    },
    /// Pass the answer that was last reported on to the caller.
    Deliver {
        /// Whose.
        request: RequestId,
        /// The client must not retry: say `x-should-retry: false`.
        forbid_retry: bool,
        /// Attempts made for this request.
        attempts: u32,
        /// Time it waited in the queue.
        queued: Duration,
    },
    /// Ask the keeper of the scope's shared state whether the attempt may start; report the answer
    /// with `handle_verdict`.
    Claim {
        /// Which attempt.
        attempt: AttemptId,
        /// Of which scope.
        scope: ScopeId,
        /// What is asked.
        claim: Box<Claim>,
    },
    /// Tell the keeper how an attempt ended; its answer goes to `handle_mirror`.
    Report {
        /// Of which scope.
        scope: ScopeId,
        /// How it ended.
        report: Box<Report>,
    },
    /// Store the request and do it later: its caller allows that, and it cannot be answered in time.
    Defer {
        /// Which.
        request: RequestId,
        /// Not before this much time has passed.
        not_before: Duration,
    },
    /// Refuse it.
    Refuse {
        /// Whom.
        request: RequestId,
        /// In which words.
        refusal: Refusal,
    },
}
