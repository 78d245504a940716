//! Finds the limit by latency: shrinks it while answers take longer than they do in the long run.
//!
//! Netflix's `Gradient2` over its `WindowedLimit` (concurrency-limits, 2018, with their constants): the
//! mean latency of a second against a long average, with a tolerance, and a small queue always allowed,
//! so that the limit grows until latency does. Those ignore refusals; here they cut, by the ratio that
//! their AIMD limiter has. Without the windows single answers decide, and a model whose answers last
//! from 0.05 to 1 s loses three fifths of its throughput.

use std::time::Duration;

use super::{Crowding, FLOOR, in_use};
use crate::signal::Mono;

/// Permits at the start.
const START: f64 = 20.0;
/// Permits beyond those that latency asks for.
const QUEUE: f64 = 4.0;
/// Latency may exceed its long average by this factor before the limit shrinks.
const TOLERANCE: f64 = 1.5;
/// Strongest single shrinking.
const GRADIENT_MIN: f64 = 0.5;
/// Weight of the newest estimate of the limit.
const SMOOTHING: f64 = 0.2;
/// Length of one window, whose mean latency is one sample ...
const WINDOW: Duration = Duration::from_secs(1);
/// ... and the fewest answers that it must have.
const ANSWERS_MIN: u32 = 10;
/// Samples that the long average looks back on.
const LONG_WINDOW: f64 = 600.0;
/// First samples, of which it is the plain mean.
const WARM_UP: u32 = 10;
/// A long average above this many times the newest latency is stale, as after an overload ...
const DRIFT: f64 = 2.0;
/// ... and decays by this factor with each sample.
const DECAY: f64 = 0.95;
/// What a refusal leaves of the limit.
const BACKOFF: f64 = 0.9;
/// Refusals within so long tell of the same calls.
const COOLDOWN: Duration = Duration::from_secs(1);

/// The limit of one scope by latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    ceiling: f64,
    limit: f64,
    long_s: f64,
    samples: u32,
    cut_at: Option<Mono>,
    window: Window,
}

/// The answers of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Window {
    began: Mono,
    latency_sum_s: f64,
    answers: u32,
    in_flight_max: u32,
}

impl Gradient {
    /// From twenty permits up to `ceiling`.
    #[must_use]
    pub fn new(ceiling: u32) -> Self {
        let ceiling = f64::from(ceiling.max(FLOOR));
        Self {
            ceiling,
            limit: START.min(ceiling),
            long_s: 0.0,
            samples: 0,
            cut_at: None,
            window: Window::default(),
        }
    }

    /// Calls that may be open now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between the floor and a ceiling that was a u32"
        )]
        let whole = self.limit as u32;
        whole
    }

    pub(super) fn begin_at(&mut self, in_flight: u32) {
        self.limit = self.bounded(self.limit.max(in_flight.into()));
    }

    pub(super) fn set_ceiling(&mut self, ceiling: u32) {
        self.ceiling = f64::from(ceiling.max(FLOOR));
        self.limit = self.limit.min(self.ceiling);
    }

    pub(super) fn ended(
        &mut self,
        latency: Duration,
        crowding: Crowding,
        in_flight: u32,
        now: Mono,
    ) {
        match crowding {
            Crowding::Clean => self.clean(latency, in_flight, now),
            Crowding::Capped | Crowding::Overloaded
                if self.cut_at.is_none_or(|cut| now.saturating_since(cut) >= COOLDOWN) =>
            {
                (self.limit, self.cut_at) = (self.bounded(self.limit * BACKOFF), Some(now));
            }
            Crowding::Capped | Crowding::Overloaded | Crowding::Unknown => {}
        }
    }

    fn clean(&mut self, latency: Duration, in_flight: u32, now: Mono) {
        let window = &mut self.window;
        window.latency_sum_s += latency.as_secs_f64();
        window.answers = window.answers.saturating_add(1);
        window.in_flight_max = window.in_flight_max.max(in_flight);
        if now.saturating_since(window.began) >= WINDOW && window.answers >= ANSWERS_MIN {
            let full = std::mem::replace(window, Window { began: now, ..Window::default() });
            self.sample(full.latency_sum_s / f64::from(full.answers), full.in_flight_max);
        }
    }

    fn sample(&mut self, latency_s: f64, in_flight: u32) {
        self.samples = self.samples.saturating_add(1);
        let weight = if self.samples <= WARM_UP {
            1.0 / f64::from(self.samples)
        } else {
            2.0 / (LONG_WINDOW + 1.0)
        };
        self.long_s += weight * (latency_s - self.long_s);
        if self.long_s > DRIFT * latency_s {
            self.long_s *= DECAY;
        }
        if !in_use(in_flight, self.limit()) {
            return;
        }
        // A latency of zero is quicker than any average: the gradient is then at its most.
        let gradient = TOLERANCE * self.long_s / latency_s.max(f64::MIN_POSITIVE);
        let wanted = self.limit * gradient.clamp(GRADIENT_MIN, 1.0) + QUEUE;
        self.limit = self.bounded(self.limit + SMOOTHING * (wanted - self.limit));
    }

    fn bounded(&self, limit: f64) -> f64 {
        limit.clamp(FLOOR.into(), self.ceiling)
    }
}
