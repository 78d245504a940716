//! The road through a query API: an adapter's questions in `PromQL`, a server's answers as signals.
//!
//! For fleets that one machine cannot scrape, and for gateways that only Prometheus may reach.
//! Prometheus adds up (each counter per series, then by the labels that the adapter looks at), so that
//! a fleet's series never travel; weir does the arithmetic, the quantiles and the reasons, with the
//! code that evaluates its own scrapes. So one adapter file serves both roads and they agree: up to
//! Prometheus' extrapolation of a window to its ends, and up to one scrape interval of delay.

mod answer;
mod answers;
mod api;
mod error;
mod person;
mod promql;
mod questions;
mod select;
mod source;
mod targets;
#[cfg(test)]
mod tests;

pub use answer::{Answer, AnswerError, Data, Sample, Series, parse_answer};
pub use answers::Answers;
pub use api::{ANSWER_BYTES_MAX, Alert, PrometheusApi, Range, Reply, STEPS_MAX};
pub use error::{PrometheusError, PrometheusErrorKind};
pub use person::promql_of;
pub use select::{Select, SelectError};
pub use source::{PrometheusConfig, PrometheusSource};
pub use targets::Targets;
