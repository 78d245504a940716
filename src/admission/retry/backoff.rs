//! How long to wait before a retry.
//!
//! Without a hint: full jitter over a doubling base (AWS architecture blog, "Exponential Backoff And
//! Jitter"). A provider's hint is a minimum, plus jitter, so that waiters do not wake in step.

use std::time::Duration;

/// First backoff without a hint; doubles from there.
const BASE: Duration = Duration::from_millis(500);
/// Longest single wait. A hint above it ends the inline retries of that request.
pub(super) const CAP: Duration = Duration::from_secs(8);
/// Longest sum of waits of one request.
pub(super) const WAITS_MAX: Duration = Duration::from_secs(20);
/// Share of a hint that may be added to it.
const HINT_JITTER: f64 = 0.25;

/// How long to wait before try `tries + 1`, `uniform` being a random number in 0..1.
///
/// `None` when the hint is longer than [`CAP`]: the answer is then final for this request.
#[must_use]
pub fn backoff(tries: u32, hint: Option<Duration>, uniform: f64) -> Option<Duration> {
    match hint {
        Some(hint) if hint > CAP => None,
        Some(hint) => Some(at_least(hint, uniform)),
        None => {
            let doubled = BASE.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(CAP);
            Some(doubled.mul_f64(uniform.clamp(0.0, 1.0)))
        }
    }
}

/// `least` and some jitter: a share of it, or of [`CAP`] if that is shorter.
pub(super) fn at_least(least: Duration, uniform: f64) -> Duration {
    least.saturating_add(least.min(CAP).mul_f64(HINT_JITTER * uniform.clamp(0.0, 1.0)))
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
        assert!(at_least(Duration::MAX, 1.0) == Duration::MAX, "no hint is too long to add to");
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
}
