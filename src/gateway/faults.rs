//! What is wrong with a gateway on purpose, for drills: carried out in its shell, around the gate.
//!
//! The gate itself knows of nothing. A gateway without `drill = true` takes no faults.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::shell::Ticket;
use crate::admission::{Demand, Head};
use crate::signal::Mono;
use crate::sim::gate::GateFaults;

/// Permits that leak at the most: each keeps its request in memory.
const LEAKED_MAX: usize = 100_000;

struct Leaks {
    random: Pcg64Mcg,
    /// Dropping one would give its permit back.
    kept: Vec<Ticket>,
}

/// The faults of one instance.
pub(super) struct Faults {
    config: GateFaults,
    leaks: Mutex<Leaks>,
    /// Held while the event loop stalls, so that requests stall one after the other.
    stall: Mutex<()>,
}

impl Faults {
    pub(super) fn new(config: GateFaults, seed: u64) -> Self {
        let random = Pcg64Mcg::seed_from_u64(seed);
        let leaks = Mutex::new(Leaks { random, kept: Vec::new() });
        Self { config, leaks, stall: Mutex::new(()) }
    }

    /// A first guess of tokens, as this gateway makes it.
    pub(super) fn guess(&self, guess: Demand) -> Demand {
        let factor = self.config.estimate_factor;
        Demand { input: guess.input * factor, output: guess.output * factor }
    }

    /// Whether what answers say of their usage is read.
    pub(super) fn reads_usage(&self) -> bool {
        self.config.reads_usage()
    }

    /// The head of an answer, as this gateway reads it.
    pub(super) fn read(&self, mut head: Head) -> Head {
        if !self.config.headers {
            head.meters.clear();
            head.meter = None;
        }
        head
    }

    /// Keeps the ticket of a good answer for ever, or gives it back.
    pub(super) fn leak(&self, ticket: Ticket, now: Mono) -> Option<Ticket> {
        let ratio = self.config.leak_ratio(now);
        if ratio <= 0.0 {
            return Some(ticket);
        }
        let mut leaks = self.leaks.lock().unwrap_or_else(PoisonError::into_inner);
        if leaks.kept.len() >= LEAKED_MAX || leaks.random.random::<f64>() >= ratio {
            return Some(ticket);
        }
        leaks.kept.push(ticket);
        None
    }

    /// Holds the thread up that runs the event loop: that is the fault.
    pub(super) fn stall(&self, now: Mono) {
        let stall = self.config.stall_now(now);
        if stall > Duration::ZERO {
            let _one_by_one = self.stall.lock().unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep(stall);
        }
    }
}
