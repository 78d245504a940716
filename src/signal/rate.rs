//! What a counter did between two readings. Never extrapolates: the result is what was counted.
//!
//! This is not `PromQL`'s `rate()`, which guesses the ends of its window. Two readings one window
//! apart answer how much was counted between them, and that is what a ledger can be held against.

/// How much a counter grew from `previous` to `current`.
///
/// A counter that fell was reset and has counted `current` since. `restarted` says that the process
/// is another one than at `previous`: then it has counted `current` too, even where it has already
/// overtaken the old value. A reading that is not a finite number adds nothing.
#[must_use]
pub fn counter_increase(previous: f64, current: f64, restarted: bool) -> f64 {
    if !previous.is_finite() || !current.is_finite() {
        return 0.0;
    }
    let is_reset = restarted || current < previous;
    if is_reset { current.max(0.0) } else { current - previous }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "small whole numbers are exact")]
    fn resets_count_from_zero() {
        for (previous, current, restarted, expected) in [
            (10.0, 15.0, false, 5.0),
            (10.0, 10.0, false, 0.0),
            (10.0, 4.0, false, 4.0),
            (10.0, 15.0, true, 15.0),
            (10.0, 10.0, true, 10.0),
            (10.0, 0.0, false, 0.0),
            (f64::NAN, 5.0, false, 0.0),
            (5.0, f64::NAN, false, 0.0),
            (5.0, f64::INFINITY, true, 0.0),
        ] {
            let increase = counter_increase(previous, current, restarted);
            assert_eq!(increase, expected, "{previous} -> {current}, restarted: {restarted}");
        }
    }
}
