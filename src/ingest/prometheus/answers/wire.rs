//! The answers of one poll as JSON, for recordings: what was understood, not what the server sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Answers;
use crate::ingest::adapter::{Aggregates, Groups};

/// Labels and value; a value is a string, so that it comes back to the bit.
type GroupRow = (Vec<(String, String)>, String);
type GroupRows = BTreeMap<String, Vec<GroupRow>>;

#[derive(Serialize, Deserialize)]
struct AnswersRow {
    window_s: Option<f64>,
    present: GroupRows,
    extrapolated: BTreeSet<String>,
    groups: GroupRows,
    newborn: GroupRows,
    silent: Option<String>,
    caveat: Option<String>,
    warnings: Vec<String>,
    instances: Option<(usize, usize)>,
    series: usize,
    age_s: f64,
    window_ns: u64,
    fresh_for_ns: u64,
    took_ns: u64,
}

impl Answers {
    /// The answers as JSON.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let Self { aggregates, silent, caveat, warnings, instances, series, age_s, .. } = self;
        let row = AnswersRow {
            window_s: aggregates.window_s,
            present: rows(&aggregates.present),
            extrapolated: aggregates.extrapolated.clone(),
            groups: rows(&aggregates.groups),
            newborn: rows(&aggregates.newborn),
            silent: silent.clone(),
            caveat: caveat.clone(),
            warnings: warnings.clone(),
            instances: *instances,
            series: *series,
            age_s: *age_s,
            window_ns: nanoseconds(self.window),
            fresh_for_ns: nanoseconds(self.fresh_for),
            took_ns: nanoseconds(self.took),
        };
        serde_json::to_value(row).unwrap_or_default()
    }

    /// Answers from what [`Self::to_json`] gave.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(json: Json) -> Result<Self, serde_json::Error> {
        let row: AnswersRow = serde_json::from_value(json)?;
        Ok(Self {
            aggregates: Aggregates {
                window_s: row.window_s,
                present: groups(row.present),
                extrapolated: row.extrapolated,
                groups: groups(row.groups),
                newborn: groups(row.newborn),
            },
            silent: row.silent,
            caveat: row.caveat,
            warnings: row.warnings,
            instances: row.instances,
            series: row.series,
            age_s: row.age_s,
            window: Duration::from_nanos(row.window_ns),
            fresh_for: Duration::from_nanos(row.fresh_for_ns),
            took: Duration::from_nanos(row.took_ns),
        })
    }
}

fn rows(all: &BTreeMap<String, Groups>) -> GroupRows {
    let row = |(labels, value): &(crate::signal::Labels, f64)| {
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        (labels.collect(), value.to_string())
    };
    all.iter().map(|(name, groups)| (name.clone(), groups.iter().map(row).collect())).collect()
}

/// A value that is no number is left out: unknown, and never zero.
fn groups(all: GroupRows) -> BTreeMap<String, Groups> {
    let group =
        |(labels, value): GroupRow| Some((labels.into_iter().collect(), value.parse().ok()?));
    let of = |rows: Vec<GroupRow>| rows.into_iter().filter_map(group).collect();
    all.into_iter().map(|(name, rows)| (name, of(rows))).collect()
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_wire() {
        let labels = [("scope", "openai/embed"), ("status", "429")].into_iter().collect();
        let grouped = |value| BTreeMap::from([("m".to_owned(), vec![(labels, value)])]);
        let answers = Answers {
            aggregates: Aggregates {
                window_s: Some(60.0),
                groups: grouped(0.1 + 0.2),
                ..Aggregates::default()
            },
            silent: None,
            caveat: Some("1 of 2 instances".to_owned()),
            warnings: vec!["w".to_owned()],
            instances: Some((1, 2)),
            series: 7,
            age_s: 3.25,
            window: Duration::from_mins(1),
            fresh_for: Duration::from_secs(45),
            took: Duration::from_millis(12),
        };
        assert_eq!(Answers::from_json(answers.to_json()).expect("own output"), answers);
        assert!(Answers::from_json(Json::Null).is_err());
    }
}
