//! The flag table and the typed settings that it sets.
//!
//! One table serves the admin API, the command line, the screen and the runbook linter. A value is
//! checked here once; the rest of the gate works with [`Settings`], which cannot hold a bad one.

use std::fmt;

use thiserror::Error;

/// The value of a flag as it is typed, stored and shown.
#[derive(Clone, Debug, PartialEq)]
pub enum FlagValue {
    /// A switch.
    Bool(bool),
    /// A number; counts are whole.
    Number(f64),
    /// One of a few words.
    Word(String),
}

impl fmt::Display for FlagValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(on) => on.fmt(f),
            // No minus before a zero.
            Self::Number(number) => (number + 0.0).fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// What a flag accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A whole number from `min` to `max`.
    Whole {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// Any number from `min` to `max`.
    Real {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of these words.
    Words(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Whole { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Real { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Words(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// Where a flag's safe end lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Safe {
    /// A switch position.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A word.
    Word(&'static str),
    /// Half of the base value.
    HalfOfBase,
}

/// One flag of the admission service.
#[derive(Clone, Copy, Debug)]
pub struct FlagDef {
    /// The flag's key.
    pub key: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// Its safe end.
    pub safe: Safe,
    /// What it does, in a few words.
    pub meaning: &'static str,
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FlagError {
    /// No such flag.
    #[error("no flag `{key}`; flags are: {known}")]
    UnknownKey {
        /// What was asked for.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// The value does not fit.
    #[error("`{key}` takes {allowed}, not `{value}`")]
    BadValue {
        /// The flag.
        key: String,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

/// Who decides about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Decisions are carried out.
    Enforce,
    /// Decisions are made and counted; everything passes.
    Shadow,
    /// Plain pass-through.
    Off,
}

/// The one layer that may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOwner {
    /// The gate retries; clients are told not to.
    Gateway,
    /// The client retries; the gate does not.
    Client,
}

/// The effective settings of the gate. Fields mean what the flag of the same name says.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the flag table")]
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `admission.mode`
    pub mode: Mode,
    /// `admission.enforced_ratio`: share of originals, by identity, that decisions apply to.
    pub enforced_ratio: f64,
    /// `admission.rate_factor`: share of the quota that is used.
    pub rate_factor: f64,
    /// `admission.max_in_flight`
    pub max_in_flight: u32,
    /// `admission.max_request_tokens`
    pub max_request_tokens: u64,
    /// `queue.max_depth`
    pub queue_max_depth: u32,
    /// `queue.max_age_s`
    pub queue_max_age_s: f64,
    /// `retry.owner`
    pub retry_owner: RetryOwner,
    /// `retry.max_attempts`: all tries of one original, the first included.
    pub retry_max_attempts: u32,
    /// `retry.budget_ratio`: retries per admitted original.
    pub retry_budget_ratio: f64,
    /// `adaptive.enabled`
    pub adaptive: bool,
    /// `breaker.enabled`
    pub breaker: bool,
    /// `lane.batch.enabled`
    pub batch_lane: bool,
    /// `lane.interactive.reserved_ratio`
    pub interactive_reserved_ratio: f64,
    /// `tenant.cap_ratio`
    pub tenant_cap_ratio: f64,
    /// `cache.enabled`
    pub cache: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            enforced_ratio: 1.0,
            rate_factor: 0.98,
            max_in_flight: 64,
            max_request_tokens: 128_000,
            queue_max_depth: 512,
            queue_max_age_s: 10.0,
            retry_owner: RetryOwner::Gateway,
            retry_max_attempts: 2,
            retry_budget_ratio: 0.1,
            adaptive: true,
            breaker: true,
            batch_lane: true,
            interactive_reserved_ratio: 0.2,
            tenant_cap_ratio: 1.0,
            cache: false,
        }
    }
}

const UNIT: Kind = Kind::Real { min: 0.0, max: 1.0 };

/// Every flag, in the order in which they are shown.
#[rustfmt::skip]
pub const FLAGS: &[FlagDef] = &[
    FlagDef { key: "admission.mode", kind: Kind::Words(&["enforce", "shadow", "off"]), safe: Safe::Word("enforce"), meaning: "enforce decisions, only count them, or pass everything through" },
    FlagDef { key: "admission.enforced_ratio", kind: UNIT, safe: Safe::Number(1.0), meaning: "share of originals that decisions apply to, by identity" },
    FlagDef { key: "admission.rate_factor", kind: UNIT, safe: Safe::Number(0.5), meaning: "share of the quota that is used" },
    FlagDef { key: "admission.max_in_flight", kind: Kind::Whole { min: 1.0, max: 100_000.0 }, safe: Safe::HalfOfBase, meaning: "upstream calls at a time, per scope" },
    FlagDef { key: "admission.max_request_tokens", kind: Kind::Whole { min: 1.0, max: 100_000_000.0 }, safe: Safe::HalfOfBase, meaning: "largest request, in estimated tokens" },
    FlagDef { key: "queue.max_depth", kind: Kind::Whole { min: 0.0, max: 1_000_000.0 }, safe: Safe::HalfOfBase, meaning: "waiting requests, both lanes, per scope" },
    FlagDef { key: "queue.max_age_s", kind: Kind::Real { min: 0.0, max: 86_400.0 }, safe: Safe::HalfOfBase, meaning: "longest wait in the queue, seconds" },
    FlagDef { key: "retry.owner", kind: Kind::Words(&["gateway", "client"]), safe: Safe::Word("gateway"), meaning: "the one layer that may retry" },
    FlagDef { key: "retry.max_attempts", kind: Kind::Whole { min: 1.0, max: 4.0 }, safe: Safe::Number(1.0), meaning: "tries of one original, the first included" },
    FlagDef { key: "retry.budget_ratio", kind: UNIT, safe: Safe::Number(0.0), meaning: "retries per admitted original, across the scope" },
    FlagDef { key: "adaptive.enabled", kind: Kind::Bool, safe: Safe::Bool(true), meaning: "lower the rate when the provider throttles" },
    FlagDef { key: "breaker.enabled", kind: Kind::Bool, safe: Safe::Bool(true), meaning: "stop calling a provider that fails" },
    FlagDef { key: "lane.batch.enabled", kind: Kind::Bool, safe: Safe::Bool(false), meaning: "admit batch work" },
    FlagDef { key: "lane.interactive.reserved_ratio", kind: UNIT, safe: Safe::Number(0.5), meaning: "share of the quota that batch work may not touch" },
    FlagDef { key: "tenant.cap_ratio", kind: UNIT, safe: Safe::Number(0.5), meaning: "largest share of the quota for one tenant" },
    FlagDef { key: "cache.enabled", kind: Kind::Bool, safe: Safe::Bool(false), meaning: "answer repeated embeddings from the cache" },
];

/// A named plan: several flags that are flipped together.
#[derive(Clone, Copy, Debug)]
pub struct NamedPlan {
    /// The plan's name.
    pub name: &'static str,
    /// What it does, in a few words.
    pub meaning: &'static str,
    /// Flag and value, as typed.
    pub changes: &'static [(&'static str, &'static str)],
}

impl NamedPlan {
    /// Whether it sets this flag to this value.
    #[must_use]
    pub fn sets(&self, key: &str, to: &FlagValue) -> bool {
        let mut own = self.changes.iter().filter(|(own, _)| *own == key);
        own.any(|(key, value)| flag(key).and_then(|def| def.parse(value)).as_ref() == Ok(to))
    }
}

/// The plans that ship with weir.
pub const PLANS: &[NamedPlan] = &[NamedPlan {
    name: "contain",
    meaning: "one retry owner, and admission within the quota",
    changes: &[
        ("admission.mode", "enforce"),
        ("retry.owner", "gateway"),
        ("retry.max_attempts", "2"),
    ],
}];

/// Looks a flag up by key.
///
/// # Errors
/// [`FlagError::UnknownKey`] names the flags there are.
pub fn flag(key: &str) -> Result<&'static FlagDef, FlagError> {
    FLAGS.iter().find(|def| def.key == key).ok_or_else(|| FlagError::UnknownKey {
        key: key.to_owned(),
        known: FLAGS.iter().map(|def| def.key).collect::<Vec<_>>().join(", "),
    })
}

impl FlagDef {
    /// Reads a value as typed on a command line.
    ///
    /// # Errors
    /// [`FlagError::BadValue`] says what is allowed.
    pub fn parse(&self, text: &str) -> Result<FlagValue, FlagError> {
        let value = match self.kind {
            Kind::Bool => text.parse().ok().map(FlagValue::Bool),
            Kind::Whole { .. } | Kind::Real { .. } => text.parse().ok().map(FlagValue::Number),
            Kind::Words(_) => Some(FlagValue::Word(text.to_owned())),
        };
        value.ok_or_else(|| self.bad(text)).and_then(|value| self.check(value))
    }

    /// Checks a value's type and bounds.
    ///
    /// # Errors
    /// [`FlagError::BadValue`] says what is allowed.
    pub fn check(&self, value: FlagValue) -> Result<FlagValue, FlagError> {
        let fits = match (&self.kind, &value) {
            (Kind::Bool, FlagValue::Bool(_)) => true,
            (Kind::Whole { min, max }, FlagValue::Number(number)) => {
                number.fract() == 0.0 && (*min..=*max).contains(number)
            }
            (Kind::Real { min, max }, FlagValue::Number(number)) => (*min..=*max).contains(number),
            (Kind::Words(words), FlagValue::Word(word)) => words.contains(&word.as_str()),
            _ => false,
        };
        if fits { Ok(value) } else { Err(self.bad(&value.to_string())) }
    }

    /// The safe value, given the flag's base value.
    #[must_use]
    pub fn safe_value(&self, base: &FlagValue) -> FlagValue {
        match (self.safe, base) {
            (Safe::Bool(on), _) => FlagValue::Bool(on),
            (Safe::Number(number), _) => FlagValue::Number(number),
            (Safe::Word(word), _) => FlagValue::Word(word.to_owned()),
            (Safe::HalfOfBase, FlagValue::Number(base)) => {
                let half = base / 2.0;
                let whole = matches!(self.kind, Kind::Whole { .. });
                FlagValue::Number(if whole { half.ceil() } else { half })
            }
            (Safe::HalfOfBase, other) => other.clone(),
        }
    }

    /// What a change away from the safe end may bring about, in a few words.
    #[must_use]
    pub fn risk(&self, from: &FlagValue, to: &FlagValue) -> &'static str {
        let rises =
            matches!((from, to), (FlagValue::Number(from), FlagValue::Number(to)) if to > from);
        match (self.key, rises) {
            ("admission.mode" | "admission.enforced_ratio", _) => {
                "the provider gets what the gate would keep out"
            }
            ("admission.rate_factor", true) => "more of the quota is used; refusals may come back",
            ("admission.rate_factor", false) => "fewer are served",
            ("admission.max_in_flight", true) => {
                "more calls at once; the provider may slow or refuse"
            }
            ("admission.max_in_flight", false) => "fewer calls at once; callers may wait",
            ("admission.max_request_tokens", true) => "one request may take more of the quota",
            ("admission.max_request_tokens", false) => "large requests are refused",
            ("queue.max_age_s" | "queue.max_depth", true) => {
                "callers wait longer, and work may be done for nobody"
            }
            ("queue.max_age_s" | "queue.max_depth", false) => "callers are refused sooner",
            ("adaptive.enabled", _) => "the rate no longer gives way when the provider throttles",
            ("breaker.enabled", _) => "a provider that fails is called on and on",
            ("lane.batch.enabled", _) => "batch work takes quota again",
            ("lane.interactive.reserved_ratio", true) => "batch work gets less",
            ("lane.interactive.reserved_ratio", false) => "batch work may take what people need",
            ("tenant.cap_ratio", true) => "one tenant may take more of the quota",
            ("tenant.cap_ratio", false) => "large tenants are refused sooner",
            ("cache.enabled", _) => "stored answers are given out",
            _ => "failed calls may multiply",
        }
    }

    /// How a change from `from` to `to` lies to the safe value.
    #[must_use]
    pub fn direction(&self, base: &FlagValue, from: &FlagValue, to: &FlagValue) -> Direction {
        if from == to {
            return Direction::Same;
        }
        let safe = self.safe_value(base);
        match (from, to, &safe) {
            (FlagValue::Number(from), FlagValue::Number(to), FlagValue::Number(safe)) => {
                if (to - safe).abs() < (from - safe).abs() {
                    Direction::Safer
                } else {
                    Direction::Riskier
                }
            }
            (FlagValue::Word(from), FlagValue::Word(to), FlagValue::Word(_)) => {
                // The words of a flag stand in the table from safe to unsafe.
                let Kind::Words(words) = self.kind else { return Direction::Riskier };
                let place = |word: &str| words.iter().position(|known| *known == word);
                if place(to) < place(from) { Direction::Safer } else { Direction::Riskier }
            }
            _ if *to == safe => Direction::Safer,
            _ => Direction::Riskier,
        }
    }

    fn bad(&self, value: &str) -> FlagError {
        FlagError::BadValue {
            key: self.key.to_owned(),
            value: value.to_owned(),
            allowed: self.kind.to_string(),
        }
    }
}

/// Where a flip leads, seen from the flag's safe end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Toward the safe value.
    Safer,
    /// Away from it.
    Riskier,
    /// Nowhere.
    Same,
}

impl Settings {
    /// The value of one flag.
    ///
    /// # Errors
    /// [`FlagError::UnknownKey`] when there is no such flag.
    pub fn get(&self, key: &str) -> Result<FlagValue, FlagError> {
        let word = |word: &str| FlagValue::Word(word.to_owned());
        Ok(match flag(key)?.key {
            "admission.mode" => word(match self.mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            }),
            "admission.enforced_ratio" => FlagValue::Number(self.enforced_ratio),
            "admission.rate_factor" => FlagValue::Number(self.rate_factor),
            "admission.max_in_flight" => FlagValue::Number(f64::from(self.max_in_flight)),
            #[expect(clippy::cast_precision_loss, reason = "bounded by the table far below 2^53")]
            "admission.max_request_tokens" => FlagValue::Number(self.max_request_tokens as f64),
            "queue.max_depth" => FlagValue::Number(f64::from(self.queue_max_depth)),
            "queue.max_age_s" => FlagValue::Number(self.queue_max_age_s),
            "retry.owner" => word(match self.retry_owner {
                RetryOwner::Gateway => "gateway",
                RetryOwner::Client => "client",
            }),
            "retry.max_attempts" => FlagValue::Number(f64::from(self.retry_max_attempts)),
            "retry.budget_ratio" => FlagValue::Number(self.retry_budget_ratio),
            "adaptive.enabled" => FlagValue::Bool(self.adaptive),
            "breaker.enabled" => FlagValue::Bool(self.breaker),
            "lane.batch.enabled" => FlagValue::Bool(self.batch_lane),
            "lane.interactive.reserved_ratio" => FlagValue::Number(self.interactive_reserved_ratio),
            "tenant.cap_ratio" => FlagValue::Number(self.tenant_cap_ratio),
            _ => FlagValue::Bool(self.cache),
        })
    }

    /// Sets one flag after checking the value.
    ///
    /// # Errors
    /// [`FlagError`] when the key or the value does not fit; nothing is changed then.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`check` has bounded whole numbers by the table"
    )]
    pub fn set(&mut self, key: &str, value: FlagValue) -> Result<(), FlagError> {
        let def = flag(key)?;
        match (def.key, def.check(value)?) {
            ("admission.mode", FlagValue::Word(word)) => {
                self.mode = match word.as_str() {
                    "enforce" => Mode::Enforce,
                    "shadow" => Mode::Shadow,
                    _ => Mode::Off,
                };
            }
            ("retry.owner", FlagValue::Word(word)) => {
                self.retry_owner =
                    if word == "gateway" { RetryOwner::Gateway } else { RetryOwner::Client };
            }
            ("admission.enforced_ratio", FlagValue::Number(n)) => self.enforced_ratio = n,
            ("admission.rate_factor", FlagValue::Number(n)) => self.rate_factor = n,
            ("admission.max_in_flight", FlagValue::Number(n)) => self.max_in_flight = n as u32,
            ("admission.max_request_tokens", FlagValue::Number(n)) => {
                self.max_request_tokens = n as u64;
            }
            ("queue.max_depth", FlagValue::Number(n)) => self.queue_max_depth = n as u32,
            ("queue.max_age_s", FlagValue::Number(n)) => self.queue_max_age_s = n,
            ("retry.max_attempts", FlagValue::Number(n)) => self.retry_max_attempts = n as u32,
            ("retry.budget_ratio", FlagValue::Number(n)) => self.retry_budget_ratio = n,
            ("lane.interactive.reserved_ratio", FlagValue::Number(n)) => {
                self.interactive_reserved_ratio = n;
            }
            ("tenant.cap_ratio", FlagValue::Number(n)) => self.tenant_cap_ratio = n,
            ("adaptive.enabled", FlagValue::Bool(on)) => self.adaptive = on,
            ("breaker.enabled", FlagValue::Bool(on)) => self.breaker = on,
            ("lane.batch.enabled", FlagValue::Bool(on)) => self.batch_lane = on,
            ("cache.enabled", FlagValue::Bool(on)) => self.cache = on,
            (_, value) => return Err(def.bad(&value.to_string())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_reads_back_what_was_set() {
        for def in FLAGS {
            let mut settings = Settings::default();
            let base = settings.get(def.key).expect("flag of the table");
            let safe = def.safe_value(&base);
            settings.set(def.key, safe.clone()).expect("a safe value fits its flag");
            assert_eq!(settings.get(def.key).expect("flag of the table"), safe, "{}", def.key);
        }
    }

    #[test]
    fn plans_name_real_flags_and_values() {
        for plan in PLANS {
            for (key, value) in plan.changes {
                flag(key).and_then(|def| def.parse(value)).expect("a shipped plan is valid");
            }
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_what_is_allowed() {
        let refusal = flag("retry.max_attempts").and_then(|def| def.parse("9"));
        let words = refusal.expect_err("out of bounds").to_string();
        assert!(words.contains("a whole number from 1 to 4"), "{words}");
    }

    #[test]
    fn directions_look_at_the_safe_end() {
        let mode = flag("admission.mode").expect("known");
        let word = |text: &str| FlagValue::Word(text.to_owned());
        let base = word("enforce");
        assert_eq!(mode.direction(&base, &word("off"), &word("shadow")), Direction::Safer);
        assert_eq!(mode.direction(&base, &word("enforce"), &word("off")), Direction::Riskier);
        let depth = flag("queue.max_depth").expect("known");
        let number = FlagValue::Number;
        assert_eq!(
            depth.direction(&number(512.0), &number(512.0), &number(256.0)),
            Direction::Safer
        );
    }
}
