//! A bucket of permits that refills continuously, in exact integers.
//!
//! One permit is 60e9 units, so a limit of `n` per minute refills `n` units per nanosecond: no
//! fraction is ever rounded, and a call that is told to wait fits exactly when the wait is over and
//! not a nanosecond earlier. What others take of the same bucket flows out as continuously.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::signal::Mono;

/// Units in one permit: nanoseconds in a minute.
const UNITS_PER_PERMIT: u128 = 60_000_000_000;

/// Permits with a limit per minute.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    per_minute: NonZeroU64,
    capacity: NonZeroU64,
    level_units: u128,
    refilled_at: Mono,
    /// Permits per minute that others ask for; they come first.
    others_per_minute: u64,
    others_units: u128,
}

impl Bucket {
    /// A bucket that holds `start` permits, at most its capacity.
    pub(super) fn new(per_minute: NonZeroU64, capacity: NonZeroU64, start: u64, now: Mono) -> Self {
        let level_units = u128::from(start.min(capacity.get())) * UNITS_PER_PERMIT;
        Self {
            per_minute,
            capacity,
            level_units,
            refilled_at: now,
            others_per_minute: 0,
            others_units: 0,
        }
    }

    /// A bucket that holds the share of the limit that falls on `seconds`, full.
    pub(super) fn slice(per_minute: NonZeroU64, seconds: u32, now: Mono) -> Self {
        let share = per_minute.get().saturating_mul(u64::from(seconds)) / 60;
        let capacity = NonZeroU64::new(share).unwrap_or(NonZeroU64::MIN);
        Self::new(per_minute, capacity, capacity.get(), now)
    }

    /// Adds what came back since the last call. A clock that steps back adds nothing.
    pub(super) fn refill(&mut self, now: Mono) {
        let elapsed_ns = now.saturating_since(self.refilled_at).as_nanos();
        let gained = elapsed_ns.saturating_mul(u128::from(self.per_minute.get()));
        let wanted = elapsed_ns.saturating_mul(u128::from(self.others_per_minute));
        let available = self.level_units.saturating_add(gained);
        let taken = wanted.min(available);
        self.level_units = (available - taken).min(self.capacity_units());
        self.others_units = self.others_units.saturating_add(taken);
        self.refilled_at = self.refilled_at.max(now);
    }

    /// From now on others ask for so many permits per minute.
    pub(super) const fn share_with(&mut self, others_per_minute: u64) {
        self.others_per_minute = others_per_minute;
    }

    /// Whole permits that others got so far.
    pub(super) fn taken_by_others(&self) -> u64 {
        u64::try_from(self.others_units / UNITS_PER_PERMIT).unwrap_or(u64::MAX)
    }

    /// Full at once.
    pub(super) fn fill(&mut self) {
        self.level_units = self.capacity_units();
    }

    /// Time until `permits` fit, rounded up; zero when they fit now, `None` when they never do.
    pub(super) fn wait(&self, permits: u64) -> Option<Duration> {
        if permits > self.capacity.get() {
            return None;
        }
        let lacking = (u128::from(permits) * UNITS_PER_PERMIT).saturating_sub(self.level_units);
        let wait_ns = lacking.div_ceil(u128::from(self.per_minute.get()));
        Some(Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(u64::MAX)))
    }

    /// Takes `permits` after [`Self::wait`] said that they fit.
    pub(super) fn take(&mut self, permits: u64) {
        self.level_units = self.level_units.saturating_sub(u128::from(permits) * UNITS_PER_PERMIT);
    }

    /// Sets a new limit; what the bucket holds stays, up to its new capacity.
    pub(super) fn set_limit(&mut self, per_minute: NonZeroU64, capacity: NonZeroU64) {
        self.per_minute = per_minute;
        self.capacity = capacity;
        self.level_units = self.level_units.min(self.capacity_units());
    }

    /// The limit per minute.
    pub(super) const fn per_minute(&self) -> NonZeroU64 {
        self.per_minute
    }

    /// Whole permits held.
    pub(super) fn remaining(&self) -> u64 {
        u64::try_from(self.level_units / UNITS_PER_PERMIT).unwrap_or(u64::MAX)
    }

    /// The most that it holds.
    pub(super) const fn capacity(&self) -> NonZeroU64 {
        self.capacity
    }

    /// Time until the bucket is full.
    pub(super) fn full_in(&self) -> Duration {
        self.wait(self.capacity.get()).unwrap_or_default()
    }

    fn capacity_units(&self) -> u128 {
        u128::from(self.capacity.get()) * UNITS_PER_PERMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(n: u64) -> NonZeroU64 {
        NonZeroU64::new(n).expect("tests use positive numbers")
    }

    proptest! {
        #[test]
        fn refused_before_and_allowed_exactly_at_the_wait(
            per_minute in 1_u64..5_000_000,
            capacity in 1_u64..5_000_000,
            start in 0_u64..5_000_000,
            asked in 1_u64..5_000_000,
        ) {
            let mut bucket = Bucket::new(number(per_minute), number(capacity), start, Mono::START);
            match bucket.wait(asked) {
                None => prop_assert!(asked > capacity),
                Some(wait) => {
                    if let Some(just_before) = wait.checked_sub(Duration::from_nanos(1)) {
                        let mut early = bucket.clone();
                        early.refill(Mono::START + just_before);
                        prop_assert!(early.wait(asked) > Some(Duration::ZERO));
                    }
                    bucket.refill(Mono::START + wait);
                    prop_assert_eq!(bucket.wait(asked), Some(Duration::ZERO));
                }
            }
        }

        #[test]
        fn never_above_capacity(waits_ns in prop::collection::vec(0_u64..120_000_000_000, 1..20)) {
            let mut bucket = Bucket::new(number(600), number(50), 10, Mono::START);
            let mut now = Mono::START;
            for wait in waits_ns {
                now = now + Duration::from_nanos(wait);
                bucket.refill(now);
                prop_assert!(bucket.remaining() <= 50);
                bucket.take(7);
            }
        }
    }

    #[test]
    fn others_come_first_and_what_they_got_is_counted() {
        let mut bucket = Bucket::new(number(600), number(100), 0, Mono::START);
        bucket.share_with(450);
        let minute = Mono::START + Duration::from_secs(20);
        bucket.refill(minute);
        assert_eq!((bucket.remaining(), bucket.taken_by_others()), (50, 150));
        bucket.share_with(60_000);
        bucket.refill(minute + Duration::from_secs(1));
        assert_eq!(
            (bucket.remaining(), bucket.taken_by_others()),
            (0, 210),
            "no more than there is"
        );
        bucket.fill();
        assert_eq!(bucket.remaining(), 100);
    }

    #[test]
    fn a_slice_holds_its_share_of_the_minute() {
        assert_eq!(Bucket::slice(number(6_000), 1, Mono::START).remaining(), 100);
        assert_eq!(Bucket::slice(number(30), 1, Mono::START).remaining(), 1, "never zero");
    }
}
