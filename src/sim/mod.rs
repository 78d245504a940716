//! A provider, clients and arrivals made of arithmetic: the virtual drill, and what the live drill's
//! HTTP shells serve and send.
//!
//! Nothing here does I/O or reads a clock: time and answers are arguments, randomness is a seed, and
//! the same seed gives the same bits. `world` joins the parts on a virtual clock, with whatever gate is
//! put between them.

pub mod app;
pub mod arrivals;
mod behaviour;
mod bucket;
pub mod callers;
pub mod config;
pub mod controls;
mod day;
pub mod gate;
pub mod gated;
pub mod layers;
pub mod ledger;
mod meter;
pub mod model;
mod outcome;
pub mod provider;
mod quota;
mod ramp;
mod recent;
mod rng;
mod script;
pub mod workers;
pub mod world;
