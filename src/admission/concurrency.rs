//! Decides how many calls of one scope may be open at the provider at once, apart from their rate.
//!
//! A provider's cap on open calls is seldom published and shared with strangers, so it is found by
//! trying. Only what says that too many calls are open lowers the limit: an overload (503, 529), a 429
//! for concurrency, a timeout. A 429 for the rate does not: pace and pause answer that.
//!
//! AIMD is the default. Both against the simulated provider, ceiling 64, five minutes, 66.7 requests a
//! second or more work than the provider can do (`cargo bench --bench concurrency`):
//!
//! | provider | limiter | answers/s | refused of 1,000 | keeps up after |
//! |---|---|---|---|---|
//! | default drill | AIMD, gradient | 65.8 | 0 | 0 s |
//! | answers of 0.5 s | AIMD | 65.7 | 0 | 0 s |
//! | | gradient | 65.7 | 0 | 15 s (until then p95 is 4.3 s) |
//! | answers of 0.05 to 1 s | AIMD | 65.7 | 0 | 1 s |
//! | | gradient | 65.7 | 0 | 23 s (p95 6.1 s) |
//! | cap of 32 | AIMD | 98.2 of 101.3 | 0.3 | 5 s |
//! | | gradient | 96.7 | 2.3 | 11 s |
//! | cap falls from 32 to 8 | AIMD | 25.6 of 26.5 | 37 | settled after 1 s |
//! | | gradient | 26.5 | 632 | 31 s |
//! | own server, slower by each call | AIMD | 53.1 | 0 | 1 s |
//! | | gradient | 52.4 | 0 | 11 s |
//!
//! Neither keeps the latency of an overloaded server of one's own low: with AIMD only a refusal or a
//! timeout shows the load, and the gradient's long average rises along with it.

use std::time::Duration;

use super::config::Permits;
use crate::signal::Mono;

mod aimd;
mod gradient;
#[cfg(test)]
mod tests;

pub use aimd::Aimd;
pub use gradient::Gradient;

/// Fewest permits: with none nothing would ever be learned.
const FLOOR: u32 = 1;

/// What the end of a call says about the number of open calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowding {
    /// It went well: there is room.
    Clean,
    /// Refused for concurrency: exactly one too many was open.
    Capped,
    /// An overload (503, 529) or a timeout: probably too many are open, by nobody knows how many.
    Overloaded,
    /// Nothing: any other refusal or fault, or its caller left.
    Unknown,
}

/// The limit on open calls of one scope.
#[derive(Clone, Debug, PartialEq)]
pub enum Limiter {
    /// Always the same.
    Fixed(u32),
    /// Found by refusals.
    Aimd(Aimd),
    /// Found by latency.
    Gradient(Gradient),
}

impl Limiter {
    /// The limiter of this kind, with at most `ceiling` permits.
    #[must_use]
    pub fn new(kind: Permits, ceiling: u32) -> Self {
        match kind {
            Permits::Fixed => Self::Fixed(ceiling),
            Permits::Aimd => Self::Aimd(Aimd::new(ceiling)),
            Permits::Gradient => Self::Gradient(Gradient::new(ceiling)),
        }
    }

    /// Another most, from now on; what was learned below it stays.
    pub fn set_ceiling(&mut self, ceiling: u32) {
        match self {
            Self::Fixed(limit) => *limit = ceiling,
            Self::Aimd(aimd) => aimd.set_ceiling(ceiling),
            Self::Gradient(gradient) => gradient.set_ceiling(ceiling),
        }
    }

    /// The gate begins to enforce with so many calls open: a limit far below them would refuse what the
    /// provider has just borne.
    pub fn begin_at(&mut self, in_flight: u32) {
        match self {
            Self::Fixed(_) => {}
            Self::Aimd(aimd) => aimd.begin_at(in_flight),
            Self::Gradient(gradient) => gradient.begin_at(in_flight),
        }
    }

    /// Calls that may be open now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        match self {
            Self::Fixed(limit) => (*limit).max(FLOOR),
            Self::Aimd(aimd) => aimd.limit(),
            Self::Gradient(gradient) => gradient.limit(),
        }
    }

    /// A call has ended that no permit was asked for: what the provider bears unlimited.
    pub fn passed_by(&mut self, crowding: Crowding, now: Mono) {
        if let Self::Aimd(aimd) = self {
            aimd.passed_by(crowding, now);
        }
    }

    /// A call has ended after `latency`; `in_flight` calls were open with it, itself counted.
    pub fn ended(&mut self, latency: Duration, crowding: Crowding, in_flight: u32, now: Mono) {
        match self {
            Self::Fixed(_) => {}
            Self::Aimd(aimd) => aimd.ended(latency, crowding, in_flight, now),
            Self::Gradient(gradient) => gradient.ended(latency, crowding, in_flight, now),
        }
    }
}

/// Whether a limit is in use: one that is not proves nothing and must not grow (the rule of Netflix's
/// concurrency-limits).
fn in_use(in_flight: u32, limit: u32) -> bool {
    in_flight.saturating_mul(2) >= limit
}
