//! Budget only: the gate's own budgets, and nothing that stands around them.
//!
//! No queue, no retries of the gate, no breaker, no adaptive rate: what does not fit at this instant is
//! refused, and the layers above do what they always do.

use crate::admission::{Permits, Policy, RetryOwner, ScopeConfig, Settings};

/// The settings of such a gate.
#[must_use]
pub fn settings() -> Settings {
    Settings {
        queue_max_depth: 0,
        queue_max_age_s: 0.0,
        retry_owner: RetryOwner::Client,
        adaptive: false,
        breaker: false,
        ..Settings::default()
    }
}

/// The scope of such a gate: its permits do not adapt either.
#[must_use]
pub fn scope(scope: ScopeConfig) -> ScopeConfig {
    ScopeConfig { policy: Policy { permits: Permits::Fixed, ..scope.policy }, ..scope }
}
