//! How long a layer waits by itself, when it was told nothing: backoff and jitter.
//!
//! Exponential backoff and its jitters are those of the AWS Architecture Blog ("Exponential Backoff And
//! Jitter") and of the SDKs in `assets/clients`.

use rand::Rng;
use rand_pcg::Pcg64;
use serde::Deserialize;

/// A wait that grows, with chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Backoff {
    /// The wait before the first repeat.
    pub(super) base_s: f64,
    /// The same after a 429 or a code for throttling, where it differs.
    pub(super) throttled_base_s: Option<f64>,
    /// What each further wait is multiplied with.
    pub(super) factor: f64,
    /// The longest wait.
    pub(super) cap_s: f64,
    /// The wait before the first repeat, where it does not fit the row.
    pub(super) first_s: Option<f64>,
    pub(super) jitter: Jitter,
}

/// What chance makes of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// Up to this share of it is taken off.
    Minus(f64),
    /// It is multiplied with a number between these two.
    Times(f64, f64),
    /// Up to this many seconds are added, the cap not exceeded.
    AddedS(f64),
    /// Anything between this many seconds and the wait: tenacity's `wait_random_exponential`.
    FromS(f64),
    /// Anything between nothing and the wait.
    Full,
    /// Anything between the base and three times the previous wait, the cap not exceeded.
    Decorrelated,
}

impl Backoff {
    /// No wait; what doubles if a base is given, without a cap.
    pub(super) const NONE: Self = Self {
        base_s: 0.0,
        throttled_base_s: None,
        factor: 2.0,
        cap_s: f64::INFINITY,
        first_s: None,
        jitter: Jitter::None,
    };

    /// The wait before the repeat number `repeat`, from 0, in seconds; `previous_s` is the one before.
    pub(super) fn wait_s(
        &self,
        repeat: u32,
        throttled: bool,
        previous_s: Option<f64>,
        random: &mut Pcg64,
    ) -> f64 {
        let base_s = self.throttled_base_s.filter(|_| throttled).unwrap_or(self.base_s);
        let grown = base_s * self.factor.powi(i32::try_from(repeat).unwrap_or(i32::MAX));
        let wait_s = match self.first_s {
            Some(first_s) if repeat == 0 => first_s,
            _ => grown.min(self.cap_s),
        };
        match self.jitter {
            Jitter::None => wait_s,
            Jitter::Minus(share) => wait_s * (1.0 - share * random.random::<f64>()),
            Jitter::Times(from, to) => wait_s * between(from, to, random),
            Jitter::AddedS(most_s) => (wait_s + between(0.0, most_s, random)).min(self.cap_s),
            Jitter::FromS(least_s) => between(least_s, wait_s.max(least_s), random),
            Jitter::Full => between(0.0, wait_s, random),
            Jitter::Decorrelated => {
                let widest_s = (previous_s.unwrap_or(base_s) * 3.0).min(self.cap_s);
                between(base_s, widest_s.max(base_s), random)
            }
        }
    }

    /// The longest wait that [`Self::wait_s`] can give for the repeats below `repeats`.
    #[cfg(test)]
    pub(super) fn longest_s(&self, repeats: u32) -> f64 {
        let base_s = self.base_s.max(self.throttled_base_s.unwrap_or(0.0));
        let last = i32::try_from(repeats.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = (base_s * self.factor.max(1.0).powi(last)).min(self.cap_s);
        let grown = grown.max(self.first_s.unwrap_or(0.0));
        match self.jitter {
            Jitter::Times(_, to) => grown * to.max(1.0),
            Jitter::AddedS(most_s) => grown + most_s,
            Jitter::FromS(least_s) => grown.max(least_s),
            Jitter::Decorrelated => self.cap_s.max(base_s),
            Jitter::None | Jitter::Minus(_) | Jitter::Full => grown,
        }
    }
}

/// A number from `low` to `high`, evenly.
pub(super) fn between(low: f64, high: f64, random: &mut Pcg64) -> f64 {
    low + (high - low) * random.random::<f64>()
}
