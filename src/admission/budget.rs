//! Request and token budgets of one quota scope.
//!
//! A continuous token bucket per meter (the method of RFC 2697's committed rate), with a burst of
//! seconds rather than of a minute: providers judge in slices of 1 s and 10 s. Both meters are
//! debited or neither. What is reserved is an estimate; `settle` replaces it by the bill.

use std::time::Duration;

use crate::signal::Mono;

/// Seconds of quota that may be used at once.
pub const BURST_S: f64 = 1.0;

/// One meter, refilled continuously. May run into debt when a request is larger than the burst,
/// or when a bill is larger than its estimate; then nothing passes until the debt is refilled.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_second: f64,
    capacity: f64,
    level: f64,
    updated: Mono,
}

impl Bucket {
    /// An empty bucket: what the provider still has for us is not known at the start, so nothing is
    /// assumed.
    #[must_use]
    pub fn new(per_second: f64, now: Mono) -> Self {
        Self { per_second, capacity: (per_second * BURST_S).max(1.0), level: 0.0, updated: now }
    }

    /// What could be taken now. Negative while in debt.
    #[must_use]
    pub fn level(&self, now: Mono) -> f64 {
        let passed = now.saturating_since(self.updated).as_secs_f64();
        (self.level + passed * self.per_second).min(self.capacity)
    }

    /// The refill rate, per second.
    #[must_use]
    pub const fn per_second(&self) -> f64 {
        self.per_second
    }

    /// The level over the capacity, 0..1.
    #[must_use]
    pub fn headroom(&self, now: Mono) -> f64 {
        (self.level(now) / self.capacity).clamp(0.0, 1.0)
    }

    /// Changes the rate from `now` on and keeps the level, cut to the new burst.
    pub fn set_rate(&mut self, per_second: f64, now: Mono) {
        self.advance(now);
        self.per_second = per_second;
        self.capacity = (per_second * BURST_S).max(1.0);
        self.level = self.level.min(self.capacity);
    }

    /// Time until `amount` may be taken; zero when it may be taken now, `None` when never.
    #[must_use]
    pub fn wait(&self, amount: f64, now: Mono) -> Option<Duration> {
        let lacking = amount.min(self.capacity) - self.level(now);
        if lacking <= 0.0 {
            return Some(Duration::ZERO);
        }
        if self.per_second <= 0.0 {
            return None;
        }
        // Rounded up by a nanosecond, so that the wake-up at this instant finds the amount there.
        Duration::try_from_secs_f64(lacking / self.per_second)
            .ok()
            .map(|wait| wait + Duration::from_nanos(1))
    }

    /// Takes `amount`, into debt if need be.
    pub fn take(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        self.level -= amount;
    }

    /// Gives `amount` back, up to the burst.
    pub fn give(&mut self, amount: f64, now: Mono) {
        self.advance(now);
        self.level = (self.level + amount).min(self.capacity);
    }

    /// Lowers the level to `ceiling`; never raises it.
    pub fn cap(&mut self, ceiling: f64, now: Mono) {
        self.advance(now);
        self.level = self.level.min(ceiling.max(-self.capacity));
    }

    /// Empties the bucket; a debt stays.
    pub fn drain(&mut self, now: Mono) {
        self.cap(0.0, now);
    }

    fn advance(&mut self, now: Mono) {
        self.level = self.level(now);
        self.updated = self.updated.max(now);
    }
}

/// What one attempt holds of both meters until it is settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reservation {
    /// Tokens reserved.
    pub tokens: f64,
}

/// Which meter keeps a request waiting longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// The request meter.
    Requests,
    /// The token meter.
    Tokens,
}

/// The budgets of one quota scope. A meter without a limit does not bind.
#[derive(Clone, Debug)]
pub struct Budget {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    reserved_tokens: f64,
    reserved_requests: f64,
}

impl Budget {
    /// Budgets for limits per minute, of which `share` is used.
    #[must_use]
    pub fn new(rpm: Option<f64>, tpm: Option<f64>, share: f64, now: Mono) -> Self {
        let bucket = |limit: f64| Bucket::new(limit * share / 60.0, now);
        Self {
            requests: rpm.map(bucket),
            tokens: tpm.map(bucket),
            reserved_tokens: 0.0,
            reserved_requests: 0.0,
        }
    }

    /// Uses another share of the limits from now on.
    pub fn set_share(&mut self, rpm: Option<f64>, tpm: Option<f64>, share: f64, now: Mono) {
        for (bucket, limit) in [(&mut self.requests, rpm), (&mut self.tokens, tpm)] {
            match (bucket.as_mut(), limit) {
                (Some(bucket), Some(limit)) => bucket.set_rate(limit * share / 60.0, now),
                (None, Some(limit)) => *bucket = Some(Bucket::new(limit * share / 60.0, now)),
                (_, None) => *bucket = None,
            }
        }
    }

    /// Time until a request of `tokens` may start, after `requests_ahead` and `tokens_ahead` have.
    /// `None` when it never may.
    #[must_use]
    pub fn wait(
        &self,
        tokens: f64,
        requests_ahead: f64,
        tokens_ahead: f64,
        now: Mono,
    ) -> Option<(Duration, Binding)> {
        let of = |bucket: &Option<Bucket>, own: f64, ahead: f64| match bucket {
            None => Some(Duration::ZERO),
            Some(bucket) => {
                let mut after = bucket.clone();
                after.take(ahead, now);
                after.wait(own, now)
            }
        };
        let requests = of(&self.requests, 1.0, requests_ahead)?;
        let tokens = of(&self.tokens, tokens, tokens_ahead)?;
        Some(if tokens >= requests {
            (tokens, Binding::Tokens)
        } else {
            (requests, Binding::Requests)
        })
    }

    /// Debits both meters.
    pub fn reserve(&mut self, tokens: f64, now: Mono) -> Reservation {
        if let Some(bucket) = &mut self.requests {
            bucket.take(1.0, now);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(tokens, now);
        }
        self.reserved_requests += 1.0;
        self.reserved_tokens += tokens;
        Reservation { tokens }
    }

    /// Replaces a reservation by what was charged. `None`: nothing was (a refusal, or never sent).
    pub fn settle(&mut self, reservation: Reservation, charged: Option<f64>, now: Mono) {
        self.reserved_requests = (self.reserved_requests - 1.0).max(0.0);
        self.reserved_tokens = (self.reserved_tokens - reservation.tokens).max(0.0);
        if let Some(bucket) = &mut self.tokens {
            bucket.give(reservation.tokens - charged.unwrap_or(0.0), now);
        }
        if charged.is_none()
            && let Some(bucket) = &mut self.requests
        {
            bucket.give(1.0, now);
        }
    }

    /// The provider says that this much is left: never believe that we have more, less what is
    /// under way and may not be in its count yet.
    pub fn believe(&mut self, requests: Option<f64>, tokens: Option<f64>, now: Mono) {
        if let (Some(bucket), Some(left)) = (&mut self.requests, requests) {
            bucket.cap(left - self.reserved_requests, now);
        }
        if let (Some(bucket), Some(left)) = (&mut self.tokens, tokens) {
            bucket.cap(left - self.reserved_tokens, now);
        }
    }

    /// Forgets what was saved up: the start of enforcement after a pass-through.
    pub fn drain(&mut self, now: Mono) {
        for bucket in [&mut self.requests, &mut self.tokens].into_iter().flatten() {
            bucket.drain(now);
        }
    }

    /// The request meter's own view.
    #[must_use]
    pub const fn requests(&self) -> Option<&Bucket> {
        self.requests.as_ref()
    }

    /// The token meter's own view.
    #[must_use]
    pub const fn tokens(&self) -> Option<&Bucket> {
        self.tokens.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    #[test]
    fn a_bucket_refuses_before_and_allows_exactly_at_the_promised_time() {
        let mut bucket = Bucket::new(100.0, Mono::START);
        bucket.take(250.0, Mono::START);
        let wait = bucket.wait(30.0, Mono::START).expect("the rate is positive");
        let promised = Mono::START + wait;
        assert!(bucket.level(promised) >= 30.0);
        assert!(bucket.level(promised - Duration::from_micros(1)) < 30.0);
        assert_eq!(bucket.wait(30.0, promised), Some(Duration::ZERO));
    }

    #[test]
    fn a_request_larger_than_the_burst_passes_on_a_full_bucket_and_leaves_a_debt() {
        let mut bucket = Bucket::new(10.0, Mono::START);
        assert_eq!(bucket.wait(50.0, at(1.0)), Some(Duration::ZERO));
        bucket.take(50.0, at(1.0));
        assert!(bucket.level(at(1.0)) < 0.0);
        assert!(bucket.wait(1.0, at(1.0)) > Some(Duration::from_secs(4)));
    }

    #[test]
    fn nothing_passes_a_budget_of_zero() {
        let budget = Budget::new(Some(0.0), None, 1.0, Mono::START);
        assert_eq!(budget.wait(1.0, 0.0, 0.0, at(100.0)), None);
    }

    #[test]
    fn the_binding_meter_is_the_one_that_keeps_waiting_longest() {
        // 300 tokens a request: 1.2 M TPM carry 66.7 requests a second, 6,000 RPM carry 100.
        let budget = Budget::new(Some(6_000.0), Some(1_200_000.0), 1.0, Mono::START);
        let (wait, binding) = budget.wait(300.0, 100.0, 30_000.0, Mono::START).expect("it refills");
        assert_eq!(binding, Binding::Tokens);
        assert!((wait.as_secs_f64() - 30_300.0 / 20_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_provider_that_has_less_is_believed_and_one_that_has_more_is_not() {
        let mut budget = Budget::new(None, Some(60_000.0), 1.0, Mono::START);
        let now = at(1.0);
        budget.believe(None, Some(200.0), now);
        assert!((budget.tokens().expect("limited").level(now) - 200.0).abs() < 1e-9);
        budget.believe(None, Some(1e9), now);
        assert!((budget.tokens().expect("limited").level(now) - 200.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn what_is_let_through_never_exceeds_burst_plus_rate(
            gaps in prop::collection::vec((0.0..0.2f64, 1.0..400.0f64), 1..200),
        ) {
            let mut budget = Budget::new(None, Some(600_000.0), 0.98, Mono::START);
            let mut now = Mono::START;
            let mut spent = 0.0;
            for (gap, tokens) in gaps {
                now = now + Duration::from_secs_f64(gap);
                let (wait, _) = budget.wait(tokens, 0.0, 0.0, now).expect("it refills");
                if wait.is_zero() {
                    let held = budget.reserve(tokens, now);
                    budget.settle(held, Some(tokens), now);
                    spent += tokens;
                }
            }
            let rate = 600_000.0 * 0.98 / 60.0;
            prop_assert!(spent <= rate * (now.as_secs_f64() + BURST_S) + 1e-6);
        }

        #[test]
        fn a_reservation_that_is_given_back_leaves_no_trace(tokens in 1.0..5_000.0f64) {
            let mut budget = Budget::new(Some(600.0), Some(600_000.0), 1.0, Mono::START);
            let now = at(0.5);
            let before = budget.tokens().expect("limited").level(now);
            let held = budget.reserve(tokens, now);
            budget.settle(held, None, now);
            let after = budget.tokens().expect("limited").level(now);
            prop_assert!((before - after).abs() < 1e-6);
        }
    }
}
