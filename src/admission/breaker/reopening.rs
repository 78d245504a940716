//! Keeps the scopes of one provider from coming back all at once after it failed all of them.
//!
//! Two means: the time spent open is spread by the scope's name, the same in every instance, and of
//! one provider's scopes only one probes at a time, for a while that is bounded so that nobody waits
//! for ever on somebody else's probe. Opens and closes nothing itself.

use std::time::Duration;

use crate::signal::Mono;

/// Largest share of the time spent open that is added to it.
pub(super) const SPREAD_MAX: f64 = 0.25;
/// Longest turn of one scope. A probe that takes longer goes on, but the next may begin.
pub(super) const TURN_MAX: Duration = Duration::from_secs(5);
/// A scope that was due for so long probes whoever's turn it is.
pub(super) const DUE_MAX: Duration = Duration::from_secs(30);

/// The share, up to a quarter, by which one scope's time spent open is longer than the rule's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread(f64);

impl Spread {
    /// The share of the scope of this name: any two names are likely to be far apart.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let [first, second, ..] = *hash.as_bytes();
        Self(f64::from(u16::from_be_bytes([first, second])) / f64::from(u16::MAX) * SPREAD_MAX)
    }

    /// The share itself, 0 to 0.25.
    #[must_use]
    pub const fn share(self) -> f64 {
        self.0
    }

    /// The time, spread.
    #[must_use]
    pub fn of(self, open_for: Duration) -> Duration {
        open_for.mul_f64(1.0 + self.0)
    }
}

/// Whose turn it is to probe, among the scopes of one provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reopening {
    /// The scope that probes, and the end of its turn.
    turn: Option<(usize, Mono)>,
}

impl Reopening {
    /// Whether `scope`, half-open since `due`, may begin its probe; the instant to ask again at
    /// otherwise.
    ///
    /// # Errors
    /// The end of the other scope's turn, or of this one's patience.
    pub fn permits(&self, scope: usize, due: Mono, now: Mono) -> Result<(), Mono> {
        match self.turn {
            Some((other, until)) if other != scope && now < until.min(due + DUE_MAX) => {
                Err(until.min(due + DUE_MAX))
            }
            _ => Ok(()),
        }
    }

    /// The scope's probe begins.
    pub fn began(&mut self, scope: usize, now: Mono) {
        self.turn = Some((scope, now + TURN_MAX));
    }

    /// The scope's probe has ended, whichever way.
    pub fn ended(&mut self, scope: usize) {
        self.turn = self.turn.filter(|(other, _)| *other != scope);
    }
}
