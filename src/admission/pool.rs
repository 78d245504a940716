//! The state of one scope that several instances share, in memory: the rules that every keeper follows.
//!
//! The gate of a single instance uses the same parts directly. Where instances are processes of their
//! own, the state is in a store, and that store's script is held against this one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::adaptive::{Adaptive, Pause};
use super::breaker::{Breaker, Spread, State, Thresholds};
use super::budget::{Allowance, Budget, Reservation};
use super::limit::Limit;
use super::queue::Ahead;
use super::shared::{
    Binding, Claim, Demand, Mirror, Outcome, Receipt, Report, Rules, SharedBreaker, Verdict,
};
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

/// A meter that never fills is worth asking about again: its limit may be changed meanwhile.
const NEVER: Duration = Duration::from_mins(1);
/// When a call of another instance ends is not known.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
struct Lease {
    until: Mono,
    in_flight: u32,
}

/// One scope's shared state.
#[derive(Clone, Debug)]
pub struct Pool {
    budget: Budget,
    pause: Pause,
    adaptive: Adaptive,
    breaker: Breaker,
    faults_in_row: u32,
    instances: BTreeMap<Arc<str>, Lease>,
}

impl Pool {
    /// The state of a scope that nobody has used.
    #[must_use]
    pub fn new(scope: &str, now: Mono) -> Self {
        let thresholds = Thresholds::default();
        Self {
            budget: Budget::default(),
            pause: Pause::default(),
            adaptive: Adaptive::default(),
            breaker: Breaker::configured(thresholds, Spread::by_name(scope), now),
            faults_in_row: thresholds.faults_in_row,
            instances: BTreeMap::new(),
        }
    }

    /// May one attempt of `instance` start now? Takes from every meter or from none.
    pub fn claim(&mut self, instance: &str, claim: &Claim, now: Mono) -> (Verdict, Mirror) {
        self.begin(instance, claim.in_flight, &claim.limits, &claim.rules, now);
        let verdict = if let Some((at_least, why)) = self.judge(claim, now) {
            Verdict::Wait { at_least: at_least.min(NEVER), why }
        } else {
            // What dies with its instance stays charged: nobody settles it, and the provider may have
            // done the work.
            let held = self.budget.reserve(claim.demand, now);
            self.budget.settle(&held, Some(claim.demand), now);
            self.breaker.started(now);
            if let Some(lease) = self.instances.get_mut(instance) {
                lease.in_flight = claim.in_flight + 1;
            }
            Verdict::Granted(Receipt(micros(now)))
        };
        (verdict, self.mirror(&claim.limits, now))
    }

    /// An attempt of `instance` has ended.
    pub fn report(&mut self, instance: &str, report: &Report, now: Mono) -> Mirror {
        self.begin(instance, report.in_flight, &report.limits, &report.rules, now);
        let started = report
            .receipt
            .map_or(now, |receipt| Mono::from_start(Duration::from_micros(receipt.0)));
        // Without a receipt nothing was taken here: the whole charge is new.
        let reserved = report.receipt.map_or(Demand::default(), |_| report.reserved);
        match (report.receipt, report.charged) {
            (None, None) => {}
            (None, Some(charged)) => {
                let held = self.budget.reserve(charged, now);
                self.budget.settle(&held, Some(charged), now);
            }
            (Some(_), charged) => {
                let held = Reservation { demand: reserved, at: started };
                self.budget.settle(&held, charged, now);
            }
        }
        self.budget.believe(&report.readings, now);
        self.breaker.ended(report.outcome, started, now);
        self.hear(&report.outcome, started, now);
        if let Outcome::Throttled { pause, meter } = report.outcome {
            if let Some(meter) = meter {
                let empty = MeterReading { remaining: Some(0.0), ..MeterReading::unknown(meter) };
                self.budget.believe(&[empty], now);
            }
            if !pause.is_zero() {
                self.pause.extend(pause, now);
                self.budget.hold(self.pause.until(), now);
            }
        }
        self.mirror(&report.limits, now)
    }

    fn begin(
        &mut self,
        instance: &str,
        in_flight: u32,
        limits: &[Limit],
        rules: &Rules,
        now: Mono,
    ) {
        self.instances.retain(|_, lease| lease.until > now);
        let lease = Lease { until: now + rules.lease, in_flight };
        match self.instances.get_mut(instance) {
            Some(known) => *known = lease,
            None => {
                self.instances.insert(Arc::from(instance), lease);
            }
        }
        self.adaptive.freeze(!rules.adaptive);
        if rules.faults_in_row != self.faults_in_row {
            self.faults_in_row = rules.faults_in_row;
            self.breaker.set_faults_in_row(rules.faults_in_row);
        }
        let allow = |limit: &Limit| Allowance { limit: *limit, quota: limit.amount };
        let allowances: Vec<_> = limits.iter().map(allow).collect();
        self.budget.set(&allowances, self.adaptive.factor(), now);
    }

    /// How long it must wait, and for what.
    fn judge(&self, claim: &Claim, now: Mono) -> Option<(Duration, Binding)> {
        if claim.rules.breaker
            && let Err(at) = self.breaker.permits(now)
        {
            return Some((at.saturating_since(now), Binding::Breaker));
        }
        let paused = self.pause.left(now);
        if !paused.is_zero() {
            return Some((paused, Binding::Pause));
        }
        if claim.in_flight_max.is_some_and(|most| self.in_flight() >= most) {
            return Some((LOOK_AGAIN, Binding::Meter(Meter::Concurrency)));
        }
        match self.budget.wait(&claim.demand, &Ahead::default(), now) {
            Ok((wait, Some(meter))) => Some((wait, Binding::Meter(meter))),
            Ok((_, None)) => None,
            Err(meter) => Some((NEVER, Binding::Meter(meter))),
        }
    }

    fn hear(&mut self, outcome: &Outcome, started: Mono, now: Mono) {
        if let Some(refused) = outcome.is_refusal_for_rate() {
            self.adaptive.heard(refused, started, now);
        }
    }

    fn in_flight(&self) -> u32 {
        self.instances.values().map(|lease| lease.in_flight).sum()
    }

    fn mirror(&self, limits: &[Limit], now: Mono) -> Mirror {
        let left = |limit: &Limit| {
            let same = |known: &&super::meter::Metered| known.limit() == limit;
            self.budget.meters().iter().find(same).map_or(0.0, |meter| meter.left(now))
        };
        Mirror {
            paused: self.pause.left(now),
            factor: self.adaptive.factor(),
            breaker: match self.breaker.state(now) {
                State::Closed => SharedBreaker::Closed,
                State::Open { until } => SharedBreaker::Open { left: until.saturating_since(now) },
                State::HalfOpen { probe } => SharedBreaker::HalfOpen { probing: probe.is_some() },
            },
            instances: u32::try_from(self.instances.len()).unwrap_or(u32::MAX),
            in_flight: self.in_flight(),
            left: limits.iter().map(left).collect(),
        }
    }
}

fn micros(now: Mono) -> u64 {
    u64::try_from(now.since_start().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::limit::Semantics;

    const LEASE: Duration = Duration::from_secs(10);

    fn at(seconds: f64) -> Mono {
        Mono::from_secs_f64(seconds)
    }

    fn claim(in_flight: u32) -> Claim {
        let (window, burst) = (Duration::from_mins(1), Duration::from_secs(1));
        let semantics = Semantics::SlidingWindow;
        let rules = Rules { breaker: true, faults_in_row: 5, adaptive: true, lease: LEASE };
        Claim {
            demand: Demand { input: 100.0, output: 0.0 },
            limits: vec![Limit {
                meter: Meter::Tokens,
                amount: 60_000.0,
                window,
                semantics,
                burst,
            }],
            in_flight,
            in_flight_max: Some(2),
            rules,
        }
    }

    fn report(claim: &Claim, receipt: Receipt, outcome: Outcome) -> Report {
        Report {
            receipt: Some(receipt),
            reserved: claim.demand,
            charged: None,
            outcome,
            readings: Vec::new(),
            limits: claim.limits.clone(),
            in_flight: 0,
            rules: claim.rules,
        }
    }

    /// A pool whose meters were set up at the start, so that their paces are full a second later.
    fn pool() -> Pool {
        let mut pool = Pool::new("s", Mono::START);
        let idle = Report { receipt: None, ..report(&claim(0), Receipt(0), Outcome::Neither) };
        pool.report("first", &idle, Mono::START);
        pool.instances.clear();
        pool
    }

    fn granted(verdict: Verdict) -> Receipt {
        match verdict {
            Verdict::Granted(receipt) => receipt,
            Verdict::Wait { at_least, why } => panic!("waits {at_least:?} for {why:?}"),
        }
    }

    #[test]
    fn calls_of_a_dead_instance_come_back_with_its_lease() {
        let mut pool = pool();
        granted(pool.claim("dies", &claim(0), at(1.0)).0);
        granted(pool.claim("dies", &claim(1), at(1.1)).0);
        let (verdict, mirror) = pool.claim("lives", &claim(0), at(2.0));
        let why = Binding::Meter(Meter::Concurrency);
        assert_eq!(verdict, Verdict::Wait { at_least: LOOK_AGAIN, why });
        assert_eq!((mirror.instances, mirror.in_flight), (2, 2));
        let (verdict, mirror) = pool.claim("lives", &claim(0), at(11.2));
        granted(verdict);
        assert_eq!((mirror.instances, mirror.in_flight), (1, 1));
    }

    #[test]
    fn a_throttle_of_one_instance_pauses_all_and_work_then_leaves_at_the_pace() {
        let mut pool = pool();
        let one = claim(0);
        let receipt = granted(pool.claim("a", &one, at(5.0)).0);
        let pause = Duration::from_secs(2);
        let outcome = Outcome::Throttled { pause, meter: Some(Meter::Tokens) };
        pool.report("a", &report(&one, receipt, outcome), at(5.1));
        let (verdict, mirror) = pool.claim("b", &one, at(6.0));
        let left = Duration::from_millis(1_100);
        assert_eq!(verdict, Verdict::Wait { at_least: left, why: Binding::Pause });
        assert_eq!(mirror.paused, left);
        // 1,000 tokens a second: a tenth of a second for the first hundred.
        let (verdict, _) = pool.claim("b", &one, at(7.1));
        assert!(matches!(verdict, Verdict::Wait { at_least, .. } if at_least.as_millis() >= 99));
        granted(pool.claim("b", &one, at(7.21)).0);
    }

    #[test]
    fn faults_of_several_instances_open_one_breaker() {
        let mut pool = pool();
        let one = Claim { in_flight_max: None, ..claim(0) };
        for (n, instance) in ["a", "b", "c", "a", "b"].into_iter().enumerate() {
            let now = at(5.0 + 0.2 * f64::from(u32::try_from(n).expect("small")));
            let receipt = granted(pool.claim(instance, &one, now).0);
            let fault = Outcome::Fault { overload: true };
            pool.report(instance, &report(&one, receipt, fault), now);
        }
        let (verdict, mirror) = pool.claim("c", &one, at(6.0));
        assert!(matches!(verdict, Verdict::Wait { why: Binding::Breaker, .. }), "{verdict:?}");
        assert!(matches!(mirror.breaker, SharedBreaker::Open { .. }));
    }
}
