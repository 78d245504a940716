//! What the gate of a drill believes of its quota, how many of it there are, and what is wrong with it.
//!
//! A fault is put in from outside: the driver of the gate on the virtual clock (`gated`) and the
//! gateway's shell carry it out, the gate's own judgement knows of none. Only data here.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admission::{Binding, Mirror, Rules, ScopeConfig, SharedBreaker, Verdict};
use crate::signal::Mono;
use crate::sim::config::{ConfigError, within};

/// Most instances of a gate in one drill.
const INSTANCES_MAX: f64 = 16.0;
const LIMIT_MAX: f64 = 1e12;
const FACTOR_MAX: f64 = 1_000.0;
/// Longest stall of one event, and longest answer of a store.
const DELAY_MS_MAX: f64 = 10_000.0;
/// Latest instant: a day.
const AT_S_MAX: f64 = 86_400.0;

/// What a store says to a claim while it holds the breaker.
pub const HELD_VERDICT: Verdict =
    Verdict::Wait { at_least: Duration::from_secs(1), why: Binding::Breaker };

const SHARE_ALLOWED: &str = "a share from 0 to 1";
const DELAY_ALLOWED: &str = "milliseconds from 0 to 10000";

/// `[gate]` of a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// Requests per minute that the gate believes its first scope to have; what the provider has
    /// unless said.
    pub rpm: Option<f64>,
    /// Tokens per minute, likewise.
    pub tpm: Option<f64>,
    /// Requests per day; not limited unless said.
    pub rpd: Option<f64>,
    /// Tokens per day; not limited unless said.
    pub tpd: Option<f64>,
    /// Calls open at a time; not limited unless said.
    pub concurrency: Option<u32>,
    /// How many instances stand side by side; requests go to one after the other.
    pub instances: u32,
    /// Whether they share one budget. Where they do not, each believes the whole limit its own.
    pub shared: bool,
    /// What is wrong with every instance.
    pub faults: GateFaults,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            rpm: None,
            tpm: None,
            rpd: None,
            tpd: None,
            concurrency: None,
            instances: 1,
            shared: false,
            faults: GateFaults::default(),
        }
    }
}

/// What is wrong with a gate on purpose: `[gate.faults]` of a scenario, `[gateway.faults]` of a gateway
/// that is drilled. Times are seconds after the gate's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateFaults {
    /// Whether it is read what the provider says of its meters: in headers, and which one refused.
    pub headers: bool,
    /// What first guesses of tokens are multiplied with. Other than 1, what answers say of their
    /// usage is not read either, so that nothing is learned.
    pub estimate_factor: f64,
    /// Permits that are never given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leak: Option<LeakFault>,
    /// A breaker that does not come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerFault>,
    /// A slow or failing store of the shared budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreFault>,
    /// An event loop that is held up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallFault>,
}

impl Default for GateFaults {
    fn default() -> Self {
        Self {
            headers: true,
            estimate_factor: 1.0,
            leak: None,
            breaker: None,
            store: None,
            stall: None,
        }
    }
}

/// A share of well-answered requests keeps its permit for ever.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeakFault {
    /// The share, 0 to 1.
    pub ratio: f64,
    /// From when.
    #[serde(default)]
    pub from_s: f64,
    /// Until when; to the end unless said.
    pub to_s: Option<f64>,
}

/// The state that the breaker is held in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBreaker {
    /// Open, whatever succeeds.
    Open,
    /// Half-open, with a probe that never ends.
    HalfOpen,
}

impl HeldBreaker {
    /// The store's state with the breaker held for so long still.
    #[must_use]
    pub fn in_mirror(self, mirror: Mirror, left: Duration) -> Mirror {
        let breaker = match self {
            Self::Open => SharedBreaker::Open { left },
            Self::HalfOpen => SharedBreaker::HalfOpen { probing: true },
        };
        Mirror { breaker, ..mirror }
    }
}

/// The store of the shared budget keeps every scope's breaker in one state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BreakerFault {
    /// The state.
    pub held: HeldBreaker,
    /// From when.
    #[serde(default)]
    pub from_s: f64,
    /// Until when; to the end unless said.
    pub to_s: Option<f64>,
}

/// The store of the shared budget is slow or fails.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreFault {
    /// Milliseconds that every answer takes longer.
    #[serde(default)]
    pub latency_ms: f64,
    /// Share of questions that fail at once, 0 to 1.
    #[serde(default)]
    pub error_ratio: f64,
    /// From when.
    #[serde(default)]
    pub from_s: f64,
    /// Until when; to the end unless said.
    pub to_s: Option<f64>,
}

/// Every request holds the event loop up, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StallFault {
    /// Milliseconds per request.
    pub ms: f64,
    /// From when.
    #[serde(default)]
    pub from_s: f64,
    /// Until when; to the end unless said.
    pub to_s: Option<f64>,
}

impl GateConfig {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (key, limit) in
            [("rpm", self.rpm), ("tpm", self.tpm), ("rpd", self.rpd), ("tpd", self.tpd)]
        {
            within(key, limit.unwrap_or(1.0), 1.0, LIMIT_MAX, "a limit from 1 to 1e12")?;
        }
        let concurrency = f64::from(self.concurrency.unwrap_or(1));
        within("concurrency", concurrency, 1.0, f64::from(u32::MAX), "1 call or more")?;
        within("instances", self.instances.into(), 1.0, INSTANCES_MAX, "from 1 to 16")?;
        self.faults
            .check()
            .map_err(|error| ConfigError { key: format!("faults.{}", error.key), ..error })
    }

    /// The scope as the gate believes it to be.
    #[must_use]
    pub fn believes(&self, scope: ScopeConfig) -> ScopeConfig {
        ScopeConfig {
            rpm: self.rpm.or(scope.rpm),
            tpm: self.tpm.or(scope.tpm),
            rpd: self.rpd.or(scope.rpd),
            tpd: self.tpd.or(scope.tpd),
            concurrency: self.concurrency.or(scope.concurrency),
            ..scope
        }
    }

    /// Whether a store keeps the state of the scopes: shared by the instances, or faulty.
    #[must_use]
    pub const fn has_store(&self) -> bool {
        self.shared || self.faults.need_store()
    }
}

impl GateFaults {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let factor = self.estimate_factor;
        within("estimate_factor", factor, 0.01, FACTOR_MAX, "a factor from 0.01 to 1000")?;
        if let Some(leak) = &self.leak {
            within("leak.ratio", leak.ratio, 0.0, 1.0, SHARE_ALLOWED)?;
            check_span("leak", leak.from_s, leak.to_s)?;
        }
        if let Some(breaker) = &self.breaker {
            check_span("breaker", breaker.from_s, breaker.to_s)?;
        }
        if let Some(store) = &self.store {
            within("store.latency_ms", store.latency_ms, 0.0, DELAY_MS_MAX, DELAY_ALLOWED)?;
            within("store.error_ratio", store.error_ratio, 0.0, 1.0, SHARE_ALLOWED)?;
            check_span("store", store.from_s, store.to_s)?;
        }
        if let Some(stall) = &self.stall {
            within("stall.ms", stall.ms, 0.0, DELAY_MS_MAX, DELAY_ALLOWED)?;
            check_span("stall", stall.from_s, stall.to_s)?;
        }
        Ok(())
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong, in a word each.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let faults = [
            ("headers", !self.headers),
            ("estimate", !self.reads_usage()),
            ("leak", self.leak.is_some()),
            ("breaker", self.breaker.is_some()),
            ("store", self.store.is_some()),
            ("stall", self.stall.is_some()),
        ];
        faults.into_iter().filter(|(_, is_there)| *is_there).map(|(word, _)| word).collect()
    }

    /// Whether a fault lies in the store of the shared budget.
    #[must_use]
    pub const fn need_store(&self) -> bool {
        self.store.is_some() || self.breaker.is_some()
    }

    /// Whether what answers say of their usage is read.
    #[must_use]
    pub fn reads_usage(&self) -> bool {
        (self.estimate_factor - 1.0).abs() < f64::EPSILON
    }

    /// Share of well-answered requests that keep their permit now.
    #[must_use]
    pub fn leak_ratio(&self, now: Mono) -> f64 {
        let leak = self.leak.filter(|leak| is_within(leak.from_s, leak.to_s, now));
        leak.map_or(0.0, |leak| leak.ratio)
    }

    /// The state that the breaker is held in now, and for how long still; without a breaker, none.
    #[must_use]
    pub fn held_breaker(&self, rules: &Rules, now: Mono) -> Option<(HeldBreaker, Duration)> {
        let fault = self.breaker.filter(|fault| is_within(fault.from_s, fault.to_s, now))?;
        if !rules.breaker {
            return None;
        }
        let end = Mono::from_secs_f64(fault.to_s.unwrap_or(AT_S_MAX));
        Some((fault.held, end.saturating_since(now)))
    }

    /// What is wrong with the store now.
    #[must_use]
    pub fn store_now(&self, now: Mono) -> Option<StoreFault> {
        self.store.filter(|fault| is_within(fault.from_s, fault.to_s, now))
    }

    /// How long one request holds the event loop up now.
    #[must_use]
    pub fn stall_now(&self, now: Mono) -> Duration {
        let stall = self.stall.filter(|stall| is_within(stall.from_s, stall.to_s, now));
        stall.map_or(Duration::ZERO, |stall| milliseconds(stall.ms))
    }
}

impl StoreFault {
    /// How much longer every answer takes.
    #[must_use]
    pub fn latency(&self) -> Duration {
        milliseconds(self.latency_ms)
    }
}

fn milliseconds(ms: f64) -> Duration {
    Mono::from_secs_f64(ms / 1_000.0).since_start()
}

fn is_within(from_s: f64, to_s: Option<f64>, now: Mono) -> bool {
    let now_s = now.as_secs_f64();
    now_s >= from_s && to_s.is_none_or(|to_s| now_s < to_s)
}

fn check_span(fault: &str, from_s: f64, to_s: Option<f64>) -> Result<(), ConfigError> {
    let allowed = "seconds from 0 to 86400, `to_s` after `from_s`";
    within(&format!("{fault}.from_s"), from_s, 0.0, AT_S_MAX, allowed)?;
    within(&format!("{fault}.to_s"), to_s.unwrap_or(AT_S_MAX), from_s, AT_S_MAX, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> GateConfig {
        toml::from_str(text).expect("the text fits the types")
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (text, expected) in [
            ("", None),
            ("tpm = 600000\ninstances = 4\nshared = true", None),
            ("rpm = 0", Some("rpm")),
            ("instances = 0", Some("instances")),
            ("instances = 17", Some("instances")),
            ("concurrency = 0", Some("concurrency")),
            ("faults = { estimate_factor = 0 }", Some("faults.estimate_factor")),
            ("faults = { leak = { ratio = 1.5 } }", Some("faults.leak.ratio")),
            ("faults = { leak = { ratio = 1, from_s = -1 } }", Some("faults.leak.from_s")),
            ("faults = { stall = { ms = 1, from_s = 9, to_s = 8 } }", Some("faults.stall.to_s")),
            ("faults = { store = { latency_ms = 1e9 } }", Some("faults.store.latency_ms")),
            ("faults = { store = { error_ratio = -1 } }", Some("faults.store.error_ratio")),
            (
                "faults = { breaker = { held = 'half-open', to_s = 1e9 } }",
                Some("faults.breaker.to_s"),
            ),
        ] {
            let key = gate(text).check().err().map(|error| error.key);
            assert_eq!(key.as_deref(), expected, "{text}");
        }
        assert!(toml::from_str::<GateConfig>("leak_ratio = 0.5").is_err(), "a typo is an error");
    }

    #[test]
    fn a_fault_lasts_from_its_beginning_to_its_end() {
        let faults = gate(
            "faults = { leak = { ratio = 0.5, from_s = 2, to_s = 4 }, stall = { ms = 10 },\
             breaker = { held = 'open', from_s = 1, to_s = 5 } }",
        )
        .faults;
        let at = Mono::from_secs_f64;
        let leaks = [1.9, 2.0, 3.9, 4.0].map(|seconds| faults.leak_ratio(at(seconds)) > 0.0);
        assert_eq!(leaks, [false, true, true, false]);
        assert_eq!(faults.stall_now(at(1_000.0)), Duration::from_millis(10));
        let rules = Rules {
            breaker: true,
            faults_in_row: 5,
            adaptive: true,
            lease: Duration::from_secs(9),
        };
        let held = Some((HeldBreaker::Open, Duration::from_secs(3)));
        assert_eq!(faults.held_breaker(&rules, at(0.5)), None);
        assert_eq!(faults.held_breaker(&rules, at(2.0)), held);
        let without = Rules { breaker: false, ..rules };
        assert_eq!(faults.held_breaker(&without, at(2.0)), None, "it is switched off");
        assert!(faults.need_store() && !faults.is_none() && GateFaults::default().is_none());
        assert_eq!(faults.words(), ["leak", "breaker", "stall"]);
    }

    #[test]
    fn what_is_not_said_is_believed_as_it_is() {
        let scope =
            ScopeConfig { rpm: Some(60.0), tpm: Some(600.0), ..ScopeConfig::named("p/a/m") };
        let believed = gate("tpm = 300").believes(scope);
        assert_eq!((believed.rpm, believed.tpm), (Some(60.0), Some(300.0)));
    }
}
