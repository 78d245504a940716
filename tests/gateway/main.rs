//! The gateway over real sockets: what callers, the provider, operators and scrapers get from it.

mod answers;
mod apis;
mod binary;
mod clients;
mod draining;
#[path = "../eventually/mod.rs"]
mod eventually;
mod faults;
mod flags;
mod http2;
mod identity;
mod interlocks;
mod leaks;
mod leaving;
mod metrics;
mod on_purpose;
#[path = "../process/mod.rs"]
mod process;
mod provider_words;
mod refusals;
mod roles;
mod sdk;
mod served;
mod sockets;
mod support;
mod tls;
