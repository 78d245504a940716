//! Which request fingerprints fail most, in bounded space: the sketch of Misra and Gries.
//!
//! J. Misra, D. Gries, "Finding repeated elements", 1982: with k counters, whatever makes up more than
//! one in k + 1 of a stream is among them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::signal::Mono;

/// Fingerprints that are followed.
const FOLLOWED_MAX: usize = 32;
/// The commonest that count as "the same few".
const FEW: usize = 3;
/// A fingerprint that failed less often is no repetition.
const REPEATED_MIN: u32 = 3;
/// After this long what was counted weighs half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Failures by fingerprint.
#[derive(Clone, Debug, Default)]
pub(super) struct Commonest {
    counts: BTreeMap<u128, u32>,
    halved_at: Mono,
    /// Least count among the commonest few when it was last looked at.
    bar: u32,
}

impl Commonest {
    /// Counts a failure; whether its fingerprint is one of the commonest few.
    pub(super) fn count(&mut self, fingerprint: u128, now: Mono) -> bool {
        if now.saturating_since(self.halved_at) >= HALF_LIFE {
            self.halved_at = now;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
            self.bar /= 2;
        }
        if let Some(count) = self.counts.get_mut(&fingerprint) {
            *count = count.saturating_add(1);
            let count = *count;
            if count < REPEATED_MIN || count < self.bar {
                return false;
            }
            self.bar = self.lowest_of_the_few();
            return count >= self.bar;
        }
        if self.counts.len() < FOLLOWED_MAX {
            self.counts.insert(fingerprint, 1);
        } else {
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
            self.bar = self.bar.saturating_sub(1);
        }
        false
    }

    fn lowest_of_the_few(&self) -> u32 {
        let mut few = [0_u32; FEW];
        for count in self.counts.values() {
            if *count > few[0] {
                few[0] = *count;
                few.sort_unstable();
            }
        }
        few[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Failures of fingerprints in turn: how many are of the commonest few.
    fn few(fingerprints: impl Iterator<Item = u128>) -> usize {
        let mut commonest = Commonest::default();
        let mut n = 0_u32;
        let mut count = |fingerprint| {
            n += 1;
            commonest.count(fingerprint, Mono::from_secs_f64(f64::from(n) / 100.0))
        };
        fingerprints.filter(|fingerprint| count(*fingerprint)).count()
    }

    #[test]
    fn one_that_fails_again_and_again_is_found_among_many() {
        let half = (0..4_000_u128).map(|n| if n % 2 == 0 { 7 } else { 1_000 + n });
        let found = few(half);
        assert!((1_900..=2_000).contains(&found), "{found} of 2,000");
    }

    #[test]
    fn retries_of_many_are_no_repetition_of_few() {
        let nine_each = (0..500_u128).flat_map(|round| (0..36).map(move |n| round / 9 * 36 + n));
        let found = few(nine_each);
        assert!(found * 5 < 18_000, "{found} of 18,000");
    }
}
