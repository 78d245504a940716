//! A pause of a whole scope, and when each instance wakes from it. Lets nothing through itself: what
//! waits leaves at the paced rate once the pause is over.

use std::time::Duration;

use crate::signal::Mono;

/// Share of a pause's length over which the wake-ups are spread, so that instances do not knock in
/// step.
const SPREAD: f64 = 0.1;
/// Longest such spread.
const SPREAD_MAX: Duration = Duration::from_secs(1);

/// The pause of one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    began: Mono,
    until: Mono,
}

impl Pause {
    /// Nobody may start for `span`. A pause that lasts longer already stays as it is.
    pub fn extend(&mut self, span: Duration, now: Mono) {
        if now >= self.until {
            self.began = now;
        }
        self.until = self.until.max(now + span);
    }

    /// When it ends, or ended.
    #[must_use]
    pub const fn until(&self) -> Mono {
        self.until
    }

    /// Time left; zero when there is no pause.
    #[must_use]
    pub const fn left(&self, now: Mono) -> Duration {
        self.until.saturating_since(now)
    }

    /// When this instance wakes, `uniform` being its own random number in 0..1: never before the
    /// pause's end, and at most a tenth of its length or a second after it.
    #[must_use]
    pub fn wake(&self, uniform: f64) -> Mono {
        let length = self.until.saturating_since(self.began);
        self.until + length.mul_f64(SPREAD * uniform.clamp(0.0, 1.0)).min(SPREAD_MAX)
    }
}
