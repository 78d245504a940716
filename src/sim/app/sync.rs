//! Whether retries come in step: how many of the last seconds' retries fell into one of them.

use std::collections::VecDeque;

use crate::signal::{Mono, Tokens};

/// Seconds that are looked at: the span of the fast predicates.
const SECONDS: u64 = 10;
/// The busiest second has to be over for so long: what has only begun may go on.
const OVER: u64 = 3;
/// Fewer retries than this say nothing.
const RETRIES_MIN: u64 = 10;

/// Retries by second.
#[derive(Clone, Debug, Default)]
pub(super) struct BusiestSecond {
    /// The second since the start, and its retries; oldest first.
    seconds: VecDeque<(u64, u64)>,
}

impl BusiestSecond {
    pub(super) fn count(&mut self, now: Mono) {
        let second = now.since_start().as_secs();
        match self.seconds.back_mut() {
            Some((last, retries)) if *last >= second => *retries += 1,
            _ => self.seconds.push_back((second, 1)),
        }
        while self.seconds.front().is_some_and(|(first, _)| first + SECONDS <= second) {
            self.seconds.pop_front();
        }
    }

    /// The busiest second's share; `None` with too few retries.
    pub(super) fn share(&self, now: Mono) -> Option<f64> {
        let second = now.since_start().as_secs();
        let recent = || self.seconds.iter().filter(|(at, _)| at + SECONDS > second);
        let all: u64 = recent().map(|(_, retries)| retries).sum();
        let over = recent().filter(|(at, _)| at + OVER <= second);
        let most = over.map(|(_, retries)| *retries).max()?;
        (all >= RETRIES_MIN).then(|| Tokens(most).as_f64() / Tokens(all).as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(retries_s: impl Iterator<Item = f64>, now_s: f64) -> Option<f64> {
        let mut busiest = BusiestSecond::default();
        retries_s.for_each(|at_s| busiest.count(Mono::from_secs_f64(at_s)));
        busiest.share(Mono::from_secs_f64(now_s))
    }

    #[test]
    fn in_step_is_one_busy_second_of_ten() {
        let spread = (0..200).map(|n| f64::from(n) / 10.0);
        let even = share(spread.clone(), 19.9).expect("enough");
        assert!((0.09..0.12).contains(&even), "{even}");
        let together = || (0..200).map(|n| f64::from(n / 100) * 10.0);
        assert_eq!(share(together(), 13.5), Some(1.0));
        assert_eq!(share(together(), 10.5), None, "it may be the first second of many");
        assert_eq!(share(spread, 60.0), None, "nobody retries any more");
        assert_eq!(share((0..9).map(f64::from), 12.0), None, "too few to tell");
    }
}
