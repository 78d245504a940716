//! What a round of polling yields: snapshots by scope and the state of every source.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::signal::{Mono, Snapshot};

/// How one source is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// Its name (`gateway`, `provider`, `clients`).
    pub name: String,
    /// Where it is read from.
    pub url: String,
    /// Host and port of the Prometheus that is asked in its place; `None` where its own pages are.
    pub via: Option<String>,
    /// When it last answered with a usable body; `None` before the first time.
    pub last_good: Option<Mono>,
    /// How old its numbers may be before they count no more, in seconds: by how often it is asked,
    /// or, of a Prometheus, how often that scrapes.
    pub stale_after_s: f64,
    /// The current error, in words that name the source; `None` when the last scrape was good.
    pub error: Option<String>,
    /// The last scrape was read in part: good lines were kept, these were bad (line, reason).
    pub degraded: Vec<(usize, String)>,
    /// What the source said about its own answer: warnings, hints, parts that are missing.
    pub warnings: Vec<String>,
    /// Instances behind it that answered last, and all of them; a single page is one of one.
    pub instances: (usize, usize),
    /// How long the last scrape took.
    pub took_s: f64,
    /// Samples in the last good scrape.
    pub samples: usize,
    /// Scrapes tried.
    pub polls: u64,
    /// Scrapes that failed.
    pub failures: u64,
}

/// One round of polling, immutable. The screen and the diagnosis read nothing else.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When, on the run's clock.
    pub at: Mono,
    /// When, on the calendar.
    pub wall: DateTime<Utc>,
    /// One snapshot per quota scope, by name of the scope. Empty before the first good scrape.
    pub scopes: Vec<Arc<Snapshot>>,
    /// Every source, in the order of the configuration.
    pub sources: Vec<SourceStatus>,
}
