//! The back-ends: where flags really live. Each says what it cannot do and never guesses an outcome.

mod envoy;
mod http;
mod layer;
mod unleash;
mod weir_admin;

pub use envoy::{EnvoyFlag, EnvoyFlagError, EnvoyRuntime, EnvoyValue};
pub use http::{TIMEOUT, Token};
pub use unleash::{Unleash, UnleashPlace};
pub use weir_admin::{WeirAdmin, apply_body};
