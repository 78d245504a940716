//! The lines of a recording: each is one JSON object with one key, which says what it is.
//!
//! Numbers of series stand in columns: distances between the series' numbers, and values as [`Cell`]s.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::flag::wire::SnapshotBody;
use crate::incident::Event;
use crate::ingest::{Alert, Alerts, Silence, SourceFacts};
use crate::signal::Mono;

use super::column::{Cell, column};
use super::frame::{from_nanoseconds, nanoseconds};

/// The first line: what was recorded, by what. Holds no secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The weir that wrote it.
    pub weir: String,
    /// What was watched (`watch`, `drill launch-0900`).
    pub title: String,
    /// The environment.
    pub environment: String,
    /// When the run began, on the calendar.
    pub started: DateTime<Utc>,
    /// Facts of the configuration: scenario, seed and the like.
    #[serde(default)]
    pub facts: std::collections::BTreeMap<String, String>,
    /// Every source, in the order of the screen.
    pub sources: Vec<SourceLine>,
    /// The moment that times are counted from when a person names one.
    #[serde(default)]
    pub zero_ns: u64,
    /// The moment that the recording is shown from; what lies before only leads up to it.
    #[serde(default)]
    pub from_ns: u64,
    /// What was replaced, when names were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymised: Option<String>,
}

/// A source as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceLine {
    /// Its name on screen.
    pub name: String,
    /// Its address, without user and query.
    pub url: String,
    /// Host and port of the Prometheus that is asked in its place.
    pub via: Option<String>,
    /// The adapter that reads it.
    pub adapter: String,
    /// The adapter's file, where it is not one that ships with weir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter_file: Option<String>,
    /// From one time that it is asked to the next, in seconds.
    pub interval_s: f64,
    /// How long one answer may take, in seconds.
    pub timeout_s: f64,
}

impl SourceLine {
    /// A source and, where it is a person's own, the text of its adapter.
    #[must_use]
    pub fn new(facts: &SourceFacts, adapter_file: Option<String>) -> Self {
        Self {
            name: facts.name.clone(),
            url: bare_url(&facts.url),
            via: facts.via.clone(),
            adapter: facts.adapter.name.clone(),
            adapter_file,
            interval_s: facts.interval.as_secs_f64(),
            timeout_s: facts.timeout.as_secs_f64(),
        }
    }

    pub(super) fn interval(&self) -> Duration {
        Duration::try_from_secs_f64(self.interval_s).unwrap_or(Duration::from_secs(1))
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.timeout_s).unwrap_or(Duration::from_secs(1))
    }
}

/// A text with addresses, without their users, passwords and queries.
#[must_use]
pub fn bare_url(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        bare.push_str(before);
        bare.push_str("://");
        let end = after.find(|c: char| c.is_whitespace() || "\"'`)>,".contains(c));
        let (url, behind) = after.split_at(end.unwrap_or(after.len()));
        let path_at = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (authority, path) = url.split_at(path_at);
        bare.push_str(authority.rsplit('@').next().unwrap_or(authority));
        bare.push_str(path.split(['?', '#']).next().unwrap_or(path));
        rest = behind;
    }
    bare.push_str(rest);
    bare
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first of the file.
    Recording(Box<Header>),
    /// A source's instances.
    Instances(InstancesLine),
    /// Nobody knows them.
    Undiscovered(FailedLine),
    /// Series that get a number.
    Series(SeriesLine),
    /// What one page said.
    Scrape(ScrapeLine),
    /// A page that did not come.
    Failed(FailedLine),
    /// What a query API answered.
    Answered(AnsweredLine),
    /// It did not.
    Unanswered(FailedLine),
    /// What was known was put on the screen.
    Look(LookLine),
    /// The signals as they were shown.
    Shown(ShownLine),
    /// Counters that are compared over longer than a minute, beside what was shown.
    Marks(MarksLine),
    /// Something happened.
    Event(EventLine),
    /// Alerts and silences.
    Alerts(Box<AlertsLine>),
    /// The same alerts and silences, asked for anew.
    AlertsAgain(AlertsAgainLine),
    /// Scrapes that the recorder was too slow for.
    LeftOut(LeftOutLine),
}

/// A source's instances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstancesLine {
    /// The source's place in the header.
    pub s: usize,
    /// When they were known.
    pub at_ns: u64,
    /// Their names.
    pub names: Vec<String>,
}

/// Why something did not come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedLine {
    /// The source's place in the header.
    pub s: usize,
    /// The instance; empty for the only one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub i: String,
    /// When.
    pub at_ns: u64,
    /// How long it took.
    #[serde(default)]
    pub took_ns: u64,
    /// In words.
    pub why: String,
}

/// Series that get a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesLine {
    /// The source's place in the header.
    pub s: usize,
    /// The instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub i: String,
    /// Distances between their numbers.
    #[serde(deserialize_with = "column")]
    pub n: Vec<u32>,
    /// What they are called on a page.
    #[serde(deserialize_with = "column")]
    pub names: Vec<String>,
}

/// What one page said, as far as it is new.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrapeLine {
    /// The source's place in the header.
    pub s: usize,
    /// The instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub i: String,
    /// When it came.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
    /// Distances between the numbers of the series that changed.
    #[serde(deserialize_with = "column")]
    pub n: Vec<u32>,
    /// What they changed to.
    #[serde(deserialize_with = "column")]
    pub v: Vec<Cell>,
    /// In a key frame: numbers of series that left before, whose last value stands in `v` too.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "column")]
    pub gone: Vec<u32>,
    /// Lines that could not be read, as they stood there.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "column")]
    pub bad: Vec<String>,
    /// The page may have been cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Where counters of rare events stand, so that an hour of them can be counted without its scrapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarksLine {
    /// The source's place in the header.
    pub s: usize,
    /// The instance.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub i: String,
    /// When its newest page came.
    pub at_ns: u64,
    /// What the series are called on it.
    #[serde(deserialize_with = "column")]
    pub names: Vec<String>,
    /// What they say, counted from zero.
    #[serde(deserialize_with = "column")]
    pub v: Vec<Cell>,
}

/// What a query API answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnsweredLine {
    /// The source's place in the header.
    pub s: usize,
    /// When.
    pub at_ns: u64,
    /// The answer.
    pub answers: Json,
}

/// A look at everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookLine {
    /// When.
    pub at_ns: u64,
    /// When, on the calendar.
    pub wall: DateTime<Utc>,
}

/// The signals as they were shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownLine {
    /// When.
    pub at_ns: u64,
    /// By quota scope, without reasons and notes.
    pub scopes: Vec<SnapshotBody>,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventLine {
    /// When.
    pub at_ns: u64,
    /// When, on the calendar.
    pub wall: DateTime<Utc>,
    /// What.
    #[serde(flatten)]
    pub told: Told,
}

/// What happened, as it was told then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// An entry of the journal.
    Journal(Event),
    /// What a verdict became. Shown then; whoever reads the recording judges anew.
    Verdict {
        /// The quota scope.
        scope: String,
        /// The cause.
        cause: String,
        /// How sure it was.
        standing: String,
    },
    /// Something from elsewhere, in words.
    Notice(String),
}

impl Told {
    /// One line for a person.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Journal(event) => event.line(),
            Self::Verdict { cause, standing, .. } => format!("{cause} {standing} (shown then)"),
            Self::Notice(text) => text.clone(),
        }
    }
}

/// Scrapes that the recorder was too slow for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOutLine {
    /// How many, since the look before.
    pub count: u64,
}

/// Alerts and silences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertsLine {
    /// When they were shown first.
    pub at_ns: u64,
    /// Who told them.
    pub source: String,
    /// When they were asked for.
    pub asked_ns: Option<u64>,
    /// Why the newest question had no answer.
    pub error: Option<String>,
    /// The alerts.
    pub alerts: Vec<Alert>,
    /// The silences.
    pub silences: Vec<Silence>,
    /// Those that were not understood.
    pub left_out: usize,
    /// Those beyond the most that are kept.
    pub alerts_cut: usize,
}

/// The alerts and silences that were shown before, as an Alertmanager tells them still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlertsAgainLine {
    /// When they were shown.
    pub at_ns: u64,
    /// When they were asked for.
    pub asked_ns: u64,
}

impl AlertsLine {
    pub(super) fn new(alerts: &Alerts, at: Mono) -> Self {
        Self {
            at_ns: nanoseconds(at),
            source: alerts.source.to_string(),
            asked_ns: alerts.at.map(nanoseconds),
            error: alerts.error.as_deref().map(bare_url),
            alerts: alerts.alerts.clone(),
            silences: alerts.silences.clone(),
            left_out: alerts.left_out,
            alerts_cut: alerts.alerts_cut,
        }
    }

    pub(super) fn told(self) -> Alerts {
        Alerts {
            source: self.source.into(),
            at: self.asked_ns.map(from_nanoseconds),
            error: self.error,
            alerts: self.alerts,
            silences: self.silences,
            left_out: self.left_out,
            alerts_cut: self.alerts_cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_no_secret() {
        for (text, expected) in [
            ("http://gw:9000/metrics", "http://gw:9000/metrics"),
            ("https://me:word@gw/metrics?token=x#y", "https://gw/metrics"),
            ("at http://a@b/c (refused), https://d?e", "at http://b/c (refused), https://d"),
            ("no address", "no address"),
            ("://", "://"),
        ] {
            assert_eq!(bare_url(text), expected, "{text}");
        }
    }
}
