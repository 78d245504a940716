//! What one meter of a quota allows: how much, in which window, counted in which way.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dialect::Meter;

/// How a provider counts a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Semantics {
    /// Refilled continuously, as OpenAI's and Anthropic's meters are.
    TokenBucket,
    /// At most the limit in any window, wherever it begins. What is assumed of a stranger: it is the
    /// strictest of the three.
    #[default]
    SlidingWindow,
    /// At most the limit in each window of the clock.
    FixedWindow,
}

/// One meter's limit, the configured share applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Which meter.
    pub meter: Meter,
    /// The most of it in one window.
    pub amount: f64,
    /// The window.
    pub window: Duration,
    /// How it is counted.
    pub semantics: Semantics,
    /// The most that may be used at once, in seconds of the mean rate.
    pub burst: Duration,
}

impl Limit {
    /// The mean rate, per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.amount / self.window.as_secs_f64()
    }
}
