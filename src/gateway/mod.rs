//! The HTTP shell of the admission service: proxy, admin API, metrics.
//!
//! Carries bytes and time to `admission` and its decisions back; decides nothing itself.

mod admin;
mod admin_deferred;
mod admin_plan;
mod admin_token;
mod calm;
mod config;
mod config_scope;
mod config_store;
mod config_transport;
mod config_upstream;
mod deferred;
mod faults;
mod health;
mod judge;
mod keeping;
mod lines;
mod metrics;
mod overrides;
mod page;
mod proxy;
mod relay;
mod reload;
mod secrets;
mod server;
mod shell;
pub mod store;
mod tally;
mod tls;
mod upstream;
mod wire;

pub use admin_token::{AdminTokenConfig, Role};
pub use config::{
    ConfigError, FlagScalar, GatewayConfig, KeyConfig, ScopeEntry, TlsConfig, TransportConfig,
    UpstreamConfig, UpstreamKind, base_settings, flag_value, scopes,
};
pub use deferred::{DeferredConfig, DeferredLane};
pub use metrics::{Facts, render};
pub use overrides::{Expiry, Known, Overrides};
pub use reload::Reloader;
pub use server::{Gateway, StartError};
pub use tally::Tally;
