//! Stages an incident from a scenario file, live on loopback or on the virtual clock, and reports it.
//!
//! Starts processes and speaks to them; decides nothing about requests and nothing about causes.

mod budget;
pub mod checks;
pub mod client_page;
pub mod clients_http;
pub mod compare;
mod fleet;
mod launcher;
pub mod live;
mod lost;
mod metrics_text;
mod observed;
mod parallel;
mod phases;
pub mod provider_http;
mod provider_page;
mod provider_wire;
mod report;
pub mod scenario;
#[cfg(test)]
mod signal_tests;
pub mod stage;
pub mod surge;
pub mod upstream;
pub mod virtual_run;

pub use observed::Totals;
pub use phases::{FlipError, Phase, TimedFlip, phases};
pub use report::{LedgerReport, PhaseReport, Report, Span, Stood, Verdicts};
