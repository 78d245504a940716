//! weir: a terminal dashboard, runbooks and an admission gateway for rate-limit incidents.
//!
//! The rooms below are listed from the ground up. A room may use the rooms above it in this list
//! and never one below it; `tests/house.rs` checks the arrows and that the cores do no I/O.

pub mod signal;

pub mod dialect;

pub mod admission;

pub mod sim;

pub mod ingest;

pub mod diagnosis;

pub mod flag;

pub mod incident;

pub mod runbook;

pub mod gateway;

pub mod drill;

pub mod tui;

pub mod cli;
