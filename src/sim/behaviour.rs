//! How a simulated provider behaves at an instant: what its steps so far add up to.

use std::time::Duration;

use crate::signal::Mono;
use crate::sim::config::{ErrorKind, ProviderConfig, ProviderStep};
use crate::sim::outcome::{Disguise, HintForm};

/// What the latency of a slow answer is multiplied with, unless a step says otherwise.
const SLOW_FACTOR: f64 = 10.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Behaviour {
    pub error_ratio: f64,
    pub error_kind: ErrorKind,
    /// What an overload asks to wait.
    pub error_hint: Option<Duration>,
    pub slow_down_ratio: f64,
    pub hard_quota: bool,
    /// Money left; means nothing where calls have no price.
    pub usd_left: f64,
    pub latency_factor: f64,
    pub slow_ratio: f64,
    pub slow_factor: f64,
    pub concurrency_cap: Option<u32>,
    pub max_request_tokens: Option<u64>,
    pub disguise: Disguise,
    pub hint_form: HintForm,
}

impl Behaviour {
    pub(super) fn new(config: &ProviderConfig) -> Self {
        Self {
            error_ratio: 0.0,
            error_kind: ErrorKind::default(),
            error_hint: None,
            slow_down_ratio: 0.0,
            hard_quota: false,
            usd_left: config.spend.map_or(0.0, |spend| spend.usd),
            latency_factor: 1.0,
            slow_ratio: 0.0,
            slow_factor: SLOW_FACTOR,
            concurrency_cap: config.concurrency_cap,
            max_request_tokens: config.max_request_tokens.map(std::num::NonZeroU64::get),
            disguise: Disguise::default(),
            hint_form: HintForm::default(),
        }
    }

    /// What a step does not name stays as it was.
    pub(super) fn apply(&mut self, step: &ProviderStep) {
        self.error_ratio = step.error_ratio.unwrap_or(self.error_ratio);
        self.error_kind = step.error_kind.unwrap_or(self.error_kind);
        if let Some(seconds) = step.error_hint_s {
            let wait = Mono::from_secs_f64(seconds).since_start();
            self.error_hint = (!wait.is_zero()).then_some(wait);
        }
        self.slow_down_ratio = step.slow_down_ratio.unwrap_or(self.slow_down_ratio);
        self.hard_quota = step.hard_quota.unwrap_or(self.hard_quota);
        self.usd_left = step.spend_usd.unwrap_or(self.usd_left);
        self.latency_factor = step.latency_factor.unwrap_or(self.latency_factor);
        self.slow_ratio = step.slow_ratio.unwrap_or(self.slow_ratio);
        self.slow_factor = step.slow_factor.unwrap_or(self.slow_factor);
        self.concurrency_cap = step.concurrency_cap.or(self.concurrency_cap);
        let longest = step.max_request_tokens.map(std::num::NonZeroU64::get);
        self.max_request_tokens = longest.or(self.max_request_tokens);
        self.disguise = step.disguise.unwrap_or(self.disguise);
        self.hint_form = step.hint.unwrap_or(self.hint_form);
    }
}
