//! The way back after a cut, where it is configured: what was seen of late, and the level it allows.

use std::collections::VecDeque;
use std::time::Duration;

use super::Scope;
use crate::admission::queue::Lane;
use crate::admission::recovery::{Evidence, Ramp};
use crate::admission::settings::Settings;
use crate::dialect::Class;
use crate::signal::Mono;

/// How often a ramp is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Over which time evidence is gathered: one quota window.
const EVIDENCE: Duration = Duration::from_mins(1);
/// Looks that are kept: those of the evidence's time and the one before it.
const LOOKS_MAX: usize = 13;

/// A ramp that is under way, and what was counted at each look.
#[derive(Clone, Debug)]
pub(in crate::admission) struct Ramping {
    ramp: Ramp,
    look_at: Mono,
    /// When, answers, refusals among them.
    looks: VecDeque<(Mono, u64, u64)>,
}

impl Scope {
    /// Begins a ramp at `admitted` of normal, if the scope is to have one.
    pub(in crate::admission) fn begin_ramp(
        &mut self,
        admitted: f64,
        settings: &Settings,
        now: Mono,
    ) {
        let Some(plan) = self.config.policy.ramp else { return };
        let ramp = Ramp::new(plan, admitted, now);
        self.ramping = Some(Ramping { ramp, look_at: now, looks: VecDeque::new() });
        self.set_rates(settings, now);
    }

    /// A new cut ends the way back from the last one.
    pub(in crate::admission) fn end_ramp(&mut self, settings: &Settings, now: Mono) {
        if self.ramping.take().is_some() {
            self.set_rates(settings, now);
        }
    }

    /// The share of normal that a ramp admits now; 1 without one.
    #[must_use]
    pub fn ramp_level(&self) -> f64 {
        self.ramping.as_ref().map_or(1.0, |ramping| ramping.ramp.level())
    }

    /// When the ramp is to be looked at again.
    pub(in crate::admission) fn ramp_due(&self) -> Option<Mono> {
        self.ramping.as_ref().map(|ramping| ramping.look_at)
    }

    /// Looks at the ramp if that is due, and moves the rates with it.
    pub(in crate::admission) fn look_at_ramp(&mut self, settings: &Settings, now: Mono) {
        if self.ramp_due().is_none_or(|due| due > now) {
            return;
        }
        let evidence = self.evidence(now);
        let Some(ramping) = &mut self.ramping else { return };
        ramping.look_at = now + LOOK_EVERY;
        let moved = ramping.ramp.observe(&evidence, now).is_some();
        let is_over = ramping.ramp.is_over(now);
        if is_over {
            self.ramping = None;
        }
        if moved || is_over {
            self.set_rates(settings, now);
        }
    }

    /// What was seen in the last quota window; unknown until it has been looked at for so long.
    fn evidence(&mut self, now: Mono) -> Evidence {
        let refused = [Class::TransientRateLimit, Class::TemporaryOverload];
        let results = &self.counters.results;
        let all = results.total();
        let bad = results.iter().filter(|((class, _), _)| refused.contains(class));
        let bad: u64 = bad.map(|(_, count)| count).sum();
        let oldest =
            Lane::ALL.into_iter().filter_map(|lane| self.queue.oldest_age(lane, now)).max();
        let Some(ramping) = &mut self.ramping else { return Evidence::default() };
        ramping.looks.push_back((now, all, bad));
        let from = now - EVIDENCE;
        while ramping.looks.len() > LOOKS_MAX
            || ramping.looks.get(1).is_some_and(|(at, ..)| *at <= from)
        {
            ramping.looks.pop_front();
        }
        let whole = ramping.looks.front().filter(|(at, ..)| *at <= from);
        let (attempts, originals) = self.attempted.since(from);
        let ratio = |part: u64, of: u64| {
            #[expect(clippy::cast_precision_loss, reason = "counts of a minute")]
            let ratio = part as f64 / of as f64;
            (of > 0).then_some(ratio)
        };
        Evidence {
            amplification: ratio(attempts, originals),
            refused: whole.and_then(|(_, was, were_bad)| ratio(bad - were_bad, all - was)),
            oldest_age_s: Some(oldest.unwrap_or_default().as_secs_f64()),
        }
    }
}
