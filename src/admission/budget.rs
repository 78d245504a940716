//! The meters of one quota scope together: all are debited or none.
//!
//! What is reserved is an estimate; `settle` replaces it by the bill. The provider's own readings
//! correct the meters downward. Knows neither queue nor breaker.

use std::time::Duration;

use smallvec::SmallVec;

use super::limit::Limit;
use super::meter::Metered;
use super::queue::Ahead;
use super::shared::Demand;
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

/// The shortest window that a provider's reading speaks of.
const MINUTE: Duration = Duration::from_mins(1);

/// What one attempt holds of every meter until it is settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reservation {
    /// How much.
    pub demand: Demand,
    /// When it was made.
    pub at: Mono,
}

/// How much of one meter those ahead will take. Queues count tokens together; kinds are split as in
/// `like`.
fn ahead_of(meter: Meter, ahead: &Ahead, like: &Demand) -> f64 {
    let share = |part: f64| ahead.tokens * part / like.tokens().max(1.0);
    match meter {
        Meter::Requests | Meter::RequestsPerDay => ahead.requests,
        Meter::Tokens | Meter::TokensPerDay => ahead.tokens,
        Meter::InputTokens => share(like.input),
        Meter::OutputTokens => share(like.output),
        _ => 0.0,
    }
}

/// A limit and the whole quota that it is a share of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// What may be used.
    pub limit: Limit,
    /// The provider's limit.
    pub quota: f64,
}

/// The budgets of one quota scope. A meter without a limit does not bind.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Two have room without memory of their own: requests and tokens of a minute.
    meters: SmallVec<[Metered; 2]>,
}

impl Budget {
    /// Budgets of which nothing is used, at `factor` of their rates.
    #[must_use]
    pub fn new(allowances: &[Allowance], factor: f64, now: Mono) -> Self {
        let meter = |one: &Allowance| Metered::new(one.limit, one.quota, factor, now);
        Self { meters: allowances.iter().map(meter).collect() }
    }

    /// Other limits from now on; what was used of a meter stays used.
    pub fn set(&mut self, allowances: &[Allowance], factor: f64, now: Mono) {
        let same = |a: &Limit, b: &Limit| (a.meter, a.window) == (b.meter, b.window);
        self.meters.retain(|known| allowances.iter().any(|one| same(&one.limit, known.limit())));
        for Allowance { limit, quota } in allowances {
            match self.meters.iter_mut().find(|known| same(known.limit(), limit)) {
                Some(known) => known.set(*limit, *quota, factor, now),
                None => self.meters.push(Metered::new(*limit, *quota, factor, now)),
            }
        }
    }

    /// Time until `demand` may start after those `ahead` have, and the meter that keeps it waiting
    /// longest.
    ///
    /// # Errors
    /// The meter that will never allow it.
    pub fn wait(
        &self,
        demand: &Demand,
        ahead: &Ahead,
        now: Mono,
    ) -> Result<(Duration, Option<Meter>), Meter> {
        let mut longest = (Duration::ZERO, None);
        for meter in &self.meters {
            let kind = meter.limit().meter;
            let (amount, before) = (demand.of(kind), ahead_of(kind, ahead, demand));
            if amount <= 0.0 {
                continue;
            }
            let wait = meter.wait(amount, before, now).ok_or(kind)?;
            if wait > longest.0 {
                longest = (wait, Some(kind));
            }
        }
        Ok(longest)
    }

    /// Debits every meter.
    pub fn reserve(&mut self, demand: Demand, now: Mono) -> Reservation {
        for meter in &mut self.meters {
            meter.take(demand.of(meter.limit().meter), now);
        }
        Reservation { demand, at: now }
    }

    /// Replaces a reservation by what was charged. `None`: nothing was, not even the request.
    pub fn settle(&mut self, held: &Reservation, charged: Option<Demand>, now: Mono) {
        for meter in &mut self.meters {
            let kind = meter.limit().meter;
            let charged = charged.map_or(0.0, |charged| charged.of(kind));
            meter.settle(held.at, held.demand.of(kind), charged, now);
        }
    }

    /// The provider's own readings: ours never stands above them.
    pub fn believe(&mut self, readings: &[MeterReading], now: Mono) {
        // Readings speak of whole windows, not of slices of them.
        for meter in self.meters.iter_mut().filter(|meter| meter.limit().window >= MINUTE) {
            let kind = meter.limit().meter;
            let window = meter.limit().window;
            let same = |reading: &&MeterReading| {
                reading.meter == kind && reading.window.is_none_or(|other| other == window)
            };
            if let Some(reading) = readings.iter().find(same) {
                meter.believe(reading, now);
            }
        }
    }

    /// Nothing leaves until `until`, and then at the pace.
    pub fn hold(&mut self, until: Mono, now: Mono) {
        for meter in &mut self.meters {
            meter.hold(until, now);
        }
    }

    /// The meter that counts whole windows of `meter`, if it is limited.
    #[must_use]
    pub fn meter(&self, meter: Meter) -> Option<&Metered> {
        let whole =
            |known: &&Metered| known.limit().meter == meter && known.limit().window >= MINUTE;
        self.meters.iter().find(whole)
    }

    /// All of them, slices too.
    #[must_use]
    pub fn meters(&self) -> &[Metered] {
        &self.meters
    }

    /// Gives memory up that an idle scope does not need.
    pub fn tidy(&mut self, now: Mono) {
        for meter in &mut self.meters {
            meter.tidy(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::limit::Semantics;
    use proptest::prelude::*;

    const NONE: Ahead = Ahead { requests: 0.0, tokens: 0.0 };

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn per_minute(meter: Meter, amount: f64, semantics: Semantics) -> Allowance {
        let (window, burst) = (Duration::from_mins(1), Duration::from_secs(1));
        Allowance { limit: Limit { meter, amount, window, semantics, burst }, quota: amount }
    }

    fn budget(allowances: &[Allowance]) -> Budget {
        Budget::new(allowances, 1.0, Mono::START)
    }

    fn tokens(input: f64) -> Demand {
        Demand { input, output: 0.0 }
    }

    #[test]
    fn the_binding_meter_is_the_one_that_keeps_waiting_longest() {
        // 300 tokens a request: 1.2 M TPM carry 66.7 requests a second, 6,000 RPM carry 100.
        let both = budget(&[
            per_minute(Meter::Requests, 6_000.0, Semantics::TokenBucket),
            per_minute(Meter::Tokens, 1_200_000.0, Semantics::TokenBucket),
        ]);
        let ahead = Ahead { requests: 100.0, tokens: 30_000.0 };
        let (wait, meter) = both.wait(&tokens(300.0), &ahead, Mono::START).expect("it refills");
        assert_eq!(meter, Some(Meter::Tokens));
        assert!((wait.as_secs_f64() - 30_300.0 / 20_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_provider_that_has_less_is_believed_and_one_that_has_more_is_not() {
        let mut budget = budget(&[per_minute(Meter::Tokens, 60_000.0, Semantics::TokenBucket)]);
        let now = at(1.0);
        let says = |remaining| MeterReading {
            remaining: Some(remaining),
            ..MeterReading::unknown(Meter::Tokens)
        };
        let wait = |budget: &Budget| {
            budget.wait(&tokens(1_000.0), &NONE, now).expect("it refills").0.as_secs_f64()
        };
        budget.believe(&[says(1e9)], now);
        assert!(wait(&budget) < 1e-6, "a full second is there");
        budget.believe(&[says(200.0)], now);
        assert!((wait(&budget) - 0.8).abs() < 1e-6, "800 of 1,000 a second are lacking");
        budget.believe(&[says(1e9)], now);
        assert!((wait(&budget) - 0.8).abs() < 1e-6);
    }

    #[test]
    fn drift_is_what_is_neither_explained_by_our_use_nor_by_what_is_under_way() {
        let mut budget = budget(&[per_minute(Meter::Tokens, 60_000.0, Semantics::SlidingWindow)]);
        let says = |remaining| {
            [MeterReading { remaining: Some(remaining), ..MeterReading::unknown(Meter::Tokens) }]
        };
        let drift = |budget: &Budget| budget.meters()[0].drift();
        budget.believe(&says(60_000.0), at(1.0));
        assert_eq!(drift(&budget), None, "one reading tells no drift");
        let held = budget.reserve(tokens(6_000.0), at(1.0));
        for explained in [60_000.0, 57_000.0, 54_000.0] {
            budget.believe(&says(explained), at(1.1));
            assert_eq!(drift(&budget), Some(0.0), "{explained}");
        }
        budget.settle(&held, Some(tokens(6_000.0)), at(1.2));
        budget.believe(&says(30_000.0), at(1.3));
        assert_eq!(drift(&budget), Some(0.4), "somebody else took 24,000");
    }

    #[test]
    fn a_days_meter_is_not_paced_but_it_ends() {
        let day = |semantics| {
            let limit = Limit {
                meter: Meter::RequestsPerDay,
                amount: 3.0,
                window: Duration::from_hours(24),
                semantics,
                burst: Duration::from_secs(1),
            };
            budget(&[Allowance { limit, quota: 3.0 }])
        };
        for semantics in [Semantics::TokenBucket, Semantics::SlidingWindow, Semantics::FixedWindow]
        {
            let mut budget = day(semantics);
            for _ in 0..3 {
                let (wait, _) = budget.wait(&tokens(1.0), &NONE, at(60.0)).expect("it refills");
                assert_eq!(wait, Duration::ZERO, "{semantics:?}");
                budget.reserve(tokens(1.0), at(60.0));
            }
            let (wait, meter) = budget.wait(&tokens(1.0), &NONE, at(60.0)).expect("it refills");
            assert!(wait > Duration::from_hours(7), "{semantics:?}: {wait:?}");
            assert_eq!(meter, Some(Meter::RequestsPerDay));
        }
    }

    #[test]
    fn input_and_output_are_metered_apart() {
        let mut budget = budget(&[
            per_minute(Meter::InputTokens, 60_000.0, Semantics::TokenBucket),
            per_minute(Meter::OutputTokens, 6_000.0, Semantics::TokenBucket),
        ]);
        let demand = Demand { input: 500.0, output: 100.0 };
        budget.reserve(demand, at(1.0));
        let (wait, meter) = budget.wait(&demand, &NONE, at(1.0)).expect("it refills");
        assert_eq!(meter, Some(Meter::OutputTokens));
        assert!((wait.as_secs_f64() - 1.0).abs() < 1e-6, "100 a second, all of them taken");
    }

    fn semantics() -> impl Strategy<Value = Semantics> {
        prop::sample::select(vec![
            Semantics::TokenBucket,
            Semantics::SlidingWindow,
            Semantics::FixedWindow,
        ])
    }

    proptest! {
        /// The sum in every true window: sliding windows anywhere, fixed ones on the clock, buckets
        /// by burst and rate.
        #[test]
        fn no_window_of_its_own_semantics_holds_more_than_the_limit(
            semantics in semantics(),
            steps in prop::collection::vec((0.0..3.0f64, 1.0..400.0f64, 0.0..1.0f64), 1..250),
        ) {
            let limit = 6_000.0;
            let mut budget = budget(&[per_minute(Meter::Tokens, limit, semantics)]);
            let mut now = Mono::START;
            let mut taken: Vec<(f64, f64)> = Vec::new();
            for (gap, amount, used) in steps {
                now = now + Duration::from_secs_f64(gap);
                let (wait, _) = budget.wait(&tokens(amount), &NONE, now).expect("it refills");
                // Whoever waits as long as was said finds the amount there.
                now = now + wait;
                let again = budget.wait(&tokens(amount), &NONE, now).expect("it refills").0;
                prop_assert!(again <= Duration::from_millis(1), "{again:?} more after {wait:?}");
                if again.is_zero() {
                    let held = budget.reserve(tokens(amount), now);
                    budget.settle(&held, Some(tokens(amount * used)), now);
                    taken.push((now.as_secs_f64(), amount * used));
                }
            }
            for (from, _) in &taken {
                let (begin, end) = match semantics {
                    Semantics::FixedWindow => {
                        let begin = (from / 60.0).floor() * 60.0;
                        (begin, begin + 60.0)
                    }
                    _ => (*from, from + 60.0),
                };
                let within = taken.iter().filter(|(at, _)| (begin..end).contains(at));
                let sum: f64 = within.map(|(_, amount)| amount).sum();
                let burst = if semantics == Semantics::TokenBucket { 500.0 } else { 0.0 };
                prop_assert!(sum <= limit + burst + 1e-6, "{sum} from {from} on");
            }
        }

        #[test]
        fn a_reservation_that_is_given_back_leaves_no_trace(
            semantics in semantics(), amount in 1.0..5_000.0f64,
        ) {
            let mut budget = budget(&[per_minute(Meter::Tokens, 600_000.0, semantics)]);
            let now = at(0.5);
            let before = (budget.meters()[0].left(now), budget.wait(&tokens(9_000.0), &NONE, now));
            let held = budget.reserve(tokens(amount), now);
            budget.settle(&held, None, now);
            let after = (budget.meters()[0].left(now), budget.wait(&tokens(9_000.0), &NONE, now));
            prop_assert!((before.0 - after.0).abs() < 1e-6);
            prop_assert_eq!(before.1, after.1);
        }
    }
}
