//! Whether one more request fits into what a drill may spend. Counts; sends nothing, reads no clock.
//!
//! Before a request everything that the gate could make of it is reserved; its answer says how often
//! the provider was really asked. So the budget holds whatever the retry flags say meanwhile.

use super::upstream::Upstream;
use crate::signal::Tokens;

/// The most attempts that the gate makes of one request: the bound of `retry.max_attempts`.
pub const ATTEMPTS_MAX: u64 = 4;

/// Attempts and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Requests that reached the provider, or may have.
    pub requests: u64,
    /// Their tokens, by the clients' estimate.
    pub tokens: Tokens,
}

impl Spent {
    fn of(attempts: u64, each: Tokens) -> Self {
        Self { requests: attempts, tokens: Tokens(each.0.saturating_mul(attempts)) }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: Tokens(self.tokens.0.saturating_add(other.tokens.0)),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: Tokens(self.tokens.0.saturating_sub(other.tokens.0)),
        }
    }
}

/// What is set aside for one request until its answer is there.
#[derive(Debug)]
#[must_use = "a reservation that is not settled stays spent"]
pub struct Reservation {
    each: Tokens,
}

/// The budget of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    requests_max: Option<u64>,
    usd_max: Option<f64>,
    usd_per_million_tokens: Option<f64>,
    spent: Spent,
    ended: bool,
}

impl Budget {
    /// The budget that an upstream states; without one, everything fits.
    #[must_use]
    pub fn of(upstream: Option<&Upstream>) -> Self {
        Self {
            requests_max: upstream.and_then(|upstream| upstream.budget_requests),
            usd_max: upstream.and_then(|upstream| upstream.budget_usd),
            usd_per_million_tokens: upstream.and_then(|upstream| upstream.usd_per_million_tokens),
            ..Self::default()
        }
    }

    /// Sets aside what a request of `tokens` may cost at most. `None` when that would exceed the
    /// budget, and from then on always.
    pub fn reserve(&mut self, tokens: Tokens) -> Option<Reservation> {
        let after = self.spent.plus(Spent::of(ATTEMPTS_MAX, tokens));
        let too_many = self.requests_max.is_some_and(|max| after.requests > max);
        let too_dear = self.usd_max.zip(self.usd(after)).is_some_and(|(max, usd)| usd > max);
        self.ended |= too_many || too_dear;
        if self.ended {
            return None;
        }
        self.spent = after;
        Some(Reservation { each: tokens })
    }

    /// Replaces a reservation by the attempts that were made. Unknown stays what was reserved.
    pub fn settle(&mut self, Reservation { each }: Reservation, attempts: Option<u64>) {
        let reserved = Spent::of(ATTEMPTS_MAX, each);
        let made = attempts.map_or(reserved, |attempts| Spent::of(attempts, each));
        self.spent = self.spent.minus(reserved).plus(made);
    }

    /// What is spent or set aside.
    #[must_use]
    pub const fn spent(&self) -> Spent {
        self.spent
    }

    /// What that costs; `None` without a price.
    #[must_use]
    pub fn spent_usd(&self) -> Option<f64> {
        self.usd(self.spent)
    }

    /// Whether a request did not fit any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    fn usd(&self, spent: Spent) -> Option<f64> {
        Some(spent.tokens.as_f64() * self.usd_per_million_tokens? / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Kind, flag};

    fn budget(requests_max: Option<u64>, usd_max: Option<f64>) -> Budget {
        let usd_per_million_tokens = Some(1.0);
        Budget { requests_max, usd_max, usd_per_million_tokens, ..Budget::default() }
    }

    /// Sends requests one after the other until none fits: how many, each with these attempts.
    fn fits(mut budget: Budget, tokens: u64, attempts: Option<u64>) -> (u64, Spent) {
        let mut sent = 0;
        while sent < 1_000
            && let Some(reservation) = budget.reserve(Tokens(tokens))
        {
            budget.settle(reservation, attempts);
            sent += 1;
        }
        (sent, budget.spent())
    }

    #[test]
    fn the_bound_is_that_of_the_flag() {
        let kind = flag("retry.max_attempts").expect("it is in the table").kind;
        let Kind::Whole { max, .. } = kind else { panic!("attempts are whole") };
        assert_eq!(Tokens(ATTEMPTS_MAX).as_f64().to_bits(), max.to_bits());
    }

    #[test]
    fn nothing_is_sent_that_could_exceed_it() {
        let unlimited = budget(None, None);
        assert_eq!(fits(unlimited, 300, Some(4)).0, 1_000);
        for (attempts, sent, spent) in [
            (Some(1), 37, 37),
            (Some(4), 10, 40),
            // A refusal of the gate costs nothing.
            (Some(0), 1_000, 0),
            // No answer: the provider may have been asked as often as could be.
            (None, 10, 40),
        ] {
            let (requests, after) = fits(budget(Some(40), None), 300, attempts);
            assert_eq!((requests, after.requests), (sent, spent), "{attempts:?}");
        }
        let (_, after) = fits(budget(None, Some(0.01)), 300, Some(1));
        assert_eq!(after.tokens, Tokens(9_000), "four tries more would make 10,200 of 10,000");
    }

    #[test]
    fn requests_under_way_count_as_the_most_they_can_be() {
        let mut budget = budget(Some(8), None);
        let first = budget.reserve(Tokens(1)).expect("it fits");
        let _second = budget.reserve(Tokens(1)).expect("it fits");
        assert!(budget.reserve(Tokens(1)).is_none());
        budget.settle(first, Some(0));
        assert!(budget.has_ended() && budget.reserve(Tokens(1)).is_none(), "for good");
        assert_eq!(budget.spent(), Spent { requests: 4, tokens: Tokens(4) });
    }
}
