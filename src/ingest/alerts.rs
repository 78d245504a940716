//! Alerts and silences as other systems tell them, in one form, bounded. Asks nobody.
//!
//! Alertmanager's v2 API and Prometheus' own alerts both become an [`Alert`]. What is not understood
//! is counted and left out; what is not known stays unknown.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::signal::Mono;

/// Alerts that are kept, the most severe first; the rest are counted.
pub const ALERTS_MAX: usize = 500;
/// Silences that are kept.
pub const SILENCES_MAX: usize = 500;
/// Labels of an alert that are kept.
const LABELS_MAX: usize = 40;
/// Characters of a text that are kept.
const TEXT_CHARS_MAX: usize = 200;
/// Alertmanager writes this where an end is not known.
const NO_TIME: i64 = 0;

/// How bad an alert says it is, by its `severity` label. Ordered from mild to bad; a word that is
/// not known stands between information and a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For the record.
    Info,
    /// Another word, or none.
    Other,
    /// Should be looked at.
    Warning,
    /// Wakes people.
    Critical,
}

impl Severity {
    /// By the words that rules commonly use.
    #[must_use]
    pub fn of(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "critical" | "crit" | "page" | "emergency" | "fatal" | "error" | "high" | "p1" => {
                Self::Critical
            }
            "warning" | "warn" | "major" | "medium" | "p2" | "ticket" => Self::Warning,
            "info" | "informational" | "notice" | "low" | "none" => Self::Info,
            _ => Self::Other,
        }
    }

    /// The word on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Other => "alert",
            Self::Info => "info",
        }
    }
}

/// What became of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertState {
    /// Its condition holds, not yet for long enough.
    Pending,
    /// Another alert stands for it.
    Inhibited,
    /// Somebody silenced it.
    Silenced,
    /// It fires.
    Firing,
}

impl AlertState {
    /// The word on screen.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Inhibited => "inhibited",
            Self::Silenced => "silenced",
            Self::Firing => "firing",
        }
    }
}

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Tells it from every other: its labels' fingerprint.
    pub id: String,
    /// `alertname`.
    pub name: String,
    /// How bad.
    pub severity: Severity,
    /// What became of it.
    pub state: AlertState,
    /// Its other labels, by name.
    pub labels: BTreeMap<String, String>,
    /// One sentence for a person.
    pub summary: Option<String>,
    /// Since when, as its sender says.
    pub since: Option<DateTime<Utc>>,
    /// The silences that hold it, by id.
    pub silenced_by: Vec<String>,
}

impl Alert {
    /// An alert of a Prometheus' own list, whose state is `pending` or `firing`.
    #[must_use]
    pub fn from_prometheus(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        state: &str,
        active_at: Option<&str>,
    ) -> Self {
        let mut alert = Self::of(labels, annotations, print_of(labels));
        alert.state = if state == "firing" { AlertState::Firing } else { AlertState::Pending };
        alert.since = active_at.and_then(instant);
        alert
    }

    fn of(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        id: String,
    ) -> Self {
        let severity = labels.get("severity").map_or(Severity::Other, |word| Severity::of(word));
        let text =
            ["summary", "message", "description"].iter().find_map(|key| annotations.get(*key));
        Self {
            id,
            name: labels
                .get("alertname")
                .map_or_else(|| "(no name)".to_owned(), |one| clipped(one)),
            severity,
            state: AlertState::Firing,
            labels: labels
                .iter()
                .filter(|(name, _)| !matches!(name.as_str(), "alertname" | "severity"))
                .take(LABELS_MAX)
                .map(|(name, value)| (clipped(name), clipped(value)))
                .collect(),
            summary: text.map(|text| clipped(text)),
            since: None,
            silenced_by: Vec::new(),
        }
    }
}

/// One silence that is in force or will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Its id.
    pub id: String,
    /// What it matches, such as `alertname="X"`.
    pub matchers: Vec<String>,
    /// Who.
    pub by: String,
    /// Why.
    pub comment: String,
    /// Until when.
    pub until: Option<DateTime<Utc>>,
}

/// What one system says about alerts, and how old that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alerts {
    /// Who says it.
    pub source: Arc<str>,
    /// The last good answer, on the run's clock; `None` before the first.
    pub at: Option<Mono>,
    /// Why the newest try failed.
    pub error: Option<String>,
    /// The alerts, those that fire first, the most severe of them first.
    pub alerts: Vec<Alert>,
    /// The silences.
    pub silences: Vec<Silence>,
    /// Alerts and silences beyond the bounds, or not understood.
    pub left_out: usize,
    /// Of these, alerts beyond [`ALERTS_MAX`]: whether one of them is over is not known.
    pub alerts_cut: usize,
}

impl Alerts {
    /// What `source` says at `at`, sorted and bounded. `unread` could not be understood.
    #[must_use]
    pub fn new(
        source: &Arc<str>,
        mut alerts: Vec<Alert>,
        mut silences: Vec<Silence>,
        unread: usize,
        at: Mono,
    ) -> Self {
        alerts.sort_by(|a, b| {
            let bad = |alert: &Alert| (alert.state, alert.severity);
            bad(b).cmp(&bad(a)).then_with(|| a.since.cmp(&b.since)).then_with(|| a.id.cmp(&b.id))
        });
        let alerts_cut = alerts.len().saturating_sub(ALERTS_MAX);
        let left_out = alerts_cut + silences.len().saturating_sub(SILENCES_MAX) + unread;
        alerts.truncate(ALERTS_MAX);
        silences.truncate(SILENCES_MAX);
        Self {
            source: Arc::clone(source),
            at: Some(at),
            error: None,
            alerts,
            silences,
            left_out,
            alerts_cut,
        }
    }

    /// The same, after a try that failed: what was known stays, with its age.
    #[must_use]
    pub fn failed(&self, why: String) -> Self {
        Self { error: Some(why), ..self.clone() }
    }

    /// How many alerts are in a state.
    #[must_use]
    pub fn count(&self, state: AlertState) -> usize {
        self.alerts.iter().filter(|alert| alert.state == state).count()
    }

    /// The most severe alert that fires, the longest-standing of them.
    #[must_use]
    pub fn worst(&self) -> Option<&Alert> {
        self.alerts.first().filter(|alert| alert.state == AlertState::Firing)
    }

    /// The silence of an id.
    #[must_use]
    pub fn silence(&self, id: &str) -> Option<&Silence> {
        self.silences.iter().find(|silence| silence.id == id)
    }
}

/// One row of `GET /api/v2/alerts`, as far as it is used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AlertRow {
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    fingerprint: String,
    #[serde(default)]
    starts_at: String,
    #[serde(default)]
    status: StatusRow,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusRow {
    state: String,
    silenced_by: Vec<String>,
    inhibited_by: Vec<String>,
}

/// One row of `GET /api/v2/silences`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SilenceRow {
    id: String,
    #[serde(default)]
    status: StatusRow,
    #[serde(default)]
    matchers: Vec<MatcherRow>,
    #[serde(default)]
    created_by: String,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    ends_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MatcherRow {
    name: String,
    value: String,
    #[serde(default)]
    is_regex: bool,
    /// Absent in answers from before matchers could be negated.
    is_equal: Option<bool>,
}

/// The alerts of an answer, and how many rows of it are no alert.
///
/// # Errors
/// When the answer is no list.
pub(super) fn read_alerts(body: &[u8]) -> Result<(Vec<Alert>, usize), serde_json::Error> {
    rows(body, |row: AlertRow| {
        let StatusRow { state, silenced_by, inhibited_by } = row.status;
        let id = Some(clipped(&row.fingerprint)).filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| print_of(&row.labels));
        let mut alert = Alert::of(&row.labels, &row.annotations, id);
        // The state word alone does not say by what it is held back.
        alert.state = match state.as_str() {
            _ if !silenced_by.is_empty() => AlertState::Silenced,
            _ if !inhibited_by.is_empty() => AlertState::Inhibited,
            "suppressed" => AlertState::Silenced,
            "unprocessed" => AlertState::Pending,
            _ => AlertState::Firing,
        };
        alert.since = instant(&row.starts_at);
        alert.silenced_by = silenced_by.iter().take(LABELS_MAX).map(|id| clipped(id)).collect();
        Some(alert)
    })
}

/// The silences of an answer that are not over, and how many rows of it are no silence.
///
/// # Errors
/// When the answer is no list.
pub(super) fn read_silences(body: &[u8]) -> Result<(Vec<Silence>, usize), serde_json::Error> {
    rows(body, |row: SilenceRow| {
        let matcher = |one: &MatcherRow| {
            let operator = match (one.is_equal.unwrap_or(true), one.is_regex) {
                (true, false) => "=",
                (false, false) => "!=",
                (true, true) => "=~",
                (false, true) => "!~",
            };
            clipped(&format!("{}{operator}\"{}\"", one.name, one.value))
        };
        (row.status.state != "expired").then(|| Silence {
            id: clipped(&row.id),
            matchers: row.matchers.iter().take(LABELS_MAX).map(matcher).collect(),
            by: clipped(&row.created_by),
            comment: clipped(&row.comment),
            until: instant(&row.ends_at),
        })
    })
}

/// The rows of a JSON list that have the form of `R`, as `read` takes them, and how many have not.
fn rows<R: for<'a> Deserialize<'a>, T>(
    body: &[u8],
    read: impl Fn(R) -> Option<T>,
) -> Result<(Vec<T>, usize), serde_json::Error> {
    let mut unread = 0;
    let mut found = Vec::new();
    for row in serde_json::from_slice::<Vec<Json>>(body)? {
        match serde_json::from_value(row) {
            Ok(row) => found.extend(read(row)),
            Err(_) => unread += 1,
        }
    }
    Ok((found, unread))
}

/// A fingerprint of labels, where the sender gives none.
fn print_of(labels: &BTreeMap<String, String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

fn instant(text: &str) -> Option<DateTime<Utc>> {
    let at = DateTime::parse_from_rfc3339(text).ok()?.with_timezone(&Utc);
    (at.timestamp() > NO_TIME).then_some(at)
}

/// A text as one line of bounded length: it ends up on a screen.
fn clipped(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(TEXT_CHARS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn alert(name: &str, severity: &str, status: &Json) -> Json {
        json!({
            "labels": { "alertname": name, "severity": severity, "job": "gw" },
            "annotations": { "summary": "line one\nline two" },
            "fingerprint": name,
            "startsAt": "2026-11-30T00:00:00.000Z",
            "status": status,
            "receivers": [{ "name": "x" }], "something_new": [1, 2],
        })
    }

    fn read(rows: &[Json]) -> Alerts {
        let (alerts, unread) = read_alerts(json!(rows).to_string().as_bytes()).expect("a list");
        Alerts::new(&Arc::from("am"), alerts, Vec::new(), unread, Mono::START)
    }

    #[test]
    fn the_worst_that_fires_comes_first_and_what_is_held_back_is_counted_apart() {
        let active = json!({ "state": "active", "silencedBy": [], "inhibitedBy": [] });
        let alerts = read(&[
            alert("slow", "warning", &active),
            alert("down", "page", &active),
            alert("quiet", "critical", &json!({ "state": "suppressed", "silencedBy": ["s1"] })),
            alert("under", "critical", &json!({ "state": "suppressed", "inhibitedBy": ["down"] })),
            alert("odd", "purple", &json!({ "state": "active" })),
            json!({ "labels": "none" }),
            json!(7),
        ]);
        let names: Vec<_> = alerts.alerts.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["down", "slow", "odd", "quiet", "under"]);
        assert_eq!(alerts.worst().map(|one| one.name.as_str()), Some("down"));
        let counts = [AlertState::Firing, AlertState::Silenced, AlertState::Inhibited]
            .map(|state| alerts.count(state));
        assert_eq!((counts, alerts.left_out), ([3, 1, 1], 2));
        assert_eq!(alerts.alerts[0].summary.as_deref(), Some("line one line two"));
        assert!(read(&[]).worst().is_none());
        assert!(read_alerts(b"{}").is_err() && read_alerts(b"").is_err());
    }

    #[test]
    fn silences_say_what_they_match_and_those_that_are_over_are_left_out() {
        let silence = |state: &str, matcher: Json| {
            json!({ "id": "s1", "status": { "state": state }, "matchers": [matcher],
                    "createdBy": "ada", "comment": "known", "endsAt": "2026-11-30T01:00:00Z" })
        };
        let rows = json!([
            silence("active", json!({ "name": "a", "value": "b", "isRegex": false })),
            silence(
                "pending",
                json!({ "name": "a", "value": "b.*", "isRegex": true, "isEqual": false })
            ),
            silence("expired", json!({ "name": "a", "value": "b" })),
        ]);
        let (silences, unread) = read_silences(rows.to_string().as_bytes()).expect("a list");
        let matchers: Vec<_> = silences.iter().map(|one| one.matchers[0].as_str()).collect();
        assert_eq!((matchers, unread), (vec!["a=\"b\"", "a!~\"b.*\""], 0));
    }

    #[test]
    fn a_prometheus_own_alert_is_the_same_kind_of_thing() {
        let labels = BTreeMap::from([("alertname".to_owned(), "x".to_owned())]);
        let none = BTreeMap::new();
        let since = Some("2026-11-30T00:00:00.5Z");
        let firing = Alert::from_prometheus(&labels, &none, "firing", since);
        assert_eq!((firing.name.as_str(), firing.state), ("x", AlertState::Firing));
        assert!(firing.since.is_some());
        let pending = Alert::from_prometheus(&labels, &none, "pending", Some("never"));
        assert_eq!((pending.state, pending.since), (AlertState::Pending, None));
    }

    #[test]
    fn a_flood_is_bounded() {
        let rows: Vec<Json> =
            (0..ALERTS_MAX + 3).map(|n| alert(&format!("a{n}"), "info", &json!({}))).collect();
        let alerts = read(&rows);
        assert_eq!((alerts.alerts.len(), alerts.left_out), (ALERTS_MAX, 3));
    }
}
