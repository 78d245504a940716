//! How long to wait before a retry, and whether the scope can afford one.
//!
//! Backoff is full jitter over a doubling base (AWS architecture blog, "Exponential Backoff And
//! Jitter"). A provider's hint is a minimum, plus jitter, so that waiters do not wake in step.
//! The budget is a share of admitted originals over a window (Google SRE book, chapter 21), with no
//! floor per second: at the rates of language models a floor of ten would be the larger part.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;

/// First backoff without a hint; doubles from there.
pub const BASE: Duration = Duration::from_millis(500);
/// Longest single wait. A hint above it ends the retries of that request.
pub const CAP: Duration = Duration::from_secs(8);
/// Longest sum of waits of one request.
pub const WAITS_MAX: Duration = Duration::from_secs(20);
/// Share of a hint that may be added to it.
const HINT_JITTER: f64 = 0.25;
/// The budget's window.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Retries that a quiet scope may always make in one window, so that one fault is not final.
const SPARE: f64 = 1.0;

/// How long to wait before try `tries + 1`, `uniform` being a random number in 0..1.
///
/// `None` when the hint is longer than [`CAP`]: the answer is then final for this request.
#[must_use]
pub fn backoff(tries: u32, hint: Option<Duration>, uniform: f64) -> Option<Duration> {
    match hint {
        Some(hint) if hint > CAP => None,
        Some(hint) => Some(hint.mul_f64(1.0 + HINT_JITTER * uniform.clamp(0.0, 1.0))),
        None => {
            let doubled = BASE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(CAP);
            Some(doubled.mul_f64(uniform.clamp(0.0, 1.0)))
        }
    }
}

/// Retries allowed as a share of admitted originals over [`WINDOW`], across one scope.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    /// (second of the run, admitted originals, retries), oldest first.
    seconds: VecDeque<(u64, u32, u32)>,
    used: u64,
}

impl RetryBudget {
    /// Counts an admitted original.
    pub fn admitted(&mut self, now: Mono) {
        self.current(now).1 += 1;
    }

    /// Spends one retry if `ratio` leaves any.
    pub fn spend(&mut self, ratio: f64, now: Mono) -> bool {
        if self.left(ratio, now) < 1.0 {
            return false;
        }
        self.current(now).2 += 1;
        self.used += 1;
        true
    }

    /// Retries spent so far.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Retries left now. A ratio of zero leaves none.
    #[must_use]
    pub fn left(&self, ratio: f64, now: Mono) -> f64 {
        if ratio <= 0.0 {
            return 0.0;
        }
        let oldest = now.since_start().as_secs().saturating_sub(WINDOW.as_secs());
        let (mut admitted, mut retries) = (0.0, 0.0);
        for (second, originals, spent) in &self.seconds {
            if *second > oldest || oldest == 0 {
                admitted += f64::from(*originals);
                retries += f64::from(*spent);
            }
        }
        (admitted * ratio + SPARE - retries).max(0.0)
    }

    fn current(&mut self, now: Mono) -> &mut (u64, u32, u32) {
        let second = now.since_start().as_secs();
        while self.seconds.front().is_some_and(|(old, ..)| old + WINDOW.as_secs() < second) {
            self.seconds.pop_front();
        }
        if self.seconds.back().is_none_or(|(last, ..)| *last < second) {
            self.seconds.push_back((second, 0, 0));
        }
        self.seconds.back_mut().expect("a slot for this second was just made sure of")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_minimum() {
        for uniform in [0.0, 0.3, 1.0] {
            let hint = Duration::from_millis(511);
            let wait = backoff(1, Some(hint), uniform).expect("below the cap");
            assert!(wait >= hint && wait <= hint.mul_f64(1.25));
        }
    }

    #[test]
    fn a_hint_at_the_cap_is_kept_and_one_above_it_ends_the_retries() {
        assert!(backoff(1, Some(CAP), 0.0).is_some());
        assert_eq!(backoff(1, Some(CAP + Duration::from_millis(1)), 0.0), None);
    }

    #[test]
    fn without_a_hint_the_bound_doubles_up_to_the_cap() {
        let bound = |tries| backoff(tries, None, 1.0).expect("no hint").as_secs_f64();
        let bounds = [1, 2, 3, 4, 5, 6, 40].map(bound);
        assert_eq!(
            bounds.map(Duration::from_secs_f64),
            [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000].map(Duration::from_millis)
        );
        assert_eq!(backoff(3, None, 0.0), Some(Duration::ZERO));
    }

    #[test]
    fn the_budget_is_a_share_of_admitted_originals_in_the_window() {
        let mut budget = RetryBudget::default();
        let now = Mono::from_secs_f64(5.0);
        for _ in 0..100 {
            budget.admitted(now);
        }
        let spent = (0..50).filter(|_| budget.spend(0.1, now)).count();
        assert_eq!(spent, 11, "a tenth of a hundred, and the spare one");
        assert_eq!(budget.used(), 11);
        let later = Mono::from_secs_f64(16.5);
        assert!((budget.left(0.1, later) - 1.0).abs() < 1e-9, "the window has passed");
    }

    #[test]
    fn a_ratio_of_zero_allows_none() {
        assert!(!RetryBudget::default().spend(0.0, Mono::START));
    }
}
