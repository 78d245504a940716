//! Decides what follows a failed attempt: another one inline, the deferred lane, or its answer.
//!
//! Pure: it reads no clock and spends nothing. Whoever makes the retry spends it from the budget, and
//! gives its permit back before it waits.
//!
//! *Never* and *not now* are told apart. A retry that would be wrong at any time (somebody else owns
//! retries, the answer will not change, or it might be done twice) is final. One that is only too late, too
//! long or too much for now is deferred where the caller allows it, and final where not.

use std::time::Duration;

use super::backoff::{CAP, WAITS_MAX, at_least, backoff};
use super::budget::{Cost, Left};
use crate::admission::counters::Denied;
use crate::dialect::Class;
use crate::signal::Mono;

/// What became of an attempt at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was certainly not processed: refused (429, 503), or never sent.
    Unprocessed,
    /// It may have been: no answer in time, a connection that broke, an error amid the work.
    Unknown,
}

/// A failed attempt, and all that decides whether there is another.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    /// The gate is the one layer that may retry this request.
    pub is_ours: bool,
    /// What the answer means.
    pub class: Class,
    /// What became of it.
    pub fate: Fate,
    /// Doing it twice does no harm: a read, or a request with an idempotency key.
    pub is_repeatable: bool,
    /// Attempts of the original so far, those that clients asked for by repeating it among them.
    pub attempts: u32,
    /// Attempts that an original may have.
    pub attempts_max: u32,
    /// Sum of the waits so far.
    pub waited: Duration,
    /// The provider's hint.
    pub hint: Option<Duration>,
    /// When it is too late to start.
    pub start_by: Mono,
    /// When its caller stops waiting for the answer.
    pub deadline: Option<Mono>,
    /// How long the next attempt is expected to take.
    pub expected: Duration,
    /// What the scope may still spend on retries.
    pub left: Left,
    /// What this one would cost.
    pub cost: Cost,
    /// The caller takes "later" for an answer.
    pub may_defer: bool,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// Another attempt after a wait.
    Retry {
        /// How long.
        wait: Duration,
    },
    /// The deferred lane has it from here.
    Defer {
        /// Not to be tried again before so long has passed.
        after: Duration,
        /// Why not now.
        why: Denied,
    },
    /// The provider's answer is the caller's.
    Final(Denied),
}

/// Judges one failed attempt. `uniform` is a random number in 0..1 for the jitter.
#[must_use]
pub fn judge_retry(attempted: &Attempted, uniform: f64, now: Mono) -> NextTry {
    if let Err(never) = may_ever(attempted) {
        return NextTry::Final(never);
    }
    match may_now(attempted, uniform, now) {
        Ok(wait) => NextTry::Retry { wait },
        Err(why) if attempted.may_defer => {
            // At least what the provider asks for, and longer than any inline wait: the scope is busy.
            let least = attempted.hint.unwrap_or(CAP).max(CAP);
            NextTry::Defer { after: at_least(least, uniform), why }
        }
        Err(why) => NextTry::Final(why),
    }
}

fn may_ever(attempted: &Attempted) -> Result<(), Denied> {
    if !attempted.is_ours {
        Err(Denied::Owner)
    } else if !attempted.class.is_retryable() {
        Err(Denied::Permanent)
    } else if attempted.fate == Fate::Unknown && !attempted.is_repeatable {
        Err(Denied::Unsafe)
    } else {
        Ok(())
    }
}

fn may_now(attempted: &Attempted, uniform: f64, now: Mono) -> Result<Duration, Denied> {
    if attempted.attempts >= attempted.attempts_max {
        return Err(Denied::Attempts);
    }
    let wait = backoff(attempted.attempts, attempted.hint, uniform).ok_or(Denied::Wait)?;
    if attempted.waited.saturating_add(wait) > WAITS_MAX {
        return Err(Denied::Wait);
    }
    let end = now + wait + attempted.expected;
    if now + wait >= attempted.start_by || attempted.deadline.is_some_and(|deadline| end > deadline)
    {
        return Err(Denied::Deadline);
    }
    attempted.left.covers(attempted.cost)?;
    Ok(wait)
}

#[cfg(test)]
mod tests;
