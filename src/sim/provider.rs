//! A simulated provider, sans-I/O: says what a call gets and after how long.
//!
//! Knows no HTTP and sends nothing; the shell in `drill` and the virtual clock in `world` both drive
//! it with [`Provider::handle_request`] and [`Provider::finish`]. The order of judgement is that of real
//! providers as far as it is known: the request itself before account, account before capacity, capacity
//! before rate. A refusal charges nothing, and a call is charged in all meters or in none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::dialect::{Meter, MeterReading};
use crate::signal::{Mono, Tokens};
use crate::sim::behaviour::Behaviour;
use crate::sim::config::{ConfigError, ErrorKind, LatencyConfig, ProviderConfig, ProviderStep};
use crate::sim::ledger::Ledger;
use crate::sim::quota::{Need, Quota, Shortage};
use crate::sim::recent::Recent;
use crate::sim::rng;
use crate::sim::script::{self, Script, Scripted};

pub use crate::sim::outcome::{Call, CallId, CallKind, Disguise, HintForm, Outcome, Reply};
pub use crate::sim::quota::DeploymentReading;

#[cfg(test)]
mod tests;

/// Originals with a script of their own.
const OWN_SCRIPTS_MAX: usize = 10_000;
/// The hint of a scripted refusal, which no meter explains.
const SCRIPTED_WAIT: Duration = Duration::from_millis(20);
/// The hint of a `slow_down` that a share of calls gets, which no rule explains.
const SLOW_DOWN_WAIT: Duration = Duration::from_secs(1);

/// A simulated provider. Create it, ask [`Self::handle_request`] for each call, and say
/// [`Self::finish`] when the answer has been delivered. Time never steps back; a step back is ignored.
#[derive(Clone, Debug)]
pub struct Provider {
    start: Mono,
    quota: Quota,
    latency: LatencyConfig,
    counts_items: bool,
    completes_after_hangup: bool,
    /// What a token costs in US dollars, where it costs anything.
    usd_per_token: Option<f64>,
    steps: VecDeque<ProviderStep>,
    /// What the steps so far add up to.
    behaviour: Behaviour,
    script: Script,
    /// Scripts that calls brought along, by original.
    own_scripts: BTreeMap<u128, Script>,
    random: Pcg64,
    open: BTreeSet<CallId>,
    /// Those of the open calls that nobody will answer.
    hanging: BTreeSet<CallId>,
    calls: u64,
    ledger: Ledger,
    recent: Recent,
}

impl Provider {
    /// A provider whose clock starts at `now`, from a checked configuration.
    #[must_use]
    pub fn new(config: &ProviderConfig, seed: u64, now: Mono) -> Self {
        Self {
            start: now,
            quota: Quota::new(config, now),
            latency: config.latency,
            counts_items: config.counts_items,
            completes_after_hangup: config.completes_after_hangup,
            usd_per_token: config.spend.map(|spend| spend.usd_per_million_tokens / 1e6),
            steps: config.steps.iter().copied().collect(),
            behaviour: Behaviour::new(config),
            script: script::parse(&config.script).unwrap_or_default(),
            own_scripts: BTreeMap::new(),
            random: rng::seeded(seed, rng::Stream::Provider),
            open: BTreeSet::new(),
            hanging: BTreeSet::new(),
            calls: 0,
            ledger: Ledger::default(),
            recent: Recent::default(),
        }
    }

    /// Replaces what is left of the per-call script.
    ///
    /// # Errors
    /// The element that is not understood; the old script stays.
    pub fn set_script(&mut self, text: &str) -> Result<(), ConfigError> {
        self.script = script::parse(text).map_err(|element| script::error(&element))?;
        Ok(())
    }

    /// Gives an original a script of its own, which its calls play one after the other. The first
    /// one that it brings counts; beyond [`OWN_SCRIPTS_MAX`] originals none is kept.
    ///
    /// # Errors
    /// The element that is not understood.
    pub fn bring_script(&mut self, identity: u128, text: &str) -> Result<(), ConfigError> {
        let script = script::parse(text).map_err(|element| script::error(&element))?;
        if self.own_scripts.len() < OWN_SCRIPTS_MAX {
            self.own_scripts.entry(identity).or_insert(script);
        }
        Ok(())
    }

    /// Decides about one call and counts it.
    pub fn handle_request(&mut self, call: &Call, now: Mono) -> Reply {
        self.advance(now);
        let outcome = self.judge(call, now);
        self.reply(call, outcome, now)
    }

    /// Counts a call that is not understood; it is answered with `status` and charged nothing.
    pub fn reject(&mut self, identity: u128, kind: CallKind, status: u16, now: Mono) -> Reply {
        self.advance(now);
        self.reply(&Call::new(identity, Tokens(0), kind), Outcome::Rejected { status }, now)
    }

    /// The answer of `call` is complete. Repeating it is harmless.
    pub fn finish(&mut self, call: CallId) {
        let was_open = self.open.remove(&call);
        if was_open && !self.hanging.remove(&call) {
            self.ledger.complete();
        }
    }

    /// The caller of `call` has gone before its answer was complete. Whether the provider goes on
    /// with it all the same; then [`Self::finish`] is still to come.
    pub fn hang_up(&mut self, call: CallId) -> bool {
        if self.completes_after_hangup {
            return self.open.contains(&call);
        }
        self.open.remove(&call);
        self.hanging.remove(&call);
        false
    }

    /// The minute's meters of all deployments together: requests, then tokens.
    pub fn meters(&mut self, now: Mono) -> [MeterReading; 2] {
        self.advance(now);
        self.quota.totals()
    }

    /// The day's meters, as far as there are any.
    pub fn day_meters(&mut self, now: Mono) -> Vec<MeterReading> {
        self.advance(now);
        self.quota.day_readings(now)
    }

    /// The deployments by name, as they were at the last call or reading; none where there is only
    /// the quota itself.
    pub fn deployments(&self) -> impl Iterator<Item = DeploymentReading<'_>> {
        self.quota.deployments()
    }

    /// Tokens that others got out of the same pool.
    #[must_use]
    pub fn tokens_of_others(&self) -> u64 {
        self.quota.tokens_of_others()
    }

    /// US dollars that are left, where calls have a price.
    #[must_use]
    pub fn spend_left_usd(&self) -> Option<f64> {
        self.usd_per_token.map(|_| self.behaviour.usd_left)
    }

    /// The cap on open calls, where there is one.
    #[must_use]
    pub const fn concurrency_cap(&self) -> Option<u32> {
        self.behaviour.concurrency_cap
    }

    /// Accepted calls that are open now; refusals occupy nothing.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// What was counted so far.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What arrived of late.
    #[must_use]
    pub const fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Refills up to each step that is due, applies it, then refills up to `now`.
    fn advance(&mut self, now: Mono) {
        while let Some(step) = self.steps.front().copied() {
            let at = self.start + Mono::from_secs_f64(step.at_s).since_start();
            if at > now {
                break;
            }
            self.steps.pop_front();
            self.quota.refill(at);
            self.apply(&step, at);
        }
        self.quota.refill(now);
    }

    fn apply(&mut self, step: &ProviderStep, at: Mono) {
        self.behaviour.apply(step);
        if let Some(per_minute) = step.requests_per_minute {
            self.quota.set_requests(per_minute, at);
        }
        if let Some(per_minute) = step.tokens_per_minute {
            self.quota.set_tokens(per_minute, at);
        }
        if let Some(per_minute) = step.others_tokens_per_minute {
            self.quota.share_tokens_with(per_minute);
        }
        if step.reset_meters {
            self.quota.fill();
        }
    }

    fn judge(&mut self, call: &Call, now: Mono) -> Outcome {
        let scripted = match self.own_scripts.get_mut(&call.identity) {
            Some(own) => own.next(),
            None => self.script.next(),
        };
        match scripted {
            Scripted::Ok => {}
            Scripted::RateLimit => return self.scripted_refusal(),
            Scripted::Timeout => return Outcome::Timeout,
            Scripted::ServerError => return Outcome::ServerError { status: 500 },
            Scripted::BadRequest => return Outcome::Rejected { status: 400 },
        }
        let behaviour = self.behaviour;
        if let Some(limit) = behaviour.max_request_tokens.filter(|limit| call.tokens.0 > *limit) {
            return Outcome::TooLong { limit, requested: call.tokens.0 };
        }
        if behaviour.hard_quota || (self.usd_per_token.is_some() && behaviour.usd_left <= 0.0) {
            return Outcome::InsufficientQuota;
        }
        if self.falls_on(behaviour.error_ratio) {
            return match behaviour.error_kind {
                ErrorKind::Overloaded => Outcome::Overloaded { wait: behaviour.error_hint },
                ErrorKind::Failed => Outcome::ServerError { status: 500 },
                ErrorKind::Timeout => Outcome::Timeout,
            };
        }
        if self.falls_on(behaviour.slow_down_ratio) {
            return Outcome::SlowDown { wait: SLOW_DOWN_WAIT };
        }
        if let Some(cap) = behaviour.concurrency_cap
            && self.open.len() >= usize::try_from(cap).unwrap_or(usize::MAX)
        {
            return Outcome::ConcurrencyCap { cap };
        }
        self.charge(call, now)
    }

    /// Whether chance picks this call; a share of zero costs no draw.
    fn falls_on(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    /// Takes what the call needs from every meter, or from none.
    fn charge(&mut self, call: &Call, now: Mono) -> Outcome {
        let need = Need { requests: self.requests_of(call), tokens: call.tokens.0 };
        match self.quota.charge(need, &mut self.random, now) {
            Ok(()) => {
                let usd = call.tokens.as_f64() * self.usd_per_token.unwrap_or(0.0);
                self.behaviour.usd_left -= usd;
                Outcome::Ok { tokens: call.tokens }
            }
            Err(Shortage::Wait { meter, wait, limit, used, requested }) => {
                Outcome::RateLimited { meter, wait, limit, used, requested }
            }
            Err(Shortage::Ramp { wait }) => Outcome::SlowDown { wait },
            Err(Shortage::Never { limit, requested }) => Outcome::TooLarge { limit, requested },
        }
    }

    fn requests_of(&self, call: &Call) -> u64 {
        if self.counts_items { u64::from(call.items.max(1)) } else { 1 }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a meter's limit and what is left of it are whole and not negative"
    )]
    fn scripted_refusal(&self) -> Outcome {
        let [requests, _] = self.quota.readings();
        let (limit, left) = (requests.limit.unwrap_or(0.0), requests.remaining.unwrap_or(0.0));
        Outcome::RateLimited {
            meter: Meter::Requests,
            wait: SCRIPTED_WAIT,
            limit: limit as u64,
            used: (limit - left).max(0.0) as u64,
            requested: 1,
        }
    }

    fn reply(&mut self, call: &Call, outcome: Outcome, now: Mono) -> Reply {
        let id = CallId(self.calls);
        self.calls += 1;
        let latency_ms = match outcome {
            Outcome::Ok { .. } => self.answer_ms(),
            Outcome::Timeout => self.latency.timeout_ms,
            _ => self.refusal_ms(),
        };
        match outcome {
            Outcome::Ok { .. } => self.open.insert(id),
            Outcome::Timeout => self.open.insert(id) && self.hanging.insert(id),
            _ => false,
        };
        let reply = Reply {
            call: id,
            latency: Mono::from_secs_f64(latency_ms / 1_000.0).since_start(),
            outcome,
            meters: self.quota.readings(),
            hint_form: self.behaviour.hint_form,
            disguise: self.behaviour.disguise,
        };
        self.recent.arrived(call.tokens.0, now);
        if !matches!(outcome, Outcome::Ok { .. }) {
            self.recent.failed(call.identity, now);
        }
        self.ledger.count(call, self.requests_of(call), &reply, now);
        reply
    }

    fn refusal_ms(&mut self) -> f64 {
        self.latency.refusal_ms + self.latency.refusal_spread_ms * self.random.random::<f64>()
    }

    fn answer_ms(&mut self) -> f64 {
        let LatencyConfig { base_ms, spread_ms, per_open_call_ms, .. } = self.latency;
        let open = u32::try_from(self.open.len()).map_or(f64::from(u32::MAX), f64::from);
        let unloaded_ms = base_ms + spread_ms * self.random.random::<f64>();
        let Behaviour { latency_factor, slow_ratio, slow_factor, .. } = self.behaviour;
        let factor = if self.falls_on(slow_ratio) { slow_factor } else { 1.0 };
        (unloaded_ms + per_open_call_ms * open) * latency_factor * factor
    }
}
