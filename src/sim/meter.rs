//! One meter of the simulated provider: a minute bucket and, if configured, shorter slices of it.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;
use crate::sim::bucket::Bucket;
use crate::sim::config::MeterConfig;
use crate::sim::quota::Shortage;

/// A limit per minute, with the shorter windows that are checked beside it.
#[derive(Clone, Debug)]
pub(super) struct SimMeter {
    meter: Meter,
    minute: Bucket,
    slices: Vec<(u32, Bucket)>,
}

impl SimMeter {
    pub(super) fn new(meter: Meter, config: &MeterConfig, now: Mono) -> Self {
        let capacity = config.capacity.unwrap_or(config.per_minute);
        let start = config.start.unwrap_or(capacity.get());
        let slice = |seconds: &u32| (*seconds, Bucket::slice(config.per_minute, *seconds, now));
        Self {
            meter,
            minute: Bucket::new(config.per_minute, capacity, start, now),
            slices: config.slices_s.iter().map(slice).collect(),
        }
    }

    pub(super) fn refill(&mut self, now: Mono) {
        self.minute.refill(now);
        for (_, slice) in &mut self.slices {
            slice.refill(now);
        }
    }

    /// Time until `permits` fit every window; `None` when they never do.
    pub(super) fn wait(&self, permits: u64) -> Option<Duration> {
        let mut longest = self.minute.wait(permits)?;
        for (_, slice) in &self.slices {
            longest = longest.max(slice.wait(permits)?);
        }
        Some(longest)
    }

    pub(super) fn take(&mut self, permits: u64) {
        self.minute.take(permits);
        for (_, slice) in &mut self.slices {
            slice.take(permits);
        }
    }

    /// Others ask for so many permits per minute too.
    pub(super) fn share_with(&mut self, others_per_minute: u64) {
        self.minute.share_with(others_per_minute);
        for (_, slice) in &mut self.slices {
            slice.share_with(others_per_minute);
        }
    }

    /// Whole permits that others got so far.
    pub(super) fn taken_by_others(&self) -> u64 {
        self.minute.taken_by_others()
    }

    /// Every window is full at once, as after a reset by the provider.
    pub(super) fn fill(&mut self) {
        self.minute.fill();
        for (_, slice) in &mut self.slices {
            slice.fill();
        }
    }

    /// Changes the limit; capacity and slices change in proportion, what is held stays.
    pub(super) fn set_limit(&mut self, per_minute: NonZeroU64, now: Mono) {
        let before = u128::from(self.minute.per_minute().get());
        let capacity = u128::from(self.minute.capacity().get()) * u128::from(per_minute.get());
        let capacity = u64::try_from(capacity / before).unwrap_or(u64::MAX);
        self.minute.set_limit(per_minute, NonZeroU64::new(capacity).unwrap_or(NonZeroU64::MIN));
        for (seconds, slice) in &mut self.slices {
            let fresh = Bucket::slice(per_minute, *seconds, now);
            slice.set_limit(per_minute, fresh.capacity());
        }
    }

    pub(super) const fn limit(&self) -> u64 {
        self.minute.per_minute().get()
    }

    /// That a call must wait for this meter, as a refusal words it.
    pub(super) fn short(&self, wait: Duration, requested: u64) -> Shortage {
        let (meter, limit) = (self.meter, self.limit());
        let used = limit.saturating_sub(self.minute.remaining());
        Shortage::Wait { meter, wait, limit, used, requested }
    }

    #[expect(clippy::cast_precision_loss, reason = "limits stay far below 2^53")]
    pub(super) fn reading(&self) -> MeterReading {
        MeterReading {
            meter: self.meter,
            limit: Some(self.limit() as f64),
            remaining: Some(self.minute.remaining() as f64),
            reset: Some(ceil_ms(self.minute.full_in())),
            window: Some(Duration::from_mins(1)),
        }
    }
}

/// Rounded up to a millisecond, the finest that providers write.
fn ceil_ms(span: Duration) -> Duration {
    let ms = span.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
