//! Where a number comes from: which sources could say it, how each reads it, and the series behind it.
//!
//! Only what was read is told here, nothing is judged. Raw series are told as the source had them.

use std::sync::Arc;

use crate::signal::{Labels, Quality, Value};

use super::adapter::Verified;

/// Most series that are told of one reading; the others are counted.
pub const ORIGIN_SERIES_MAX: usize = 64;
/// Newest scrapes of which a series' values are told.
pub const RECENT_SCRAPES: usize = 60;

/// Where a signal of a quota scope comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The quota scope.
    pub scope: String,
    /// The signal.
    pub signal: String,
    /// Every source that has a way to read it, in the order in which they are believed.
    pub accounts: Vec<Account>,
}

/// What one source has to say about a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its name.
    pub source: Arc<str>,
    /// What its adapter reads, with the version.
    pub adapter: String,
    /// How sure the adapter's mapping is.
    pub verified: Verified,
    /// Seconds since the oldest of what it says.
    pub age_s: f64,
    /// Why it says nothing at all now.
    pub silent: Option<String>,
    /// Its word is the one that is shown.
    pub is_believed: bool,
    /// The ways to read it, the preferred one first.
    pub readings: Vec<HowRead>,
}

/// One way to read a signal, and what it comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct HowRead {
    /// Names of parts, empty for the whole, with the adapter's expression for each.
    pub expressions: Vec<(String, String)>,
    /// How far it can be trusted.
    pub quality: Quality,
    /// What the reader should know about it.
    pub note: Option<String>,
    /// What it comes to, or why it comes to nothing.
    pub outcome: Result<Value, String>,
    /// It is the one that the source goes by.
    pub is_taken: bool,
    /// Other signals that it is made of.
    pub signals: Vec<String>,
    /// The series behind it, of a reading that is taken; [`ORIGIN_SERIES_MAX`] at most.
    pub series: Vec<RawSeries>,
    /// Series that are not told.
    pub more: usize,
}

/// A series as its source had it last.
#[derive(Clone, Debug, PartialEq)]
pub struct RawSeries {
    /// The instance that has it; empty where there is one.
    pub instance: String,
    /// Its metric; what was asked for, where a query API has added up.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its value in the newest scrape; `None` where that did not have it.
    pub value: Option<f64>,
    /// Of a counter: what it gained, and in how many seconds.
    pub gained: Option<(f64, f64)>,
    /// Its values in the last scrapes, oldest first; `None` where a scrape did not have it.
    pub recent: Vec<Option<f64>>,
}
