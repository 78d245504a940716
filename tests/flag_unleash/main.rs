//! Flags in a real Unleash: what is read, what is written, and what is said when it goes wrong.

#[path = "../eventually/mod.rs"]
mod eventually;
mod ill;
mod racing;
mod server;
#[path = "../stepping_proxy/mod.rs"]
mod stepping_proxy;
#[path = "../store_plans/mod.rs"]
mod store_plans;
mod support;
mod values;
