//! Lowers the admitted rate when the provider throttles, and raises it again step by step.
//!
//! Additive increase, multiplicative decrease on the share of throttled answers in a second: a
//! single late refusal is noise, a tenth of all answers is not.

use crate::signal::Mono;

/// Throttled share of a second's answers that lowers the rate.
const THROTTLED_SHARE: f64 = 0.05;
const DECREASE: f64 = 0.95;
const INCREASE_PER_S: f64 = 0.02;
const FACTOR_MIN: f64 = 0.3;

/// The rate factor of one scope, 1.0 when the provider is content.
#[derive(Clone, Debug)]
pub struct Adaptive {
    factor: f64,
    second: u64,
    answers: u32,
    throttled: u32,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self { factor: 1.0, second: 0, answers: 0, throttled: 0 }
    }
}

impl Adaptive {
    /// The factor to multiply the rate with.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// Counts an answer. True when the factor has moved and the rates must be set anew.
    pub fn answered(&mut self, throttled: bool, now: Mono) -> bool {
        let moved = self.turn(now);
        self.answers += 1;
        self.throttled += u32::from(throttled);
        moved
    }

    fn turn(&mut self, now: Mono) -> bool {
        let second = now.since_start().as_secs();
        if second == self.second {
            return false;
        }
        let share = f64::from(self.throttled) / f64::from(self.answers.max(1));
        let before = self.factor;
        if share > THROTTLED_SHARE {
            self.factor = (self.factor * DECREASE).max(FACTOR_MIN);
        } else {
            #[expect(clippy::cast_precision_loss, reason = "seconds of one run")]
            let quiet = (second - self.second) as f64;
            self.factor = (self.factor + INCREASE_PER_S * quiet).min(1.0);
        }
        (self.second, self.answers, self.throttled) = (second, 0, 0);
        (self.factor - before).abs() > f64::EPSILON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(adaptive: &mut Adaptive, from: u32, to: u32, throttled_in_ten: u32) {
        for second in from..to {
            for answer in 0..10 {
                let now = Mono::from_secs_f64(f64::from(second) + 0.05 * f64::from(answer));
                adaptive.answered(answer < throttled_in_ten, now);
            }
        }
    }

    #[test]
    fn falls_under_throttling_to_a_floor_and_comes_back() {
        let mut adaptive = Adaptive::default();
        seconds(&mut adaptive, 0, 5, 0);
        assert!((adaptive.factor() - 1.0).abs() < 1e-9);
        seconds(&mut adaptive, 5, 100, 5);
        assert!((adaptive.factor() - FACTOR_MIN).abs() < 1e-9);
        seconds(&mut adaptive, 100, 150, 0);
        assert!((adaptive.factor() - 1.0).abs() < 1e-9);
    }
}
