//! Decides which share of the configured rate is used: cut when the provider refuses, raised again
//! along a cubic once it has been content for a while. Never above the whole.
//!
//! A refusal at a pace within the quota means that there is less than we think: somebody else draws
//! on it, or the provider counts otherwise. Paces nothing and pauses nothing itself.
//!
//! A cut is as deep as the strain, the share of refused among the newest answers, asks for, so that
//! the wrong pace is left within seconds and the right one is hardly touched (DCTCP, RFC 8257). The
//! way back is the curve of CUBIC (RFC 9438): quick while far from where it was last refused, almost
//! flat near it, quick again beyond. A saw-tooth of equal steps would either need minutes to come
//! back or swing by more than it may.
//!
//! The state is a handful of numbers and moves only when an answer is heard, so that several instances
//! can hold it in one place. [`Adaptive::factor`] has no `now`.
//!
//! Measured against a provider that grants 30, 60 or 80 % of the quota, with one instance and with
//! four, 66.7 requests a second (`cargo test --lib adaptive`): the right pace after some 10 s, then a
//! swing of 2.5 % to either side, the whole of what is granted used, 0.15 to 0.5 % of the attempts
//! refused; the whole quota back within a minute of a foreign user's leaving. Each saw-tooth costs two
//! refusals, whatever the rate, so a scope of one request a second pays 8 % for the same swing.

use std::time::Duration;

use crate::signal::Mono;

mod pause;
#[cfg(test)]
mod tests;

pub use pause::Pause;

/// Weight of the newest answer in the strain. One refusal alone stays below [`STRAIN_CUT`]: it may be
/// a late one. A second within some 160 answers does not.
const GAIN: f64 = 0.01;
/// Strain above which the rate is cut.
const STRAIN_CUT: f64 = 0.012;
/// Least cut, which is the whole swing around a steady capacity: two per cent to either side.
const CUT_MIN: f64 = 0.04;
/// Deepest single cut; the next may follow a [`COOLDOWN`] later.
const CUT_MAX: f64 = 0.3;
/// Time between cuts: answers to the new pace must have come in before it is judged.
const COOLDOWN: Duration = Duration::from_secs(1);
/// Lowest factor. With less than a tenth of its quota left a person should look.
const FLOOR: f64 = 0.1;
/// Time of success before the rate rises at all.
const HOLD: Duration = Duration::from_secs(5);
/// Curvature, in shares per cubic second: from 60 % to the whole in some 70 s.
const CURVE: f64 = 3e-6;
/// Most time that one success vouches for. An idle hour proves nothing about the quota.
const GAP: Duration = Duration::from_secs(1);
/// Smaller moves of the factor need no new rates.
const MOVE_MIN: f64 = 0.001;

/// The rate factor of one scope, 1.0 while the provider is content.
#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    /// Factor right after the last cut.
    base: f64,
    /// Factor at which the provider last refused.
    top: f64,
    cut_at: Option<Mono>,
    good_at: Mono,
    /// Time of success since the last cut.
    good_for: Duration,
    strain: f64,
    frozen: bool,
    /// What the numbers above come to.
    factor: f64,
    /// The factor when it was last said to have moved.
    told: f64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            base: 1.0,
            top: 1.0,
            cut_at: None,
            good_at: Mono::START,
            good_for: Duration::ZERO,
            strain: 0.0,
            frozen: false,
            factor: 1.0,
            told: 1.0,
        }
    }
}

impl Adaptive {
    /// The factor to multiply the rate with.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// Stops it where it is (`adaptive.enabled = false`), or lets it go on.
    pub const fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// An answer to a call that `started` then. `refused` is a refusal for the rate (429); overloads
    /// (503, 529), other faults and refusals for concurrency say nothing about the rate and do not
    /// belong here.
    ///
    /// True when the factor has moved and the rates must be set anew.
    pub fn heard(&mut self, refused: bool, started: Mono, now: Mono) -> bool {
        if self.frozen || self.cut_at.is_some_and(|cut| started < cut) {
            return false;
        }
        if refused {
            self.strain += (1.0 - self.strain) * GAIN;
            let rested = self.cut_at.is_none_or(|cut| now.saturating_since(cut) >= COOLDOWN);
            if self.strain > STRAIN_CUT && rested {
                self.cut(now);
            }
        } else {
            self.strain -= self.strain * GAIN;
            self.good_for += now.saturating_since(self.good_at).min(GAP);
            self.good_at = self.good_at.max(now);
        }
        self.factor = self.curve();
        let moved = (self.factor - self.told).abs() >= MOVE_MIN;
        if moved {
            self.told = self.factor;
        }
        moved
    }

    /// The factor as the keeper has it, where several instances share it. From there this one goes
    /// on by itself if the keeper falls silent.
    pub fn reflect(&mut self, factor: f64, now: Mono) {
        if (factor - self.factor).abs() < f64::EPSILON {
            return;
        }
        (self.base, self.top, self.factor, self.told) = (factor.min(1.0), 1.0, factor, factor);
        (self.cut_at, self.good_at) = (Some(now), now);
        (self.good_for, self.strain) = (Duration::ZERO, 0.0);
    }

    fn cut(&mut self, now: Mono) {
        self.top = self.factor;
        self.base = (self.top * (1.0 - self.strain.clamp(CUT_MIN, CUT_MAX))).max(FLOOR);
        (self.cut_at, self.good_at) = (Some(now), now);
        (self.good_for, self.strain) = (Duration::ZERO, 0.0);
    }

    /// The factor that the time of success has come to: a cubic through `base` with its flat part at
    /// `top`.
    fn curve(&self) -> f64 {
        let risen_s = self.good_for.saturating_sub(HOLD).as_secs_f64();
        let flat_s = ((self.top - self.base) / CURVE).cbrt();
        (self.top + CURVE * (risen_s - flat_s).powi(3)).clamp(self.base, 1.0)
    }
}
