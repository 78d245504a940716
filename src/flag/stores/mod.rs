//! The back-ends: where flags really live. Each says what it cannot do and never guesses an outcome.

mod envoy;
mod etcd;
mod flagd;
mod http;
mod json_value;
mod layer;
mod unleash;
mod weir_admin;

pub use envoy::{EnvoyFlag, EnvoyFlagError, EnvoyRuntime, EnvoyValue};
pub use etcd::{Etcd, EtcdLogin};
pub use flagd::{FLAGD_PREFIX, FlagdFile};
pub use http::{TIMEOUT, Token};
pub use unleash::{Unleash, UnleashPlace};
pub use weir_admin::{WeirAdmin, apply_body};
