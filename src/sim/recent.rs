//! What reached the simulated provider of late: its busiest second, its largest call, and whose calls fail.
//!
//! Bounded by numbers, not by traffic; decides nothing.

use std::collections::VecDeque;
use std::time::Duration;

use crate::signal::Mono;

/// Seconds that are remembered.
const SECONDS_MAX: usize = 60;
/// What the busiest second is sought in: the window of fast rates.
const PEAK_S: u64 = 10;
/// Failures that are remembered.
const FAILURES_MAX: usize = 512;
const FAILURES_KEPT: Duration = Duration::from_mins(1);
/// Of fewer failures no share is told.
const FAILURES_MIN: usize = 10;
/// Originals whose share of the failures is told.
const COMMONEST: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Second {
    number: u64,
    calls: u64,
    tokens_max: u64,
}

/// The last minute of calls.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// Oldest first; seconds without calls are not there.
    seconds: VecDeque<Second>,
    /// When, and whose; oldest first.
    failures: VecDeque<(Mono, u128)>,
}

impl Recent {
    pub(super) fn arrived(&mut self, tokens: u64, now: Mono) {
        let number = now.since_start().as_secs();
        if let Some(second) = self.seconds.back_mut().filter(|second| second.number == number) {
            second.calls += 1;
            second.tokens_max = second.tokens_max.max(tokens);
            return;
        }
        if self.seconds.len() >= SECONDS_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(Second { number, calls: 1, tokens_max: tokens });
    }

    pub(super) fn failed(&mut self, identity: u128, now: Mono) {
        if self.failures.len() >= FAILURES_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back((now, identity));
    }

    /// Calls in the busiest of the last ten whole seconds; unknown before the first is over.
    #[must_use]
    pub fn peak_rps(&self, now: Mono) -> Option<u64> {
        let running = now.since_start().as_secs();
        let whole = running.saturating_sub(PEAK_S)..running;
        let calls = self.seconds.iter().filter(|one| whole.contains(&one.number));
        if running == 0 { None } else { Some(calls.map(|one| one.calls).max().unwrap_or(0)) }
    }

    /// Tokens of the largest call of the last minute; unknown without any.
    #[must_use]
    pub fn tokens_max(&self, now: Mono) -> Option<u64> {
        let since = now.since_start().as_secs().saturating_sub(SECONDS_MAX as u64);
        let kept = self.seconds.iter().filter(|second| second.number >= since);
        kept.map(|second| second.tokens_max).max()
    }

    /// Share of the last minute's failures that belongs to the three originals with the most; unknown
    /// when they are few.
    #[must_use]
    pub fn commonest_share(&self, now: Mono) -> Option<f64> {
        let since = now - FAILURES_KEPT;
        let recent = self.failures.iter().filter(|(at, _)| *at >= since);
        let mut whose: Vec<u128> = recent.map(|(_, identity)| *identity).collect();
        if whose.len() < FAILURES_MIN {
            return None;
        }
        whose.sort_unstable();
        let mut counts: Vec<usize> =
            whose.chunk_by(|one, other| one == other).map(<[u128]>::len).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let most: usize = counts.iter().take(COMMONEST).sum();
        #[expect(clippy::cast_precision_loss, reason = "at most a few hundred failures")]
        Some(most as f64 / whose.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn the_busiest_second_and_the_largest_call_are_those_of_the_last() {
        let mut recent = Recent::default();
        assert_eq!((recent.peak_rps(at(0.5)), recent.tokens_max(at(0.5))), (None, None));
        for (second, calls, tokens) in [(0, 9, 5_000), (1, 2, 100), (12, 4, 300)] {
            for _ in 0..calls {
                recent.arrived(tokens, at(f64::from(second) + 0.1));
            }
        }
        assert_eq!(recent.peak_rps(at(2.0)), Some(9));
        assert_eq!(recent.peak_rps(at(12.5)), Some(0), "the running second is not whole yet");
        assert_eq!(recent.peak_rps(at(13.0)), Some(4));
        assert_eq!(recent.tokens_max(at(13.0)), Some(5_000));
        assert_eq!(recent.tokens_max(at(61.5)), Some(300));
        for second in 20..200 {
            recent.arrived(1, at(f64::from(second)));
        }
        assert_eq!(recent.seconds.len(), SECONDS_MAX);
    }

    #[test]
    fn failures_of_a_few_stand_out() {
        let mut recent = Recent::default();
        for _ in 0..8 {
            recent.failed(7, at(1.0));
        }
        assert_eq!(recent.commonest_share(at(1.0)), None, "too few");
        recent.failed(8, at(2.0));
        recent.failed(9, at(2.0));
        recent.failed(10, at(2.0));
        recent.failed(11, at(2.0));
        assert_eq!(recent.commonest_share(at(2.0)), Some(10.0 / 12.0));
        for other in 0..u128::try_from(FAILURES_MAX).expect("it fits") {
            recent.failed(100 + other, at(3.0));
        }
        assert!(recent.commonest_share(at(3.0)).is_some_and(|share| share < 0.01));
        assert_eq!(recent.commonest_share(at(90.0)), None, "they are forgotten");
    }
}
