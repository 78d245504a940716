//! The original that a person asked for by its number: the question, and what came back.
//!
//! Asked once for each press of a key, and never again by itself: the gateway has other work.

use chrono::{DateTime, Utc};

use crate::flag::Original;

/// A question for an original.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its number.
    pub id: u64,
    /// What the gateway said, and when; `None` while it is asked.
    pub answer: Option<(DateTime<Utc>, Result<Original, String>)>,
}
