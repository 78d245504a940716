//! The gateway over real sockets: what callers, the provider, operators and scrapers get from it.

mod answers;
mod apis;
mod clients;
#[path = "../eventually/mod.rs"]
mod eventually;
mod faults;
mod flags;
mod identity;
mod interlocks;
mod leaving;
mod metrics;
mod on_purpose;
mod provider_words;
mod refusals;
mod roles;
mod sdk;
mod support;
