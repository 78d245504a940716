//! What the simulated provider counted: the check on everyone else's counters.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use crate::signal::{Mono, Tokens};
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

/// What an original was told last, as far as it binds the next attempt for it.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// No attempt before this instant: the answer was delivered and its hint has passed.
    not_before: Mono,
    /// No attempt at all: no repeat of this request can succeed.
    for_ever: bool,
}

impl Told {
    /// What is disguised has said neither.
    fn by(reply: &Reply, delivered: Mono) -> Self {
        let hint = reply.retry_after_ms().map(Duration::from_millis);
        let is_final = matches!(
            reply.outcome,
            Outcome::InsufficientQuota
                | Outcome::TooLarge { .. }
                | Outcome::TooLong { .. }
                | Outcome::Rejected { .. }
        );
        Self {
            not_before: hint.map_or(Mono::START, |hint| delivered + hint),
            for_ever: is_final && !reply.is_disguised(),
        }
    }
}

/// Counts of everything that arrived and how it was answered.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    originals: BTreeMap<u128, Told>,
    /// More originals came than are told apart.
    is_full: bool,
    early_repeats: u64,
    final_repeats: u64,
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
    /// Counts a call that arrived at `now` and what it got; `requests` is what it was charged beside
    /// its tokens.
    pub(super) fn count(&mut self, call: &Call, requests: u64, reply: &Reply, now: Mono) {
        self.remember(call.identity, Told::by(reply, now + reply.latency), now);
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

    /// Holds an attempt against what its original was told before.
    fn remember(&mut self, identity: u128, told: Told, now: Mono) {
        let has_room = self.originals.len() < ORIGINALS_MAX;
        match self.originals.entry(identity) {
            Entry::Occupied(mut known) => {
                let before = std::mem::replace(known.get_mut(), told);
                self.early_repeats += u64::from(now < before.not_before);
                self.final_repeats += u64::from(before.for_ever);
            }
            Entry::Vacant(place) if has_room => {
                place.insert(told);
            }
            Entry::Vacant(_) => self.is_full = true,
        }
    }

    /// Attempts for an original whose last answer named a wait that had not passed. The wait counts
    /// from the delivery of that answer. Unknown once more originals came than are told apart.
    #[must_use]
    pub fn early_repeats(&self) -> Option<u64> {
        (!self.is_full).then_some(self.early_repeats)
    }

    /// Attempts for an original whose last answer was one that no repeat cures: an exhausted account,
    /// a request larger than the meter, one that is not understood. Unknown as above.
    #[must_use]
    pub fn final_repeats(&self) -> Option<u64> {
        (!self.is_full).then_some(self.final_repeats)
    }

    /// Distinct originals; a lower bound once a million were seen.
    #[must_use]
    pub fn originals(&self) -> u64 {
        self.originals.len() as u64
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Meter, MeterReading};
    use crate::sim::outcome::{CallId, Disguise, HintForm};

    const REFUSED: Outcome = Outcome::RateLimited {
        meter: Meter::Tokens,
        wait: Duration::from_millis(500),
        limit: 600,
        used: 600,
        requested: 1,
    };
    const SERVED: Outcome = Outcome::Ok { tokens: Tokens(1) };

    fn reply(outcome: Outcome) -> Reply {
        Reply {
            call: CallId(0),
            latency: Duration::from_millis(100),
            outcome,
            meters: [Meter::Requests, Meter::Tokens].map(MeterReading::unknown),
            hint_form: HintForm::Exact,
            disguise: Disguise::None,
        }
    }

    /// Plays (second, original, answer), each delivered after 0.1 s: early and final repeats.
    fn play(calls: &[(f64, u128, Outcome)]) -> (Option<u64>, Option<u64>) {
        let mut ledger = Ledger::default();
        for (second, original, outcome) in calls {
            let at = Mono::from_secs_f64(*second);
            let call = Call::new(*original, Tokens(1), CallKind::Embeddings);
            ledger.count(&call, 1, &reply(*outcome), at);
        }
        (ledger.early_repeats(), ledger.final_repeats())
    }

    #[test]
    fn a_repeat_is_early_until_the_hint_has_passed_since_its_delivery() {
        assert_eq!(play(&[(1.0, 1, REFUSED), (1.599, 1, SERVED)]), (Some(1), Some(0)));
        assert_eq!(play(&[(1.0, 1, REFUSED), (1.6, 1, SERVED)]), (Some(0), Some(0)));
        assert_eq!(play(&[(1.0, 1, REFUSED), (1.1, 2, REFUSED)]), (Some(0), Some(0)), "another");
        let once = [(1.0, 1, REFUSED), (1.1, 1, SERVED), (1.2, 1, SERVED)];
        assert_eq!(play(&once), (Some(1), Some(0)), "the last answer counts");
    }

    #[test]
    fn what_can_never_succeed_may_not_be_repeated() {
        for hopeless in [
            Outcome::InsufficientQuota,
            Outcome::TooLarge { limit: 1, requested: 2 },
            Outcome::Rejected { status: 400 },
        ] {
            assert_eq!(play(&[(1.0, 1, hopeless), (9.0, 1, hopeless)]), (Some(0), Some(1)));
        }
        let overloaded = Outcome::ServerError { status: 503 };
        assert_eq!(play(&[(1.0, 1, overloaded), (9.0, 1, SERVED)]), (Some(0), Some(0)));
    }

    #[test]
    fn with_more_originals_than_are_told_apart_it_is_unknown() {
        let mut ledger = Ledger { is_full: true, ..Ledger::default() };
        assert_eq!((ledger.early_repeats(), ledger.final_repeats()), (None, None));
        ledger.is_full = false;
        assert_eq!(ledger.early_repeats(), Some(0));
    }
}
