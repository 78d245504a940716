//! Learns how many tokens a request will be charged, from its size and from earlier bills.
//!
//! The first guess is bytes / 3, an upper bound for most prose (bytes / 4 falls short on 46 % of
//! texts), and for the answer what the request allows itself. Each bill moves the ratio of charged to
//! guessed tokens and its mean deviation, as TCP does with round-trip times (RFC 6298: gains 1/8 and
//! 1/4). A margin of two deviations is kept.

use super::shared::Demand;
use super::smoothed::Smoothed;

/// Bytes of request body per token of the first guess.
const BYTES_PER_TOKEN: f64 = 3.0;
/// A bill outside this range of the guess is not learned from in full: one odd request must not
/// move the next thousand.
const RATIO_RANGE: (f64, f64) = (0.02, 50.0);
/// An answer of unknown length is not believed to be longer.
const ANSWER_MAX: f64 = 1_000_000.0;

/// The estimator of one quota scope.
#[derive(Clone, Debug)]
pub struct Estimator {
    input: Smoothed,
    /// Answer tokens per allowed token, for requests that name a maximum.
    output: Smoothed,
    /// Answer tokens of requests that name none.
    open_output: Smoothed,
    /// Mean distance of bills from reservations, as a share of the bill.
    error: Smoothed,
    counts_max_tokens: bool,
}

impl Estimator {
    /// An estimator without experience. `counts_max_tokens`: the provider charges what a request
    /// allows its answer, not what the answer has.
    #[must_use]
    pub const fn new(counts_max_tokens: bool) -> Self {
        Self {
            input: Smoothed::at(1.0),
            output: Smoothed::at(1.0),
            open_output: Smoothed::at(0.0),
            error: Smoothed::at(0.0),
            counts_max_tokens,
        }
    }

    /// Something of each part, only to have looked at it.
    pub(super) const fn touched(&self) -> impl Copy + use<> {
        (self.input.is_known(), self.output.is_known(), self.error.is_known())
    }

    /// The first guess for a body of `bytes` that allows its answer `max_tokens`, 0 if it does not
    /// say.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a body is far smaller than 2^53 bytes")]
    pub fn guess(bytes: usize, max_tokens: u64) -> Demand {
        let input = (bytes as f64 / BYTES_PER_TOKEN).ceil().max(1.0);
        Demand { input, output: max_tokens as f64 }
    }

    /// What to reserve for a guess: learned ratio plus margin.
    #[must_use]
    pub fn reserve(&self, guess: &Demand) -> Demand {
        let output = if guess.output <= 0.0 {
            self.open_output.high()
        } else if self.counts_max_tokens {
            guess.output
        } else {
            guess.output * self.output.high()
        };
        // What uses no tokens stays at none.
        let least = guess.input.min(1.0);
        Demand { input: (guess.input * self.input.high()).max(least), output }
    }

    /// What the provider charges for what an answer says that it used.
    #[must_use]
    pub fn charge(&self, guess: &Demand, used: &Demand) -> Demand {
        let output =
            if self.counts_max_tokens { used.output.max(guess.output) } else { used.output };
        Demand { input: used.input, output }
    }

    /// Learns from what an answer says that it used.
    pub fn learn(&mut self, guess: &Demand, used: &Demand) {
        let sane = |tokens: f64| tokens.is_finite() && tokens >= 0.0;
        if guess.input <= 0.0 || !sane(used.input) || !sane(used.output) {
            return;
        }
        let charged = self.charge(guess, used).tokens();
        if charged > 0.0 {
            let off = (self.reserve(guess).tokens() - charged).abs() / charged;
            self.error.learn(off.min(RATIO_RANGE.1));
        }
        let ratio = |used: f64, guess: f64| (used / guess).clamp(RATIO_RANGE.0, RATIO_RANGE.1);
        self.input.learn(ratio(used.input, guess.input));
        if guess.output > 0.0 {
            self.output.learn((used.output / guess.output).clamp(0.0, 1.0));
        } else {
            self.open_output.learn(used.output.min(ANSWER_MAX));
        }
    }

    /// How far reservations lie from charges of late, as a share of the charge; unknown before the
    /// first.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.error.is_known().then(|| self.error.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn demand(input: f64, output: f64) -> Demand {
        Demand { input, output }
    }

    #[test]
    fn equal_requests_are_soon_reserved_to_the_token() {
        let mut estimator = Estimator::new(false);
        for _ in 0..64 {
            estimator.learn(&demand(450.0, 200.0), &demand(300.0, 50.0));
        }
        let reserved = estimator.reserve(&demand(450.0, 200.0));
        assert!((reserved.input - 300.0).abs() < 0.5, "{reserved:?}");
        assert!((reserved.output - 50.0).abs() < 0.5, "{reserved:?}");
        assert!(estimator.error().expect("64 bills") < 0.01);
    }

    #[test]
    fn scattered_bills_keep_a_margin() {
        let mut estimator = Estimator::new(false);
        for round in 0..200 {
            let used = if round % 2 == 0 { 60.0 } else { 140.0 };
            estimator.learn(&demand(100.0, 0.0), &demand(used, 0.0));
        }
        assert!(estimator.reserve(&demand(100.0, 0.0)).tokens() > 140.0);
    }

    #[test]
    fn an_answer_without_a_maximum_is_reserved_as_earlier_ones_were() {
        let mut estimator = Estimator::new(false);
        assert!((estimator.reserve(&demand(10.0, 0.0)).output).abs() < f64::EPSILON);
        estimator.learn(&demand(10.0, 0.0), &demand(10.0, 400.0));
        assert!((estimator.reserve(&demand(10.0, 0.0)).output - 400.0).abs() < 0.5);
    }

    #[test]
    fn where_the_provider_counts_the_allowance_it_is_reserved_and_charged() {
        let mut estimator = Estimator::new(true);
        let guess = demand(100.0, 4_096.0);
        estimator.learn(&guess, &demand(80.0, 12.0));
        assert!((estimator.reserve(&guess).output - 4_096.0).abs() < f64::EPSILON);
        assert!((estimator.charge(&guess, &demand(80.0, 12.0)).output - 4_096.0).abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_not_learned() {
        let mut estimator = Estimator::new(false);
        estimator.learn(&demand(100.0, 0.0), &demand(f64::NAN, 0.0));
        estimator.learn(&demand(0.0, 0.0), &demand(5.0, 0.0));
        assert!((estimator.reserve(&demand(100.0, 0.0)).input - 100.0).abs() < f64::EPSILON);
        assert_eq!(estimator.error(), None);
    }
}
