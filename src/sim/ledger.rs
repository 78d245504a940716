//! What the simulated provider counted: the check on everyone else's counters.

use std::collections::{BTreeMap, BTreeSet};

use crate::signal::Tokens;
use crate::sim::outcome::{Call, CallKind, Outcome, Reply};

/// Most originals that are told apart; a drill of an hour at full storm stays below.
const ORIGINALS_MAX: usize = 1_000_000;

/// How an answer is labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResponseKey {
    /// HTTP status, as the caller sees it.
    pub status: u16,
    /// `error.code`, `none` where there is none.
    pub code: &'static str,
    /// `error.type`, `none` where there is none.
    pub kind: &'static str,
}

/// Counts of everything that arrived and how it was answered.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    identities: BTreeSet<u128>,
    attempts: BTreeMap<CallKind, u64>,
    tokens: Tokens,
    responses: BTreeMap<ResponseKey, u64>,
    charged_requests: u64,
    items: u64,
    completed: u64,
    disguised: u64,
    hints: u64,
    hints_sum_s: f64,
}

impl Ledger {
    /// Counts a call and what it got; `requests` is what it was charged beside its tokens.
    pub(super) fn count(&mut self, call: &Call, requests: u64, reply: &Reply) {
        if self.identities.len() < ORIGINALS_MAX {
            self.identities.insert(call.identity);
        }
        *self.attempts.entry(call.kind).or_default() += 1;
        let key = ResponseKey { status: reply.status(), ..reply.outcome.response_key() };
        *self.responses.entry(key).or_default() += 1;
        self.disguised += u64::from(reply.is_disguised());
        if let Some(hint) = reply.hint() {
            self.hints += 1;
            self.hints_sum_s += hint.as_secs_f64();
        }
        if let Outcome::Ok { tokens } = reply.outcome {
            self.tokens += tokens;
            self.charged_requests += requests;
            self.items += u64::from(call.items);
        }
    }

    /// A call was answered to its end.
    pub(super) const fn complete(&mut self) {
        self.completed += 1;
    }

    /// Distinct originals; a lower bound once a million were seen.
    #[must_use]
    pub fn originals(&self) -> u64 {
        self.identities.len() as u64
    }

    /// Calls that arrived.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.attempts.values().sum()
    }

    /// Calls that arrived, by kind.
    #[must_use]
    pub const fn attempts_by_kind(&self) -> &BTreeMap<CallKind, u64> {
        &self.attempts
    }

    /// Tokens charged.
    #[must_use]
    pub const fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// What good calls took of the request meter: more than one each where inputs are counted.
    #[must_use]
    pub const fn charged_requests(&self) -> u64 {
        self.charged_requests
    }

    /// Inputs of good calls.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// Answers that were finished, whether or not anybody was left to read them.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Refusals inside another status.
    #[must_use]
    pub const fn disguised(&self) -> u64 {
        self.disguised
    }

    /// Hints that were given and can be read, and the sum of what they say, in seconds.
    #[must_use]
    pub const fn hints(&self) -> (u64, f64) {
        (self.hints, self.hints_sum_s)
    }

    /// Answers by status, code and type.
    #[must_use]
    pub const fn responses(&self) -> &BTreeMap<ResponseKey, u64> {
        &self.responses
    }

    /// Answers with this status.
    #[must_use]
    pub fn answered(&self, status: u16) -> u64 {
        self.responses.iter().filter(|(key, _)| key.status == status).map(|(_, count)| count).sum()
    }
}
