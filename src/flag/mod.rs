//! Reading and changing flags: stores, plans, interlocks. The only room that changes anything.
//!
//! A flip is always read, plan, confirm, carry out, verify. The rules (`interlock`, `plan`,
//! `verify`, `flip`, `unsettled`, `timer`) are pure; I/O is in the stores and in [`carry_out`].

mod condition;
mod event_wire;
#[cfg(test)]
pub(crate) mod fixture;
mod flip;
mod forecast;
mod history;
mod interlock;
mod original;
mod plan;
mod plan_wire;
mod snapshot_wire;
mod store;
mod stores;
mod timer;
mod trace;
mod types;
mod unsettled;
mod verify;
mod way_back;
pub mod wire;

pub use condition::{Compare, Condition, Finding};
pub use flip::{
    Conclusion, Effective, Flip, FlipEnd, FlipError, FlipLog, FlipReport, Intent, REREAD_EVERY,
    REREADS_MAX, Step, carry_out, on_disk,
};
pub use forecast::{
    Came, Demand, Forecast, HORIZON_S, Hindsight, Measure, NoForecast, Range, Record, Row, Where,
    forecast,
};
pub use history::{UNDO_OF, newest_in_force};
pub use interlock::{AMPLIFICATION_CALM, CLIENT_MULTIPLICATION_CALM, interlocks, is_ill_gate};
pub use original::{Link, Original};
pub use plan::{
    Confirmation, Evidence, PlanError, TTL_RISKY_S, TTL_S_MAX, TTL_SAFE_S, Terms, all_safe,
    confirmation, left_of, named, plan, undo, wanted,
};
pub use store::{
    Author, Capabilities, CompareAndSet, EventChange, EventKind, FlagEvent, Marks, Store,
    StoreError,
};
pub use stores::{
    EnvoyFlag, EnvoyFlagError, EnvoyRuntime, EnvoyValue, Etcd, EtcdLogin, FLAGD_PREFIX, FlagdFile,
    TIMEOUT, Token, Unleash, UnleashPlace, WeirAdmin, apply_body,
};
pub use timer::{Due, TIMER, Timed, Timers};
pub use trace::Past;
pub use types::{
    BROKE_GLASS, Change, FlagState, FlagTable, Guard, OnExpire, Outcome, Partly, Plan,
    PlannedChange, Revision,
};
pub use unsettled::{Settled, Unsettled};
pub use verify::{HOLD, Progress, Verify, WITHIN};
pub use way_back::WayBack;
