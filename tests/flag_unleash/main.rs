//! Flags in a real Unleash: what is read, what is written, and what is said when it goes wrong.

mod ill;
mod proxy;
mod racing;
mod server;
mod support;
mod values;
