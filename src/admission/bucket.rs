//! One token bucket: refilled continuously, bounded in its burst. Knows no meter and no provider.
//!
//! The method of RFC 2697's committed rate. It may run into debt when a request is larger than the
//! burst, or a bill larger than its estimate; nothing passes then until the debt is refilled.

use std::time::Duration;

use crate::signal::Mono;

/// Smallest capacity: one request must fit, however slow the meter.
const CAPACITY_MIN: f64 = 1.0;

/// A meter that is refilled continuously.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: f64,
    capacity: f64,
    level: f64,
    /// When `level` was right; the future while the bucket is on hold.
    updated: Mono,
}

impl Bucket {
    /// A bucket that holds `burst` of its rate, empty: what the provider still has for us is not known
    /// at the start. Only the one request that a slow meter holds need not wait for its refill.
    #[must_use]
    pub fn new(per_second: f64, burst: Duration, now: Mono) -> Self {
        let is_slow = per_second * burst.as_secs_f64() < CAPACITY_MIN;
        let full = Self::full(per_second, burst, now);
        Self { level: if is_slow { full.capacity } else { 0.0 }, ..full }
    }

    /// The same, full.
    #[must_use]
    pub fn full(per_second: f64, burst: Duration, now: Mono) -> Self {
        let capacity = capacity(per_second, burst);
        Self { per_second, capacity, level: capacity, updated: now }
    }

    /// What could be taken now. Negative while in debt.
    #[must_use]
    pub fn level(&self, now: Mono) -> f64 {
        let passed = now.saturating_since(self.updated).as_secs_f64();
        (self.level + passed * self.per_second).min(self.capacity)
    }

    /// The level over the capacity, 0..1.
    #[must_use]
    pub fn headroom(&self, now: Mono) -> f64 {
        (self.level(now) / self.capacity).clamp(0.0, 1.0)
    }

    /// Changes the rate from `now` on and keeps the level, cut to the new burst.
    pub fn set_rate(&mut self, per_second: f64, burst: Duration, now: Mono) {
        self.advance(now);
        self.per_second = per_second;
        self.capacity = capacity(per_second, burst);
        self.level = self.level.min(self.capacity);
    }

    /// Time until `amount` may be taken after `ahead` has been; `None` when never.
    #[must_use]
    pub fn wait(&self, amount: f64, ahead: f64, now: Mono) -> Option<Duration> {
        let lacking = amount.min(self.capacity) + ahead - self.level(now);
        if lacking <= 0.0 {
            return Some(Duration::ZERO);
        }
        if self.per_second <= 0.0 {
            return None;
        }
        // Rounded up by a nanosecond, so that the wake-up at this instant finds the amount there.
        let refill = Duration::try_from_secs_f64(lacking / self.per_second).ok()?;
        Some(self.updated.saturating_since(now) + refill + Duration::from_nanos(1))
    }

    /// Takes `amount`, into debt if need be.
    pub fn take(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        self.level -= amount;
    }

    /// Gives `amount` back, up to the burst; a negative amount is taken.
    pub fn give(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        self.level = (self.level + amount).min(self.capacity);
    }

    /// Lowers the level to `ceiling`; never raises it.
    pub fn cap(&mut self, ceiling: f64, now: Mono) {
        self.advance(now);
        self.level = self.level.min(ceiling.max(-self.capacity));
    }

    /// Sets the level to what somebody else has measured.
    pub fn set_level(&mut self, level: f64, now: Mono) {
        self.advance(now);
        self.level = level.min(self.capacity);
    }

    /// Empties the bucket and refills it only from `until` on; a debt stays.
    pub fn hold(&mut self, until: Mono, now: Mono) {
        self.cap(0.0, now);
        self.updated = self.updated.max(until);
    }

    fn advance(&mut self, now: Mono) {
        self.level = self.level(now);
        self.updated = self.updated.max(now);
    }
}

fn capacity(per_second: f64, burst: Duration) -> f64 {
    (per_second * burst.as_secs_f64()).max(CAPACITY_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn refuses_before_and_allows_exactly_at_the_promised_time() {
        let mut bucket = Bucket::new(100.0, SECOND, Mono::START);
        bucket.take(250.0, Mono::START);
        let wait = bucket.wait(30.0, 0.0, Mono::START).expect("the rate is positive");
        let promised = Mono::START + wait;
        assert!(bucket.level(promised) >= 30.0);
        assert!(bucket.level(promised - Duration::from_micros(1)) < 30.0);
        assert_eq!(bucket.wait(30.0, 0.0, promised), Some(Duration::ZERO));
    }

    #[test]
    fn a_request_larger_than_the_burst_passes_on_a_full_bucket_and_leaves_a_debt() {
        let mut bucket = Bucket::new(10.0, SECOND, Mono::START);
        assert_eq!(bucket.wait(50.0, 0.0, at(1.0)), Some(Duration::ZERO));
        bucket.take(50.0, at(1.0));
        assert!(bucket.level(at(1.0)) < 0.0);
        assert!(bucket.wait(1.0, 0.0, at(1.0)) > Some(Duration::from_secs(4)));
    }

    #[test]
    fn nothing_passes_a_rate_of_zero() {
        let mut bucket = Bucket::full(0.0, SECOND, Mono::START);
        bucket.take(1.0, Mono::START);
        assert_eq!(bucket.wait(1.0, 0.0, at(100.0)), None, "not even a second one");
    }

    #[test]
    fn after_a_hold_it_starts_from_nothing() {
        let mut bucket = Bucket::full(100.0, SECOND, Mono::START);
        bucket.hold(at(5.0), at(1.0));
        assert!(bucket.level(at(5.0)) <= 0.0, "no refill while on hold");
        let wait = bucket.wait(10.0, 0.0, at(2.0)).expect("it refills");
        assert!((wait.as_secs_f64() - 3.1).abs() < 1e-6, "three of the hold, a tenth to refill");
        assert!((bucket.level(at(5.5)) - 50.0).abs() < 1e-9);
    }
}
