//! What people do to the gate while it runs: flip settings, send it home.

use super::{Gate, Mode};
use crate::admission::adaptive::Pause;
use crate::admission::config::ScopeConfig;
use crate::admission::refusal::Reason;
use crate::admission::scope::Scope;
use crate::admission::settings::Settings;
use crate::signal::Mono;
use std::time::Duration;
use thiserror::Error;

/// A rate that was at most this share of the new one had been cut; above it, it was adjusted.
const RAMP_FROM: f64 = 0.8;

/// Scopes that are not those that a gate has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("these are not the scopes, by name and order, that the gate began with")]
pub struct OtherScopes;

impl Gate {
    /// Takes over other quotas and policies for the scopes that it has, in their order. What was used and
    /// what waits stays.
    ///
    /// # Errors
    /// When the scopes are not those of the start, by name and order; nothing has changed then.
    pub fn reconfigure(&mut self, scopes: Vec<ScopeConfig>, now: Mono) -> Result<(), OtherScopes> {
        let now = self.clamp(now);
        let names = self.scopes.iter().map(Scope::name);
        if !names.eq(scopes.iter().map(|config| &config.name)) {
            return Err(OtherScopes);
        }
        for (place, config) in scopes.into_iter().enumerate() {
            self.scopes[place].reconfigure(config, &self.settings, now);
            self.pump(place, now);
        }
        Ok(())
    }

    /// New settings take effect at once, for waiting requests too.
    pub fn apply(&mut self, settings: Settings, now: Mono) {
        let now = self.clamp(now);
        let was = std::mem::replace(&mut self.settings, settings);
        let mode = self.settings.mode;
        for place in 0..self.scopes.len() {
            let scope = &mut self.scopes[place];
            scope.set_rates(&self.settings, now);
            // Taking a cut back goes by steps, where it is configured so.
            let admitted = was.rate_factor / self.settings.rate_factor;
            if admitted <= RAMP_FROM {
                scope.begin_ramp(admitted, &self.settings, now);
            } else if admitted > 1.0 {
                scope.end_ramp(&self.settings, now);
            }
            if (self.settings.tenant_cap_ratio - was.tenant_cap_ratio).abs() > f64::EPSILON {
                scope.forget_tenant_shares();
            }
            if mode == Mode::Enforce && was.mode != Mode::Enforce {
                // What went out unmetered has used the quota; start from nothing.
                scope.budget.hold(now, now);
                scope.pause = Pause::default();
                scope.woken_at = now;
                scope.permits.begin_at(scope.in_flight);
            }
            let requests = &self.requests;
            let settings = &self.settings;
            let mut queue = std::mem::take(&mut scope.queue);
            queue.redate(|id, arrived| {
                let request = requests.get(id);
                let deadline = request.and_then(|request| request.terms.deadline);
                let waited = request.map_or(now.saturating_since(arrived), |one| one.waited(now));
                scope.start_by(deadline, waited, settings, now)
            });
            scope.queue = queue;
            if mode == Mode::Off {
                for id in scope.queue.all() {
                    self.scopes[place].queue.remove(id);
                    self.start(id, None, now);
                }
            }
            self.pump(place, now);
        }
        if mode == Mode::Off {
            for (_, id) in std::mem::take(&mut self.backoffs) {
                self.start(id, None, now);
            }
        }
    }

    /// Refuses everything that waits and everything that comes; what is upstream may finish.
    pub fn drain(&mut self, now: Mono) {
        let now = self.clamp(now);
        self.draining = true;
        let backoffs = std::mem::take(&mut self.backoffs);
        let mut waiting: Vec<_> = backoffs.into_iter().map(|(_, id)| id).collect();
        for scope in &mut self.scopes {
            for id in scope.queue.all() {
                scope.queue.remove(id);
                waiting.push(id);
            }
        }
        for place in 0..self.scopes.len() {
            // Calls that are open stay ours until they end.
            self.set_wake(place, self.scopes[place].lease_due());
        }
        for id in waiting {
            self.refuse(id, Reason::Draining.refusal(Some(Duration::from_secs(1)), true), now);
        }
    }
}
