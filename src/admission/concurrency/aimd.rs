//! Additive increase, multiplicative decrease: one more after a number of clean answers, half after a
//! refusal. Looks at no latency: that of a model depends on the question more than on the load.
//!
//! Until the first refusal every clean answer adds one, which doubles the limit in a round trip: the
//! slow start of TCP (RFC 5681). From four permits and one more per thirty answers, thirty permits
//! would be eight hundred answers away.
//!
//! Within the cooldown nothing is halved again, but a refusal for concurrency of a call that began
//! under the lowered limit takes one permit back, and growth rests until the cooldown is over.
//! Without that, more work than a cap of 32 lets through has 310 of 1,000 attempts refused instead of
//! 0.3, and a cap that falls from 32 to 8 is found after 142 s instead of one.

use std::time::Duration;

use super::{Crowding, FLOOR, in_use};
use crate::signal::Mono;

/// Permits at the start.
const START: u32 = 4;
/// Clean answers for one more permit.
const CLEAN_FOR_ONE: u32 = 30;
/// Only the first refusal in so long cuts: those that follow tell of the same calls.
const COOLDOWN: Duration = Duration::from_mins(1);

/// The limit of one scope by AIMD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aimd {
    ceiling: u32,
    limit: u32,
    clean: u32,
    /// The last halving.
    cut_at: Option<Mono>,
    /// The last time that the limit was lowered; what began before tells of the limit before.
    lowered_at: Mono,
    /// No growth in this window: the provider's cap was touched again.
    capped: bool,
}

impl Aimd {
    /// From four permits up to `ceiling`.
    #[must_use]
    pub fn new(ceiling: u32) -> Self {
        let ceiling = ceiling.max(FLOOR);
        Self {
            ceiling,
            limit: START.min(ceiling),
            clean: 0,
            cut_at: None,
            lowered_at: Mono::START,
            capped: false,
        }
    }

    /// Calls that may be open now.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn set_ceiling(&mut self, ceiling: u32) {
        self.ceiling = ceiling.max(FLOOR);
        self.limit = self.limit.min(self.ceiling);
    }

    pub(super) fn ended(
        &mut self,
        latency: Duration,
        crowding: Crowding,
        in_flight: u32,
        now: Mono,
    ) {
        let cooling = self.cut_at.is_some_and(|cut| now.saturating_since(cut) < COOLDOWN);
        match crowding {
            Crowding::Clean if in_use(in_flight, self.limit) && !(cooling && self.capped) => {
                self.clean += 1;
                if self.cut_at.is_none() || self.clean >= CLEAN_FOR_ONE {
                    (self.limit, self.clean) = ((self.limit + 1).min(self.ceiling), 0);
                }
            }
            Crowding::Capped | Crowding::Overloaded if !cooling => {
                (self.cut_at, self.capped) = (Some(now), false);
                self.lower(self.limit / 2, now);
            }
            Crowding::Capped if now - latency >= self.lowered_at => {
                self.capped = true;
                self.lower(self.limit - 1, now);
            }
            Crowding::Overloaded => self.clean = 0,
            Crowding::Clean | Crowding::Capped | Crowding::Unknown => {}
        }
    }

    fn lower(&mut self, limit: u32, now: Mono) {
        (self.limit, self.clean, self.lowered_at) = (limit.max(FLOOR), 0, now);
    }
}
