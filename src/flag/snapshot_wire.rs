//! `GET /admin/v1/snapshot` on the wire: the catalogue's signals as one instance sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::signal::{Quality, Reading, Snapshot, Value};

/// One signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadingRow {
    /// The value in the catalogue's unit.
    pub value: Json,
    /// `exact`, `lower-bound` or `inferred`.
    pub quality: String,
    /// Where it was read.
    pub source: String,
    /// Seconds since it was read.
    pub age_s: f64,
    /// A remark.
    pub note: Option<String>,
}

/// One quota scope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotBody {
    /// The scope.
    pub scope: String,
    /// What rates are taken over.
    pub window_s: f64,
    /// What is known.
    pub signals: BTreeMap<String, ReadingRow>,
    /// What is not, and why.
    pub absent: BTreeMap<String, String>,
}

/// Every scope of one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotsBody {
    /// The scopes.
    pub scopes: Vec<SnapshotBody>,
}

impl<'a> FromIterator<&'a Snapshot> for SnapshotsBody {
    fn from_iter<I: IntoIterator<Item = &'a Snapshot>>(snapshots: I) -> Self {
        Self { scopes: snapshots.into_iter().map(SnapshotBody::from).collect() }
    }
}

impl SnapshotsBody {
    /// The snapshots. A value that is no signal value (null) stays unknown.
    #[must_use]
    pub fn into_snapshots(self) -> Vec<Snapshot> {
        self.scopes.into_iter().map(Snapshot::from).collect()
    }
}

impl From<&Snapshot> for SnapshotBody {
    fn from(snapshot: &Snapshot) -> Self {
        let row = |reading: &Reading| ReadingRow {
            value: to_json(&reading.value),
            quality: reading.quality.word().to_owned(),
            source: reading.source.to_string(),
            age_s: reading.age_s,
            note: reading.note.as_deref().map(str::to_owned),
        };
        Self {
            scope: snapshot.scope.clone(),
            window_s: snapshot.window_s,
            signals: snapshot
                .signals
                .iter()
                .map(|(name, reading)| (name.clone(), row(reading)))
                .collect(),
            absent: snapshot.absent.clone(),
        }
    }
}

impl From<SnapshotBody> for Snapshot {
    fn from(body: SnapshotBody) -> Self {
        let mut snapshot = Self::new(body.scope, body.window_s);
        snapshot.absent = body.absent;
        for (name, row) in body.signals {
            let Some(value) = from_json(row.value) else { continue };
            let quality = [Quality::Exact, Quality::LowerBound]
                .into_iter()
                .find(|quality| quality.word() == row.quality)
                .unwrap_or(Quality::Inferred);
            let reading = Reading {
                value,
                quality,
                source: Arc::from(row.source),
                age_s: row.age_s,
                note: row.note.map(Arc::from),
            };
            snapshot.signals.insert(name, reading);
        }
        snapshot
    }
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Number(number) => Json::from(*number),
        Value::Text(text) => Json::from(text.as_str()),
        Value::Bool(on) => Json::from(*on),
        Value::Map(map) => map.iter().map(|(name, value)| (name.clone(), to_json(value))).collect(),
        Value::List(list) => list.iter().map(to_json).collect(),
    }
}

fn from_json(json: Json) -> Option<Value> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(on) => Value::Bool(on),
        Json::Number(number) => Value::Number(number.as_f64()?),
        Json::String(text) => Value::Text(text),
        Json::Array(list) => Value::List(list.into_iter().filter_map(from_json).collect()),
        Json::Object(map) => Value::Map(
            map.into_iter().filter_map(|(name, json)| Some((name, from_json(json)?))).collect(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_the_wire() {
        let mut snapshot = Snapshot::new("openai/acct-1/embed", 10.0);
        let source = Arc::from("gateway");
        snapshot.set("amplification", Value::Number(9.3), &source);
        let state = Value::Map(BTreeMap::from([("state".to_owned(), Value::Text("open".into()))]));
        snapshot.set("breaker", state, &source);
        snapshot.absent.insert("reset_s".to_owned(), "the provider sends no reset".to_owned());
        let wire = serde_json::to_string(&SnapshotsBody::from_iter([&snapshot])).expect("plain");
        let back: SnapshotsBody = serde_json::from_str(&wire).expect("own output");
        assert_eq!(back.into_snapshots(), [snapshot]);
    }

    #[test]
    fn null_is_unknown() {
        let body = r#"{"scopes":[{"scope":"s","window_s":10,"absent":{},"signals":{"tpm_headroom":
            {"value":null,"quality":"exact","source":"g","age_s":0,"note":null}}}]}"#;
        let body: SnapshotsBody = serde_json::from_str(body).expect("valid");
        assert_eq!(body.into_snapshots()[0].number("tpm_headroom"), None);
    }
}
