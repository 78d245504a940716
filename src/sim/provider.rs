//! A simulated provider, sans-I/O: says what a call gets and after how long.
//!
//! Knows no HTTP and sends nothing; the shell in `drill` and the virtual clock in `world` both drive
//! it with [`Provider::handle_request`] and [`Provider::finish`]. The order of judgement is that of real
//! providers as far as it is known: account before capacity before rate. A refusal charges nothing,
//! and a call is charged in both meters or in none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use rand::Rng;
use rand_pcg::Pcg64;

use crate::dialect::{Meter, MeterReading};
use crate::signal::{Mono, Tokens};
use crate::sim::config::{ConfigError, LatencyConfig, ProviderConfig, ProviderStep};
use crate::sim::ledger::{Ledger, ResponseKey};
use crate::sim::meter::SimMeter;
use crate::sim::rng;
use crate::sim::script::{self, Script, Scripted};

/// Originals with a script of their own.
const OWN_SCRIPTS_MAX: usize = 10_000;
/// The hint of a scripted refusal, which no meter explains.
const SCRIPTED_WAIT: Duration = Duration::from_millis(20);

/// What kind of call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKind {
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/chat/completions`
    ChatCompletions,
    /// Anything else under `/v1/`.
    Other,
}

/// One call as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The original that it belongs to.
    pub identity: u128,
    /// What it will be charged.
    pub tokens: Tokens,
    /// Its kind.
    pub kind: CallKind,
}

/// A call that is open at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// What a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A result; the tokens were charged.
    Ok {
        /// What was charged.
        tokens: Tokens,
    },
    /// 429: a meter has too little left.
    RateLimited {
        /// The meter that lacks most.
        meter: Meter,
        /// Time until this very call fits.
        wait: Duration,
        /// The meter's limit per minute.
        limit: u64,
        /// What is used of it.
        used: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// 429 that waiting never cures: the call is larger than the meter.
    TooLarge {
        /// The meter's limit per minute.
        limit: u64,
        /// What the call asked for.
        requested: u64,
    },
    /// 429 `insufficient_quota`.
    InsufficientQuota,
    /// 429: too many calls open at once.
    ConcurrencyCap {
        /// The cap.
        cap: u32,
    },
    /// 500 or 503.
    ServerError {
        /// The status.
        status: u16,
    },
    /// No answer while anyone waits.
    Timeout,
    /// 400 or 404: not a request that this provider understands.
    Rejected {
        /// The status.
        status: u16,
    },
}

impl Outcome {
    /// The HTTP status; 504 stands for a timeout.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Ok { .. } => 200,
            Self::RateLimited { .. }
            | Self::TooLarge { .. }
            | Self::InsufficientQuota
            | Self::ConcurrencyCap { .. } => 429,
            Self::ServerError { status } | Self::Rejected { status } => status,
            Self::Timeout => 504,
        }
    }

    /// Status, code and type, as the error body has them.
    #[must_use]
    pub const fn response_key(self) -> ResponseKey {
        let (code, kind) = match self {
            Self::Ok { .. } => ("none", "none"),
            Self::RateLimited { meter: Meter::Requests, .. } => ("rate_limit_exceeded", "requests"),
            Self::RateLimited { .. } | Self::TooLarge { .. } => ("rate_limit_exceeded", "tokens"),
            Self::InsufficientQuota => ("insufficient_quota", "insufficient_quota"),
            Self::ConcurrencyCap { .. } => ("concurrency_limit_exceeded", "concurrency"),
            Self::ServerError { .. } | Self::Timeout => ("none", "server_error"),
            Self::Rejected { .. } => ("none", "invalid_request_error"),
        };
        ResponseKey { status: self.status(), code, kind }
    }

    /// `retry-after-ms`: time until this call fits, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_ms(self) -> Option<u64> {
        match self {
            Self::RateLimited { wait, .. } => {
                let ms = wait.as_nanos().div_ceil(1_000_000).max(1);
                Some(u64::try_from(ms).unwrap_or(u64::MAX))
            }
            _ => None,
        }
    }

    /// `retry-after`: the same in whole seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_s(self) -> Option<u64> {
        self.retry_after_ms().map(|ms| ms.div_ceil(1_000))
    }
}

/// The answer to one call.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// To be named in [`Provider::finish`].
    pub call: CallId,
    /// How long the answer takes.
    pub latency: Duration,
    /// What it is.
    pub outcome: Outcome,
    /// The meters right after it, for its headers: requests, then tokens.
    pub meters: [MeterReading; 2],
}

/// A simulated provider. Create it, ask [`Self::handle_request`] for each call, and say
/// [`Self::finish`] when the answer has been delivered. Time never steps back; a step back is ignored.
#[derive(Clone, Debug)]
pub struct Provider {
    start: Mono,
    requests: SimMeter,
    tokens: SimMeter,
    latency: LatencyConfig,
    steps: VecDeque<ProviderStep>,
    /// What the steps so far add up to.
    behaviour: Behaviour,
    script: Script,
    /// Scripts that calls brought along, by original.
    own_scripts: BTreeMap<u128, Script>,
    random: Pcg64,
    open: BTreeSet<CallId>,
    calls: u64,
    ledger: Ledger,
}

#[derive(Clone, Copy, Debug)]
struct Behaviour {
    error_ratio: f64,
    hard_quota: bool,
    latency_factor: f64,
    concurrency_cap: Option<u32>,
}

impl Provider {
    /// A provider whose clock starts at `now`, from a checked configuration.
    #[must_use]
    pub fn new(config: &ProviderConfig, seed: u64, now: Mono) -> Self {
        Self {
            start: now,
            requests: SimMeter::new(Meter::Requests, &config.requests, now),
            tokens: SimMeter::new(Meter::Tokens, &config.tokens, now),
            latency: config.latency,
            steps: config.steps.iter().copied().collect(),
            behaviour: Behaviour {
                error_ratio: 0.0,
                hard_quota: false,
                latency_factor: 1.0,
                concurrency_cap: config.concurrency_cap,
            },
            script: script::parse(&config.script).unwrap_or_default(),
            own_scripts: BTreeMap::new(),
            random: rng::seeded(seed, rng::Stream::Provider),
            open: BTreeSet::new(),
            calls: 0,
            ledger: Ledger::default(),
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
        let outcome = self.judge(call);
        self.reply(call.identity, call.kind, outcome)
    }

    /// Counts a call that is not understood; it is answered with `status` and charged nothing.
    pub fn reject(&mut self, identity: u128, kind: CallKind, status: u16, now: Mono) -> Reply {
        self.advance(now);
        self.reply(identity, kind, Outcome::Rejected { status })
    }

    /// The answer of `call` was delivered, or its caller went away. Repeating it is harmless.
    pub fn finish(&mut self, call: CallId) {
        self.open.remove(&call);
    }

    /// Both meters as the headers show them: requests, then tokens.
    pub fn meters(&mut self, now: Mono) -> [MeterReading; 2] {
        self.advance(now);
        self.readings()
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

    fn readings(&self) -> [MeterReading; 2] {
        [self.requests.reading(), self.tokens.reading()]
    }

    /// Refills up to each step that is due, applies it, then refills up to `now`.
    fn advance(&mut self, now: Mono) {
        while let Some(step) = self.steps.front().copied() {
            let at = self.start + Mono::from_secs_f64(step.at_s).since_start();
            if at > now {
                break;
            }
            self.steps.pop_front();
            self.refill(at);
            self.apply(&step, at);
        }
        self.refill(now);
    }

    fn refill(&mut self, now: Mono) {
        self.requests.refill(now);
        self.tokens.refill(now);
    }

    fn apply(&mut self, step: &ProviderStep, at: Mono) {
        let behaviour = &mut self.behaviour;
        behaviour.error_ratio = step.error_ratio.unwrap_or(behaviour.error_ratio);
        behaviour.hard_quota = step.hard_quota.unwrap_or(behaviour.hard_quota);
        behaviour.latency_factor = step.latency_factor.unwrap_or(behaviour.latency_factor);
        behaviour.concurrency_cap = step.concurrency_cap.or(behaviour.concurrency_cap);
        if let Some(per_minute) = step.requests_per_minute {
            self.requests.set_limit(per_minute, at);
        }
        if let Some(per_minute) = step.tokens_per_minute {
            self.tokens.set_limit(per_minute, at);
        }
    }

    fn judge(&mut self, call: &Call) -> Outcome {
        let scripted = match self.own_scripts.get_mut(&call.identity) {
            Some(own) => own.next(),
            None => self.script.next(),
        };
        match scripted {
            Scripted::Ok => {}
            Scripted::RateLimit => return self.refusal(Meter::Requests, SCRIPTED_WAIT, call),
            Scripted::Timeout => return Outcome::Timeout,
            Scripted::ServerError => return Outcome::ServerError { status: 500 },
        }
        if self.behaviour.hard_quota {
            return Outcome::InsufficientQuota;
        }
        let error_ratio = self.behaviour.error_ratio;
        if error_ratio > 0.0 && self.random.random::<f64>() < error_ratio {
            return Outcome::ServerError { status: 503 };
        }
        if let Some(cap) = self.behaviour.concurrency_cap
            && self.open.len() >= usize::try_from(cap).unwrap_or(usize::MAX)
        {
            return Outcome::ConcurrencyCap { cap };
        }
        self.charge(call)
    }

    /// Takes from both meters, or from none.
    fn charge(&mut self, call: &Call) -> Outcome {
        let waits = (self.requests.wait(1), self.tokens.wait(call.tokens.0));
        let (Some(requests_wait), Some(tokens_wait)) = waits else {
            return Outcome::TooLarge { limit: self.tokens.limit(), requested: call.tokens.0 };
        };
        if requests_wait.max(tokens_wait).is_zero() {
            self.requests.take(1);
            self.tokens.take(call.tokens.0);
            return Outcome::Ok { tokens: call.tokens };
        }
        if requests_wait > tokens_wait {
            self.refusal(Meter::Requests, requests_wait, call)
        } else {
            self.refusal(Meter::Tokens, tokens_wait, call)
        }
    }

    fn refusal(&self, meter: Meter, wait: Duration, call: &Call) -> Outcome {
        let (lacking, requested) = match meter {
            Meter::Tokens => (&self.tokens, call.tokens.0),
            _ => (&self.requests, 1),
        };
        Outcome::RateLimited {
            meter: lacking.meter(),
            wait,
            limit: lacking.limit(),
            used: lacking.used(),
            requested,
        }
    }

    fn reply(&mut self, identity: u128, kind: CallKind, outcome: Outcome) -> Reply {
        let call = CallId(self.calls);
        self.calls += 1;
        let latency_ms = match outcome {
            Outcome::Ok { .. } => self.answer_ms(),
            Outcome::Timeout => self.latency.timeout_ms,
            _ => self.refusal_ms(),
        };
        if matches!(outcome, Outcome::Ok { .. } | Outcome::Timeout) {
            self.open.insert(call);
        }
        self.ledger.count(identity, kind, &outcome);
        let latency = Mono::from_secs_f64(latency_ms / 1_000.0).since_start();
        Reply { call, latency, outcome, meters: self.readings() }
    }

    fn refusal_ms(&mut self) -> f64 {
        self.latency.refusal_ms + self.latency.refusal_spread_ms * self.random.random::<f64>()
    }

    fn answer_ms(&mut self) -> f64 {
        let LatencyConfig { base_ms, spread_ms, per_open_call_ms, .. } = self.latency;
        let open = u32::try_from(self.open.len()).map_or(f64::from(u32::MAX), f64::from);
        let unloaded_ms = base_ms + spread_ms * self.random.random::<f64>();
        (unloaded_ms + per_open_call_ms * open) * self.behaviour.latency_factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(text: &str) -> Provider {
        let config: ProviderConfig = toml::from_str(text).expect("the text fits the types");
        config.check().expect("the values are in bounds");
        Provider::new(&config, 1, Mono::START)
    }

    fn launch() -> Provider {
        provider(
            "requests = { per_minute = 6000, start = 3000 }\n\
             tokens = { per_minute = 1_200_000, start = 36_000 }",
        )
    }

    fn call(identity: u128, tokens: u64) -> Call {
        Call { identity, tokens: Tokens(tokens), kind: CallKind::Embeddings }
    }

    #[test]
    fn the_token_meter_binds_and_says_when_the_call_fits() {
        let mut provider = launch();
        for identity in 0..120 {
            let reply = provider.handle_request(&call(identity, 300), Mono::START);
            assert_eq!(reply.outcome.status(), 200, "36,000 tokens hold 120 calls");
        }
        let refused = provider.handle_request(&call(120, 300), Mono::START).outcome;
        assert_eq!(
            refused,
            Outcome::RateLimited {
                meter: Meter::Tokens,
                wait: Duration::from_millis(15),
                limit: 1_200_000,
                used: 1_200_000,
                requested: 300
            }
        );
        assert_eq!((refused.retry_after_ms(), refused.retry_after_s()), (Some(15), Some(1)));
        let just_before = Mono::from_start(Duration::from_nanos(14_999_999));
        assert_eq!(provider.handle_request(&call(120, 300), just_before).outcome.status(), 429);
        let exactly = Mono::from_start(Duration::from_millis(15));
        assert_eq!(provider.handle_request(&call(120, 300), exactly).outcome.status(), 200);
    }

    #[test]
    fn the_ledger_is_exact_and_refusals_charge_nothing() {
        let mut provider = launch();
        for identity in 0..200 {
            provider.handle_request(&call(identity % 150, 300), Mono::START);
        }
        let ledger = provider.ledger();
        assert_eq!((ledger.originals(), ledger.attempts()), (150, 200));
        assert_eq!((ledger.tokens(), ledger.answered(429)), (Tokens(36_000), 80));
        let [requests, tokens] = provider.meters(Mono::START);
        assert_eq!((requests.remaining, tokens.remaining), (Some(2_880.0), Some(0.0)));
    }

    #[test]
    fn the_script_comes_first_and_ends() {
        let mut provider = launch();
        provider.set_script("rate_limit:2,timeout,server_error,ok").expect("understood");
        let statuses = [429, 429, 504, 500, 200, 200];
        for (identity, expected) in statuses.into_iter().enumerate() {
            let reply = provider.handle_request(&call(identity as u128, 1), Mono::START);
            assert_eq!(reply.outcome.status(), expected, "call {identity}");
        }
        assert!(provider.set_script("nonsense").is_err());
    }

    #[test]
    fn steps_change_behaviour_at_their_instant() {
        let mut provider = provider(
            "requests = { per_minute = 60_000 }\ntokens = { per_minute = 6_000_000 }\n\
             steps = [{ at_s = 1, error_ratio = 1.0 }, { at_s = 2, error_ratio = 0.0, hard_quota = true },\
                      { at_s = 3, hard_quota = false, tokens_per_minute = 600 }]",
        );
        let mut at = |seconds: f64| {
            provider.handle_request(&call(1, 601), Mono::from_secs_f64(seconds)).outcome
        };
        assert_eq!(at(0.999).status(), 200);
        assert_eq!(at(1.0), Outcome::ServerError { status: 503 });
        assert_eq!(at(2.0), Outcome::InsufficientQuota);
        assert_eq!(at(3.0), Outcome::TooLarge { limit: 600, requested: 601 });
    }

    #[test]
    fn open_calls_count_against_the_cap_until_they_finish() {
        let mut provider = provider(
            "concurrency_cap = 1\nrequests = { per_minute = 600 }\ntokens = { per_minute = 600 }",
        );
        let first = provider.handle_request(&call(1, 1), Mono::START);
        let second = provider.handle_request(&call(2, 1), Mono::START);
        assert_eq!(second.outcome, Outcome::ConcurrencyCap { cap: 1 });
        provider.finish(second.call);
        assert_eq!(provider.in_flight(), 1, "a refusal occupies nothing");
        provider.finish(first.call);
        provider.finish(first.call);
        assert_eq!(provider.handle_request(&call(2, 1), Mono::START).outcome.status(), 200);
    }

    #[test]
    fn slices_refuse_below_the_minute_limit() {
        let mut provider = provider(
            "requests = { per_minute = 600, slices_s = [1] }\ntokens = { per_minute = 6000 }",
        );
        let refused = (0..11)
            .map(|identity| provider.handle_request(&call(identity, 1), Mono::START).outcome)
            .filter(|outcome| outcome.status() == 429)
            .count();
        assert_eq!(refused, 1, "ten of 600 fall on one second");
    }

    #[test]
    fn latency_grows_with_open_calls() {
        let mut provider = provider(
            "requests = { per_minute = 600 }\ntokens = { per_minute = 600 }\n\
             latency = { base_ms = 100, spread_ms = 0, per_open_call_ms = 10 }",
        );
        let latencies: Vec<u128> = (0..3)
            .map(|identity| provider.handle_request(&call(identity, 1), Mono::START))
            .map(|reply| reply.latency.as_millis())
            .collect();
        assert_eq!(latencies, [100, 110, 120]);
    }

    #[test]
    fn the_same_seed_gives_the_same_replies() {
        let run = || {
            let mut provider = launch();
            let reply = |n: u64| {
                let at = Mono::from_start(Duration::from_millis(n * 3));
                let reply = provider.handle_request(&call(u128::from(n), 300), at);
                (reply.latency, reply.outcome)
            };
            (0..500).map(reply).collect::<Vec<_>>()
        };
        assert_eq!(run(), run());
    }
}
