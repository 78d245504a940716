//! Additive increase, multiplicative decrease: one more after a number of clean answers, half after a
//! refusal. Looks at no latency: that of a model depends on the question more than on the load.
//!
//! Until the first refusal every clean answer adds one, which doubles the limit in a round trip: the
//! slow start of TCP (RFC 5681). From four permits and one more per thirty answers, thirty permits
//! would be eight hundred answers away.
//!
//! A cut for an overload must be worth it. Of a provider that is full, half the calls get as many
//! answers; of one that fails two of five calls whatever it is sent, half the calls get half the answers
//! and fail as often. So while overloads go on after a cut, the limit is halved again every few seconds
//! and answers are compared: as soon as fewer come and as large a share fails, the limit goes back to
//! where it was before the first cut, and overloads are left to the breaker for a while. Without that, a
//! scope of 25 requests a second with two of five failing was left with one permit (`weir drill
//! provider-overload`: 4 % of originals served; now two of three, with hardly a retry).
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

/// Answers are compared over spans of so long.
const SPAN: Duration = Duration::from_secs(5);
/// Share of overloads from which a cut is followed by another that is judged.
const GOES_ON: f64 = 0.1;
/// A cut after which less than this share of the answers per second comes has cost some ...
const WORTH_IT: f64 = 0.8;
/// ... and it has cured nothing if at least this part of the share of overloads is left.
const CURED_NOTHING: f64 = 0.6;
/// After a cut that cost answers for nothing, no overload cuts for so long.
const SPARED: Duration = Duration::from_mins(5);

/// Answers of a span that is not over.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counting {
    since: Mono,
    good: u32,
    overloads: u32,
}

/// What a span came to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    /// Good answers per second.
    rate: f64,
    /// Overloads among them and the good ones.
    share: f64,
}

impl Counting {
    /// The span, if it is over; the next one begins.
    fn over(&mut self, now: Mono) -> Option<Span> {
        let passed = now.saturating_since(self.since);
        if passed < SPAN {
            return None;
        }
        let (good, overloads) = (f64::from(self.good), f64::from(self.overloads));
        *self = Self { since: now, ..Self::default() };
        let rate = good / passed.as_secs_f64();
        Some(Span { rate, share: overloads / (good + overloads).max(1.0) })
    }

    fn restart(&mut self, now: Mono) {
        *self = Self { since: now, ..Self::default() };
    }
}

/// The limit of one scope by AIMD.
#[derive(Clone, Debug, PartialEq)]
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
    counting: Counting,
    /// What came before the last cut, when that cut is on trial.
    trial: Option<Span>,
    /// The limit before the first of a row of cuts for overloads.
    before: u32,
    /// Until when overloads do not cut.
    spared_until: Mono,
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
            counting: Counting::default(),
            trial: None,
            before: FLOOR,
            spared_until: Mono::START,
        }
    }

    /// So many calls are open already, and nothing was refused: that many at least.
    pub(super) fn begin_at(&mut self, in_flight: u32) {
        self.limit = self.limit.max(in_flight.min(self.ceiling));
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

    pub(super) fn passed_by(&mut self, crowding: Crowding, now: Mono) {
        self.counting.good += u32::from(crowding == Crowding::Clean);
        self.counting.overloads += u32::from(crowding == Crowding::Overloaded);
        // Only a good answer ends a span: a refusal never raises the limit.
        if crowding == Crowding::Clean
            && let Some(span) = self.counting.over(now)
        {
            self.judge(span, now);
        }
    }

    pub(super) fn ended(
        &mut self,
        latency: Duration,
        crowding: Crowding,
        in_flight: u32,
        now: Mono,
    ) {
        self.passed_by(crowding, now);
        let spared = crowding == Crowding::Overloaded && now < self.spared_until;
        let cooling = self.cut_at.is_some_and(|cut| now.saturating_since(cut) < COOLDOWN);
        match crowding {
            Crowding::Clean if in_use(in_flight, self.limit) && !(cooling && self.capped) => {
                self.clean += 1;
                if self.cut_at.is_none() || self.clean >= CLEAN_FOR_ONE {
                    (self.limit, self.clean) = ((self.limit + 1).min(self.ceiling), 0);
                }
            }
            Crowding::Capped | Crowding::Overloaded if !cooling && !spared => {
                (self.cut_at, self.capped) = (Some(now), false);
                // What came before was no overload: nothing to compare with yet.
                (self.trial, self.before) = (None, self.limit);
                self.counting.restart(now);
                self.lower(self.limit / 2, now);
            }
            Crowding::Capped if now - latency >= self.lowered_at => {
                self.capped = true;
                self.lower(self.limit - 1, now);
            }
            Crowding::Overloaded if !spared => self.clean = 0,
            Crowding::Overloaded | Crowding::Clean | Crowding::Capped | Crowding::Unknown => {}
        }
    }

    /// A span is over: what the last cut cost, and whether another is worth a try.
    fn judge(&mut self, span: Span, now: Mono) {
        let cost_answers = |trial: Span| {
            span.rate < trial.rate * WORTH_IT && span.share >= trial.share * CURED_NOTHING
        };
        let cooling = self.cut_at.is_some_and(|cut| now.saturating_since(cut) < COOLDOWN);
        if self.trial.take().is_some_and(cost_answers) {
            self.limit = self.before.min(self.ceiling);
            (self.clean, self.spared_until) = (0, now + SPARED);
        } else if cooling && now >= self.spared_until && span.share >= GOES_ON {
            self.trial = Some(span);
            self.lower(self.limit / 2, now);
        }
    }

    fn lower(&mut self, limit: u32, now: Mono) {
        (self.limit, self.clean, self.lowered_at) = (limit.max(FLOOR), 0, now);
    }
}
