//! Decides whether a request may go upstream now, later, or not at all.
//!
//! Reads no clock, sends nothing, knows no provider: `dialect` has already turned answers into
//! classes, hints and meters. [`Gate`] is the state machine; everything else is a part of it that
//! can be tested alone. The same gate runs behind sockets and under the virtual clock of a drill.

mod adaptive;
mod breaker;
mod bucket;
mod budget;
mod concurrency;
mod config;
mod counters;
mod counts;
mod estimate;
mod events;
mod gate;
#[cfg(test)]
mod gate_tests;
mod identity;
mod keeping;
mod limit;
mod meter;
mod pool;
mod queue;
mod recovery;
mod refusal;
mod retry;
mod said;
mod scope;
mod settings;
mod shared;
mod smoothed;
mod tenants;
mod window;

pub use adaptive::{Adaptive, Pause};
pub use breaker::{Breaker, OpenReason, Reopening, Spread, State as BreakerState, Thresholds};
pub use bucket::Bucket;
pub use budget::{Allowance, Budget, Reservation};
pub use concurrency::{Aimd, Crowding, Gradient, Limiter};
pub use config::{Permits, Policy, ScopeConfig, WithoutStore};
pub use counters::{
    Completion, Counters, Denied, Ending, Histogram, LATENCY_BOUNDS, RefusalKey, Stage,
    StoreCounters, TenantCounters,
};
pub use counts::Counts;
pub use events::{AttemptId, Effect, Head, Offer, RequestId, ScopeId};
pub use gate::{Gate, OtherScopes, guess_tokens};
pub use identity::{Attempted, CHAIN_MAX, ChainEntry, Identity, Original};
pub use keeping::Keeping;
pub use limit::{Limit, Semantics};
pub use meter::Metered;
pub use pool::Pool;
pub use queue::{Ahead, Lane, Queue, TenantId, Ticket};
pub use recovery::{Evidence as RampEvidence, Ramp, RampPlan};
pub use refusal::{Reason, Refusal};
pub use said::{Calls, MODELS_MAX, ModelPair, NOTICE_KEPT, Said};
pub use scope::{DatedReading, Scope};
pub use settings::{
    Direction, FLAGS, FlagDef, FlagError, FlagValue, Kind, Mode, NamedPlan, PLANS, RetryOwner,
    Safe, Settings, flag,
};
pub use shared::{
    Binding, Claim, Demand, Mirror, Outcome, Receipt, Report, Rules, SharedBreaker, Verdict,
};
