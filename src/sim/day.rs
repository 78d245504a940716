//! The meters of the day: used up, they come back all at once and far away.
//!
//! A fixed window (as providers count a day that ends at their midnight), beside the minute's buckets.

use std::time::Duration;

use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;
use crate::sim::config::DayConfig;
use crate::sim::quota::{Need, Shortage};

const DAY: Duration = Duration::from_hours(24);

#[derive(Clone, Copy, Debug)]
struct DayMeter {
    meter: Meter,
    limit: u64,
    used: u64,
}

impl DayMeter {
    const fn needed(&self, need: Need) -> u64 {
        match self.meter {
            Meter::RequestsPerDay => need.requests,
            _ => need.tokens,
        }
    }
}

/// Requests and tokens of one day, as far as they are limited.
#[derive(Clone, Debug)]
pub(super) struct Day {
    meters: Vec<DayMeter>,
    resets_at: Mono,
}

impl Day {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a checked share of a limit far below 2^53"
    )]
    pub(super) fn new(config: &DayConfig, now: Mono) -> Self {
        let limits =
            [(Meter::RequestsPerDay, config.requests), (Meter::TokensPerDay, config.tokens)];
        let meter = |(meter, limit): (Meter, Option<std::num::NonZeroU64>)| {
            let limit = limit?.get();
            let used = (limit as f64 * config.used_ratio) as u64;
            Some(DayMeter { meter, limit, used })
        };
        let resets_in = Mono::from_secs_f64(config.resets_in_s).since_start();
        Self { meters: limits.into_iter().filter_map(meter).collect(), resets_at: now + resets_in }
    }

    /// Begins the next day, or days, if it is time.
    pub(super) fn refill(&mut self, now: Mono) {
        while self.resets_at <= now {
            self.resets_at = self.resets_at + DAY;
            self.fill();
        }
    }

    /// Nothing of the day is used, as after a reset by the provider.
    pub(super) fn fill(&mut self) {
        for meter in &mut self.meters {
            meter.used = 0;
        }
    }

    /// What the day has too little left of.
    pub(super) fn lacks(&self, need: Need, now: Mono) -> Option<Shortage> {
        let lacking = |meter: &&DayMeter| meter.needed(need) > meter.limit - meter.used;
        let meter = self.meters.iter().find(lacking)?;
        Some(Shortage::Wait {
            meter: meter.meter,
            wait: self.resets_at.saturating_since(now),
            limit: meter.limit,
            used: meter.used,
            requested: meter.needed(need),
        })
    }

    /// Takes what [`Self::lacks`] said is there.
    pub(super) fn take(&mut self, need: Need) {
        for meter in &mut self.meters {
            meter.used = meter.limit.min(meter.used + meter.needed(need));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "limits stay far below 2^53")]
    pub(super) fn readings(&self, now: Mono) -> impl Iterator<Item = MeterReading> {
        let reset = self.resets_at.saturating_since(now);
        self.meters.iter().map(move |meter| MeterReading {
            meter: meter.meter,
            limit: Some(meter.limit as f64),
            remaining: Some((meter.limit - meter.used) as f64),
            reset: Some(reset),
            window: Some(DAY),
        })
    }
}
