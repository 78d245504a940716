//! How long the people behind the calls wait: a deadline that is told, and leaving without a word.

use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::signal::Mono;
use crate::sim::rng;

/// How long the people behind the calls wait. By default they all wait for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Every call has a deadline: this long after it begins, or up to twice as long.
    pub deadline: Option<Duration>,
    /// Share of the calls whose person leaves without a word.
    pub leaving_ratio: f64,
    /// They leave at any time up to this long after the call begins.
    pub leaves_within: Duration,
    /// Whether the layers below notice.
    pub noticed: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { deadline: None, leaving_ratio: 0.0, leaves_within: Duration::ZERO, noticed: true }
    }
}

/// Until when one person waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The deadline that the gate is told.
    pub deadline: Option<Mono>,
    /// When the person leaves: at the deadline, or before it without a word.
    pub leaves_at: Option<Mono>,
}

/// Draws how long people wait.
#[derive(Clone, Debug)]
pub struct People(Pcg64);

impl People {
    /// The people of one seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(rng::seeded(seed, rng::Stream::Departures))
    }

    /// How long the person waits whose call begins now.
    pub fn waits(&mut self, patience: &Patience, now: Mono) -> Waits {
        let Patience { deadline, leaving_ratio, leaves_within, .. } = *patience;
        let deadline =
            deadline.map(|shortest| now + shortest + shortest.mul_f64(self.0.random::<f64>()));
        let leaves = (leaving_ratio > 0.0 && self.0.random::<f64>() < leaving_ratio)
            .then(|| now + leaves_within.mul_f64(self.0.random::<f64>()));
        Waits { deadline, leaves_at: deadline.into_iter().chain(leaves).min() }
    }
}
