//! Stages an incident from a scenario file, live on loopback or on the virtual clock, and reports it.
//!
//! Starts processes and speaks to them; decides nothing about requests and nothing about causes.

mod budget;
pub mod client_page;
pub mod clients_http;
pub mod compare;
mod launcher;
pub mod live;
mod metrics_text;
mod phases;
pub mod provider_http;
mod provider_page;
mod provider_wire;
mod report;
pub mod scenario;
#[cfg(test)]
mod signal_tests;
pub mod stage;
pub mod upstream;
pub mod virtual_run;

pub use phases::{FlipError, Phase, TimedFlip, phases};
pub use report::{LedgerReport, PhaseReport, Report, Span, Verdicts};
