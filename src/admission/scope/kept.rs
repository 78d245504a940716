//! A scope whose state several instances share: what is asked of the keeper, and what is obeyed of it.

use std::time::Duration;

use super::{Scope, seconds};
use crate::admission::breaker::State;
use crate::admission::config::WithoutStore;
use crate::admission::keeping::Keeping;
use crate::admission::limit::Limit;
use crate::admission::queue::{Ahead, Lane};
use crate::admission::settings::Settings;
use crate::admission::shared::{Demand, Mirror, Outcome, Rules};
use crate::dialect::{Meter, MeterReading};
use crate::signal::Mono;

impl Scope {
    /// From now on a keeper has the state of this scope.
    pub(in crate::admission) fn share(&mut self, now: Mono) {
        self.keeping = Some(Keeping::new(self.config.policy.instances, now));
    }

    /// Whether a keeper decides, and answers.
    pub(in crate::admission) fn keeper_answers(&self) -> bool {
        self.keeping.as_ref().is_some_and(|keeping| keeping.lost_since().is_none())
    }

    /// What a lane does now that the keeper is silent; `None` while it answers, or there is none.
    pub(in crate::admission) fn without_keeper(&self, lane: Lane) -> Option<WithoutStore> {
        self.keeping.as_ref()?.lost_since()?;
        Some(match lane {
            Lane::Interactive => self.config.policy.interactive_without_store,
            Lane::Batch => self.config.policy.batch_without_store,
        })
    }

    /// The share of what lanes and tenants may have that is this instance's: with others, nobody
    /// counts those together.
    pub(super) fn instance_share(&self) -> f64 {
        self.keeping.as_ref().map_or(1.0, |keeping| 1.0 / f64::from(keeping.instances()))
    }

    /// The share of the quota that this instance decides about by itself.
    pub(in crate::admission) fn local_share(&self) -> f64 {
        match &self.keeping {
            Some(keeping) if keeping.lost_since().is_some() => 1.0 / f64::from(keeping.instances()),
            _ => 1.0,
        }
    }

    /// How long `demand` and those `ahead` of it take at the rate at which this instance is granted
    /// anything, and the meter that is counted by; `None` where no keeper decides.
    pub(super) fn keeper_wait(
        &self,
        demand: &Demand,
        ahead: &Ahead,
        now: Mono,
    ) -> Option<(Duration, Meter)> {
        let keeping = self.keeping.as_ref().filter(|_| self.keeper_answers())?;
        let mut longest = (Duration::ZERO, Meter::Requests);
        if self.queue.is_empty() && keeping.asked() == 0 {
            return Some(longest);
        }
        let flow = keeping.flow(now);
        let limits = [
            (self.config.rpm, Meter::Requests, 1.0 + ahead.requests, flow.requests),
            (self.config.tpm, Meter::Tokens, demand.tokens() + ahead.tokens, flow.tokens),
            (
                self.config.input_tpm,
                Meter::InputTokens,
                demand.tokens() + ahead.tokens,
                flow.tokens,
            ),
        ];
        for (quota, meter, amount, flow) in limits {
            let Some(quota) = quota else { continue };
            let fair = quota / 60.0 / f64::from(keeping.instances());
            let wait = seconds(amount / flow.max(fair));
            if wait > longest.0 {
                longest = (wait, meter);
            }
        }
        Some(longest)
    }

    /// The rules that the keeper applies for every instance alike.
    pub(in crate::admission) fn rules(&self, settings: &Settings) -> Rules {
        Rules {
            breaker: settings.breaker,
            faults_in_row: self.config.policy.faults_in_row,
            adaptive: settings.adaptive,
            lease: self.config.policy.lease,
        }
    }

    /// The limits that the keeper counts, slices too.
    pub(in crate::admission) fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let allowances = self.config.allowances(settings.rate_factor * self.ramp_level());
        allowances.into_iter().map(|allowance| allowance.limit).collect()
    }

    /// The readings that speak of meters of ours: what is counted over another window is another's.
    pub(in crate::admission) fn readings_of_ours(
        &self,
        meters: &[MeterReading],
    ) -> Vec<MeterReading> {
        let ours = |reading: &&MeterReading| {
            self.budget.meter(reading.meter).is_some_and(|meter| {
                reading.window.is_none_or(|window| window == meter.limit().window)
            })
        };
        meters.iter().filter(ours).copied().collect()
    }

    /// When the keeper must hear of this instance again, so that its open calls are not given up.
    pub(in crate::admission) fn lease_due(&self) -> Option<Mono> {
        let due = self.reported_at + self.config.policy.lease / 3;
        (self.in_flight > 0 && self.keeper_answers()).then_some(due)
    }

    /// Takes over the shared state.
    pub(in crate::admission) fn reflect(
        &mut self,
        mirror: Mirror,
        uniform: f64,
        settings: &Settings,
        now: Mono,
    ) {
        // A pause that this instance has just asked for may not be in the answer yet: none is cut
        // short, and each is jittered once.
        if self.pause.until() < now + mirror.paused {
            self.pause.extend(mirror.paused, now);
            self.woken_at = self.pause.wake(uniform);
        }
        let was = self.breaker.state(now);
        let factor = self.adaptive.factor();
        self.breaker.reflect(mirror.breaker, now);
        self.adaptive.reflect(mirror.factor, now);
        let joined = self.keeping.as_mut().is_some_and(|keeping| keeping.reflect(mirror, now));
        if joined || (self.adaptive.factor() - factor).abs() > f64::EPSILON {
            self.set_rates(settings, now);
        }
        self.ramp_after(was, settings, now);
    }

    /// A breaker that has closed again begins the way back.
    fn ramp_after(&mut self, was: State, settings: &Settings, now: Mono) {
        if was != State::Closed && self.breaker.state(now) == State::Closed {
            self.begin_ramp(1.0, settings, now);
        }
    }

    /// The provider refused: nobody of the scope starts for so long, and then at the pace. Waiting
    /// work keeps its place and its deadline.
    pub(in crate::admission) fn pause(
        &mut self,
        span: Duration,
        meter: Option<Meter>,
        uniform: f64,
        now: Mono,
    ) {
        if let Some(meter) = meter {
            // It was refused, so there was less than we thought.
            let empty = MeterReading { remaining: Some(0.0), ..MeterReading::unknown(meter) };
            self.budget.believe(&[empty], now);
        }
        if span.is_zero() {
            return;
        }
        self.pause.extend(span, now);
        self.woken_at = self.pause.wake(uniform);
        self.budget.hold(self.woken_at, now);
    }

    /// What an outcome says to breaker and rate. What passes unmetered says nothing about our rate.
    pub(in crate::admission) fn hear(
        &mut self,
        outcome: &Outcome,
        enforced: bool,
        started: Mono,
        settings: &Settings,
        now: Mono,
    ) {
        let was = self.breaker.state(now);
        let pending = self.in_flight.saturating_sub(1);
        self.breaker.ended(*outcome, started, pending, now);
        self.ramp_after(was, settings, now);
        if let Some(refused) = outcome.is_refusal_for_rate().filter(|_| enforced)
            && self.adaptive.heard(refused, started, now)
        {
            self.set_rates(settings, now);
        }
    }
}
