//! What a request brings into the queue, and what goes before it.

use super::lane::Lane;
use super::tenant::TenantId;
use crate::admission::events::RequestId;
use crate::signal::Mono;

/// Fewest tokens that a request is charged: for nothing, a tenant could start as many as it likes.
const TOKENS_MIN: f64 = 1.0;
/// Most tokens that a request is charged; above any model's context.
const TOKENS_MAX: f64 = 1e9;
/// Bounds of a weight: a tenant of weight zero would never be served, one of infinity always.
const WEIGHT_MIN: f64 = 1e-3;
const WEIGHT_MAX: f64 = 1e3;

/// What a request brings into the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticket {
    /// Who waits. Numbers grow with arrival.
    pub request: RequestId,
    /// In which lane.
    pub lane: Lane,
    /// Batch work that waits for production ingest; means nothing in the interactive lane.
    pub backfill: bool,
    /// Whose it is.
    pub tenant: TenantId,
    /// The tenant's weight among the others; the newest ticket's holds for all of a tenant's.
    pub weight: f64,
    /// When it arrived at the gate.
    pub arrived: Mono,
    /// When it is too late to start.
    pub deadline: Mono,
    /// What it will reserve.
    pub tokens: f64,
}

impl Ticket {
    /// With tokens and weight brought into their bounds; what is no number becomes the least.
    pub(super) fn within_bounds(self) -> Self {
        Self {
            tokens: within(self.tokens, TOKENS_MIN, TOKENS_MAX),
            weight: within(self.weight, WEIGHT_MIN, WEIGHT_MAX),
            ..self
        }
    }
}

/// Unlike `clamp` it makes a number of what is none.
pub(super) const fn within(value: f64, least: f64, most: f64) -> f64 {
    if value > least { value.min(most) } else { least }
}

/// Work that waits, or that leaves before somebody; an estimate, hence fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ahead {
    /// Requests.
    pub requests: f64,
    /// Their tokens.
    pub tokens: f64,
}

impl Ahead {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, tokens: self.tokens + other.tokens }
    }

    /// As much of it as fits into `tokens`.
    pub(super) fn at_most(self, tokens: f64) -> Self {
        if tokens >= self.tokens {
            return self;
        }
        let part = tokens.max(0.0) / self.tokens;
        Self { requests: self.requests * part, tokens: self.tokens * part }
    }
}
