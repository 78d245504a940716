//! The three tables `[layers.sdk]`, `[layers.wrapper]` and `[layers.frontend]` of a scenario: a stack
//! that needs no names.
//!
//! Their defaults are those of the default drill: the OpenAI SDK, a retry helper that does hear a stop,
//! and a person of whom one in five asks again.

use serde::Deserialize;

use crate::sim::config::{ConfigError, within};
use crate::sim::layers::backoff::{Backoff, Jitter};
use crate::sim::layers::causes::Causes;
use crate::sim::layers::hints::{Hints, Source};
use crate::sim::layers::policy::{MarkKind, Obedience, Policy, Wait};

/// Names of the three, outermost first.
pub const CLASSIC_LAYERS: [&str; 3] = ["frontend", "wrapper", "sdk"];
/// Most tries that one layer may be told to make.
const TRIES_MAX: f64 = 20.0;
/// Longest wait that a layer may be told to make.
const WAIT_S_MAX: f64 = 3_600.0;

/// The retry policy of every layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayersConfig {
    /// Innermost.
    pub sdk: SdkConfig,
    /// Around it.
    pub wrapper: WrapperConfig,
    /// Outermost.
    pub frontend: FrontendConfig,
}

impl LayersConfig {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    /// The first key whose value is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let tries = "tries are counted from 1 to 20, the first included";
        within("sdk.tries", f64::from(self.sdk.tries), 1.0, TRIES_MAX, tries)?;
        within("wrapper.tries", f64::from(self.wrapper.tries), 1.0, TRIES_MAX, tries)?;
        let resubmits = f64::from(self.frontend.resubmits);
        within("frontend.resubmits", resubmits, 0.0, TRIES_MAX, "0 to 20")?;
        for (key, seconds) in [
            ("sdk.base_s", self.sdk.base_s),
            ("sdk.cap_s", self.sdk.cap_s),
            ("sdk.hint_max_s", self.sdk.hint_max_s),
            ("wrapper.base_s", self.wrapper.base_s),
            ("frontend.after_s", self.frontend.after_s),
        ] {
            within(key, seconds, 0.0, WAIT_S_MAX, "seconds from 0 to 3600")?;
        }
        for (key, share) in [
            ("sdk.jitter_ratio", self.sdk.jitter_ratio),
            ("frontend.probability", self.frontend.probability),
        ] {
            within(key, share, 0.0, 1.0, "a share from 0 to 1")?;
        }
        Ok(())
    }

    /// The layers with their names, outermost first.
    pub(super) fn policies(&self) -> [(&'static str, Policy); 3] {
        [
            (CLASSIC_LAYERS[0], self.frontend.policy()),
            (CLASSIC_LAYERS[1], self.wrapper.policy()),
            (CLASSIC_LAYERS[2], self.sdk.policy()),
        ]
    }
}

/// An SDK's own retries.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SdkConfig {
    /// Requests per call, the first included.
    pub tries: u32,
    /// First wait without a hint; doubles.
    pub base_s: f64,
    /// Longest wait without a hint.
    pub cap_s: f64,
    /// Up to this share is taken off a wait at random.
    pub jitter_ratio: f64,
    /// Longest hint that is obeyed.
    pub hint_max_s: f64,
    /// Whether `retry-after-ms` and `retry-after` are read.
    pub obeys_hints: bool,
    /// Whether `x-should-retry` is read.
    pub obeys_should_retry: bool,
}

impl Default for SdkConfig {
    fn default() -> Self {
        Self {
            tries: 3,
            base_s: 0.5,
            cap_s: 8.0,
            jitter_ratio: 0.25,
            hint_max_s: 60.0,
            obeys_hints: true,
            obeys_should_retry: true,
        }
    }
}

impl SdkConfig {
    pub(super) fn policy(&self) -> Policy {
        let sources = [Source::RetryAfterMs, Source::RetryAfter];
        let should_retry =
            if self.obeys_should_retry { Obedience::Obeys } else { Obedience::Ignores };
        Policy {
            tries: self.tries,
            should_retry,
            wait: Wait::Backoff(Backoff {
                base_s: self.base_s,
                cap_s: self.cap_s,
                jitter: Jitter::Minus(self.jitter_ratio),
                ..Backoff::NONE
            }),
            hints: Hints {
                sources: if self.obeys_hints { sources.to_vec() } else { Vec::new() },
                max_s: self.hint_max_s,
                ..Hints::default()
            },
            mark: MarkKind::Stainless,
            ..Policy::once()
        }
    }
}

/// A retry helper around the SDK.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WrapperConfig {
    /// SDK calls per submission, the first included.
    pub tries: u32,
    /// First wait; doubles.
    pub base_s: f64,
    /// Goes on although the answer said `x-should-retry: false`.
    pub deaf: bool,
}

impl Default for WrapperConfig {
    fn default() -> Self {
        Self { tries: 3, base_s: 0.5, deaf: false }
    }
}

impl WrapperConfig {
    fn policy(&self) -> Policy {
        Policy {
            tries: self.tries,
            should_retry: if self.deaf { Obedience::Ignores } else { Obedience::Stops },
            wait: Wait::Backoff(Backoff { base_s: self.base_s, ..Backoff::NONE }),
            ..Policy::once()
        }
    }
}

/// The person or page in front.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrontendConfig {
    /// How often a failed submission is made again at most.
    pub resubmits: u32,
    /// How likely each time.
    pub probability: f64,
    /// After how long.
    pub after_s: f64,
}

impl Default for FrontendConfig {
    fn default() -> Self {
        Self { resubmits: 1, probability: 0.2, after_s: 3.0 }
    }
}

impl FrontendConfig {
    fn policy(&self) -> Policy {
        Policy {
            tries: self.resubmits + 1,
            retries: Causes::all(),
            probability: Some(self.probability),
            wait: Wait::Backoff(Backoff { base_s: self.after_s, factor: 1.0, ..Backoff::NONE }),
            ..Policy::once()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        let mut config = LayersConfig::default();
        assert_eq!(config.check(), Ok(()));
        config.sdk.tries = 20;
        assert_eq!(config.check(), Ok(()));
        config.sdk.tries = 21;
        assert_eq!(config.check().expect_err("too many").key, "sdk.tries");
    }
}
