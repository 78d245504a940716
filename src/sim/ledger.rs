//! What the simulated provider counted: the check on everyone else's counters.

use std::collections::{BTreeMap, BTreeSet};

use crate::signal::Tokens;
use crate::sim::provider::{CallKind, Outcome};

/// Most originals that are told apart; a drill of an hour at full storm stays below.
const ORIGINALS_MAX: usize = 1_000_000;

/// How an answer is labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResponseKey {
    /// HTTP status.
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
}

impl Ledger {
    pub(super) fn count(&mut self, identity: u128, kind: CallKind, outcome: &Outcome) {
        if self.identities.len() < ORIGINALS_MAX {
            self.identities.insert(identity);
        }
        *self.attempts.entry(kind).or_default() += 1;
        *self.responses.entry(outcome.response_key()).or_default() += 1;
        if let Outcome::Ok { tokens } = outcome {
            self.tokens += *tokens;
        }
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
