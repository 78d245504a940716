//! What happened: the typed events of an incident, and the journal that keeps them.
//!
//! The journal is evidence. It is only ever appended to, and it never holds a secret: events carry
//! flags, values, names and reasons, and nothing of a request.

mod chain;
mod diagnoses;
mod elsewhere;
mod event;
mod flips;
mod hindsights;
mod journal;
mod reconcile;
pub mod recording;

pub use chain::{Entry, Head};
pub use diagnoses::Diagnoses;
pub use elsewhere::keep_elsewhere;
pub use event::{Event, FlipNotes};
pub use flips::{CLAIM_S, Claim, Follow, SOMEBODY, changed, claim, history, timers};
pub use hindsights::{Earlier, KEPT_MAX, earlier, keep, place_beside};
pub use journal::{
    Anchor, Anchored, Found, Journal, JournalError, LINE_BYTES_MAX, check_anchors, contains_hash,
    default_path, read, verify,
};
pub use reconcile::{reconcile, settled, unsettled};
