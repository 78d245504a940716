//! The state of one scope that several instances share, in memory: the rules that every keeper follows.
//!
//! The gate of a single instance uses the same parts directly. Where instances are processes of their
//! own, the state is in a store, and that store's script is held against this one.

mod line;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use self::line::{Place, Places};
use super::adaptive::{Adaptive, Pause};
use super::breaker::{Breaker, Spread, State, Thresholds};
use super::budget::{Allowance, Budget, Reservation};
use super::limit::{Limit, Semantics};
use super::shared::{
    Binding, Claim, Demand, Mirror, Outcome, Receipt, Report, Rules, SharedBreaker, Verdict,
};
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

/// A meter that never fills is worth asking about again: its limit may be changed meanwhile.
const NEVER: Duration = Duration::from_mins(1);
/// When a call of another instance ends is not known.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Rounding that is no excess.
const SLACK: f64 = 1e-6;

#[derive(Clone, Debug)]
struct Lease {
    until: Mono,
    in_flight: u32,
    /// What it waits for.
    places: Places,
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
        let verdict = if let Some((at_least, why)) = self.barred(claim, now) {
            Verdict::Wait { at_least: at_least.min(NEVER), why }
        } else if let Some((at_least, meter)) = self.waits(instance, &claim.demand, now) {
            self.stand_in_line(instance, claim.demand, at_least, now);
            Verdict::Wait { at_least, why: Binding::Meter(meter) }
        } else {
            // What dies with its instance stays charged: nobody settles it, and the provider may
            // have done the work.
            let held = self.budget.reserve(claim.demand, now);
            self.budget.settle(&held, Some(claim.demand), now);
            self.breaker.started(now);
            if let Some(lease) = self.instances.get_mut(instance) {
                lease.in_flight = claim.in_flight + 1;
                lease.places.leave(&claim.demand, now);
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
        let pending = self.in_flight();
        self.breaker.ended(report.outcome, started, pending, now);
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
        let until = now + rules.lease;
        if let Some(known) = self.instances.get_mut(instance) {
            (known.until, known.in_flight) = (until, in_flight);
        } else {
            let lease = Lease { until, in_flight, places: Places::default() };
            self.instances.insert(Arc::from(instance), lease);
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

    /// How long nobody may start, and why.
    fn barred(&self, claim: &Claim, now: Mono) -> Option<(Duration, Binding)> {
        if claim.rules.breaker
            && let Err(at) = self.breaker.permits(now)
        {
            return Some((at.saturating_since(now), Binding::Breaker));
        }
        let paused = self.pause.left(now);
        if !paused.is_zero() {
            return Some((paused, Binding::Pause));
        }
        let is_full = claim.in_flight_max.is_some_and(|most| self.in_flight() >= most);
        is_full.then_some((LOOK_AGAIN, Binding::Meter(Meter::Concurrency)))
    }

    /// How long `instance` must wait for the meters, and for which.
    fn waits(&self, instance: &str, demand: &Demand, now: Mono) -> Option<(Duration, Meter)> {
        let alone = self.wait_for_meters(demand, None, now);
        let (wait, meter) = match self.first_in_line(now) {
            // Nobody takes what the first in the line waits for.
            Some((first, place)) if first != instance || !place.is_for(demand) => {
                let (behind, meter) = self.wait_for_meters(demand, Some(&place.demand), now)?;
                let behind = behind.min(place.until.saturating_since(now));
                (behind.max(alone.map_or(Duration::ZERO, |(wait, _)| wait)), meter)
            }
            _ => alone?,
        };
        // An instance that sleeps for so long would be late for what else it waits for.
        let other = self.instances.get(instance).and_then(|own| own.places.next_other(demand, now));
        Some((wait.min(other.map_or(NEVER, |other| other.max(LOOK_AGAIN))), meter))
    }

    /// Who is served first, and what is kept for it.
    fn first_in_line(&self, now: Mono) -> Option<(&str, &Place)> {
        let places = self
            .instances
            .iter()
            .flat_map(|(name, lease)| lease.places.held(now).map(move |place| (&**name, place)));
        places.min_by_key(|(name, place)| (place.since, *name))
    }

    /// Time until `demand` may be taken after `ahead` has been, and the meter that keeps it waiting
    /// longest; `None`: now.
    fn wait_for_meters(
        &self,
        demand: &Demand,
        ahead: Option<&Demand>,
        now: Mono,
    ) -> Option<(Duration, Meter)> {
        let mut longest = None;
        for meter in self.budget.meters() {
            let kind = meter.limit().meter;
            let (amount, ahead) = (demand.of(kind), ahead.map_or(0.0, |ahead| ahead.of(kind)));
            if amount <= 0.0 {
                continue;
            }
            let wait = meter.wait(amount, ahead, now).unwrap_or(Duration::MAX);
            if !wait.is_zero() && longest.is_none_or(|(known, _)| wait > known) {
                longest = Some((wait, kind));
            }
        }
        longest
    }

    /// Who waits for a refill gets a place in the line, or keeps it. Who waits for something else
    /// gains nothing by holding up the others: a limit that is never enough, or a window's end, at
    /// which there is enough for everybody.
    fn stand_in_line(&mut self, instance: &str, demand: Demand, at_least: Duration, now: Mono) {
        let alone = self.wait_for_meters(&demand, None, now);
        let for_windows_end = self.budget.meters().iter().any(|meter| {
            let (limit, left) = (meter.limit(), meter.left(now));
            let amount = demand.of(limit.meter);
            let is_too_much = amount > left + SLACK && left < limit.amount - SLACK;
            limit.semantics == Semantics::FixedWindow && is_too_much
        });
        let waits_for_refill = alone.is_none_or(|(wait, _)| wait < NEVER) && !for_windows_end;
        let Some(lease) = self.instances.get_mut(instance) else { return };
        if waits_for_refill {
            lease.places.keep(demand, at_least, now);
        } else {
            lease.places.leave(&demand, now);
        }
    }

    /// When places in the line are lost, if their instances do not ask again.
    #[cfg(test)]
    pub fn lapses(&self) -> impl Iterator<Item = Mono> {
        let places = self.instances.values().flat_map(|lease| lease.places.held(Mono::START));
        places.map(|place| place.until)
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
mod tests;
