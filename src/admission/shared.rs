//! What the gate and whoever keeps a scope's shared state say to each other. Sends nothing itself.
//!
//! Several instances of the gate that work for one scope keep its budgets, pause, rate factor and
//! breaker in one place. One claim is one round trip; so is one report. Time in a receipt is the
//! keeper's own, so that instances need no common clock.

use std::time::Duration;

use super::concurrency::Crowding;
use super::limit::Limit;
use crate::dialect::{Meter, MeterReading};

/// What one attempt takes from the meters of its scope.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Tokens of the request.
    pub input: f64,
    /// Tokens of the answer, as far as the provider counts them beforehand.
    pub output: f64,
}

impl Demand {
    /// Both kinds of tokens.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.input + self.output
    }

    /// The amount of one meter; zero of those that an attempt does not use up.
    #[must_use]
    pub fn of(&self, meter: Meter) -> f64 {
        match meter {
            Meter::Requests
            | Meter::RequestsPerSecond
            | Meter::RequestsPerHour
            | Meter::RequestsPerDay
            | Meter::RequestsPerMonth => 1.0,
            Meter::Tokens | Meter::TokensPerDay | Meter::TokensPerMonth => self.tokens(),
            Meter::InputTokens => self.input,
            Meter::OutputTokens => self.output,
            Meter::Concurrency | Meter::Spend => 0.0,
        }
    }
}

/// When the keeper granted a claim, by its clock, in microseconds: a settlement names it, so that
/// the charge is moved where the reservation was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipt(pub u64);

/// One instance asks to start one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What it takes.
    pub demand: Demand,
    /// The limits in force, the configured share applied, the rate factor not.
    pub limits: Vec<Limit>,
    /// Calls that this instance has open now, this one not counted. Absolute, so that nothing leaks.
    pub in_flight: u32,
    /// Most calls open over all instances, if the scope has such a limit.
    pub in_flight_max: Option<u32>,
    /// Whether a half-open or open breaker and the rate factor are to be obeyed.
    pub rules: Rules,
}

impl Claim {
    /// A report that moves nothing, to hear the shared state without asking for anything.
    #[must_use]
    pub fn idle_report(&self) -> Report {
        Report {
            receipt: None,
            reserved: self.demand,
            charged: None,
            outcome: Outcome::Neither,
            readings: Vec::new(),
            limits: self.limits.clone(),
            in_flight: self.in_flight,
            rules: self.rules,
        }
    }
}

/// The rules of the shared state; the same in every instance of one configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// `breaker.enabled`
    pub breaker: bool,
    /// Faults in a row that open it.
    pub faults_in_row: u32,
    /// `adaptive.enabled`
    pub adaptive: bool,
    /// An instance that is silent for longer is gone: its open calls and its share come back.
    pub lease: Duration,
}

/// What an ended attempt says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// A result.
    Good,
    /// The provider failed.
    Fault {
        /// It said, or showed by its silence, that it has more to do than it can.
        overload: bool,
    },
    /// The provider refused; the scope pauses for so long.
    Throttled {
        /// How long nobody may start.
        pause: Duration,
        /// The meter that is empty, if it was named.
        meter: Option<Meter>,
    },
    /// The account is dead until a person acts.
    Exhausted,
    /// Nothing about the provider: the caller left, or the request was wrong.
    Neither,
}

impl Outcome {
    /// Whether it speaks against the rate, or for it; `None` where it says nothing about the rate.
    #[must_use]
    pub fn is_refusal_for_rate(&self) -> Option<bool> {
        match self {
            Self::Good => Some(false),
            Self::Throttled { meter, .. } => (*meter != Some(Meter::Concurrency)).then_some(true),
            // An overload is not about our quota: sent at half the pace, a provider that fails two of
            // five calls fails two of five. Permits and breaker answer it.
            Self::Fault { .. } | Self::Exhausted | Self::Neither => None,
        }
    }
}

impl Outcome {
    /// What it says about the number of open calls.
    #[must_use]
    pub fn crowding(&self) -> Crowding {
        match self {
            Self::Good => Crowding::Clean,
            Self::Fault { overload: true } => Crowding::Overloaded,
            Self::Throttled { meter: Some(Meter::Concurrency), .. } => Crowding::Capped,
            _ => Crowding::Unknown,
        }
    }
}

/// One instance tells how an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The claim's receipt; `None` where it was started without the keeper.
    pub receipt: Option<Receipt>,
    /// What was reserved.
    pub reserved: Demand,
    /// What the provider charged; `None`: nothing at all, not even the request.
    pub charged: Option<Demand>,
    /// How it ended.
    pub outcome: Outcome,
    /// The provider's own meters, if the answer told them.
    pub readings: Vec<MeterReading>,
    /// The limits in force, as in a claim.
    pub limits: Vec<Limit>,
    /// Calls that this instance has open now, this one no longer counted.
    pub in_flight: u32,
    /// The rules.
    pub rules: Rules,
}

/// The keeper's answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Start now.
    Granted(Receipt),
    /// Not now.
    Wait {
        /// Worth asking again after so long.
        at_least: Duration,
        /// What binds.
        why: Binding,
    },
}

/// What keeps an attempt from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// A meter of the quota.
    Meter(Meter),
    /// The provider asked everybody to wait.
    Pause,
    /// The breaker.
    Breaker,
}

/// The breaker as the keeper has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedBreaker {
    /// Calls pass.
    Closed,
    /// No call passes for so long.
    Open {
        /// Time left.
        left: Duration,
    },
    /// One probe is under way, or may start.
    HalfOpen {
        /// Whether one is under way.
        probing: bool,
    },
}

/// The shared state as it stood at the answer; every answer carries it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// Time left of the scope's pause.
    pub paused: Duration,
    /// The rate factor, 0..1.
    pub factor: f64,
    /// The breaker.
    pub breaker: SharedBreaker,
    /// Instances heard of within the lease, this one among them.
    pub instances: u32,
    /// Calls open over all instances.
    pub in_flight: u32,
    /// What is left of each meter, in the order of the limits.
    pub left: Vec<f64>,
}
