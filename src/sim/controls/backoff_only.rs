//! Backoff only: one layer retries, with exponential backoff and full jitter, and nothing is refused.
//!
//! Full jitter spreads a wait evenly over the whole backoff (AWS Architecture Blog, "Exponential Backoff
//! And Jitter"). A provider's hint is obeyed as it stands.

use crate::sim::layers::{SdkConfig, Stack};

/// The layers of a drill in which only the innermost retries.
#[must_use]
pub fn layers(layers: &Stack) -> Stack {
    layers.with_one_retrying(&sdk(1.0))
}

/// Three tries, 0.5 s doubling up to 8 s; up to `jitter_ratio` of a wait is taken off at random.
#[must_use]
pub const fn sdk(jitter_ratio: f64) -> SdkConfig {
    SdkConfig {
        tries: 3,
        base_s: 0.5,
        cap_s: 8.0,
        jitter_ratio,
        hint_max_s: 60.0,
        obeys_hints: true,
        obeys_should_retry: true,
    }
}
