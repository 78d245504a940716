//! The back-ends: where flags really live. Each says what it cannot do and never guesses an outcome.

mod etcd;
mod flagd;
mod http;
mod json_value;
mod layer;
mod weir_admin;

pub use etcd::{Etcd, EtcdLogin};
pub use flagd::{FLAGD_PREFIX, FlagdFile};
pub use http::{TIMEOUT, Token};
pub use weir_admin::{WeirAdmin, apply_body};
